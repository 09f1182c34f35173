"""The promise as an assertion: with and without a record, every other record contributes the same to the bit."""

import torch

from tacit.privacy.gradients.clipping import Lot


def without(lot, place):
    """Return the lot less one record."""
    owner = int(torch.searchsorted(lot.offsets, place, right=True)) - 1
    rows = torch.arange(lot.size) if lot.rows is None else lot.rows
    offsets = lot.offsets.clone()
    offsets[owner + 1 :] -= 1
    return owner, lot._replace(rows=torch.cat([rows[:place], rows[place + 1 :]]), offsets=offsets)


def check_apart(engine, theta, lot: Lot, clip, leave_out) -> None:
    """Leave one record out at a time. Others' norms and other agents' sums stay as they are; its own agent's moves by C."""
    with torch.no_grad():
        whole = engine.clipped_sums(theta, lot, clip)
        assert whole.sums.isfinite().all()
        for place in leave_out:
            owner, less = without(lot, place)
            found = engine.clipped_sums(theta, less, clip)
            kept = torch.cat([whole.norms[:place], whole.norms[place + 1 :]])
            assert torch.equal(found.norms.nan_to_num(nan=-1), kept.nan_to_num(nan=-1)), f"norms without {place}"
            others = torch.arange(len(theta)) != owner
            assert torch.equal(found.sums[others], whole.sums[others]), f"another agent's sum without {place}"
            moved = float((found.sums[owner] - whole.sums[owner]).norm())
            assert moved <= float(clip[owner]), f"a sum moved by {moved / float(clip[owner])} of C without {place}"
