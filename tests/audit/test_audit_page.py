"""The page of an audit: its limit is that of (ε, δ)-DP, its words fit what was found, and nothing breaks out of it."""

import json
import math
import re

import numpy as np
import pytest

from tacit.audit.attacks.collection import Collected
from tacit.audit.attacks.one_run import OneRunFindings
from tacit.audit.attacks.one_run_scores import OneRunScores
from tacit.audit.bounds.findings import Claim, judge
from tacit.audit.bounds.one_run import Guesses, one_run_bound, one_run_fdp_bound
from tacit.audit.detectors.report import CheckFinding, CheckReport
from tacit.audit.noise.report import AgentNoise, Estimate, NoiseReport, NoiseTest
from tacit.audit.pages.charts import allowed, roc
from tacit.audit.pages.page import page, write_page
from tacit.audit.pages.statements import consequence, unconditional_bound, verdict
from tacit.privacy import Privacy
from tacit.privacy.event import Event
from tacit.report.wording import lower_bound

CLAIM = Claim.of(Event(sample_rate=0.1, noise_multiplier=1.2, count=10), 1e-2)


def made(distance, runs=200, **attack):
    """Return the document of an audit whose scores are normal and so far apart."""
    rng = np.random.default_rng(0)
    scores = Collected(
        {name: rng.standard_normal(runs) for name in ("likelihood", "variation")},
        {name: rng.standard_normal(runs) + distance for name in ("likelihood", "variation")},
    )
    told = {
        "kind": "neighbor",
        "title": "Curious neighbour",
        "about": "dsgd · 3 agents",
        "algorithm": "dsgd",
        "agents": 3,
        "graph": "complete",
        "target": 0,
        "observers": [1, 2],
        "queries": 1000,
        "exact_answers": 900,
        "share_seen": 0.95,
        "saw": "It saw messages.",
        "record": "The record is the worst.",
    }
    document = {"attack": told | attack, **judge(scores, CLAIM).to_json(), "settings": {"rounds": 10}}
    return json.loads(json.dumps(document))


