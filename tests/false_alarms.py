"""How often sound code fails a test of chance. `python -m tests.false_alarms` adds it up over all tests, quick and slow, and prints a table.

A test that judges numbers drawn in secret says by `@pytest.mark.chance(1e-7)` with what probability, at most, one run of one of its cases
fails although nothing is wrong. All other tests have fixed seeds. `tests/conftest.py` keeps the rates of all that was collected, and sees
that a test which calls a statistical judgement without the mark can draw nothing in secret.
"""

import contextlib
import io
import sys
from collections import defaultdict
from inspect import isfunction
from pathlib import Path

import pytest

MOST = 1e-4
TESTS = str(Path(__file__).parent)
COLLECTED = pytest.StashKey[list[pytest.Item]]()
JUDGEMENTS = {
    *("kstest", "chisquare", "chi2", "binom", "binomtest", "pvalue", "isf"),
    *("judge", "NoiseCheck", "check_noise", "check_lots", "run_audit", "audit"),
}
COMMANDS = {"answer", "document", "CliRunner"}
"""Of the command line's tests: what runs a command that should succeed."""


def rates_of(items):
    """Return the rate of every collected case that has one."""
    declared = {item.nodeid: [mark.args for mark in item.iter_markers("chance")] for item in items}
    for name, marks in declared.items():
        for args in marks:
            if len(args) != 1 or not 0 < args[0] < MOST:
                raise pytest.UsageError(f"{name}: chance{args} must be one probability below {MOST:g}")
    return {name: sum(rate for (rate,) in marks) for name, marks in declared.items() if marks}


def judges_chance(test):
    """Say whether a test, or a function of the tests that it calls, uses anything that judges random numbers."""
    seen, left = set(), [test]
    while left:
        function = left.pop()
        if function in seen:
            continue
        seen.add(function)
        names, texts = _used(function.__code__)
        values = [function.__globals__[name] for name in names if name in function.__globals__]
        if JUDGEMENTS & names or ("audit" in texts | _texts(values) and COMMANDS & names):
            return True
        left += [each for each in values if isfunction(each) and each.__code__.co_filename.startswith(TESTS)]
    return False


def _used(code):
    """Return the names and texts in a function's code, and in that of functions inside."""
    names, texts = set(code.co_names), _texts(code.co_consts)
    for inner in code.co_consts:
        if hasattr(inner, "co_names"):
            more = _used(inner)
            names, texts = names | more[0], texts | more[1]
    return names, texts


def _texts(values):
    flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return {each for each in flat if isinstance(each, str)}


def table(rates, slow):
    """Return a line for each test, the largest sum first, then the sums of quick and slow tests and of both."""
    cases = defaultdict(list)
    for name, rate in rates.items():
        cases[name.partition("[")[0]].append(rate)
    rows = [(sum(each), len(each), name) for name, each in cases.items()]
    rows.sort(key=lambda row: (-row[0], row[2]))
    parts = {"quick": set(rates) - slow, "slow": set(rates) & slow, "all": set(rates)}
    rows += [(sum(rates[name] for name in part), len(part), which) for which, part in parts.items()]
    return [f"{'rate':>8}  cases  test", *(f"{rate:8.1e}  {count:5}  {name}" for rate, count, name in rows)]


class _Collected:
    def pytest_collection_finish(self, session):
        self.rates = rates_of(session.items)
        self.slow = {item.nodeid for item in session.items if item.get_closest_marker("slow")}


def main():
    found, said = _Collected(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-n", "0"], plugins=[found])
    if code:
        sys.exit(said.getvalue())
    print(*table(found.rates, found.slow), sep="\n")
    total = sum(found.rates.values())
    sys.exit(0 if total < MOST else f"the sum is {total:.1e}; it must be below {MOST:g}")


if __name__ == "__main__":
    main()
