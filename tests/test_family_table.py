"""What pages say about the rules of the family is what the collected rows say."""

import re
import sys
from dataclasses import fields
from itertools import combinations
from pathlib import Path

import pytest

from tacit.cli.audit.options import linear_rules
from tacit.experiments.family import EXPERIMENT, _rule
from tacit.experiments.family_finding import describe_runs
from tacit.graphs import measure, ring
from tacit.registry import RULES

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

import family_table  # noqa: E402

ROW = {
    "part": "bytes",
    "algorithm": "dsgt",
    "epsilon": 1.0,
    "dataset": "mnist",
    "features": "pixels",
    "model": "logistic",
    "agents": 10,
}
ROW |= {
    "lot": 256,
    "rounds": 100,
    "trials": 2,
    "t": 1.0,
    "start": 1.0,
    "tried": '{"0.25": 0.5, "1.0": 0.6, "4.0": 0.4}',
}


def rows():
    """Two trials each of two systems on two graphs, and of one with masks."""
    found = []
    for links in ("ring", "complete"):
        for system, accuracy, sent in (
            ("dsgt", 0.800, 8e6),
            ("d2", 0.795, 4e6),
            ("dsgd", 0.6, 4e6),
            ("dsgt with masks", 0.9, 8e6),
        ):
            own = {"system": system, "links": links, "bytes_sent": sent}
            found += [ROW | own | {"trial": trial, "accuracy": accuracy} for trial in range(2)]
    return found


@pytest.mark.parametrize("page", ["algorithms.md", "votes.md"])
def test_pages_have_the_figures_that_were_collected(page):
    text = (DOCS / page).read_text()
    assert family_table.write(text, page, family_table.read_rows()) == text


def test_what_to_pick_follows_from_the_rows():
    block = family_table.blocks(rows())["algorithms.md"]
    assert "`dsgt` is the most accurate without masks (80.0 ± 0.0 %)" in block
    assert "`d2` is within a point of it (79.5 ± 0.0 %) and sends 2.0 times fewer bytes" in block
    assert "masks bring +10.0 points" in block
    assert "| `dsgd` | 60.0 ± 0.0 % | 4.0 | 60.0 ± 0.0 % | 4.0 | 2 | 1 |" in block


def test_a_step_at_the_edge_of_the_grid_is_named():
    edge = [row | {"start": 4.0} if row["system"] == "dsgd" else row for row in rows()]
    assert "At the edge of what was tried: dsgd." in family_table.blocks(edge)["algorithms.md"]


def test_a_grid_that_was_extended_is_named():
    further = '{"0.25": 0.5, "1.0": 0.6, "4.0": 0.7, "16.0": 0.4}'
    wider = [row | {"start": 4.0, "tried": further} if row["system"] == "dsgd" else row for row in rows()]
    text = describe_runs(wider)
    assert "the first step of 0.25, 1, 4 (for" in text
    assert "further steps were tried: dsgd (also 16)." in text
    assert "At the edge" not in text
    assert "further steps" not in describe_runs(rows())


def test_systems_with_fewer_trials_are_named():
    fewer = [row for row in rows() if row["system"] != "d2" or row["trial"] == 0]
    assert "100 rounds, 2 trials, the same seeds for all; 1 of d2; ε = 1" in describe_runs(fewer)
    assert "100 rounds, 2 trials, the same seeds for all; ε = 1" in describe_runs(rows())


def test_the_table_of_rules_has_measured_accuracies():
    page = (
        "| rule | trust | accuracy |\n|---|---|---|\n| `dsgt` | all others | 1.0 % |\n| `local` | nobody |  |\n\n"
        "| `dsgt` | x |\n"
    )
    filled = family_table.fill(page, rows())
    assert "| `dsgt` | all others | 80.0 and 80.0 % |\n| `local` | nobody |  |\n\n| `dsgt` | x |\n" in filled
    assert family_table.fill(filled, rows()) == filled


def test_every_shipped_rule_has_a_line_in_the_table_of_rules():
    table = (DOCS / "algorithms.md").read_text().partition(family_table.HEADER)[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", "\n".join(line.split(" | ")[0] for line in table.split("\n")))) == set(
        RULES.lines
    )


def test_options_that_are_not_defaults_are_named():
    """Besides the codec, which is part of a system's name."""
    changed = {}
    for point in EXPERIMENT.points("laptop"):
        if point["part"] == "bytes":
            rule = _rule(point)
            own = {each.name: getattr(rule, each.name) for each in fields(rule) if each.name != "codec"}
            other = {name: value for name, value in own.items() if value != getattr(type(rule)(), name)}
            if other:
                changed[point["system"], point["links"]] = other
    assert changed == {
        ("muffliato", "ring"): {"exchanges": 4, "gap": measure(ring(10)).spectral_gap},
        **{("local-dsgd", links): {"local_steps": 2} for links in ("ring", "complete")},
        **{("dinno", links): {"rho": 0.1} for links in ("ring", "complete")},
    }
    assert (
        "Other options have their defaults, except for 4 accelerated exchanges of muffliato in a round on the ring, 2 steps of local-dsgd in a "
        "round, and ρ = 0.1 of dinno." in describe_runs(rows())
    )


def test_the_rules_that_attacks_take_are_named():
    *names, last = (f"`{name}`" for name in linear_rules())
    assert f"linear in the answers: {', '.join(names)} and {last}." in (DOCS / "algorithms.md").read_text()


def test_every_rule_that_exchanges_is_measured():
    """Those that send nothing have no bytes to compare."""
    points = EXPERIMENT.points("laptop")
    assert {point["algorithm"] for point in points} == {name for name, line in RULES.lines.items() if line.exchanges}
    assert {point["system"] for point in points if "noise" in point.named} == {"q-dpsgd-2"}


def test_the_figure_names_every_system_and_no_name_covers_another():
    figure = EXPERIMENT.draw(rows())
    for ax in figure.axes[:2]:
        assert [text.get_text() for text in ax.texts] == ["dsgt with masks", "dsgt", "d2", "dsgd"]
        boxes = [text.get_window_extent() for text in ax.texts]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
