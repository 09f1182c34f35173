"""Measures the runs of `convergence`, and judges each of the paper's claims by them: as claimed, against the claim, or inconclusive.

A theorem does not apply where its condition is not met: where the noiseless run does not reach the optimum.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tacit.experiments.experiment import ResultRow, write_list
from tacit.experiments.hyperparameters import DECENTRALIZED, NAMES
from tacit.experiments.statistics import Slope, fit_slope, select, summarise

_TAIL = 0.75  # the last quarter of the rounds is where a run has settled
_SMALLEST = 1e-10  # distances below are rounding
_ABOVE = 4.0  # times the distance where a noisy run settles: above, the linear phase is seen
_NEARING = 0.9  # of a distance that a run has at the end of the last quarter, of that at its beginning
ClaimVerdict = Literal["as claimed", "against the claim", "inconclusive with these runs"]
_PROPORTIONAL = 0.05  # of a slope to one, that two things count as in proportion
_ALIKE = 0.1  # of rates, and of distances, that count as the same
_UNMET = 0.5  # of the distance with the least noise: a noiseless run that ends further off does not reach the optimum

_RULES = (
    "Distances are of the agents' models, root mean square over agents, where a run has settled: over the last quarter of its "
    "rounds. For the average of the agents, which the theorems for DSGD and DSGT are about, only the distance to the limit was "
    "kept. Slopes are in σ, on logarithmic axes. A slope counts as in proportion if its whole 95 % interval is within "
    f"{_PROPORTIONAL:g} of one, and as not if all of it is further from one. Rates count as the same if their logarithms are "
    f"within {100 * _ALIKE:.0f} %, by the same rule. Clipping counts as against the claim if the run ends more than "
    f"{100 * _ALIKE:.0f} % further from the optimum than without, beyond both 95 % intervals, and no longer comes nearer."
)


def finding(rows: list[ResultRow]) -> str:
    """Judge each claim for each algorithm."""
    lists = [_describe(select(rows, algorithm=name), NAMES[name]) for name in DECENTRALIZED]
    return "\n\n".join([_RULES, *(each for each in lists if each)])


def _describe(rows: Sequence[ResultRow], name: str) -> str:
    lines = (_linear(rows), _first_theorem(rows), _second_theorem(rows), _clipping(rows), _unclaimed(rows))
    said = [line for line in lines if line]
    return write_list(f"**{name}**", said) if said else ""


def _linear(rows: Sequence[ResultRow]) -> str:
    constant = select(rows, part="constant")
    plain, sigma = select(constant, sigma=0.0), least_noise(constant)
    if not plain or sigma is None:
        return ""
    noisy = select(constant, sigma=sigma)
    until = linear_phase(noisy)
    whole, early, private = decay(plain), decay(plain, until=until), decay(noisy, until=until)
    if whole is None or early is None or private is None:
        return f"Linear rate: inconclusive with these runs, as σ={sigma:g} settles too soon."
    verdict = together(compare(early, whole.value, _ALIKE), compare(private, early.value, _ALIKE))
    if max(whole.value, private.value) >= 0:
        verdict = "against the claim"
    return (
        f"Linear rate: {verdict}. Up to round {until}, before σ={sigma:g} settles, the distance to its own limit changes by a factor "
        f"{_factor(early)} a round without noise and {_factor(private)} with that σ. Over all rounds without noise it is "
        f"{_factor(whole)}."
    )


def _first_theorem(rows: Sequence[ResultRow]) -> str:
    constant = select(rows, part="constant")
    own, average = (slope_in_sigma(constant, measure) for measure in ("to_limit", "average_to_limit"))
    if own is None or average is None:
        return ""
    return (
        f"Theorem 1, {_to_the_optimum(constant)} The distance to its own limit {_in_proportion(own)}: slope {own}, and "
        f"{average} for the average of the agents."
    )


def _second_theorem(rows: Sequence[ResultRow]) -> str:
    summable = select(rows, part="summable")
    to_noiseless = slope_in_sigma(summable, "to_noiseless")
    if to_noiseless is None:
        return ""
    return (
        f"Theorem 2, with summable steps, {_to_the_optimum(summable)} What its proof bounds, the distance to the noiseless run "
        f"at the same round, {_in_proportion(to_noiseless)}: slope {to_noiseless}."
    )


def _to_the_optimum(rows: Sequence[ResultRow]) -> str:
    line, plain = slope_in_sigma(rows, "to_optimum"), typical(select(rows, sigma=0.0), "to_optimum")
    noisy = typical(select(rows, sigma=least_noise(rows)), "to_optimum")
    if line is None or plain is None or noisy is None:
        return "the optimum within O(σ): inconclusive with these runs."
    verdict = "does not apply" if plain > _UNMET * noisy else compare(line, 1.0, _PROPORTIONAL)
    return (
        f"the optimum within O(σ): {verdict}. The theorem assumes that the noiseless run converges to the optimum; here it "
        f"ends {plain:#.2g} from it. With noise the distance to the optimum has slope {line}."
    )


def _clipping(rows: Sequence[ResultRow]) -> str:
    clipped = select(rows, part="clipping")
    if not clipped:
        return ""
    sigma, ends, verdicts = clipped[0]["sigma"], [], []
    free = select(rows, part="constant", sigma=sigma)
    if free:
        ends.append(f"{typical(free, 'to_optimum'):#.2g} from the optimum where nothing is clipped")
    for clip in levels(clipped, "clip"):
        those = select(clipped, clip=clip)
        verdicts.append(_as_a_smaller_step(those, free))
        share = f"{100 * those[0]['clipped_share']:.0f} % of the records clipped"
        ends.append(f"{typical(those, 'to_optimum'):#.2g} with clipping at {clip:g} ({share})")
    return (
        f"Clipping as a smaller step: {together(*verdicts)}. A smaller step would end no further from the optimum. With "
        f"σ={sigma:g} it ends {', '.join(ends)}."
    )


def _as_a_smaller_step(clipped: Sequence[ResultRow], free: Sequence[ResultRow]) -> ClaimVerdict:
    """Compare where runs end with where runs of the same σ without clipping end, whose noise, σ·C, is larger."""
    one, other = (summarise(list(settled(each, "to_optimum").values())) if each else None for each in (clipped, free))
    if one is None or other is None or one.margin is None or other.margin is None or nearing(clipped, "to_optimum"):
        return "inconclusive with these runs"
    if one.mean - one.margin > (1 + _ALIKE) * (other.mean + other.margin):
        return "against the claim"
    no_further = one.mean + one.margin <= (1 + _ALIKE) * (other.mean - other.margin)
    return "as claimed" if no_further else "inconclusive with these runs"


def _unclaimed(rows: Sequence[ResultRow]) -> str:
    sentences, harmonic, lots = [], select(rows, part="harmonic"), select(rows, part="lots")
    line, plain = slope_in_sigma(harmonic, "to_noiseless"), typical(select(harmonic, sigma=0.0), "to_optimum")
    if line is not None and plain is not None:
        sentences.append(
            f"With steps that fall as 1/k the distance to the noiseless run {_in_proportion(line)}: slope {line}; the noiseless "
            f"run ends {plain:#.2g} from the optimum."
        )
    if lots:
        ends = [
            f"{typical(select(lots, lot=lot), 'to_optimum'):#.2g} with lots of {lot:g}" for lot in levels(lots, "lot")
        ]
        sentences.append(f"With σ={lots[0]['sigma']:g} it ends {' and '.join(ends)} from the optimum.")
    return " ".join(["No claim.", *sentences]) if sentences else ""


def _in_proportion(line: Slope) -> str:
    verdict = compare(line, 1.0, _PROPORTIONAL)
    return {"as claimed": "is in proportion to σ", "against the claim": "is not in proportion to σ"}.get(
        verdict, "may be in proportion to σ, inconclusive with these runs"
    )


def _factor(line: Slope) -> str:
    return str(Slope(value=math.exp(line.value), low=math.exp(line.low), high=math.exp(line.high)))


def compare(line: Slope, value: float, tolerance: float) -> ClaimVerdict:
    """Judge whether a slope's interval lies within a share of a value, as claimed, outside it, or across its ends."""
    low, high = sorted((line.low / value, line.high / value))
    if 1 - tolerance <= low and high <= 1 + tolerance:
        return "as claimed"
    return "inconclusive with these runs" if low <= 1 + tolerance and high >= 1 - tolerance else "against the claim"


