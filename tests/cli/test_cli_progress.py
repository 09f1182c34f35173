"""The progress of a run: plain lines where there is no terminal, a live table where there is one."""

import re
from io import StringIO
from pathlib import Path

from invoking import PLAIN, QUICK, one_line
from rich.console import Console

from tacit.cli.terminal.output import round_up
from tacit.cli.terminal.progress import _now, show_rounds
from tacit.runs import Runner
from tacit.runs.config import RunConfig

LINE = re.compile(
    r"round (\d+)/6: accuracy [\d.]+% mean, [\d.]+% worst, [\d.]+% best( on a sample of 100)?;\s+distance [\d.e+-]+;\s+ε per record ([\d.]+) of [\d.]+"
)


def test_every_snapshot_is_a_line_where_there_is_no_terminal(tacit):
    first, second, rest = tacit("train", *QUICK, "--evaluate-every", "2")[2].split("\n", 2)
    assert (first, second) == ("loading data …", "calibrating noise …")
    found = [LINE.fullmatch(look) for look in rest.rstrip().replace("\n  ", " ").splitlines()]
    assert max(map(len, rest.splitlines())) <= 80
    assert [match[1] for match in found] == ["0", "2", "4", "6"]
    assert [match[2] is not None for match in found] == [True, True, True, False], "all records in the end"
    spent = [float(match[3]) for match in found]
    assert spent == sorted(spent)
    assert spent[0] == 0 < spent[1]


def test_progress_with_masks_fits_80_columns_and_states_both_epsilons(tacit):
    code, printed, told = tacit("train", *QUICK, "--noise", "cancelling", "--graph", "complete", "--mask-ratio", "1")
    assert code == 0
    assert max(map(len, [*printed.splitlines(), *told.splitlines()])) <= 80
    last = told[told.index("round 6/6") :].replace("\n  ", " ")
    assert re.search(r"; ε per record [\d.]+ of [\d.]+ against any one other agent;", last)
    assert re.search(r"; ε per record [\d.]+ of [\d.]+ against everybody else together$", last.rstrip())


def test_quiet_and_json_show_no_progress(tacit):
    for option in ("--quiet", "--json"):
        code, _, told = tacit("train", *QUICK, option)
        assert (code, told) == (0, "")


def test_lines_of_a_run_without_privacy_guarantee_nothing(tacit):
    assert tacit("train", *PLAIN)[2].splitlines()[-1].endswith("; ε none")


def test_a_resumed_run_shows_new_snapshots_after_the_earlier_ones(tacit, tmp_path):
    config = RunConfig.of(
        {"agents": 4, "split": "0.5", "noise_multiplier": 3.0, "lot_size": 24, "rounds": 6, "evaluate_every": 2}
    )
    with Runner.start(tmp_path / "runs", "one", config) as runner:
        runner.play(stop=lambda: runner.session.round >= 3)
        before = runner.session.monitor.histories[0]
    with Runner.resume(tmp_path / "runs" / "one") as runner:
        again = runner.session.monitor.histories[0]
        assert [(look.round, look.accuracy.tolist()) for look in again] == [
            (look.round, look.accuracy.tolist()) for look in before
        ]
    run = tacit("resume", "one")[2]
    assert re.findall(r"round (\d+)/6", run) == ["4", "6"]


def test_the_live_table_counts_bytes_round_by_round_and_says_after_which_round_a_score_was_taken(tmp_path):
    config = RunConfig.of(
        {"agents": 4, "split": "0.5", "noise_multiplier": 3.0, "lot_size": 24, "rounds": 6, "model": "mlp"}
        | {"evaluate_every": 3}
    )
    shown, spent = [], {}
    with Runner.start(tmp_path / "runs", "one", config) as runner:
        runner.play(stop=lambda: False, on_round=lambda now: shown.append(text(_now(now))))
        spent = {round: round_up(runner.epsilon(round)) for round in (0, 3, 6)}
    present, looked, columns, _, scores = zip(*(view.splitlines() for view in shown), strict=True)
    sent = [in_bytes(line.split(" sent")[0]) for line in present]
    assert sent == sorted(set(sent))
    sample = ", accuracy on a sample of 100 validation records"
    after = [0, 0, 3, 3, 3, 6]
    assert list(looked) == [f"after round {round}{sample if round < 6 else ''}" for round in after]
    assert all(line.split()[3:] == ["distance", "ε", "per", "record", "of"] for line in columns)
    assert [line.split()[4] for line in scores] == [spent[round] for round in after]


def in_bytes(amount):
    number, unit = amount.split()
    return float(number) * {"bytes": 1, "kB": 1e3, "MB": 1e6}[unit]


def text(table):
    screen = Console(width=80)
    with screen.capture() as captured:
        screen.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


UNSCORED = """
import torch
import tacit

generator = torch.Generator().manual_seed(0)
inputs = torch.randn(240, 5, generator=generator)
DATA = tacit.data.DataSet.from_records(name="own", train=(inputs, torch.arange(240) % 3))
SUMS = tacit.data.DataSet.from_records(name="sums", train=(inputs, inputs.sum(1)), validation=(inputs, inputs.sum(1)))
Net = lambda: torch.nn.Sequential(torch.nn.Linear(5, 1), torch.nn.Flatten(0))
squares = lambda found, wanted: (found - wanted) ** 2
"""


def test_without_validation_records_the_plan_says_so_and_nothing_shows_scores(tacit, tmp_path):
    (tmp_path / "own.py").write_text(UNSCORED)
    code, printed, told = tacit("train", *QUICK[:2], *QUICK[4:], "--dataset", "own.py:DATA", "--split", "iid")
    assert code == 0, told
    assert "scoring none: the data has no validation records" in one_line(told + printed)
    assert re.search(r"^round 6/6: distance [\d.e+-]+; ε per record [\d.]+ of [\d.]+$", told, re.MULTILINE)
    for word in ("accuracy", "worst", "best", " - "):
        assert word not in told + printed


def test_models_without_classes_are_scored_by_their_loss(tacit, tmp_path):
    (tmp_path / "own.py").write_text(UNSCORED)
    parts = ("--dataset", "own.py:SUMS", "--model", "own.py:Net", "--loss", "own.py:squares", "--split", "iid")
    code, printed, told = tacit("train", *QUICK[:2], *QUICK[4:], *parts)
    assert code == 0, told
    assert re.search(r"^round 6/6: loss [\d.e+-]+ mean, [\d.e+-]+ worst, [\d.e+-]+ best", told, re.MULTILINE)
    assert "accuracy" not in told + printed


def test_numbers_of_rounds_have_thousands_separators(tacit):
    config = {"agents": 2, "split": "0.5", "noise_multiplier": 300.0, "lot_size": 24, "rounds": 2_000}
    with Runner.start(Path("runs"), "long", RunConfig.of(config)) as runner:
        screen = Console(file=StringIO(), width=80)
        with show_rounds(runner, screen, shown=True):
            pass
    assert screen.file.getvalue().startswith("round 0/2,000: accuracy ")