def shown(document):
    """Return the page without its scripts and marks."""
    body = page(document).partition("<body>")[2].partition('<script id="charts"')[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_the_limit_is_what_an_attack_on_epsilon_delta_may_reach():
    alarms = np.linspace(1e-3, 1, 500)
    hits = np.array(allowed(alarms, 1.0, 0.01))
    assert (hits <= math.e * alarms + 0.01 + 1e-12).all()
    assert (1 - alarms <= math.e * (1 - hits) + 0.01 + 1e-12).all()
    touching = np.isclose(hits, math.e * alarms + 0.01) | np.isclose(1 - alarms, math.e * (1 - hits) + 0.01)
    assert (touching | (hits == 1)).all()
    assert allowed([0.5], 2000.0, 0.0) == [1.0]


def test_a_chart_has_a_line_for_each_statistic_and_a_dot_for_each_threshold():
    document = made(0.5)
    chart = roc(document)
    names = [trace.get("name") for trace in chart["data"]]
    assert [name for name in names if name in ("likelihood", "variation")] == ["likelihood", "variation"]
    dots = chart["data"][-1]
    seen = [each for each in document["thresholds"] if each["outcomes"]["false_alarms"]]
    assert len(dots["x"]) == len(seen)
    assert chart["layout"]["xaxis"]["range"][0] == pytest.approx(math.log10(1 / 200), abs=0.02)
    json.dumps(chart, allow_nan=False)


def test_what_was_not_refuted_is_not_called_proven():
    document = made(0.0)
    assert document["verdict"] == "no violation found"
    assert verdict(document).startswith("No violation found.")
    words = shown(document)
    assert "NO VIOLATION FOUND" in words
    assert "This does not prove the claim" in words
    assert "✓" not in words


def test_a_broken_claim_is_reported_with_what_the_bound_assumes():
    document = made(4.0)
    assert document["verdict"] == "broken"
    weaker = unconditional_bound(document)
    assert weaker < document["lower_bound"]
    assert (
        f"{lower_bound(document['lower_bound'])} if only the noise may be wrong, and {lower_bound(weaker)} whatever is wrong"
        in verdict(document)
    )
    assert consequence(document) in shown(document)
    assert "✕ BROKEN" in shown(document)


def test_the_page_says_what_was_seen_and_what_it_means():
    words = shown(made(0.5))
    for piece in (
        "It saw messages.",
        "The record is the worst.",
        "observers 1, 2",
        "answers of the attacked agent 1,000",
        "share of its answers seen 95.0",
        "A bound below the claim proves nothing about it.",
        "estimate (interval)",
        "An estimate takes the counts at face value and proves nothing.",
        "each at 99.1667 % confidence, so that all intervals of this audit hold together at 95 %.",
        "So few runs can hardly tell a system that spends all of its claim from one that leaks nothing",
        "an indication, on which no verdict rests",
        "add-or-remove-one adjacency",
        "2 × 200",
    ):
        assert piece in words


def test_an_attack_of_a_new_kind_has_the_page_of_scores():
    words = shown(made(0.5, kind="coalition", title="Coalition"))
    assert "Coalition" in words
    assert "How large ε is at least" in words


def test_fields_that_an_attack_has_not_are_left_out():
    words = shown(made(0.5, share_seen=None, exact_answers=None, observers=None, graph=None))
    assert "share of its answers" not in words
    assert "observers" not in words


def test_text_cannot_become_markup():
    hostile = "<img src=x onerror=alert(1)>"
    document = made(0.5, title=hostile, about=hostile, graph=hostile, saw=hostile, record=hostile)
    document["thresholds"][0]["statistic"] = hostile
    document["roc"] = {hostile: next(iter(document["roc"].values()))}
    assert "<img" not in page(document)


def test_lower_bounds_are_rounded_down():
    assert [lower_bound(value) for value in (0.0, 0.12999, 0.13, 2.0, None)] == ["0", "0.129", "0.130", "2.000", "–"]


def test_a_page_is_one_file(tmp_path):
    path = write_page(made(0.5), tmp_path / "audit.html")
    source = path.read_text()
    assert "from the scores in the audit’s folder" in source
    assert 'src="http' not in source
    assert "default-src 'none'" in source


def noise(p_value):
    """Return the document of an audit of noise, in which the test of its size has this p-value."""
    agents = [
        AgentNoise(
            agent=agent,
            sigma=Estimate(stated=1.0, estimate=0.98, low=0.95, high=1.01),
            rate=Estimate(stated=0.1, estimate=0.101, low=0.09, high=0.11),
            queries=20,
            privacy=Privacy(noise_multiplier=1.0, delta=1e-2, clip=1.0, lot_size=10),
        )
        for agent in (0, 1)
    ]
    checks = (
        NoiseTest(name="sigma", agents=(0,), p_value=0.4),
        NoiseTest(name="sigma", agents=(1,), p_value=p_value),
        NoiseTest(name="agents", agents=(0, 1), p_value=0.2),
    )
    report = NoiseReport(trials=50, queries=20, false_alarm=1e-3, agents=tuple(agents), checks=checks)
    told = made(0.0, runs=20)["attack"] | {"kind": "noise", "title": "Noise and lots", "target": None}
    return json.loads(json.dumps({"attack": told, **report.to_json(), "settings": {"rounds": 20}}))


def test_noise_that_passes_is_not_called_proven():
    words = shown(noise(0.3))
    for piece in (
        "AS STATED",
        "as far as 50 runs show",
        "This is not a proof.",
        "0 σ 1 0.98 0.95 to 1.01",
        "size of the noise 2 0.3 as stated",
        "answers of every agent 1,000",
        "gradient that is not clipped",
    ):
        assert piece in words
    assert "✕" not in words


def test_noise_that_fails_is_reported_with_the_agents_it_is_about():
    words = shown(noise(1e-9))
    assert "✕ NOT AS STATED" in words
    assert "size of the noise 2 1e-09 the noise does not have the stated size (agent 1)" in words
    assert "two agents 1 0.2 as stated" in words
    assert "do not rely on it" in words


def test_a_check_shows_its_findings_as_plain_text():
    finding = CheckFinding("influence", "own sum", "fail", "2 C <b>, front of agent 0's lot", "1 C")
    report = CheckReport(findings=(finding,), about="dsgd", seconds=1.0)
    told = made(0.0, runs=20)["attack"] | {"kind": "check", "title": "Check"}
    document = json.loads(json.dumps({"attack": told, **report.to_json(), "settings": {}}))
    assert "✕ FAULT FOUND" in shown(document)
    assert "A fault was found: influence: own sum." in shown(document)
    assert "2 C &lt;b&gt;, front of agent 0&#x27;s lot" in page(document)


def guessed(correct):
    """Return the document of an audit of one run with so many of 100 guesses right."""
    outcome, at = Guesses(canaries=300, guesses=100, correct=correct), {"delta": 1e-2, "confidence": 0.95}
    bounds = one_run_bound(outcome, delta=1e-5, confidence=0.95), one_run_fdp_bound(outcome, **at, event=CLAIM.event)
    included = np.arange(300) % 2 == 0
    scores = np.random.default_rng(0).standard_normal(300) + included
    played = OneRunScores(scores=scores, included=included, event=CLAIM.event, delta=1e-2)
    found = OneRunFindings(claim=CLAIM, outcome=outcome, bounds=bounds, played=played).to_json()
    told = made(0.0, runs=20)["attack"] | {"kind": "one-run", "title": "Canaries in one run"}
    return json.loads(json.dumps({"attack": told, **found, "confidence": 0.95, "settings": {}}))


def test_a_page_on_one_run_says_how_many_guesses_were_right():
    document = guessed(50)
    words = shown(document)
    for piece in (
        "NO VIOLATION FOUND",
        "100 of 300 canaries guessed, 50 rightly",
        "no loss of privacy",
        "fixed before the outcome was seen",
        "One run shows less than many do",
    ):
        assert piece in words
    assert unconditional_bound(document) is None


def test_a_page_on_one_run_draws_hits_against_false_alarms_on_log_scales():
    document = guessed(50)
    scores, included = np.array(document["scores"]), np.array(document["included"])
    curve = document["roc"]["score"]
    for alarms, hits in zip(curve["false_alarms"], curve["hits"], strict=True):
        cut = np.sort(scores[~included])[-round(alarms * 150)]
        assert hits == pytest.approx((scores[included] >= cut).mean())
    chart = roc(document)
    assert (chart["layout"]["xaxis"]["type"], chart["layout"]["yaxis"]["type"]) == ("log", "log")
    assert [trace["name"] for trace in chart["data"] if trace.get("showlegend", True)][1:] == ["guessing", "score"]
    assert "a canary that was in and that the attack calls so" in shown(document)
    assert "from audit.json alone" in page(document)
    assert "How good the attack is" not in shown(document | {"roc": {}})


def test_one_run_can_break_a_claim():
    document = guessed(100)
    assert document["verdict"] == "broken"
    assert "✕ BROKEN" in shown(document)
    assert verdict(document).startswith("The claim of ε = ")
    assert "<img" not in page(document | {"attack": document["attack"] | {"saw": "<img src=x>"}})