def together(*verdicts: ClaimVerdict) -> ClaimVerdict:
    """Combine the verdicts on the parts of a claim."""
    if "against the claim" in verdicts:
        return "against the claim"
    return "inconclusive with these runs" if "inconclusive with these runs" in verdicts else "as claimed"


def least_noise(rows: Sequence[ResultRow]) -> float | None:
    """Return the smallest σ above zero."""
    return min((row["sigma"] for row in rows if row["sigma"] > 0), default=None)


def levels(rows: Sequence[ResultRow], name: str) -> list[float]:
    """Return the values of a setting, the largest first."""
    return sorted({row[name] for row in rows}, reverse=True)


def settled(rows: Sequence[ResultRow], measure: str) -> dict[tuple[float, int], float]:
    """Return for each σ and trial the root mean square of a distance over the last quarter of the rounds."""
    found: dict[tuple[float, int], list[float]] = {}
    for row in _tail(rows):
        found.setdefault((row["sigma"], row["trial"]), []).append(row[measure])
    return {key: float(np.sqrt(np.mean(np.square(values)))) for key, values in found.items()}


def typical(rows: Sequence[ResultRow], measure: str) -> float | None:
    """Return the settled distance, averaged over the trials."""
    values = list(settled(rows, measure).values())
    return float(np.mean(values)) if values else None


