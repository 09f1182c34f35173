"""Several runs overlaid on one page."""

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from tacit.io.files import write_atomically
from tacit.privacy.observers import Observer, short_name
from tacit.report.compared import ComparedRun, choose_measure, describe_combined, describe_observers, name_runs
from tacit.report.html.charts import draw, draw_spread
from tacit.report.html.frame import Panel, card, document, heading, table, text, warning
from tacit.report.plots import plot_distances, plot_epsilons, plot_scores, plot_tradeoff
from tacit.report.recorded import RecordedRun
from tacit.report.wording import ADJACENCIES, amount, counted, duration, number, score, write_epsilon


def write_comparison(runs: Sequence[RecordedRun], path: Path | str) -> Path:
    """Write the page that overlays `runs` to `path`, completely or not at all, and return the path."""
    return write_atomically(path, compare(runs).encode())


def compare(runs: Sequence[RecordedRun]) -> str:
    """Return the page that overlays several runs."""
    compared = name_runs(runs)
    width = "" if len(compared) <= 3 else "full"  # for a table with a column per run
    names = ", ".join(each.name for each in compared)
    warnings = "".join(map(warning, _warnings(compared)))
    return document(
        title=f"{names} · Tacit",
        header=heading("comparison of runs", counted(len(compared), "run"), names),
        above=f'{warnings}<section class="card full">{_summary(compared)}</section>',
        cards=[*_panels(compared, width), _differences(compared, width)],
    )


def _panels(runs: Sequence[ComparedRun], width: str) -> Iterator[Panel]:
    measure = choose_measure(runs)
    names = "".join(f"<span>{_swatch(each)}{text(each.name)}</span>" for each in runs)
    key = f'<div class="key">{names}</div>'
    sampled = any(each.run.scores and each.run.scores.samples for each in runs)
    records = f"On validation records{', or samples of them before the end' if sampled else ''}"
    yield Panel(
        "accuracy",
        f"Mean {measure}",
        f"{records}; bands show the range from the worst agent to the best.{key}",
        draw(plot_scores(runs)),
        kind="wide tall",
        missing="Nothing was scored.",
    )
    yield Panel(
        "spread",
        "Every agent at the end",
        "A dot for each agent, a line for their mean.",
        draw_spread(runs),
        kind="narrow tall",
        missing="Nothing was scored.",
    )
    yield Panel(
        "tradeoff",
        "Accuracy against ε",
        f"Mean accuracy against the ε spent by then.{key}",
        draw(plot_tradeoff(runs)),
        missing="No run has both an ε and an accuracy.",
    )
    yield Panel(
        "epsilon",
        "Privacy spent",
        f"Of the agent with the highest ε, {text(_terms(runs))}. Derived from the ledger.{key}",
        draw(plot_epsilons(runs)),
        missing="No run has an ε.",
    )
    yield Panel(
        "consensus",
        "Agreement",
        f"Root mean square distance of the agents’ models from their average. Logarithmic.{key}",
        draw(plot_distances(runs)),
        kind=width,
        missing="No run has agents that could differ.",
    )


def _summary(runs: Sequence[ComparedRun]) -> str:
    head = "run, algorithm, mean, worst, best, ε, per, δ, adjacency, against, ε against everybody, release, distance, sent by each, training"
    rows = []
    for each in runs:
        run, scores = each.run, each.run.scores
        ends = (float(scores.mean[-1]), *scores.worst_and_best) if scores else ()
        marks = [score(value, scores.measure) for value in ends] if scores else ["–"] * 3
        release = "yes" if run.release else "not known" if each.unknown else "NOT A RELEASE"
        distance = number(run.history[-1].consensus_distance, 3) if run.history else "–"
        costs = distance, amount(run.bytes_sent / run.plan.agents), duration(run.seconds)
        rows.append(
            (_swatch(each) + text(each.name), run.plan.algorithm, *marks, *_write_epsilons(each), release, *costs)
        )
    return table(head.split(", "), rows, kind="stack")


