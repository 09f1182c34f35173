import math
from itertools import pairwise

import pytest
from made_runs import MACHINE, TIME
from tampering import edit_log, read_events, read_log, write_events, write_log

from tacit.privacy import Event, epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.report import RecordedRun, derive_spending
from tacit.report.wording import attacks
from tacit.report.wording import write_epsilon as shown


def test_epsilon_is_that_of_the_ledger(runs):
    """A summary states what the ledger of the real training said; the report must find the same by itself."""
    for name in ("dsgt", "dinno", "seeded", "alone"):
        run, spent = runs[name], derive_spending(runs[name])
        assert spent.per_agent == pytest.approx(run.summary["epsilon_per_agent"])
        assert spent.guarantee.epsilon == max(spent.per_agent)
        assert spent.stated == ceil_digits(spent.guarantee.epsilon)
        assert spent.agrees
        assert spent.guarantee.release == run.plan.release


def test_epsilon_grows_from_zero_to_the_budget(runs):
    spent = derive_spending(runs["dsgt"])
    assert spent.epsilons[0] == 0
    assert list(spent.epsilons) == sorted(spent.epsilons)
    assert 3.9 < spent.epsilons[-1] == spent.guarantee.epsilon <= spent.budget == 4
    assert (spent.moments[0].round, spent.moments[-1].round) == (0, 20)


def test_every_point_of_the_curve_is_the_accountants(runs):
    run, spent = runs["dsgt"], derive_spending(runs["dsgt"])
    for moment, value in zip(spent.moments, spent.epsilons, strict=True):
        event = Event(
            sample_rate=run.plan.sample_rates[spent.agent],
            noise_multiplier=run.plan.noise_multipliers[spent.agent],
            count=moment.queries,
        )
        assert value == epsilon([event], delta=run.plan.delta)


def test_the_other_adjacency_is_given_too(runs):
    spent = derive_spending(runs["dsgt"])
    assert spent.other.adjacency == "replace_one"
    assert 1.5 < spent.other.epsilon / spent.guarantee.epsilon < 3


def test_few_points_whatever_the_number_of_snapshots(folder):
    plan, first, *_ = read_events(folder)
    snapshots = [first | {"round": k, "queries": k // 10} for k in range(200)]
    write_events(folder, [plan | {"rounds": 200}, *snapshots])
    spent = derive_spending(RecordedRun.load(folder))
    assert 10 <= len(spent.moments) <= 12
    assert (spent.moments[0].round, spent.moments[-1].round) == (0, 199)


def test_a_curve_through_few_snapshots_bends_as_the_ledger_does(folder):
    plan, first, *_, last = [each for each in read_events(folder) if each["event"] in ("plan", "snapshot")]
    write_events(folder, [plan, first, last])
    spent = derive_spending(RecordedRun.load(folder))
    assert [moment.round for moment in spent.moments][:3] == [0, 1, 2]
    assert len(spent.moments) >= 10
    assert all(moment.queries == moment.round for moment in spent.moments)
    rises = [after - before for before, after in pairwise(spent.epsilons)]
    assert rises[0] > 2 * rises[-1] / (spent.moments[-1].round - spent.moments[-2].round)


def test_rounds_between_snapshots_that_asked_unevenly_are_left_out(folder):
    plan, first, *_, last = [each for each in read_events(folder) if each["event"] in ("plan", "snapshot")]
    write_events(folder, [plan, first | {"queries": 1}, last])
    spent = derive_spending(RecordedRun.load(folder))
    assert [moment.queries for moment in spent.moments] == [1, last["queries"]]


def test_lost_queries_are_part_of_epsilon_since_the_ledger_has_them(folder):
    before = derive_spending(RecordedRun.load(folder)).guarantee.epsilon
    events = read_events(folder)
    resume = {"event": "resume", "time": TIME, "round": 3, "lost_queries": 1, "machine": MACHINE}
    write_events(folder, [*events[:5], resume, *events[5:]])
    assert derive_spending(RecordedRun.load(folder)) is None  # the ledger has less than that
    record = folder.parent / "ledger.sqlite"
    edit_log(record, lambda row: row | {"allowed": 21} if row["kind"] == "open" else row)
    *before_the_end, end = read_log(record)
    write_log(record, [*before_the_end, {"kind": "query", "account": 1, "number": 21}, end])
    assert derive_spending(RecordedRun.load(folder)).guarantee.epsilon > before


def test_a_run_without_privacy_spends_nothing_that_has_a_number(runs):
    assert derive_spending(runs["open"]) is None


def test_an_epsilon_is_never_shown_as_less_than_it_is():
    assert shown(1.00001) == "1.001"
    assert shown(4.0) == "4"
    assert shown(0.0) == "0"
    assert shown(math.inf) == "∞"
    assert shown(12345.6) == "1.235e+04"


def test_bounds_on_attacks_are_those_of_the_definition():
    """Both error rates of any test satisfy TPR ≤ e^ε·FPR + δ and 1 − FPR ≤ e^ε·(1 − TPR) + δ; the best lies on a corner."""
    for value, delta in ((0.1, 0.0), (1.0, 1e-5), (4.0, 1e-3), (8.0, 0.0)):
        even, caught = attacks(value, delta)
        rates = [k / 10_000 for k in range(10_001)]

        def best(wrong, value=value, delta=delta):
            return min(math.exp(value) * wrong + delta, 1 - math.exp(-value) * (1 - wrong - delta), 1.0)

        assert even == pytest.approx(max((best(wrong) + 1 - wrong) / 2 for wrong in rates), abs=2e-3)
        assert caught == pytest.approx(best(0.01))
    assert attacks(2000.0, 1e-5) == (1.0, 1.0)
