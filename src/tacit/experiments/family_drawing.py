"""The figure of `family`: accuracy against bytes on the ring and on the complete graph, over graphs that change, and by robust means."""

from collections.abc import Sequence
from typing import Any

from tacit.experiments.drawing import SERIES, Axes, Figure, draw_summaries, make_logarithmic, panels, show_accuracy
from tacit.experiments.experiment import ResultRow
from tacit.experiments.family_finding import (
    BYTES,
    CHANGING,
    GRAPHS,
    MEANS,
    NONSENSE,
    PAIRS,
    SCHEDULES,
    SENDERS,
    by_accuracy,
    mean_accuracy,
    megabytes,
)
from tacit.experiments.statistics import select, summarise
from tacit.ties import in_order

_FONT = 7  # points, of the names beside the dots
_WIDE = 0.62  # of a letter, in its height
_LINE = 1.25  # of a line, in its letters' height


def draw(rows: list[ResultRow]) -> Figure:
    """Draw the four panels."""
    with panels(2, 2, width=5.6, height=4.4) as (figure, axes):
        for ax, links in zip(axes[0], GRAPHS, strict=True):
            shown = (links,) if links == GRAPHS[0] else (links, PAIRS)
            _draw_bytes(ax, {each: select(rows, part=BYTES, links=each) for each in shown})
        _draw_schedules(axes[1, 0], select(rows, part=SCHEDULES))
        _draw_means(axes[1, 1], select(rows, part=NONSENSE))
        return figure


def _draw_bytes(ax: Axes, shown: dict[str, list[ResultRow]]) -> None:
    """Draw a dot with its name for every system, on one graph or on several."""
    dots = []
    for number, (links, own) in enumerate(shown.items()):
        found = by_accuracy(own, "system")
        if found:
            places = [(megabytes(each), mean_accuracy(each)) for each in found.values()]
            ax.plot(*zip(*places, strict=True), "o^"[number], ls="", ms=5, color=SERIES[number], label=links)
            dots += [(x, y, name) for name, (x, y) in zip(found, places, strict=True)]
    ax.set(xlabel="MB sent by all agents together", title=" and ".join(shown))
    if dots:
        make_logarithmic(ax.xaxis)
        lowest, highest = min(x for x, _, _ in dots), max(x for x, _, _ in dots)
        ax.set_xlim(0.7 * lowest, 3 * highest)  # names are to the right
        _name(ax, dots)
    _finish(ax)


def _name(ax: Axes, dots: Sequence[tuple[float, float, str]]) -> None:
    """Write names to the right of dots, the highest first; one that would cover a dot or a name goes to the nearest free line, at the end of a thin line."""
    width, height = ax.get_position().size * ax.figure.get_size_inches() * 72  # type: ignore[union-attr]
    to_place = ax.transData + ax.transAxes.inverted()
    places = [to_place.transform((x, y)) * (width, height) for x, y, _ in dots]
    boxes = [(across - 4, across + 4, up) for across, up in places]  # left and right end, and middle, in points
    step = _LINE * _FONT / 2
    for place in in_order([y for _, y, _ in dots], descending=True):
        (x, y, name), (across, up) = dots[place], places[place]
        left = across + 6
        right = left + _WIDE * _FONT * len(name)
        near = [up + sign * number * step for number in range(40) for sign in (-1, 1)]
        free = (
            each
            for each in near
            if each <= height
            and not any(start < right and left < end and abs(at - each) < 2 * step for start, end, at in boxes)
        )
        middle = next(free, up)
        boxes.append((left, right, middle))
        look: dict[str, Any] = {"arrowprops": {"arrowstyle": "-", "lw": 0.4}} if middle != up else {}
        offset = (6, middle - up)
        ax.annotate(name, (x, y), xytext=offset, textcoords="offset points", fontsize=_FONT, va="center", **look)


def _draw_schedules(ax: Axes, rows: list[ResultRow]) -> None:
    systems = by_accuracy(rows, "system")
    for number, (system, own) in enumerate(systems.items()):
        kinds = [links for links in CHANGING if select(own, links=links)]
        each = [summarise([row["accuracy"] for row in select(own, links=links)]) for links in kinds]
        places = [list(CHANGING).index(kind) + 0.1 * number for kind in kinds]
        draw_summaries(ax, places, each, ls="", marker="o", label=system)
    ax.set(title=f"{', '.join(systems)}: graphs that change, at equal bytes" if rows else "graphs that change")
    names = [f"{links.replace('_', ' ')}\n{_rounds(select(rows, links=links))}" for links in CHANGING]
    ax.set_xticks(range(len(CHANGING)), names, fontsize=_FONT)
    _finish(ax)


def _rounds(rows: Sequence[ResultRow]) -> str:
    return f"{rows[0]['rounds']:,} rounds" if rows else ""


def _draw_means(ax: Axes, rows: list[ResultRow]) -> None:
    number = 0
    for links in (links for links in GRAPHS if select(rows, links=links)):
        for senders in (0, SENDERS[links]):
            own = select(rows, links=links, nonsense=senders)
            kinds = [mixing for mixing in MEANS if select(own, mixing=mixing)]
            each = [summarise([row["accuracy"] for row in select(own, mixing=mixing)]) for mixing in kinds]
            places = [MEANS.index(kind) + 0.1 * number for kind in kinds]
            draw_summaries(ax, places, each, ls="", marker="o", label=f"{links}, {senders} agents send nonsense")
            number += 1
    ax.set(title="robust means, dsgd: accuracy of the others")
    ax.set_xticks(range(len(MEANS)), MEANS, fontsize=_FONT)
    _finish(ax)


def _finish(ax: Axes) -> None:
    if len(ax.get_legend_handles_labels()[0]) > 1:  # a single series is named by the title
        ax.legend(frameon=True)  # without a frame, its dots look like results
    show_accuracy(ax)
