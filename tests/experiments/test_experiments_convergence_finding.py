"""Every verdict of `convergence` follows from the rows: made-up ones by which it is as claimed, against the claim, and inconclusive."""

import pytest

from tacit.experiments import load_experiment
from tacit.experiments.convergence_drawing import draw
from tacit.experiments.convergence_finding import compare, decay, linear_phase
from tacit.experiments.statistics import Slope

ROUNDS = 200
SIGMAS = (0.0, 0.02, 0.1, 0.3, 1.0, 3.0)
MEASURES = ("to_limit", "to_noiseless", "to_optimum", "average_to_limit")


def played(part, sigma, end, *, clip=5.0, lot=40, spread=0.01, shrunk=lambda round: 0.9**round, **ends):
    """Runs that come down as `shrunk` says to an end of their own for each measure, two trials a share apart where noisy."""
    settings = {"algorithm": "dsgt", "part": part, "sigma": sigma, "clip": clip, "lot": lot, "rounds": ROUNDS}
    return [
        {**settings, "trial": trial, "round": round, "clipped_share": 0.7}
        | {name: shrunk(round) + ends.get(name, end) * (1 + spread * trial) for name in MEASURES}
        for trial in range(2 if sigma else 1)
        for round in range(1, ROUNDS + 1, 4)
    ]


def settling(part="constant", power=1.0, short=0.0, spread=0.01, **how):
    """Runs at every σ: they settle 0.01·σ^power from where they tend to, which is `short` of the optimum."""
    ends = {sigma: 0.01 * sigma**power if sigma else 0.0 for sigma in SIGMAS}
    runs = [played(part, sigma, end, spread=spread, to_optimum=short + end, **how) for sigma, end in ends.items()]
    return [row for run in runs for row in run]


def line(begin, *rows):
    said = load_experiment("convergence").finding([row for some in rows for row in some])
    return next(each for each in said.splitlines() if each.startswith(f"- {begin}"))


def test_tolerances_are_stated():
    said = load_experiment("convergence").finding(settling())
    assert "within 0.05 of one" in said
    assert "within 10 %" in said


def test_a_linear_rate_is_fitted_over_the_same_rounds_with_and_without_noise():
    found = line("Linear rate", settling())
    assert found.startswith("- Linear rate: as claimed. Up to round 69, before σ=0.02 settles")
    assert "by a factor 0.900 (95 % interval 0.900 to 0.900) a round without noise and 0.902" in found
    quiet = [row for row in settling() if row["sigma"] == 0.02]
    assert max(row["round"] for row in quiet if row["to_limit"] > 4 * quiet[-1]["to_limit"]) == linear_phase(quiet)


def test_a_fit_up_to_a_round_sees_no_later_one():
    bent = played("constant", 0.0, 0.0, shrunk=lambda round: 0.9 ** min(round, 40) * 0.99 ** max(0, round - 40))
    assert decay(bent, until=40).value == pytest.approx(-0.105, abs=1e-3)
    assert decay(bent).value > -0.05


@pytest.mark.parametrize(
    ("plain", "noisy"),
    [
        (lambda round: 1 / round, lambda round: 1 / round),  # no linear rate at all
        (lambda round: 0.9**round, lambda round: 0.95**round),  # noise makes it slower
        (lambda round: 1.01**round, lambda round: 0.9**round),  # the base algorithm diverges
    ],
)
def test_other_rates_are_against_the_claim(plain, noisy):
    rows = played("constant", 0.0, 0.0, shrunk=plain), played("constant", 0.02, 2e-4, shrunk=noisy)
    assert line("Linear rate", *rows).startswith("- Linear rate: against the claim")


def test_a_rate_is_inconclusive_where_noise_hides_it():
    soon = played("constant", 0.0, 0.0), played("constant", 0.02, 2.0)
    assert line("Linear rate", *soon).startswith(
        "- Linear rate: inconclusive with these runs, as σ=0.02 settles too soon"
    )


@pytest.mark.parametrize(
    ("rows", "verdict", "own"),
    [
        (settling(), "as claimed", "is in proportion to σ: slope 1.000"),
        (settling(power=0.5), "against the claim", "is not in proportion to σ: slope 0.500"),
        (settling(short=0.1), "does not apply", "is in proportion to σ: slope 1.000"),
        (
            settling(spread=1.0),
            "inconclusive with these runs",
            "may be in proportion to σ, inconclusive with these runs",
        ),
    ],
)
def test_the_first_theorem_is_judged_by_the_distance_to_the_optimum(rows, verdict, own):
    found = line("Theorem 1", rows)
    assert found.startswith(f"- Theorem 1, the optimum within O(σ): {verdict}.")
    assert own in found


