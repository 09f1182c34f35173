"""The chart of an audit's page: hits against false alarms, with the limit that the claim allows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.audit.pages.statements import Document, claimed, percentage
from tacit.report.figures.palette import DASHES, SERIES
from tacit.report.html.charts import Chart, chart, title, trace
from tacit.report.html.frame import text
from tacit.report.wording import percent

_POINTS = 200
_FEW = 1000.0  # an axis that spans less than this also has ticks between the powers of ten


def roc(document: Document) -> Chart:
    """Return the hit rate over the false alarm rate, both logarithmic, with one line for each statistic."""
    curves = document["roc"]
    least = min(curve["false_alarms"][0] for curve in curves.values())
    guessing = {"color": "--edge", "width": 1.5, "dash": "dot"}
    lines = [
        _trace(name, curve["false_alarms"], curve["hits"], _series_line(place))
        for place, (name, curve) in enumerate(curves.items())
    ]
    made = chart(
        [
            *_limit(document, least),
            _trace("guessing", [least, 1], [least, 1], guessing, hoverinfo="skip"),
            *lines,
            *([_thresholds(document)] if "thresholds" in document else []),
        ],
        x={"title": title("false alarms"), **_axis(least)},
        y={"title": title("hits"), **_axis(least)},
        showlegend=True,
        meta={"keyed": True},  # on a phone the page's own key replaces the legend
        margin={"l": 8, "r": 32, "t": 12, "b": 8},
    )
    made["layout"]["legend"]["traceorder"] = "normal"
    return made


def allowed(alarms: Sequence[float], epsilon: float, delta: float) -> list[float]:
    """Return the highest hit rate that (ε, δ)-DP allows at each false alarm rate."""
    rates = np.asarray(alarms)
    few = math.exp(min(epsilon, 700)) * rates + delta
    many = 1 - math.exp(-epsilon) * (1 - delta - rates)
    return [float(value) for value in np.clip(np.minimum(few, many), 0, 1)]


def _trace(name: str, alarms: Sequence[float], hits: Sequence[float], line: Chart, **more: Any) -> Chart:
    """Return a line that shows both rates on hover, unless `more` says otherwise; hit rates of 0 are gaps."""
    label = text(name)
    hover = [f"<b>{label}</b><br>{_rates(*each)}" for each in zip(alarms, hits, strict=True)]
    if "hoverinfo" in more:
        more["hovertemplate"] = None  # which would be shown instead
    return trace(alarms, [hit or None for hit in hits], hover, name=label, line=line, **more)


def _limit(document: Document, least: float) -> list[Chart]:
    """Return the curve that no attack on a sound system may cross, and the area above it."""
    epsilon, delta = document["claimed"]["epsilon"], document["claimed"]["delta"]
    if epsilon is None:
        return []
    alarms = np.geomspace(least, 1, _POINTS).tolist()
    dashed = {"color": "--warn", "width": 2, "dash": "dash"}
    above = {"fill": "tonexty", "fillcolor": "--warn@0.08", "hoverinfo": "skip", "showlegend": False}
    return [
        _trace(f"most that ε = {claimed(document)} allows", alarms, allowed(alarms, epsilon, delta), dashed),
        _trace("", alarms, [1.0] * len(alarms), {"width": 0}, **above),
    ]


def _thresholds(document: Document) -> Chart:
    """Return the thresholds at which bounds are measured; one without false alarms is off the axis."""
    places = {name: place for place, name in enumerate(document["roc"])}
    shown = []
    for each in document["thresholds"]:
        counts = each["outcomes"]
        alarm, hit = counts["false_alarms"] / counts["absent"], 1 - counts["misses"] / counts["present"]
        if alarm > 0 and hit > 0:
            shown.append((alarm, hit, each["statistic"]))
    colours = [_series_line(places.get(name, 0))["color"] for *_, name in shown]
    marker = {"size": 11, "color": colours, "line": {"color": "--card", "width": 2}}
    hover = [f"<b>{text(name)}</b><br>{_rates(alarm, hit)}" for alarm, hit, name in shown]
    alarms, hits = [alarm for alarm, _, _ in shown], [hit for _, hit, _ in shown]
    look = {"mode": "markers", "name": "where bounds are measured", "marker": marker, "showlegend": False}
    return trace(alarms, hits, hover, **look)


def _series_line(place: int) -> Chart:
    """Return a line in a colour other than the limit's."""
    usable = [number for number in range(1, len(SERIES) + 1) if number != 2]
    dash = DASHES[place // len(SERIES) % len(DASHES)]
    return {"color": f"--series-{usable[place % len(usable)]}", "width": 2.5, "dash": dash}


def _axis(least: float) -> Chart:
    """Return an axis from `least` to 1, labelled in percent."""
    decades = range(math.floor(math.log10(least)), 1)
    steps = (1, 3) if 1 / least < _FEW else (1,)
    ticks = [step * 10.0**power for power in decades for step in steps]
    ticks = [tick for tick in ticks if least * (1 - 1e-9) <= tick <= 1 + 1e-9]
    return {
        "type": "log",
        "range": [math.log10(least) - 0.01, 0.02],
        "tickangle": 0,
        "tickvals": ticks,
        "ticktext": [percentage(tick) for tick in ticks],
    }


def _rates(alarm: float, hit: float) -> str:
    return f"false alarms {percent(alarm, 2)}, hits {percent(hit, 2)}"
