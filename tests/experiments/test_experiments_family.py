"""`family` compares rules fairly: every step is inside what was tried, and graphs that change send equal bytes."""

from itertools import count

import pytest

from tacit.experiments import family
from tacit.experiments.family import EXPERIMENT, _links, extend_grid
from tacit.experiments.family_drawing import draw
from tacit.experiments.family_finding import CHANGING, MEANS, SENDERS
from tacit.networks import as_topology


@pytest.mark.parametrize("best", [2.0**-10, 0.0625, 1.0, 16.0, 2.0**12])
def test_a_grid_is_extended_until_its_best_step_is_inside(best):
    tried = extend_grid((0.0625, 0.25, 1.0, 4.0, 16.0), lambda start: -abs(start / best - 1) - abs(best / start - 1))
    assert max(tried, key=lambda start: tried[start]) == best
    assert min(tried) < best < max(tried)
    assert list(tried) == sorted(tried)
    assert {round(large / small, 9) for small, large in zip(list(tried), list(tried)[1:], strict=False)} == {4.0}


def test_a_grid_is_not_extended_for_ever():
    assert len(extend_grid((1.0, 4.0), lambda start: start)) == 10


def test_a_grid_that_has_its_best_inside_is_tried_once():
    calls = count()
    extend_grid((0.25, 1.0, 4.0), lambda start: (next(calls), -abs(start - 1.0))[1])
    assert next(calls) == 3


@pytest.mark.parametrize("profile", ["smoke", "laptop"])
def test_graphs_that_change_send_as_many_messages_as_the_ring(profile):
    """As nearly as whole rounds allow: one round more or less would be further away."""
    for point in (each for each in EXPERIMENT.points(profile) if each["part"] == "schedules"):
        wanted = point["ring_rounds"] * 2 * point["agents"]
        each = [as_topology(_links(point, trial)) for trial in range(point["trials"])]

        def sent(rounds, each=each, point=point):
            exchanges = range(rounds * point["exchanges"])
            return sum(int(links.degrees.sum()) for one in each for k in exchanges for links in one.at(k)) / len(each)

        off = [abs(sent(point["rounds"] + more) - wanted) for more in (-1, 0, 1)]
        assert off[1] == min(off)
        assert off[1] <= 0.02 * wanted or profile == "smoke"
        if point["links"] == "ring":
            assert point["rounds"] == point["ring_rounds"]


def test_rules_that_take_longer_for_a_record_are_estimated_to():
    """The two systems that took eight minutes where nine seconds had been estimated."""
    seconds = {
        (point["system"], point["links"]): EXPERIMENT.seconds(point) / point["trials"]
        for point in EXPERIMENT.points("laptop")
        if point["part"] == "bytes"
    }
    for system in ("dp-srm", "q-dpsgd-2"):
        assert seconds[system, "complete"] > 10 * seconds["dsgd", "complete"]


def test_further_trials_are_points_of_their_own_with_seeds_of_their_own(monkeypatch):
    points = [point for point in EXPERIMENT.points("laptop") if point["part"] != "schedules"]
    trials = {}
    for point in points:
        first = point.named.get("first", 0)
        alone = tuple(item for item in point.settings if item[0] != "first")
        trials.setdefault(alone, []).extend(range(first, first + point["trials"]))
    assert {tuple(each) for each in trials.values()} == {(0, 1, 2, 3)}

    asked = {}
    monkeypatch.setattr(family, "_try_steps", lambda point, environment: {1.0: 0.5})
    monkeypatch.setattr(family, "train_point", lambda point, environment, **more: asked.update(more) or [None] * 2)
    monkeypatch.setattr(family, "final_row", lambda trial, result: {"trial": trial})
    further = next(point for point in points if point["links"] == "matchings" and "first" in point.named)
    assert [row["trial"] for row in EXPERIMENT.run(further, None)] == [2, 3]
    assert asked["seed"] == 2
    assert [graph.seed for graph in asked["graphs"]] == [2, 3]


def test_a_legend_is_not_taken_for_a_result():
    """One system on graphs that change is named by the title; where there is a legend beside dots, it has a frame."""
    row = {"accuracy": 0.8, "rounds": 4, "bytes_sent": 1e6}
    rows = [{**row, "part": "schedules", "system": "dsgt", "links": links} for links in CHANGING]
    rows += [
        {**row, "part": "nonsense", "system": "dsgd", "links": "complete", "mixing": mixing, "nonsense": senders}
        for mixing in MEANS
        for senders in (0, SENDERS["complete"])
    ]
    schedules, means = draw(rows).axes[2:]
    assert schedules.get_legend() is None
    assert schedules.get_title().startswith("dsgt: ")
    assert means.get_legend().get_frame_on()
