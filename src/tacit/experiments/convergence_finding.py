"""What the runs of `convergence` say: rates, slopes in σ with intervals, and what is left without noise."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from tacit.experiments.experiment import Row
from tacit.experiments.hyperparameters import DECENTRALIZED
from tacit.experiments.hyperparameters import NAMES as WRITTEN
from tacit.experiments.statistics import Slope, fit_slope

NAMES = {name: WRITTEN[name] for name in DECENTRALIZED}
_TAIL = 0.75  # the last quarter of the rounds is where a run has settled
_SMALLEST = 1e-10  # distances below are rounding
_FLOOR = 4.0  # times the distance where a noisy run settles: above, the linear phase is seen
_NEAR = 0.05  # of a slope to one, that both are called proportional


def of(rows: Sequence[Row], **settings: object) -> list[Row]:
    """Return the rows with these settings."""
    return [row for row in rows if all(row[name] == value for name, value in settings.items())]


def settled(rows: Sequence[Row], measure: str) -> dict[tuple[float, int], float]:
    """Return for each σ and trial the root mean square of a distance over the last quarter of the rounds."""
    found: dict[tuple[float, int], list[float]] = {}
    for row in rows:
        if row["round"] >= _TAIL * row["rounds"]:
            found.setdefault((row["sigma"], row["trial"]), []).append(row[measure])
    return {key: float(np.sqrt(np.mean(np.square(values)))) for key, values in found.items()}


def slope_in_sigma(rows: Sequence[Row], measure: str) -> Slope | None:
    """Return the slope of the logarithm of the settled distance against that of σ; one means in proportion."""
    pairs = [(sigma, value) for (sigma, _), value in settled(rows, measure).items() if sigma > 0 and value > 0]
    return fit_slope([math.log(sigma) for sigma, _ in pairs], [math.log(value) for _, value in pairs])


def rate(rows: Sequence[Row], *, above: float = 0.0) -> Slope | None:
    """Return the factor by which the distance to the limit shrinks in a round, fitted where it lies above a value."""
    curve = [(row["round"], row["to_limit"]) for row in rows if row["to_limit"] > max(above, _SMALLEST)]
    line = fit_slope([place for place, _ in curve], [math.log(value) for _, value in curve])
    return line and Slope(value=math.exp(line.value), low=math.exp(line.low), high=math.exp(line.high))


def typical(rows: Sequence[Row], measure: str) -> float | None:
    """Return the settled distance, averaged over the trials."""
    values = list(settled(rows, measure).values())
    return float(np.mean(values)) if values else None


def finding(rows: list[Row]) -> str:
    """Say for each algorithm what was found."""
    paragraphs = [_of_algorithm(of(rows, algorithm=name), words) for name, words in NAMES.items()]
    return "\n\n".join(each for each in paragraphs if each)


def _of_algorithm(rows: Sequence[Row], name: str) -> str:
    if not rows:
        return ""
    parts: tuple[Callable[[Sequence[Row]], str], ...] = (_linear, _proportional, _decaying, _without_noise)
    return f"**{name}.** " + " ".join(words for words in (part(rows) for part in parts) if words)


def _linear(rows: Sequence[Row]) -> str:
    constant = of(rows, part="constant")
    plain = rate(of(constant, sigma=0.0))
    if plain is None:
        return ""
    words = f"Without noise the distance to its limit shrinks by a factor {plain} a round"
    least = min((row["sigma"] for row in constant if row["sigma"] > 0), default=None)
    if least is None:
        return f"{words}."
    quietest = of(constant, sigma=least)
    noisy = rate(quietest, above=_FLOOR * (typical(quietest, "to_limit") or 0.0))
    return f"{words}, with σ={least:g} by {noisy} until it settles." if noisy else f"{words}."


def _proportional(rows: Sequence[Row]) -> str:
    constant = of(rows, part="constant")
    line, average = (slope_in_sigma(constant, measure) for measure in ("to_limit", "average_to_limit"))
    if line is None or average is None:
        return ""
    verdict = "in proportion to σ, as the theorem has it" if _is_one(line) else "not in proportion to σ"
    return (
        f"Where it settles, the distance to that limit grows {verdict}: slope {line} on logarithmic axes, and {average} for "
        "the average of the agents."
    )


def _decaying(rows: Sequence[Row]) -> str:
    sentences = []
    for part, words in (("summable", "summable steps"), ("harmonic", "steps that fall as 1/k")):
        those = of(rows, part=part)
        line, short = slope_in_sigma(those, "to_noiseless"), typical(of(those, sigma=0.0), "to_optimum")
        if line is None:
            continue
        verdict = "in proportion to σ" if _is_one(line) else "not in proportion to σ"
        ends = "" if short is None else f"; the noiseless run itself ends {short:.2g} from the optimum"
        sentences.append(f"With {words} the noisy run ends away from the noiseless one {verdict}, slope {line}{ends}.")
    return " ".join(sentences)


def _without_noise(rows: Sequence[Row]) -> str:
    plain = typical(of(rows, part="constant", sigma=0.0), "to_optimum")
    added = []
    for row in {(row["part"], row["clip"], row["lot"]): row for row in rows}.values():
        if row["part"] not in ("clipping", "lots"):
            continue
        value = typical(of(rows, part=row["part"], clip=row["clip"], lot=row["lot"]), "to_optimum")
        what = f"lots of {row['lot']:g}"
        if row["part"] == "clipping":
            what = f"clipping at {row['clip']:g} ({100 * row['clipped_share']:.0f} % of the records clipped)"
        added.append(f"{value:.2g} with {what}")
    if plain is None or not added:
        return ""
    return (
        f"Without noise it ends {plain:.2g} from the optimum where nothing is clipped and lots are full, and "
        f"{', '.join(added)}: "
        "what these add is no matter of σ."
    )


def _is_one(slope: Slope) -> bool:
    return slope.holds(1.0) or abs(slope.value - 1) <= _NEAR
