"""Steps of the accuracy table are those that `tuning` found best on validation records, as kept in the pages of results."""

import csv
from pathlib import Path

import pytest

from tacit.algorithms import DiNNO
from tacit.experiments.recipes import ALGORITHMS, RECIPES
from tacit.experiments.tuning import STEPS, tries

PLAYED = Path(__file__).parents[2] / "docs" / "results" / "tuning" / "results.csv"


def rows():
    with PLAYED.open() as file:
        numbers = ("start", "finish", "validation")
        return [{**row, **{name: float(row[name]) for name in numbers}} for row in csv.DictReader(file)]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_used_was_best_of_what_was_tried(recipe, algorithm):
    found, ours = tries(rows(), recipe, algorithm), RECIPES[recipe]
    assert ours.chosen[algorithm] in ours.tried[algorithm]
    if not found:
        pytest.skip(f"{recipe} was not tuned yet, as its page says")
    assert {(row["start"], row["finish"]) for row in found} == set(ours.tried[algorithm])
    assert (found[0]["start"], found[0]["finish"]) == ours.chosen[algorithm]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_best_steps_are_not_the_first_or_last_that_were_tried(recipe, algorithm):
    starts = sorted(start for start, _ in RECIPES[recipe].tried[algorithm])
    assert starts[0] < RECIPES[recipe].chosen[algorithm][0] < starts[-1]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_penalty_that_is_used_was_best_of_what_was_tried(recipe):
    published = tries(rows(), recipe, "dinno")[0]["validation"]
    found = {DiNNO().rho: published}
    found |= {float(row["rho"]): row["validation"] for row in rows() if row["recipe"] == recipe and row["rho"]}
    assert len(found) == 4
    assert max(found, key=lambda rho: found[rho]) == RECIPES[recipe].rho


def test_the_rows_are_of_steps_and_of_other_changes():
    assert {row["part"] for row in rows()} == {STEPS, "changes"}