def nearing(rows: Sequence[ResultRow], measure: str) -> bool:
    """Whether a distance still shrinks by more than a tenth over the last quarter of the rounds."""
    distances = list(course(_tail(rows), measure).values())
    return distances[-1] < _NEARING * distances[0]


def slope_in_sigma(rows: Sequence[ResultRow], measure: str) -> Slope | None:
    """Return the slope of the logarithm of the settled distance against that of σ; one means in proportion."""
    pairs = [(sigma, value) for (sigma, _), value in settled(rows, measure).items() if sigma > 0 and value > 0]
    return fit_slope([math.log(sigma) for sigma, _ in pairs], [math.log(value) for _, value in pairs])


def linear_phase(rows: Sequence[ResultRow]) -> int:
    """Return the last round before a noisy run comes near to where it settles; 0 if there is none."""
    level, last = _ABOVE * (typical(rows, "to_limit") or 0.0), 0
    for round, distance in course(rows, "to_limit").items():
        if distance <= level:
            break
        last = round
    return last


def decay(rows: Sequence[ResultRow], *, until: float = math.inf) -> Slope | None:
    """Return by how much the logarithm of the distance to the limit changes in a round, fitted up to a round."""
    fitted = [row for row in rows if row["round"] <= until and row["to_limit"] > _SMALLEST]
    return fit_slope([row["round"] for row in fitted], [math.log(row["to_limit"]) for row in fitted])


def course(rows: Sequence[ResultRow], measure: str) -> dict[int, float]:
    """Return the root mean square over trials at each round, in order."""
    by_round: dict[int, list[float]] = {}
    for row in rows:
        by_round.setdefault(row["round"], []).append(row[measure])
    return {round: float(np.sqrt(np.mean(np.square(by_round[round])))) for round in sorted(by_round)}


def _tail(rows: Sequence[ResultRow]) -> list[ResultRow]:
    return [row for row in rows if row["round"] >= _TAIL * row["rounds"]]
