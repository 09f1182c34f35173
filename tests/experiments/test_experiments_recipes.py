"""Steps of the accuracy table are those that `tuning` found best on validation records, as kept in the pages of results."""

import csv
from pathlib import Path

import pytest

from tacit import DiNNO
from tacit.experiments.recipes import FEATURES, MASKS, NETWORK, RECIPES
from tacit.experiments.tuning import SEEDS, STEPS, list_tries

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "tuning" / "results.csv"
TUNED = [(recipe, algorithm) for recipe, ours in RECIPES.items() for algorithm in ours.systems]


def rows():
    with RESULTS.open() as file:
        numbers = ("start", "finish", "validation")
        return [
            {**row, **{name: float(row[name]) for name in numbers}, "rounds": int(row["rounds"])}
            for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize(("recipe", "algorithm"), TUNED)
def test_what_is_used_was_best_of_what_was_tried(recipe, algorithm):
    found, tuned = list_tries(rows(), recipe, algorithm), RECIPES[recipe].systems[algorithm]
    assert tuned.used in tuned.tried
    if tuned.used.rounds not in {row["rounds"] for row in found}:
        pytest.skip(f"{recipe} was not tuned yet, as its page says")
    tried = {(each.start, each.finish, each.rounds) for each in tuned.tried}
    assert {(row["start"], row["finish"], row["rounds"]) for row in found} == tried
    best = next(row for row in found if row["rounds"] == tuned.used.rounds)
    assert (best["start"], best["finish"]) == (tuned.used.start, tuned.used.finish)


@pytest.mark.parametrize(("recipe", "algorithm"), TUNED)
def test_the_best_steps_are_not_the_first_or_last_that_were_tried(recipe, algorithm):
    tuned = RECIPES[recipe].systems[algorithm]
    starts = sorted(each.start for each in tuned.tried)
    assert starts[0] < tuned.used.start < starts[-1]


def test_the_penalty_that_is_used_was_best_of_what_was_tried():
    published = list_tries(rows(), FEATURES, "dinno")[0]["validation"]
    found = {DiNNO().rho: published}
    found |= {float(row["rho"]): row["validation"] for row in rows() if row["recipe"] == FEATURES and row["rho"]}
    assert len(found) == 4
    assert max(found, key=lambda rho: found[rho]) == RECIPES[FEATURES].systems["dinno"].later["rho"]


def test_the_rows_are_of_steps_and_of_other_changes():
    assert {row["part"] for row in rows()} == {STEPS, "changes", SEEDS}


@pytest.mark.parametrize("system", ["central", MASKS, "dsgt"])
def test_the_steps_of_the_network_are_the_best_of_several_seeds(system):
    """Masks take the steps of central training."""
    algorithm, steps_of = ("dsgt", "central") if system == MASKS else (system, system)
    found: dict[float, list[float]] = {}
    for row in rows():
        if (row["part"], row["algorithm"], bool(row["curious"])) == (SEEDS, algorithm, system == MASKS):
            found.setdefault(row["start"], []).append(row["validation"])
    assert len(found) >= 2
    assert {len(scores) for scores in found.values()} == {3}
    assert max(found, key=lambda start: sum(found[start])) == RECIPES[NETWORK].systems[steps_of].used.start
