"""Steps of the accuracy table are those that `tuning` found best on validation records, as kept in the pages of results."""

import csv
from pathlib import Path

import pytest

from tacit import DiNNO
from tacit.experiments import load_experiment
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


def steps_over_seeds(system, rounds, graph=""):
    """Return the validation scores of each pair of steps of the network."""
    algorithm, found = "dsgt" if system == MASKS else system, {}
    asked = (SEEDS, NETWORK, algorithm, system == MASKS, rounds, graph)
    for row in rows():
        if (row["part"], row["recipe"], row["algorithm"], bool(row["curious"]), row["rounds"], row["graph"]) == asked:
            found.setdefault((row["start"], row["finish"]), []).append(row["validation"])
    assert len(found) >= 2
    assert {len(scores) for scores in found.values()} == {3}
    return found


@pytest.mark.parametrize("system", ["central", MASKS, "dsgt", "dinno"])
def test_the_steps_of_the_network_are_the_best_of_several_seeds(system):
    """Masks take the steps of central training."""
    found = steps_over_seeds(system, 300, "" if system == "central" else "complete")
    used = RECIPES[NETWORK].systems["central" if system == MASKS else system].used
    assert max(found, key=lambda steps: sum(found[steps])) == (used.start, used.finish)


def test_the_steps_of_masks_on_the_ring_with_1000_rounds_are_the_best_of_several_seeds():
    found = steps_over_seeds(MASKS, 1000, "ring")
    points = load_experiment("accuracy").points("laptop")
    (used,) = [point for point in points if point["graph"] == "ring" and point["rounds"] == 1000]
    assert max(found, key=lambda steps: sum(found[steps])) == (used["start"], used["finish"])
