"""What benchmarks report: medians of sides that took turns, and ratios that are a rival's time divided by ours."""

import importlib.util
import json
import subprocess
import sys

import pytest

from benchmarks.report import Report, Row
from benchmarks.timing import Times, take_turns


def test_a_ratio_is_a_rivals_time_divided_by_ours():
    times = Times({"ours": [3.0, 1.0, 2.0], "rival": [8.0, 100.0, 6.0]}, per={"rival": 2.0})
    assert times.median("ours") == 2.0
    assert times.ratios() == {"rival": 2.0}


def test_sides_take_turns_and_the_first_turn_does_not_count():
    played = []
    times = take_turns({name: lambda name=name: played.append(name) for name in ("ours", "rival")}, turns=2)
    assert played == ["ours", "rival"] * 3
    assert {len(seconds) for seconds in times.seconds.values()} == {2}


def test_the_document_has_the_ratios_of_one_thread_on_top():
    report = Report("step", "about")
    report.add(1, [Row("ours", 1.0, "ms"), Row("rival", 6.0, "ms")], {"rival": 6.0})
    report.add(2, [Row("ours", 1.0, "ms"), Row("rival", 5.0, "ms")], {"rival": 5.0})
    document = json.loads(json.dumps(report.to_json()))
    assert document["ratios"] == {"rival": 6.0}
    assert document["threads"]["2"]["ratios"] == {"rival": 5.0}
    assert document["threads"]["1"]["values"]["rival"] == {"value": 6.0, "unit": "ms"}


@pytest.mark.slow
def test_a_round_is_taken_apart():
    words = [sys.executable, "-m", "benchmarks", "rounds", "--json", "--turns", "1"]
    document = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    values = document["threads"]["1"]["values"]
    parts = sum(values[f"{part}_secret"]["value"] for part in ("gradient", "gather", "noise", "draw", "record", "mix"))
    assert 0.5 * values["round_secret"]["value"] < parts < 1.1 * values["round_secret"]["value"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("opacus") is None, reason="opacus is of the bench extra")
def test_the_step_is_compared_with_all_rivals():
    words = [sys.executable, "-m", "benchmarks", "step", "--json", "--turns", "1"]
    document = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert set(document["ratios"]) == {"ours_uncompiled", "opacus_hooks", "opacus_ghost", "non_private"}
