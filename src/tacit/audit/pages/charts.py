"""The chart of an audit's page: hits against false alarms, with what the claim allows."""

import math
from collections.abc import Sequence

import numpy as np

from tacit.audit.pages.wording import Document, claimed
from tacit.report.figures.palette import DASHES, SERIES
from tacit.report.html.charts import Chart, chart, title
from tacit.report.html.frame import text
from tacit.report.wording import percent

_POINTS = 200
_FEW = 1000.0  # an axis that spans less than this also has ticks between the powers of ten


def roc(document: Document) -> Chart:
    """Return the share of hits over the rate of false alarms, both logarithmic, one line for each statistic."""
    least = min(curve["false_alarms"][0] for curve in document["roc"].values())
    lines = [
        _line(name, curve["false_alarms"], curve["hits"], place)
        for place, (name, curve) in enumerate(document["roc"].items())
    ]
    dots = [_looks(document)] if "looks" in document else []
    made = chart(
        [*_limit(document, least), _chance(least), *lines, *dots],
        x={"title": title("false alarms"), **_axis(least)},
        y={"title": title("hits"), **_axis(least)},
        showlegend=True,
        meta={"keyed": True},  # the page's own key stands in for the legend on a phone
        margin={"l": 8, "r": 32, "t": 12, "b": 8},
    )
    made["layout"]["legend"]["traceorder"] = "normal"
    return made


def allowed(alarms: Sequence[float], epsilon: float, delta: float) -> list[float]:
    """Return the largest share of hits that (ε, δ)-DP allows at each rate of false alarms."""
    rates = np.asarray(alarms)
    few = math.exp(min(epsilon, 700)) * rates + delta
    many = 1 - math.exp(-epsilon) * (1 - delta - rates)
    return [float(value) for value in np.clip(np.minimum(few, many), 0, 1)]


def _limit(document: Document, least: float) -> list[Chart]:
    """The curve that no attack on a sound system may pass, and the space above it."""
    epsilon, delta = document["claimed"]["epsilon"], document["claimed"]["delta"]
    if epsilon is None:
        return []
    alarms = np.geomspace(least, 1, _POINTS).tolist()
    hits = allowed(alarms, epsilon, delta)
    name = f"most that ε = {claimed(document)} allows"
    limit = {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": alarms,
        "y": hits,
        "line": {"color": "--warn", "width": 2, "dash": "dash"},
        "text": [_told(a, h) for a, h in zip(alarms, hits, strict=True)],
        "hovertemplate": f"<b>{name}</b><br>%{{text}}<extra></extra>",
    }
    top = {
        "type": "scatter",
        "mode": "lines",
        "x": alarms,
        "y": [1.0] * len(alarms),
        "line": {"width": 0},
        "fill": "tonexty",
        "fillcolor": "--warn@0.08",
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return [limit, top]


def _chance(least: float) -> Chart:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "guessing",
        "x": [least, 1],
        "y": [least, 1],
        "line": {"color": "--edge", "width": 1.5, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _line(name: str, alarms: Sequence[float], hits: Sequence[float], place: int) -> Chart:
    label = text(name)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": list(alarms),
        "y": [hit if hit > 0 else None for hit in hits],
        "line": {
            "color": f"--series-{_series(place)}",
            "width": 2.5,
            "dash": DASHES[place // len(SERIES) % len(DASHES)],
        },
        "text": [_told(a, h) for a, h in zip(alarms, hits, strict=True)],
        "hovertemplate": f"<b>{label}</b><br>%{{text}}<extra></extra>",
    }


def _looks(document: Document) -> Chart:
    """The thresholds that the bounds are measured at; one without a false alarm has no place on the axis."""
    places = {name: place for place, name in enumerate(document["roc"])}
    shown = []
    for look in document["looks"]:
        counts = look["outcomes"]
        alarm, hit = counts["false_alarms"] / counts["absent"], 1 - counts["misses"] / counts["present"]
        if alarm > 0 and hit > 0:
            shown.append((alarm, hit, look["statistic"]))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "where bounds are measured",
        "x": [alarm for alarm, _, _ in shown],
        "y": [hit for _, hit, _ in shown],
        "marker": {
            "size": 11,
            "color": [f"--series-{_series(places.get(name, 0))}" for _, _, name in shown],
            "line": {"color": "--card", "width": 2},
        },
        "text": [f"<b>{text(name)}</b><br>{_told(alarm, hit)}" for alarm, hit, name in shown],
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }


def _series(place: int) -> int:
    """Return a colour that is not the limit's."""
    usable = [number for number in range(1, len(SERIES) + 1) if number != 2]
    return usable[place % len(usable)]


def _axis(least: float) -> Chart:
    """Return an axis from so few to all, labelled in percent."""
    decades = range(math.floor(math.log10(least)), 1)
    steps = (1, 3) if 1 / least < _FEW else (1,)
    ticks = [step * 10.0**power for power in decades for step in steps]
    ticks = [tick for tick in ticks if least * (1 - 1e-9) <= tick <= 1 + 1e-9]
    return {
        "type": "log",
        "range": [math.log10(least) - 0.01, 0.02],
        "tickangle": 0,
        "tickvals": ticks,
        "ticktext": [f"{100 * tick:.6g}\u202f%" for tick in ticks],
    }


def _told(alarm: float, hit: float) -> str:
    return f"false alarms {percent(alarm, 2)}, hits {percent(hit, 2)}"
