"""How what a view reconstructs is compared with what was."""

import torch


def same(one, other, tolerance=1e-8):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
