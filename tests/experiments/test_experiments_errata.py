"""What `errata` says of its rows: each ε with its δ and adjacency, and a verdict that either way of rows can turn."""

import pytest

from tacit.experiments import load_experiment
from tacit.experiments.errata import DELTA, _draw
from tacit.privacy import Event, epsilon


def row(what, value, low=None, *, number=3, nominal=10.0):
    ends = {"epsilon": value, "epsilon_at_least": value if low is None else low}
    return {"row": number, "what": what, "nominal_epsilon": nominal, "noise_multiplier": 1.072, **ends}


ACCOUNTED = row("as accounted: one lot", 9.28)
SUB_LOTS = row("as run: five sub-lots", 82.4, 77.1)


def said(*rows):
    return load_experiment("errata").finding(list(rows))


def test_every_epsilon_has_its_delta_and_adjacency():
    defined = row("as defined: replace one", 1.93, number=4, nominal=1.0)
    text = said(ACCOUNTED, SUB_LOTS, row("as accounted: add or remove one", 0.908, number=4, nominal=1.0), defined)
    assert "ε is 9.28 (add-or-remove-one, δ=1e-05)" in text
    assert "as run: five sub-lots, ε is about 77 to 82 (add-or-remove-one, δ=1e-05). Against the claim." in text
    assert "ε is 0.908 (add-or-remove-one, δ=1e-05); as defined: replace one, ε is 1.93 (replace-one, δ=1e-05)" in text
    assert "nominal ε=10 (replace-one, δ=1e-05)" in text


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (row("as run: five sub-lots", 82.4, 77.1), "Against the claim."),
        (row("as run: five sub-lots", 12.0, 9.0), "Inconclusive from these figures."),
        (row("as run: five sub-lots", 9.0), "Inconclusive from these figures."),
        (row("as defined: replace one", 9.0), "As claimed."),
        (row("as defined: replace one", 11.0), "Against the claim."),
    ],
)
def test_the_verdict_is_on_the_adjacency_of_the_claim(last, expected):
    assert said(ACCOUNTED, last).endswith(expected)


def test_replacing_a_record_costs_at_least_as_much_as_leaving_it_out():
    event = Event(sample_rate=0.01, noise_multiplier=1.072, count=50_000)
    left_out, replaced = (epsilon([event], delta=DELTA, adjacency=each) for each in ("add_remove", "replace_one"))
    assert left_out == pytest.approx(14.2, abs=0.05)
    assert replaced > left_out


def test_the_figure_draws_and_names_both_ends():
    (ax,) = _draw([ACCOUNTED, SUB_LOTS]).axes
    assert any(list(line.get_xdata()) == [77.1, 82.4] for line in ax.lines)
    assert [text.get_text() for text in ax.texts] == ["ε: 9.28", "ε: about 77 to 82"]
    assert all("add-or-remove-one" in label.get_text() for label in ax.get_yticklabels())