def test_a_base_algorithm_that_stops_short_does_not_meet_the_theorems_condition():
    assert "does not apply. The theorem assumes that the noiseless run converges" in line(
        "Theorem 1", settling(short=0.1)
    )
    assert "ends 0.10 from it." in line("Theorem 1", settling(short=0.1))
    assert "does not apply" not in line("Theorem 1", settling())


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (settling("summable"), "as claimed"),
        (settling("summable", short=0.26), "does not apply"),
        (settling("summable", spread=1.0), "inconclusive with these runs"),
    ],
)
def test_the_second_theorem_is_judged_by_the_distance_to_the_optimum(rows, verdict):
    found = line("Theorem 2", rows)
    assert found.startswith(f"- Theorem 2, with summable steps, the optimum within O(σ): {verdict}.")
    assert "the distance to the noiseless run at the same round" in found


def test_a_theorem_is_inconclusive_without_the_noiseless_run():
    noisy = [row for row in settling() if row["sigma"] > 0]
    assert line("Theorem 1", noisy).startswith("- Theorem 1, the optimum within O(σ): inconclusive with these runs.")


FREE = played("constant", 0.02, 0.005)


@pytest.mark.parametrize(
    ("clipped", "verdict"),
    [
        (played("clipping", 0.02, 0.11, clip=0.4), "against the claim"),
        (played("clipping", 0.02, 0.005, clip=0.4), "inconclusive with these runs"),
        (played("clipping", 0.02, 0.004, clip=0.4), "as claimed"),
        (played("clipping", 0.02, 0.006, clip=0.4, spread=0.5), "inconclusive with these runs"),
        (played("clipping", 0.02, 0.0, clip=0.4, shrunk=lambda round: 0.99**round), "inconclusive with these runs"),
    ],
)
def test_clipping_is_compared_with_runs_of_the_same_noise_multiplier(clipped, verdict):
    assert line("Clipping", FREE, clipped).startswith(f"- Clipping as a smaller step: {verdict}.")


def test_one_norm_against_the_claim_is_enough():
    clipped = played("clipping", 0.02, 0.004, clip=0.4), played("clipping", 0.02, 0.11, clip=0.2)
    found = line("Clipping", FREE, *clipped)
    assert "against the claim" in found
    assert "With σ=0.02 it ends 0.0050 from the optimum where nothing is clipped, 0.0040 with clipping at 0.4" in found


def test_clipping_is_inconclusive_without_unclipped_runs():
    assert "inconclusive with these runs" in line("Clipping", played("clipping", 0.02, 0.11, clip=0.4))


def test_lots_are_shown_with_their_noise():
    lots = played("lots", 0.0, 0.04, lot=20), played("lots", 0.0, 0.11, lot=5)
    assert (
        line("No claim", *lots)
        == "- No claim. With σ=0 it ends 0.040 with lots of 20 and 0.11 with lots of 5 from the optimum."
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.986, 0.999, "as claimed"),
        (0.948, 1.014, "inconclusive with these runs"),
        (1.06, 1.2, "against the claim"),
        (0.1, 0.94, "against the claim"),
        (0.5, 1.5, "inconclusive with these runs"),
    ],
)
def test_the_whole_interval_counts(low, high, expected):
    assert compare(Slope(value=(low + high) / 2, low=low, high=high), 1.0, 0.05) == expected
    assert compare(Slope(value=-(low + high) / 2, low=-high, high=-low), -1.0, 0.05) == expected


def test_the_figure_names_the_noise_of_every_end_and_two_digits():
    ends = draw([*settling(), *played("clipping", 0.02, 0.134, clip=0.4), *played("lots", 0.0, 0.101, lot=5)]).axes[2]
    labels = [label.get_text() for label in ends.get_xticklabels()]
    assert [label.splitlines()[-1] for label in labels] == ["σ=0", "σ=0.02", "σ=0.02", "σ=0"]
    assert [text.get_text() for text in ends.texts][-2:] == ["0.13", "0.10"]
    assert not ends.patches  # a bar on a logarithmic axis has no foot to stand on
