"""What benchmarks report: medians of sides that took turns, and ratios that are a rival's time divided by ours."""

import importlib.util
import json
import subprocess
import sys

import pytest

from benchmarks import cluster
from benchmarks.peer_soak import MemorySample, summarise
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


def test_the_model_of_ranks_adds_computing_latency_and_rows_that_cross(monkeypatch):
    monkeypatch.setattr(cluster, "default_threads", lambda: 2)
    swaps = {"40 KB": 0.001, "1 MB": 0.002, "30 MB": 0.001 + 29_960_000 / 2e9}  # 2 GB/s
    assert cluster.model(8.0, 2, 4e9, swaps) == pytest.approx(8 / 2 + 0.001 + 2)
    assert cluster.model(8.0, 4, 4e9, swaps) == pytest.approx(8 / 2 + 0.001 + 2)  # four ranks on two cores


def figures_of(case, ranks, threads, rounds):
    """What a machine of two cores might measure."""
    if case == "swap":
        return [{"40 KB": 0.001, "1 MB": 0.002, "30 MB": 0.001 + 29_960_000 / 2e9}] * ranks
    seconds = 8.0 / min(2, ranks * threads) + 0.5
    found = {"seconds": seconds, "at_once": 1.1 * seconds, "waiting": 0.45, "crossed": 1e9 * (ranks > 1)}
    return [found | {"memory": 2.0**31 / ranks}] * ranks


def test_two_and_four_ranks_are_set_beside_one_process_and_beside_the_model(monkeypatch):
    monkeypatch.setattr(cluster, "default_threads", lambda: 2)
    monkeypatch.setattr(cluster, "measure", figures_of)
    document = cluster.run(1).to_json()
    ratios, values = document["ratios"], document["threads"]["1"]["values"]
    for case in cluster.CASES:
        assert [values[f"{case}_memory_{side}"]["value"] for side in ("one_thread", "two_ranks", "four_ranks")] == [
            2048,
            1024,
            512,
        ]
        for side, ranks in (("two_ranks", 2), ("four_ranks", 4)):
            assert ratios[f"{case}_speedup_of_{side}"] == pytest.approx(8.5 / 4.5)
            assert ratios[f"{case}_measured_divided_by_model_{side}"] == pytest.approx(4.5 / (4.25 + 0.001 + 0.5))
            assert ratios[f"{case}_share_of_waiting_{side}"] == pytest.approx(0.1)
            assert values[f"{case}_crossed_{side}"]["value"] == pytest.approx(1000 * ranks)
    assert ratios["overlap_at_once_divided_by_meanwhile"] == pytest.approx(1.1)


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


def test_a_soak_reports_the_slope_after_its_first_quarter():
    samples = [MemorySample(float(t), 1000 * t if t < 25 else 25_000 + 2 * t, 10 * t) for t in range(101)]
    found = summarise(samples)
    assert found["rounds"] == 1000
    assert found["mib_at_quarters"] == [0.0, 24.5, 24.5, 24.6, 24.6]
    assert found["mib_per_hour"] == round(2 * 3600 / 1024, 2)
    assert found["bytes_per_round"] == 204.8
