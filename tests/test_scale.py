"""A thousand agents in one process, within 4 GiB."""

import json
import resource

import forked
import pytest

import tacit


def train(tell):
    data = tacit.data.synthetic(64_000, features=64, classes=10, held_out=200).split(1000, tacit.data.IID())
    result = tacit.train(
        tacit.DSGT(),
        model=lambda: tacit.models.mlp((64,), 10, hidden=(128,)),
        data=data,
        graph=tacit.graphs.ring(1000),
        privacy=tacit.Privacy(epsilon=8, delta=1e-4, clip=1.0, lot_size=16),
        rounds=3,
        lr=0.5,
        evaluate_every=3,
    )
    seen = {
        "params": result.theta.shape[1],
        "finite": bool(result.theta.isfinite().all()),
        "queries": [entry.event.count for entry in result.ledger.entries()],
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    tell(json.dumps(seen))


@pytest.mark.slow
def test_a_thousand_agents_on_a_ring_fit_in_4_gib():
    """In a process of its own, whose memory is that of this training and of what is imported."""
    process, said = forked.start(train)
    with said:
        seen = json.loads(said.read())
    process.join()
    assert seen["params"] == 9610
    assert seen["finite"]
    assert seen["queries"] == [3] * 1000
    assert seen["peak_gib"] < 4
