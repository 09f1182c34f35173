"""Several runs laid over each other on one page."""

import html
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.io.files import write_atomically
from tacit.report.html import overlays
from tacit.report.html.frame import document, figure, table, text
from tacit.report.html.overlays import Entry
from tacit.report.reading import Measure, Run
from tacit.report.spent import spending
from tacit.report.together import together
from tacit.report.wording import ADJACENCIES, amount, duration, epsilon, number, score

_LONGEST = 28


def write_comparison(runs: Sequence[Run], path: Path | str) -> Path:
    """Write the page that overlays `runs` to `path`, whole or not at all, and return where it is."""
    return write_atomically(path, compare(runs).encode())


def compare(runs: Sequence[Run]) -> str:
    """Return the page that overlays several runs."""
    entries = entries_of(runs)
    measure = measure_of(runs)
    drawn = {
        "accuracy": overlays.accuracy(entries, measure),
        "spread": overlays.spread(entries, measure),
        "bought": overlays.bought(entries),
        "consensus": overlays.consensus(entries),
        "epsilon": overlays.epsilon(entries),
    }
    key = _key(entries)
    room = "" if len(entries) <= 3 else "full"  # that a table with a column for each run needs
    figures = [
        figure(
            "accuracy",
            f"Mean {measure}",
            f"On validation records{_sampled(runs)}; bands reach from the worst agent to the best.{key}",
            drawn["accuracy"],
            kind="wide tall",
            missing="Nothing was scored.",
        ),
        figure(
            "spread",
            "Every agent in the end",
            "A dot for each agent, a stroke for their mean.",
            drawn["spread"],
            kind="narrow tall",
            missing="Nothing was scored.",
        ),
        figure(
            "bought",
            "What ε bought",
            f"Mean accuracy against what had been spent when it was reached.{key}",
            drawn["bought"],
            missing="No run has both an ε and an accuracy.",
        ),
        figure(
            "epsilon",
            "Privacy spent",
            f"Of the agent that spent most, {text(_terms(entries))}. Derived, never copied.{key}",
            drawn["epsilon"],
            missing="No run has an ε.",
        ),
        figure(
            "consensus",
            "Agreement",
            f"Root mean square distance of the agents’ models from their average. Logarithmic.{key}",
            drawn["consensus"],
            kind=room,
            missing="No run has agents that could differ.",
        ),
    ]
    names = ", ".join(entry.name for entry in entries)
    header = (
        '<p class="eyebrow">Tacit · comparison of runs</p>'
        f'<h1>{len(entries)} {"run" if len(entries) == 1 else "runs"}</h1><p class="about">{text(names)}</p>'
    )
    main = (
        f'{_warnings(entries)}<section class="card full">{_summary(entries)}</section>'
        f'<div class="grid">{"".join(figures)}{_differences(entries, room)}</div>'
    )
    return document(
        title=f"{names} · Tacit",
        header=header,
        main=main,
        charts={name: chart for name, chart in drawn.items() if chart is not None},
    )


def _sampled(runs: Sequence[Run]) -> str:
    """Say so if some curves are of samples."""
    return ", or samples of them on the way" if any(run.scores and run.scores.samples for run in runs) else ""


def measure_of(runs: Sequence[Run]) -> Measure:
    """Return what the runs are compared by: accuracy, if any of them has it."""
    return "accuracy" if any(run.scores and run.scores.measure == "accuracy" for run in runs) else "loss"


def entries_of(runs: Sequence[Run]) -> list[Entry]:
    """Give every run a name that no other has, and derive what it spent."""
    if not runs:
        raise InvalidInput("there is no run to compare; name one or more run folders")
    names: list[str] = []
    for run in runs:
        number = 1
        while (name := run.name if number == 1 else f"{run.name} ({number})") in names:
            number += 1
        names.append(name)
    return [
        Entry(place=place, name=name, label=html.escape(_short(name)), run=run, spent=spending(run))
        for place, (name, run) in enumerate(zip(names, runs, strict=True))
    ]


