"""What benchmarks report: medians of sides that took turns, and ratios that are a rival's time divided by ours."""

import importlib.util
import json
import subprocess
import sys

import pytest

import tacit
from benchmarks import cluster, masks, rounds
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


SWAPS = {"40 KB": 0.001, "1 MB": 0.002, "30 MB": 0.001 + 29_960_000 / 2e9}  # 2 GB/s


def test_the_model_of_ranks_adds_computing_latency_and_rows_that_cross():
    assert cluster.model(10, 0.4, 4e9, SWAPS) == pytest.approx(10 * 0.4 + 0.001 + 2)


def figures_of(case, ranks, threads, rounds):
    """What a machine might measure whose two cores are 1.6 times as fast as one. Half of a second is lost where rows cross."""
    if case == "swap":
        return [SWAPS] * ranks
    apart = case.endswith("__apart")
    assert (case.split("_")[1] in ("10", "5000")) == apart  # each of two processes has half of the agents
    seconds = 8.0 if ranks * threads == 1 else 5.0
    crossed = ranks > 1 and not apart
    found = {"seconds": seconds + 0.5 * crossed, "waiting": 0.55, "crossed": 1e9 * crossed, "busy": 10.0 / ranks}
    return [found | {"at_once": 1.1 * found["seconds"], "memory": 2.0**31 / ranks}] * ranks


def test_ranks_are_set_beside_one_process_beside_two_apart_and_beside_the_model(monkeypatch):
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
        assert ratios[f"{case}_speedup_of_two_apart"] == pytest.approx(1.6)
        for side, ranks in (("two_ranks", 2), ("four_ranks", 4)):
            assert ratios[f"{case}_speedup_of_{side}"] == pytest.approx(8 / 5.5)
            assert ratios[f"{case}_divided_by_ideal_{side}"] == pytest.approx(1.1)
            assert ratios[f"{case}_processor_time_of_{side}"] == pytest.approx(1.0)
            assert ratios[f"{case}_measured_divided_by_model_{side}"] == pytest.approx(5.5 / (5 + 0.001 + 0.5))
            assert ratios[f"{case}_share_of_waiting_{side}"] == pytest.approx(0.1)
            assert values[f"{case}_crossed_{side}"]["value"] == pytest.approx(1000 * ranks)
    assert ratios["overlap_at_once_divided_by_meanwhile"] == pytest.approx(1.1)


def test_the_tables_of_ranks_are_ready_for_the_page(monkeypatch):
    monkeypatch.setattr(cluster, "default_threads", lambda: 2)
    monkeypatch.setattr(cluster, "measure", figures_of)
    tables = cluster.run(1).to_json()["notes"][-1]
    assert "| ConvNet, 20 agents on a ring | 8,000 | 5,000 | 5,000 | 5,500 | 5,500 |" in tables
    shares = "1.60 | 1.45 | 1.45 | 91, 91 % | 1.00, 1.00, 1.00 | 10.0 % | 2,000, 4,000 MB |"
    assert f"| ConvNet, 20 agents on a ring | {shares}" in tables
    assert "| ConvNet, 20 agents on a ring, two ranks | 5,501 ms | 5,500 ms | the same |" in tables
    assert "Constants: 1000 µs for an agent's round on a ring" in tables
    assert "| 1,000,000 | 15.6 s |" in tables


@pytest.mark.slow
def test_rounds_with_masks_are_set_beside_rounds_with_local_noise_on_the_same_graph(monkeypatch):
    """Small ones. Masks change nothing of what is sent, and complete graphs send more than rings."""
    for name, value in {"AGENTS": 5, "RECORDS": 20, "LOT": 4, "ROUNDS": 1, "COMPILE": False}.items():
        monkeypatch.setattr(masks, name, value)
    monkeypatch.setattr(masks, "default_threads", lambda: 1)
    document = masks.run(1).to_json()
    values = {name: each["value"] for name, each in document["threads"]["1"]["values"].items()}
    assert set(document["ratios"]) == {
        f"{graph}_masks_{keys}_keys" for graph in ("complete", "ring") for keys in ("complete", "ring")
    }
    for graph in ("complete", "ring"):
        for keys in ("complete", "ring"):
            name = f"{graph}_masks_{keys}_keys"
            assert document["ratios"][name] == pytest.approx(values[name] / values[f"{graph}_local"])
            assert values[f"{name}_sent_by_an_agent"] == values[f"{graph}_local_sent_by_an_agent"]
    assert values["complete_local_sent_by_an_agent"] == pytest.approx(2 * values["ring_local_sent_by_an_agent"])


@pytest.mark.slow
def test_a_round_is_taken_apart(monkeypatch, tmp_path):
    """A small one. Parts do not overlap, so they are no longer than the round together."""
    for name, value in {"AGENTS": 3, "RECORDS": 30, "LOT": 6, "COMPILE": False}.items():
        monkeypatch.setattr(rounds, name, value)
    monkeypatch.setattr(rounds, "default_threads", lambda: 1)
    parts = ("gradient", "gather", "noise", "draw", "record", "mix")
    values = rounds.run(1).to_json()["threads"]["1"]["values"]
    assert {f"{part}_{side}" for part in ("round", *parts) for side in ("secret", "fast")} <= set(values)
    played = rounds.Played(tacit.Fast(0), 1, tmp_path / "ledger.sqlite")
    played.advance()
    (taken,) = played.rounds
    assert all(taken[part] > 0 for part in parts)
    assert sum(taken[part] for part in parts) < taken["round"]


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
