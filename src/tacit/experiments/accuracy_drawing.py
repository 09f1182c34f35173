"""The figure of `accuracy`: all algorithms with local noise, and DSGT with masks over ε."""

from tacit.experiments.accuracy_finding import BUDGETS, PUBLISHED_CODE, groups, list_series, rows_on_mnist
from tacit.experiments.drawing import (
    GREY,
    SERIES,
    Axes,
    Figure,
    draw_summaries,
    make_logarithmic,
    panels,
    show_accuracy,
)
from tacit.experiments.experiment import ResultRow
from tacit.experiments.hyperparameters import CENTRAL, DELTA, NAMES
from tacit.experiments.recipes import ALGORITHMS, EPSILON, FEATURES, NETWORK
from tacit.experiments.statistics import accuracies, list_levels, select, summarise
from tacit.report.wording import write_guarantee


def draw(rows: list[ResultRow]) -> Figure:
    """Draw what all algorithms reach with local noise, and how masks close the gap to central training."""
    with panels(1, 2, width=5.8, height=5.0) as (figure, axes):
        here = rows_on_mnist(rows)
        _draw_algorithms(axes[0, 0], select(here, epsilon=EPSILON, curious=None))
        _draw_without_centre(axes[0, 1], here)
        axes[0, 0].legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.1), title=write_guarantee(EPSILON, DELTA), title_fontsize=8
        )
        return figure


def _draw_algorithms(ax: Axes, rows: list[ResultRow]) -> None:
    code = list(PUBLISHED_CODE.values())
    ax.plot(range(len(code)), code, "_", color=GREY, ms=28, mew=2, label="published code, one seed")
    every = list(groups(rows))
    for number, (colour, (_, words, own)) in enumerate(zip(SERIES, every, strict=False)):
        for graph, marker in (("complete", "o"), ("ring", "^")):
            shown = {
                place: summarise(found)
                for place, algorithm in enumerate(ALGORITHMS)
                if (found := accuracies(own, algorithm=algorithm, graph=_graph(algorithm, graph)))
            }
            if shown:
                shift = 0.14 * (number - (len(every) - 1) / 2) + (0.04 if graph == "ring" else 0)
                label = words if graph == "complete" else f"{words}, ring"
                look = {"color": colour, "marker": marker, "ls": "none", "label": label}
                draw_summaries(ax, [place + shift for place in shown], list(shown.values()), **look)
    ax.set_xticks(range(len(ALGORITHMS)), [NAMES[name] for name in ALGORITHMS])
    ax.grid(axis="x", visible=False)
    ax.set_title("all algorithms, local noise")
    show_accuracy(ax)


def _graph(algorithm: str, graph: str) -> str | None:
    """Return the graph of a row: central training has none, and is shown beside the complete graph."""
    return None if (algorithm, graph) == (CENTRAL, "complete") else graph


def _draw_without_centre(ax: Axes, rows: list[ResultRow]) -> None:
    """Draw accuracy against ε: lines for the features, and single markers for the network, for each number of rounds with masks."""
    _draw_series(ax, select(rows, recipe=FEATURES))
    own = select(rows, recipe=NETWORK)
    network = [select(own, rounds=number) for number in sorted({row["rounds"] for row in own if row.get("curious")})]
    for some, fill, shift in zip(network, ("none", "left"), (1.0, 1.15), strict=False):
        name = f": network, {some[0]['rounds']:,} rounds"
        _draw_series(ax, some, name=name, shift=shift, ls="none", fillstyle=fill, markerfacecoloralt="white")
    make_logarithmic(ax.xaxis)
    ax.set_xticks(list(BUDGETS), [f"{epsilon:g}" for epsilon in BUDGETS])
    ax.minorticks_off()
    ax.set(
        title="without a centre: DSGT, complete graph",
        xlabel=f"ε at δ = {DELTA:g}, against whom each series names",
    )
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper left", bbox_to_anchor=(-0.05, -0.18), fontsize=8, frameon=False)
    show_accuracy(ax)


def _draw_series(ax: Axes, own: list[ResultRow], *, name: str = "", shift: float = 1.0, **look: str) -> None:
    """Draw local noise, masks and central training over ε, each beside the others."""
    levels = [float(epsilon) for epsilon in list_levels(own, "epsilon") if epsilon]
    for number, (colour, words) in enumerate(zip(SERIES, list_series([]), strict=False)):
        found = {epsilon: list_series(select(own, epsilon=epsilon))[words] for epsilon in levels}
        shown = {
            epsilon * shift * 1.02 ** (number - 1.5): summarise(values) for epsilon, values in found.items() if values
        }
        if shown:
            settings = {"color": colour, "marker": "osvD"[number], "label": f"{words}{name}", **look}
            draw_summaries(ax, list(shown), list(shown.values()), **settings)