def _summary(entries: Sequence[Entry]) -> str:
    head = (
        "run",
        "algorithm",
        "mean",
        "worst",
        "best",
        "ε",
        "per",
        "δ",
        "adjacency",
        "release",
        "distance",
        "sent by each",
        "training",
    )
    rows = []
    for entry in entries:
        run, spent, scores = entry.run, entry.spent, entry.run.scores
        ends = (float(scores.mean[-1]), *scores.worst_and_best) if scores else ()
        marks = [score(value, scores.measure) for value in ends] if scores else ["–"] * 3
        promised = (
            ("not known" if entry.unknown else "none", "–", "–", "–")
            if spent is None
            else (
                epsilon(spent.guarantee.epsilon),
                spent.guarantee.unit,
                f"{spent.guarantee.delta:g}",
                ADJACENCIES[spent.guarantee.adjacency],
            )
        )
        rows.append(
            (
                _swatch(entry) + text(entry.name),
                run.plan.algorithm,
                *marks,
                *promised,
                "yes" if run.release else "not known" if entry.unknown else "NOT A RELEASE",
                number(run.history[-1].consensus_distance, 3) if run.history else "–",
                amount(run.bytes_sent / run.plan.agents),
                duration(run.seconds),
            )
        )
    return table(head, rows, kind="stack")


def _all_terms(entries: Sequence[Entry]) -> set[tuple[str, float, str, str]]:
    kept = [entry.spent.guarantee for entry in entries if entry.spent is not None]
    return {(each.unit, each.delta, each.adjacency, each.accountant) for each in kept}


def _terms(entries: Sequence[Entry]) -> str:
    """Say what the runs' ε mean nothing without, if they have it in common."""
    found = _all_terms(entries)
    if len(found) != 1:
        return "each in its own terms"
    unit, delta, adjacency, accountant = found.pop()
    return f"per {unit} at δ = {delta:g}, {ADJACENCIES[adjacency]}, {accountant}"


def _swatch(entry: Entry) -> str:
    return f'<span class="swatch {entry.dash}" style="border-color:var({entry.colour})"></span>'


def _key(entries: Sequence[Entry]) -> str:
    names = "".join(f"<span>{_swatch(entry)}{text(entry.name)}</span>" for entry in entries)
    return f'<div class="key">{names}</div>'


def _warnings(entries: Sequence[Entry]) -> str:
    found = []
    if len(_all_terms(entries)) > 1:
        found.append(
            "These runs state ε for different units, δ, adjacency or accountant: their ε cannot be compared as they are."
        )
    if len({entry.run.plan.dataset for entry in entries}) > 1:
        found.append("These runs are on different data sets.")
    unfinished = [entry.name for entry in entries if not entry.run.finished]
    if unfinished:
        found.append(f"Not finished: {', '.join(unfinished)}.")
    wrong = [entry.name for entry in entries if entry.spent and not entry.spent.agrees]
    if wrong:
        found.append(f"summary.json states another ε than follows from the ledger: {', '.join(wrong)}.")
    if unknown := [f"{entry.name} ({entry.run.record.problem})" for entry in entries if entry.unknown]:
        found.append(f"ε could not be derived: {', '.join(unknown)}.")
    if changed := [entry.name for entry in entries if entry.run.record.differences]:
        found.append(f"events.jsonl and the ledger disagree on the plan; ε is the ledger’s: {', '.join(changed)}.")
    if same := _same_data(entries):
        found.append(f"{same}. Each ε is of one run; who sees several of them sees more, and what they spend adds up.")
    found += together(entries)
    return "".join(f'<p class="card warning" role="note">{text(words)}</p>' for words in found)


def _same_data(entries: Sequence[Entry]) -> str:
    """Say so if private runs asked the same data, be it dealt to the same owners or to others."""
    asked = [entry.run.plan.owners for entry in entries if entry.run.plan.private]
    owners = [set(each) for each in asked]
    # Whatever stands before the first slash of an owner's name is the data set that was dealt out.
    records = [{owner.partition("/")[0] for owner in each if "/" in owner} for each in asked]
    if any(one & other for one, other in combinations(owners, 2)):
        return "Some of these runs asked the same owners’ data"
    if any(one & other for one, other in combinations(records, 2)):
        return "Some of these runs asked the same records, dealt out to agents in different ways"
    return ""


def _differences(entries: Sequence[Entry], kind: str) -> str:
    """The settings in which the runs differ, side by side."""
    settings = [_settings(entry.run.config) for entry in entries]
    rows = []
    for key in dict.fromkeys(key for each in settings for key in each):
        values = [_setting(each[key]) if key in each else "–" for each in settings]
        if len(set(values)) > 1:
            rows.append((text(key), *values))
    body = (
        table(("setting", *(entry.name for entry in entries)), rows, kind="stack")
        if rows
        else '<p class="note">In nothing.</p>'
    )
    return (
        f'<section class="card {kind}"><h2>In what they differ</h2><p class="note">Of the settings in config.toml.</p>'
        f"{body}</section>"
    )


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without the facts that a run from Python keeps of its objects: how these are called is a setting, too."""
    return {key: value for key, value in config.items() if key != "parts"}


def _setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
