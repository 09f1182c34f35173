"""The picture of `tacit audit distance`. Imported only where it is drawn: matplotlib is slow to import."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tacit.cli.audit.distance import WARNING
from tacit.cli.audit.systems import plain_dinno
from tacit.cli.terminal.pictures import LINES
from tacit.report.figures.palette import SERIES
from tacit.report.figures.style import style
from tacit.report.wording import write_guarantee

if TYPE_CHECKING:
    from tacit.cli.audit.distance import DistanceAudit, Leaks

_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_LEAST = 1e-6  # a share below this is shown as this


def draw_leaks(found: "Leaks", audit: "DistanceAudit", *, title: str) -> Figure:
    """Draw the share of the sum seen and the lower bound on ε over the distance, a line for each algorithm.

    Of several agents at one distance, the line shows the one that reveals most; the others are faint dots.
    """
    with style():
        figure = Figure(figsize=(8.4, 3.6))
        left, right = figure.subplots(1, 2)
        for place, (name, rows) in enumerate(found.items()):
            color, line, mark = (among[place % len(among)] for among in (SERIES, LINES, _MARKS))
            look = {"color": color, "ls": line, "marker": mark, "ms": 5, "lw": 1.8}
            label = name + (f", plain step, ρ = {plain_dinno()['rho']:g}" if name == "dinno" else "")
            _line(left, rows, "sum_share", label, look)
            _line(right, rows, "epsilon", label, look)
        left.set_yscale("log")
        low = min(max(row["sum_share"], _LEAST) for rows in found.values() for row in rows)
        left.set(ylabel="share of the sum of answers seen", ylim=(0.6 * low, 1.4))
        if any(len(rows) > len({row["distance"] for row in rows}) for rows in found.values()):
            left.set_title("line: the agent that reveals most; faint: the others")
        left.yaxis.set_major_locator(LogLocator(numticks=8))
        left.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}\u202f%"))
        left.yaxis.set_minor_formatter(NullFormatter())
        claim = f"claimed: {write_guarantee(audit.epsilon, audit.delta)}"
        right.axhline(audit.epsilon, color="#6b7280", lw=1, ls=(0, (4, 3)), label=claim)
        right.set(
            ylabel=f"ε at δ = {audit.delta:g} is at least",
            title=f"{100 * audit.confidence:g}\u202f% confidence each, 2 × {audit.runs:,} runs",
        )
        highest = max([audit.epsilon, *(row["epsilon"] for rows in found.values() for row in rows)])
        right.set_ylim(bottom=0, top=1.12 * highest)
        for ax in (left, right):
            ax.set_xlabel("distance from the observer, in links")
            ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
            ax.margins(x=0.06)
        warning = {"title": fill(WARNING, 110), "title_fontsize": 7}
        columns = min(len(found) + 1, 4)
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=columns, **warning)
        figure.suptitle(title, fontsize=10)
        return figure


def _line(ax: Axes, rows: Sequence[Mapping[str, Any]], key: str, name: str, look: Mapping[str, Any]) -> None:
    least = _LEAST if key == "sum_share" else 0.0
    values = [max(row[key], least) for row in rows]
    away = [row["distance"] for row in rows]
    most = {links: max(v for v, d in zip(values, away, strict=True) if d == links) for links in dict.fromkeys(away)}
    others = [(links, value) for links, value in zip(away, values, strict=True) if value < most[links]]
    if others:
        ax.plot(*zip(*others, strict=True), color=look["color"], marker=look["marker"], ms=4, ls="", mew=0, alpha=0.35)
    ax.plot(list(most), list(most.values()), label=name, clip_on=False, zorder=3, **look)