def _write_epsilons(each: ComparedRun) -> tuple[str, ...]:
    if each.spent is None:
        return ("not known" if each.unknown else "none", *["–"] * 5)
    kept, most = each.spent.guarantee, write_epsilon(each.spent.everybody.epsilon)
    terms = (kept.unit, f"{kept.delta:g}", ADJACENCIES[kept.adjacency])
    return write_epsilon(kept.epsilon), *terms, short_name(kept.observer), most


def _all_terms(runs: Sequence[ComparedRun]) -> set[tuple[str, float, str, str, Observer]]:
    kept = [each.spent.guarantee for each in runs if each.spent is not None]
    return {(each.unit, each.delta, each.adjacency, each.accountant, each.observer) for each in kept}


def _terms(runs: Sequence[ComparedRun]) -> str:
    """Say what the ε of all runs are stated with, if it is the same for all."""
    found = _all_terms(runs)
    if len(found) != 1:
        return "each in its own terms"
    unit, delta, adjacency, accountant, observer = found.pop()
    return f"per {unit} against {observer} at δ = {delta:g}, {ADJACENCIES[adjacency]}, {accountant}"


def _swatch(each: ComparedRun) -> str:
    return f'<span class="swatch {each.dash}" style="border-color:var(--series-{each.series + 1})"></span>'


def _warnings(runs: Sequence[ComparedRun]) -> Iterator[str]:
    if words := describe_observers(runs):
        yield words
    if len({terms[:4] for terms in _all_terms(runs)}) > 1:
        yield "These runs state ε for different units, δ, adjacency or accountant: their ε cannot be compared as they are."
    if len({each.run.plan.dataset for each in runs}) > 1:
        yield "These runs are on different data sets."
    if unfinished := [each.name for each in runs if not each.run.finished]:
        yield f"Not finished: {', '.join(unfinished)}."
    if wrong := [each.name for each in runs if each.spent and not each.spent.agrees]:
        yield f"summary.json states a different ε than follows from the ledger: {', '.join(wrong)}."
    if unknown := [f"{each.name} ({each.run.record.problem})" for each in runs if each.unknown]:
        yield f"ε could not be derived: {', '.join(unknown)}."
    if changed := [each.name for each in runs if each.run.record.differences]:
        yield f"events.jsonl and the ledger disagree on the plan; ε is derived from the ledger: {', '.join(changed)}."
    if same := _same_data(runs):
        yield f"{same}. Each ε is of one run; whoever sees several of them learns more, and what they spend adds up."
    yield from describe_combined(runs)


def _same_data(runs: Sequence[ComparedRun]) -> str:
    """Say so if private runs queried the same data, whether split among the same owners or others."""
    asked = [each.run.plan.owners for each in runs if each.run.plan.private]
    owners = [set(each) for each in asked]
    # What comes before the first slash of an owner's name is the data set that was split.
    records = [{owner.partition("/")[0] for owner in each if "/" in owner} for each in asked]
    if any(one & other for one, other in combinations(owners, 2)):
        return "Some of these runs queried the same owners’ data"
    if any(one & other for one, other in combinations(records, 2)):
        return "Some of these runs queried the same records, split among agents in different ways"
    return ""


def _differences(runs: Sequence[ComparedRun], kind: str) -> str:
    """Show the settings in which the runs differ, side by side."""
    # `parts` are facts about the objects of a run from Python, whose names are settings already.
    settings = [{key: value for key, value in each.run.config.items() if key != "parts"} for each in runs]
    rows = []
    for key in dict.fromkeys(key for each in settings for key in each):
        values = [_setting(each[key]) if key in each else "–" for each in settings]
        if len(set(values)) > 1:
            rows.append((text(key), *values))
    head = ("setting", *(each.name for each in runs))
    body = table(head, rows, kind="stack") if rows else '<p class="note">There are none.</p>'
    return card("Differences", body, note="Between the settings in config.toml.", kind=kind)


def _setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
