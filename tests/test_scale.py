"""A thousand agents in one process, within 4 GiB; an agent's round takes no more work among many."""

import json
import resource
import sys

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


def calls_of_a_round(agents):
    """How many functions are called in one round, Python's own and built-in ones."""
    data = tacit.data.synthetic(4 * agents, features=3, classes=2, held_out=10).split(agents, tacit.data.IID())
    training = tacit.Training(
        algorithm=tacit.DSGT(),
        model=lambda: tacit.models.logistic((3,), 2),
        data=data,
        graph=tacit.graphs.ring(agents),
        privacy=tacit.Privacy(noise_multiplier=2.0, delta=1e-4, clip=1.0, lot_size=2),
        rounds=4,
        lr=0.5,
        evaluate_every=4,
        compile=False,
    )
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event in ("call", "c_call")

    with tacit.Session(training) as session:
        session.advance()
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            session.advance()
        finally:
            sys.setprofile(before)
    return calls


def test_work_grows_no_faster_than_the_number_of_agents():
    """Four times as many agents: at most four times the calls, where one loop over all agents for each would be sixteen times."""
    few, many = calls_of_a_round(50), calls_of_a_round(200)
    assert many < 4.5 * few
