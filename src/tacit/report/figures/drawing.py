"""What all matplotlib figures share: their style, their axes, and how they reach the disk."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tacit.io.files import write_atomically
from tacit.report.figures.palette import SERIES
from tacit.report.html.charts import distances, log_axis
from tacit.report.reading import Run
from tacit.report.spent import Spending
from tacit.report.wording import ADJACENCIES, number

ACCENT, WARN = SERIES[0], SERIES[1]
Draw = Callable[[Axes], None]

_SIZE = (3.5, 2.5)  # inches: one column
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures look the same everywhere
    "font.size": 8,
    "axes.titlesize": 7,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#4d5a69",
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e3e7ec",
    "grid.linewidth": 0.7,
    "xtick.color": "#4d5a69",
    "ytick.color": "#4d5a69",
    "xtick.labelcolor": "#17202b",
    "ytick.labelcolor": "#17202b",
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.handlelength": 2.2,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a run's name is text, whatever it holds
    "pdf.fonttype": 42,  # fonts that journals can embed and edit
    "savefig.dpi": 300,
}


def save(drawings: dict[str, Draw], folder: Path | str) -> list[Path]:
    """Draw each on a figure of its own, save that as PNG and PDF, and return where they are."""
    saved = []
    with _style():
        for name, draw in drawings.items():
            figure = Figure(figsize=_SIZE)
            draw(figure.add_subplot())
            for ending, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
                content = io.BytesIO()
                figure.savefig(content, format=ending, metadata=metadata)
                saved.append(write_atomically(Path(folder) / f"{name}.{ending}", content.getvalue()))
    return saved


@contextmanager
def _style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever a user's own settings are
        mpl.rcParams.update(_STYLE)
        yield


def rounds_axis(ax: Axes, rounds: int) -> None:
    """Let x run over all planned rounds."""
    ax.set(xlabel="round", xlim=(0, rounds))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def percents() -> FuncFormatter:
    """Return labels of shares in percent, with the digits that they need: 0.825 is no 82%."""
    return FuncFormatter(lambda value, _: f"{100 * value:g}%")


def shares_axis(ax: Axes) -> None:
    """Let x run over the share of each run's rounds."""
    ax.set(xlabel="share of the run’s rounds", xlim=(0, 1))
    ax.xaxis.set_major_formatter(percents())


def score_axis(ax: Axes, measure: str) -> None:
    """Let y show accuracies, from zero and not past one, or losses."""
    ax.set_ylabel(f"{measure} on validation")
    ax.set_ylim(bottom=0)
    if measure == "accuracy":
        ax.set_ylim(top=min(1.0, ax.get_ylim()[1]))
        ax.yaxis.set_major_formatter(percents())


def distance_axis(ax: Axes, runs: Sequence[Run]) -> None:
    """Let y show distances on a logarithmic axis, with the page's labels."""
    axis = log_axis([value for run in runs for value in distances(run)])
    assert axis is not None
    low, high = axis["range"]
    words = dict(zip(axis["tickvals"], axis["ticktext"], strict=True))
    ax.set(ylabel="consensus distance", yscale="log", ylim=(10**low, 10**high))
    ax.yaxis.set_major_locator(FixedLocator(axis["tickvals"]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words.get(value, f"{value:g}")))
    ax.yaxis.set_minor_locator(NullLocator())


def draw_distance(ax: Axes, run: Run, length: int = 1, **look: Any) -> Any:
    """Draw how far a run's models are apart, with so many rounds to a unit, and return the line."""
    apart = np.array(distances(run))
    shown = np.where((apart > 0) & np.isfinite(apart), apart, np.nan)
    return ax.plot([s.round / length for s in run.history], shown, **look)[0]


def draw_spending(ax: Axes, spent: Spending, length: int = 1, **look: Any) -> Any:
    """Draw ε over the rounds, with so many of them to a unit, and return the line."""
    return ax.plot([s.round / length for s in spent.snapshots], spent.epsilons, **look)[0]


def draw_budgets(ax: Axes, budgets: Sequence[float], colour: str = WARN) -> None:
    """Draw a line at each budget; call it when all else is drawn."""
    for budget in budgets:
        ax.axhline(budget, color=colour, ls=(0, (4, 2)), lw=1)
        ax.annotate(
            f"budget ε = {number(budget)}",
            (0, budget),
            xycoords=("axes fraction", "data"),
            xytext=(2, 2),
            textcoords="offset points",
            color=colour,
            fontsize=7.5,
        )
    ax.set_ylim(0, 1.15 * max([*budgets, ax.dataLim.y1, 1e-9]))


def is_apart(run: Run) -> bool:
    """Whether there is a distance to draw."""
    return any(0 < value < np.inf for value in distances(run))


def terms_of(ax: Axes, spent: Sequence[Spending]) -> None:
    """Say what the ε on an axis means nothing without."""
    ax.set_ylabel("ε")
    terms = {(each.guarantee.delta, each.guarantee.adjacency, each.guarantee.accountant) for each in spent}
    delta, adjacency, accountant = next(iter(terms))
    one = f"δ = {delta:g}, {ADJACENCIES[adjacency]}, {accountant}"
    ax.set_title(one if len(terms) == 1 else "different δ, adjacency or accountant: not comparable", loc="left")
