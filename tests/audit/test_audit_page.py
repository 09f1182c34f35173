"""The page of an audit: its limit is that of (ε, δ)-DP, its words fit what was found, and nothing breaks out of it."""

import json
import math
import re

import numpy as np
import pytest

from tacit.audit.collecting import Collected
from tacit.audit.findings import Claim, judge
from tacit.audit.page import page, write_page
from tacit.audit.page_charts import allowed, roc
from tacit.audit.page_words import consequence, lower, verdict, whatever_is_wrong
from tacit.privacy.accounting import Event

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


def test_a_chart_has_a_line_for_each_statistic_and_a_dot_for_each_look():
    document = made(0.5)
    chart = roc(document)
    names = [trace.get("name") for trace in chart["data"]]
    assert [name for name in names if name in ("likelihood", "variation")] == ["likelihood", "variation"]
    dots = chart["data"][-1]
    seen = [look for look in document["looks"] if look["outcomes"]["false_alarms"]]
    assert len(dots["x"]) == len(seen)
    assert chart["layout"]["xaxis"]["range"][0] == pytest.approx(math.log10(1 / 200), abs=0.02)
    json.dumps(chart, allow_nan=False)


def test_what_was_not_refuted_is_not_called_proven():
    document = made(0.0)
    assert document["verdict"] == "no violation found"
    assert verdict(document).startswith("No violation found.")
    words = shown(document)
    assert "NO VIOLATION FOUND" in words
    assert "no proof that the claim holds" in words
    assert "✓" not in words


def test_a_broken_claim_is_told_with_what_the_bound_supposes():
    document = made(4.0)
    assert document["verdict"] == "broken"
    weaker = whatever_is_wrong(document)
    assert weaker < document["lower_bound"]
    assert f"{lower(document['lower_bound'])} if only the noise is wrong, and {lower(weaker)} whatever is" in verdict(
        document
    )
    assert consequence(document) in shown(document)
    assert "✕ BROKEN" in shown(document)


def test_the_page_says_what_was_seen_and_what_it_means():
    words = shown(made(0.5))
    for piece in (
        "It saw messages.",
        "The record is the worst.",
        "watching agents 1, 2",
        "answers of the attacked agent 1,000",
        "share of its answers seen 95.0",
        "A bound below the claim proves nothing about it.",
        "“Estimate” takes the counts at their face and proves nothing.",
        "an indication, on which no verdict rests",
        "add-or-remove-one adjacency",
        "2 × 200",
    ):
        assert piece in words


def test_fields_that_an_attack_has_not_are_left_out():
    words = shown(made(0.5, share_seen=None, exact_answers=None, observers=None, graph=None))
    assert "share of its answers" not in words
    assert "watching agents" not in words


def test_text_cannot_become_markup():
    hostile = "<img src=x onerror=alert(1)>"
    document = made(0.5, title=hostile, about=hostile, graph=hostile, saw=hostile, record=hostile)
    document["looks"][0]["statistic"] = hostile
    document["roc"] = {hostile: next(iter(document["roc"].values()))}
    assert "<img" not in page(document)


def test_lower_bounds_are_rounded_down():
    assert [lower(value) for value in (0.0, 0.12999, 0.13, 2.0, None)] == ["0", "0.129", "0.130", "2.000", "–"]


def test_a_page_is_one_file(tmp_path):
    path = write_page(made(0.5), tmp_path / "audit.html")
    source = path.read_text()
    assert "from the scores in the audit’s folder" in source
    assert 'src="http' not in source
    assert "default-src 'none'" in source
