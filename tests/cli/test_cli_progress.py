"""What is seen of a run while it is played: plain lines where there is no terminal, a live table where there is one."""

import re

from invoking import PLAIN, QUICK
from rich.console import Console

from tacit.cli.progress import _now
from tacit.config import RunConfig
from tacit.runs import Runner

LINE = re.compile(
    r"round (\d+)/6: accuracy [\d.]+% mean, [\d.]+% worst, [\d.]+% best( on a sample of 100)?; distance [\d.e+-]+; ε ([\d.]+) of [\d.]+"
)


def test_every_look_is_a_line_where_there_is_no_terminal(tacit):
    first, second, *lines = tacit("train", *QUICK, "--evaluate-every", "2")[2].splitlines()
    assert (first, second) == ("loading data …", "calibrating noise …")
    found = [LINE.fullmatch(line) for line in lines]
    assert [match[1] for match in found] == ["0", "2", "4", "6"]
    assert [match[2] is not None for match in found] == [True, True, True, False], "all records in the end"
    spent = [float(match[3]) for match in found]
    assert spent == sorted(spent)
    assert spent[0] == 0 < spent[1]


def test_quiet_and_json_say_nothing_on_the_way(tacit):
    for option in ("--quiet", "--json"):
        code, _, told = tacit("train", *QUICK, option)
        assert (code, told) == (0, "")


def test_lines_of_a_run_without_privacy_promise_nothing(tacit):
    assert tacit("train", *PLAIN)[2].splitlines()[-1].endswith("; ε none")


def test_a_resumed_run_shows_the_looks_that_follow_and_knows_those_before(tacit, tmp_path):
    config = RunConfig.of(
        {"agents": 4, "split": "0.5", "noise_multiplier": 3.0, "lot_size": 24, "rounds": 6, "evaluate_every": 2}
    )
    with Runner.start(tmp_path / "runs", "one", config) as runner:
        runner.play(stop=lambda: runner.session.round >= 3)
        before = runner.session.watch.histories[0]
    with Runner.resume(tmp_path / "runs" / "one") as runner:
        again = runner.session.watch.histories[0]
        assert [(look.round, look.accuracy.tolist()) for look in again] == [
            (look.round, look.accuracy.tolist()) for look in before
        ]
    told = tacit("resume", "one")[2]
    assert re.findall(r"round (\d+)/6", told) == ["4", "6"]


def test_the_live_table_counts_bytes_round_by_round_and_calls_the_distance_so(tmp_path):
    config = RunConfig.of(
        {"agents": 4, "split": "0.5", "private": False, "lot_size": 24, "rounds": 6, "model": "mlp"}
        | {"evaluate_every": 6}
    )
    shown = []
    with Runner.start(tmp_path / "runs", "one", config) as runner:
        runner.play(stop=lambda: False, on_round=lambda now: shown.append(text(_now(now))))
    assert all("distance" in table.split() for table in shown)
    assert ["accuracy on a sample of 100 validation records" in table for table in shown] == [True] * 5 + [False]
    sent = [float(table.splitlines()[-1].split()[-2]) for table in shown]
    assert sent == sorted(set(sent))


def text(table):
    screen = Console(width=80)
    with screen.capture() as captured:
        screen.print(table)
    return captured.get().rstrip()
