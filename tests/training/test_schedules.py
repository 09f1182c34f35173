from itertools import pairwise

import pytest
import torch

from tacit.errors import InvalidInput
from tacit.training.schedules import Constant, LogSpaced, as_schedule


def test_log_spaced_runs_from_start_to_finish_by_equal_factors():
    values = [LogSpaced(0.1, 0.001)(k, 5) for k in range(5)]
    assert values[0] == pytest.approx(0.1)
    assert values[-1] == pytest.approx(0.001)
    ratios = [after / before for before, after in pairwise(values)]
    assert ratios == pytest.approx([ratios[0]] * 4)
    assert LogSpaced(0.1, 0.001)(0, 1) == 0.1


def test_numbers_and_lists_become_schedules():
    assert as_schedule(0.3)(7, 9) == 0.3
    torch.testing.assert_close(as_schedule([0.1, 0.2])(0, 9), torch.tensor([0.1, 0.2], dtype=torch.float64))
    assert as_schedule(LogSpaced(1, 1))(3, 9) == 1


@pytest.mark.parametrize(
    "make",
    [lambda: LogSpaced(0, 1), lambda: LogSpaced(1, -1), lambda: Constant([0.1, 0]), lambda: Constant(float("inf"))],
)
def test_step_sizes_are_positive(make):
    with pytest.raises(InvalidInput, match="positive"):
        make()
