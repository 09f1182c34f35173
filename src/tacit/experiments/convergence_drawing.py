"""The figure of `convergence`: a row of panels for each algorithm."""

from collections.abc import Sequence
from typing import Any

from tacit.experiments.convergence_finding import course, least_noise, levels, settled, slope_in_sigma, typical
from tacit.experiments.drawing import INK, SERIES, Axes, Figure, make_logarithmic, panels
from tacit.experiments.experiment import ResultRow
from tacit.experiments.hyperparameters import DECENTRALIZED, NAMES
from tacit.experiments.statistics import select

_PARTS = {"constant": "to_limit", "summable": "to_noiseless", "harmonic": "to_noiseless"}
_LABELS = {
    "constant": "constant steps, to the limit",
    "summable": "summable steps, to the noiseless run",
    "harmonic": "1/k steps, to the noiseless run",
}
_MARKERS = {"constant": "o", "summable": "s", "harmonic": "^"}


def draw(rows: list[ResultRow]) -> Figure:
    """Draw distances over rounds, settled distances over σ, and the final distances to the optimum."""
    names = [name for name in DECENTRALIZED if select(rows, algorithm=name)]
    with panels(len(names), 3, width=3.9, height=2.8) as (figure, axes):
        for line, name in zip(axes, names, strict=True):
            own = select(rows, algorithm=name)
            for axis in (line[0].yaxis, line[1].xaxis, line[1].yaxis, line[2].yaxis):
                make_logarithmic(axis)
            _courses(line[0], select(own, part="constant"))
            _slopes(line[1], own)
            _ends(line[2], own)
            line[0].set_title(f"{NAMES[name]}: constant steps", loc="left")
            line[1].set_title("where it settles, each trial", loc="left")
            line[2].set_title("where it ends, on average over trials", loc="left")
        return figure


def _courses(ax: Axes, rows: Sequence[ResultRow]) -> None:
    import matplotlib as mpl

    sigmas = levels(rows, "sigma")[::-1]
    for place, sigma in enumerate(sigmas):
        means = course(select(rows, sigma=sigma), "to_limit")
        colour = mpl.colormaps["viridis"](0.9 * (1 - place / max(1, len(sigmas) - 1))) if sigma else INK
        ax.plot(list(means), list(means.values()), color=colour, label=f"{sigma:g}", lw=1.3)
    ax.set(xlabel="round", ylabel="distance to the noiseless limit")
    ax.set_ylim(bottom=max(ax.get_ylim()[0], 1e-9))
    ax.legend(title="σ", ncols=2, loc="lower left", fontsize=7, title_fontsize=7.5)


def _slopes(ax: Axes, rows: Sequence[ResultRow]) -> None:
    for colour, (part, measure) in zip(SERIES, _PARTS.items(), strict=False):
        those = select(rows, part=part)
        pairs = [(sigma, value) for (sigma, _), value in settled(those, measure).items() if sigma > 0]
        if not pairs:
            continue
        line = slope_in_sigma(those, measure)
        look: dict[str, Any] = {"color": colour, "marker": _MARKERS[part], "ls": "", "markersize": 3.5, "alpha": 0.7}
        slope = "" if line is None else f"\nslope {line.value:.3f} ({line.low:.3f} to {line.high:.3f})"
        ax.plot(*zip(*pairs, strict=True), label=f"{_LABELS[part]}{slope}", **look)
    ax.set(xlabel="noise multiplier σ", ylabel="distance")
    ax.set_ylim(top=ax.get_ylim()[1] * 200)  # room for the legend
    ax.legend(loc="upper left", fontsize=6.5)


def _ends(ax: Axes, rows: Sequence[ResultRow]) -> None:
    found = [(label, typical(those, "to_optimum")) for label, those in _compared(rows)]
    values = [(label, value) for label, value in found if value]
    ax.plot(range(len(values)), [value for _, value in values], color=SERIES[6], marker="o", ls="", markersize=5)
    for place, (_, value) in enumerate(values):
        ax.annotate(f"{value:#.2g}", (place, value), (0, 6), textcoords="offset points", ha="center", fontsize=7.5)
    ax.set(ylabel="distance to the optimum", xlim=(-0.6, len(values) - 0.4), ylim=(1e-10, 10))
    ax.set_xticks(range(len(values)), [label for label, _ in values], fontsize=6)
    ax.grid(axis="x", visible=False)


def _compared(rows: Sequence[ResultRow]) -> list[tuple[str, list[ResultRow]]]:
    """Return the runs whose ends stand beside each other, each with its σ."""
    constant, clipped, lots = (select(rows, part=part) for part in ("constant", "clipping", "lots"))
    named = [("constant\nsteps", select(constant, sigma=sigma)) for sigma in (0.0, least_noise(constant))]
    named += [(f"clipped\nat {clip:g}", select(clipped, clip=clip)) for clip in levels(clipped, "clip")]
    named += [(f"lots\nof {lot:g}", select(lots, lot=lot)) for lot in levels(lots, "lot")]
    named.append(("summable\nsteps", select(rows, part="summable", sigma=0.0)))
    return [(f"{label}\nσ={those[0]['sigma']:g}", those) for label, those in named if those]
