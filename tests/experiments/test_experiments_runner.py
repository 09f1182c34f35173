"""Points are kept as they finish, resumed, and never mixed with those of another experiment."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_experiment import FakeRuns, fake_experiment

from tacit.cli.commands.reproduce_points import _line
from tacit.errors import InvalidInput, ProcessLost
from tacit.experiments import (
    PROFILES,
    Environment,
    Point,
    find_missing,
    load_experiment,
    parse_only,
    reproduce,
    restrict,
)
from tacit.experiments.runner import POINTS

WRITTEN = {"points.jsonl", "results.csv", "results.json", "figure.png", "figure.pdf", "finding.md"}

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def lines(folder):
    return [json.loads(line) for line in (folder / POINTS).read_text().splitlines()]


def test_all_points_run_and_everything_is_written(tmp_path):
    runs, reports = FakeRuns(), []
    done = reproduce(fake_experiment(runs), "laptop", tmp_path / "deep" / "one", on_progress=reports.append)
    assert len(runs.points) == 6
    assert {path.name for path in done.folder.iterdir()} == WRITTEN
    assert done.finding == "12 rows, 24 in all."
    table = list(csv.DictReader((done.folder / "results.csv").open()))
    assert len(table) == 12
    assert table[-1] == {"algorithm": "dsgt", "number": "2", "epsilon": "", "trial": "1", "doubled": "4"}
    document = json.loads((done.folder / "results.json").read_text())
    assert (document["points"], document["of"], len(document["rows"])) == (6, 6, 12)
    page = (done.folder / "finding.md").read_text()
    assert "Twice as much is more." in page
    assert "12 rows, 24 in all." in page
    assert [progress.done for progress in reports] == list(range(7))
    assert (reports[0].seconds, reports[0].timed, reports[-1].seconds) == (360.0, False, 0.0)


@pytest.mark.parametrize(("needs_gpu", "device"), [(True, "cpu"), (False, "cuda")])
def test_the_time_left_is_unknown_before_a_point_was_timed_on_a_gpu(tmp_path, needs_gpu, device):
    reports = []
    experiment = replace(fake_experiment(FakeRuns()), needs_gpu=lambda point: needs_gpu)
    reproduce(experiment, "laptop", tmp_path, environment=Environment(device=device), on_progress=reports.append)
    assert reports[0].seconds is None
    assert all(progress.timed and progress.seconds is not None for progress in reports[1:])
    assert _line("made-up", reports[0]) == "made-up: 0 of 6 points, time left not known yet"


def test_a_stopped_experiment_resumes_where_it_was(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        reproduce(fake_experiment(FakeRuns(stops_after=4)), "laptop", tmp_path)
    assert len(lines(tmp_path)) == 1 + 4
    runs = FakeRuns()
    done = reproduce(fake_experiment(runs), "laptop", tmp_path)
    assert runs.points == ["algorithm dsgt, number 1", "algorithm dsgt, number 2"]
    whole = reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path / "other")
    assert done.rows == whole.rows
    for name in WRITTEN:
        assert (tmp_path / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_several_processes_find_the_same(tmp_path):
    runs, reports = FakeRuns(), []
    done = reproduce(fake_experiment(runs), "laptop", tmp_path / "two", workers=2, on_progress=reports.append)
    assert runs.points == []  # others did
    assert done.rows == reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path / "one").rows
    assert [progress.done for progress in reports] == list(range(7))
    assert (reports[0].seconds, reports[-1].seconds) == (180.0, 0.0)


def test_what_processes_finished_before_one_failed_is_kept(tmp_path):
    with pytest.raises(RuntimeError, match="number 2"):
        reproduce(fake_experiment(FakeRuns(fails_at=2)), "laptop", tmp_path, workers=2)
    kept = lines(tmp_path)[1:]
    assert kept
    assert all(line["point"]["number"] < 2 for line in kept)


def test_a_process_that_is_killed_is_reported_in_a_sentence(tmp_path):
    with pytest.raises(ProcessLost, match="memory runs out; finished work is kept"):
        reproduce(fake_experiment(FakeRuns(dies_at=2)), "laptop", tmp_path, workers=2)
    assert all(line["point"]["number"] < 2 for line in lines(tmp_path)[1:])


def test_no_processes_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="workers is 0"):
        reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path, workers=0)


def test_a_torn_last_line_is_dropped_and_its_point_runs_again(tmp_path):
    reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    file = tmp_path / POINTS
    file.write_bytes(file.read_bytes()[:-7])
    runs = FakeRuns()
    assert reproduce(fake_experiment(runs), "laptop", tmp_path).finding == "12 rows, 24 in all."
    assert runs.points == ["algorithm dsgt, number 2"]
    assert len(lines(tmp_path)) == 1 + 6


@pytest.mark.parametrize("content", [b"", b'{"facts"'])
def test_a_file_without_a_whole_line_is_begun_anew(tmp_path, content):
    (tmp_path / POINTS).write_bytes(content)
    reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    assert len(lines(tmp_path)) == 1 + 6


def test_a_finished_folder_is_drawn_again_without_running(tmp_path):
    reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    (tmp_path / "figure.png").unlink()
    runs = FakeRuns()
    reproduce(fake_experiment(runs), "laptop", tmp_path)
    assert runs.points == []
    assert (tmp_path / "figure.png").exists()


def test_drawing_again_leaves_a_line_that_another_process_writes_alone(tmp_path):
    reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    file = tmp_path / POINTS
    file.write_bytes(file.read_bytes()[:-7])
    before = file.read_bytes()
    assert "finished so far: 5 of 6." in reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path, wanted=[]).finding
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("timed", "expected"),
    [
        (6, "6 of 6 points are here and took 12\u202fmin 6\u202fs in total"),
        (2, "6 of 6 points are here; the 2 that were timed took 4\u202fmin 2\u202fs in total"),
        (0, "6 of 6 points are here; none was timed"),
    ],
)
def test_a_page_ends_with_its_command_and_the_time_that_is_known(tmp_path, timed, expected):
    reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    facts, *points = lines(tmp_path)
    for number, point in enumerate(points):
        point["seconds"] = 121.0 if number < timed else None
    (tmp_path / POINTS).write_text("".join(json.dumps(each) + "\n" for each in (facts, *points)))
    reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    last = (tmp_path / "finding.md").read_text().splitlines()[-1]
    assert last == f"`tacit reproduce made-up --profile laptop` runs all of it: {expected}."


def test_points_of_something_else_are_refused(tmp_path):
    reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    before = (tmp_path / POINTS).read_bytes()
    with pytest.raises(InvalidInput, match=r"another experiment \(profile differ\)"):
        reproduce(fake_experiment(FakeRuns()), "paper", tmp_path)
    with pytest.raises(InvalidInput, match=r"another experiment \(experiment differ\)"):
        reproduce(fake_experiment(FakeRuns(), name="another"), "laptop", tmp_path)
    with pytest.raises(InvalidInput, match="does not have now"):
        reproduce(fake_experiment(FakeRuns(), numbers=2), "laptop", tmp_path)
    assert (tmp_path / POINTS).read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"hello\n", b'{"a": 1}\n', b'{"facts": {}}\n{"point": 3}\n', b"\xff\xfe\n", b"[]\n"]
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, content):
    (tmp_path / POINTS).write_bytes(content)
    with pytest.raises(InvalidInput, match="is not a file of points, or it is damaged"):
        reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    assert (tmp_path / POINTS).read_bytes() == content


def test_results_of_something_else_are_not_written_over(tmp_path):
    (tmp_path / "results.json").write_text("mine")
    with pytest.raises(InvalidInput, match="holds other results"):
        reproduce(fake_experiment(FakeRuns()), "laptop", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_some_points_may_come_first_and_the_finding_says_so(tmp_path):
    experiment = fake_experiment(FakeRuns())
    some = restrict(experiment.points("laptop"), {"algorithm": "dsgt"})
    done = reproduce(experiment, "laptop", tmp_path, wanted=some)
    assert done.finding == "Points finished so far: 3 of 6.\n\n6 rows, 12 in all."
    runs = FakeRuns()
    assert reproduce(fake_experiment(runs), "laptop", tmp_path).finding == "12 rows, 24 in all."
    assert all("dsgd" in each for each in runs.points)


def test_smoke_says_that_it_shows_no_trend(tmp_path):
    assert "no trend" in reproduce(fake_experiment(FakeRuns()), "smoke", tmp_path).finding


def test_only_restricts_points_by_value():
    points = fake_experiment(FakeRuns()).points(PROFILES[0])
    assert len(restrict(points, {})) == 6
    assert [point["number"] for point in restrict(points, {"algorithm": "DSGT"})] == [0, 1, 2]
    assert [point["algorithm"] for point in restrict(points, {"number": "1.0"})] == ["dsgd", "dsgt"]
    assert len(restrict(points, parse_only(["epsilon=none", " number = 2 "]))) == 2


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["algorithm"], "write KEY=VALUE"),
        (["=dsgt"], "write KEY=VALUE"),
        (["number=1", "number=2"], "names 'number' twice"),
        (["algoritm=dsgt"], "unknown setting 'algoritm'; did you mean 'algorithm'?"),
        (["algorithm=sgd"], "no point has algorithm=sgd; there are dsgd, dsgt"),
        (["number=many"], "no point has number=many; there are 0, 1, 2"),
        (["epsilon=1"], "no point has epsilon=1; there are none"),
    ],
)
def test_what_fits_no_point_is_refused(only, message):
    with pytest.raises(InvalidInput, match=message.replace("?", r"\?")):
        restrict(fake_experiment(FakeRuns()).points("laptop"), parse_only(only))


def test_points_are_distinguished_by_their_settings():
    assert Point.of(a=1, b=2.0).key == Point.of(b=2.0, a=1).key
    assert Point.of(a=1).key != Point.of(a="1").key
    assert Point.of(epsilon=None, t=0.5).describe(("epsilon", "t")) == "epsilon none, t 0.5"


@pytest.mark.parametrize("page", sorted(path.name for path in RESULTS.iterdir() if (path / POINTS).exists()))
def test_what_is_kept_in_the_pages_can_be_resumed(page):
    experiment = load_experiment(page)
    left, kept = find_missing(experiment, "laptop", experiment.points("laptop"), RESULTS / page)
    assert kept > 0
    assert len(left) + kept == len(experiment.points("laptop"))
