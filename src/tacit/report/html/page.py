"""The report of one run as a page."""

from collections.abc import Iterator
from pathlib import Path

from tacit.io.files import write_atomically
from tacit.privacy.guarantees import per
from tacit.privacy.observers import EVERYBODY
from tacit.report import wording
from tacit.report.compared import ComparedRun, name_runs
from tacit.report.figures.layout import describe_connectivity
from tacit.report.html import frame, maps, sections
from tacit.report.html.charts import draw
from tacit.report.html.frame import Panel, document, text, tile, warning
from tacit.report.plots import plot_distances, plot_epsilons, plot_observers, plot_scores
from tacit.report.recorded import RecordedRun
from tacit.report.spending import Spending
from tacit.report.teachers import describe_labels, explain_unknown_classes
from tacit.report.wording import (
    ACCOUNTANTS,
    ADJACENCIES,
    amount,
    counted,
    describe_run,
    duration,
    explain_guarantee,
    number,
    score,
    write_epsilon,
)
from tacit.runs.events import say_links_used


def write_report(run: RecordedRun, path: Path | str) -> Path:
    """Write the page of one run to `path`, completely or not at all, and return the path."""
    return write_atomically(path, report(run).encode())


def report(run: RecordedRun) -> str:
    """Return the page of one run. A new chart is one more `Panel` in `_panels`, a new text one more of the `sections`."""
    (each,) = name_runs([run])
    spent = each.spent
    cards: list[Panel | str] = [
        *_panels(each),
        sections.plan(run),
        sections.ledger(run, spent),
        sections.meaning(run, spent),
        sections.checked(run),
        sections.errata(run),
        sections.settings(run),
    ]
    return document(
        title=f"{run.name} · Tacit",
        header=_header(run, spent),
        above="".join(map(warning, _warnings(run, spent))),
        tiles=_tiles(run, spent),
        cards=cards,
    )


def badge(run: RecordedRun) -> str:
    """Return the label that is shown with ε."""
    if run.release:
        return '<span class="badge">✓ RELEASE</span>'
    if run.plan.private and run.record.account is None:
        return '<span class="badge warned">✕ ε NOT KNOWN</span>'
    nothing = "" if run.plan.private else ' <span class="badge warned">NO PRIVACY</span>'
    return f'<span class="badge warned">✕ NOT A RELEASE</span>{nothing}'


def _header(run: RecordedRun, spent: Spending | None) -> str:
    plan, central = run.plan, run.plan.agents == 1 and run.plan.site is None
    if not plan.private:
        claim, terms = "ε: none, there is no guarantee", "lots as in a private run, without clipping or noise"
    elif spent is None:
        claim, terms = "ε could not be derived", f"{run.record.problem}; ε has no other source"
    else:
        kept = spent.guarantee
        claim, who = wording.claim(spent), "" if spent.masked or central else f"against {EVERYBODY} · "
        adjacency, accountant = ADJACENCIES[kept.adjacency], ACCOUNTANTS[kept.accountant]
        terms = f"{who}{adjacency} adjacency · by {accountant} · derived from {_charged(run)}"
    words = explain_guarantee(spent, central=central, private=plan.private)
    card = frame.claim("Guarantee", badge(run), claim, terms, words, warned=not run.release)
    about = f"{describe_run(run)} · started {plan.time:%Y-%m-%d %H:%M}"
    return frame.heading("report of a run", run.name, about, card)


def _charged(run: RecordedRun) -> str:
    """Say how many queries ε is derived from and, if planned ones count, how many were made."""
    if run.charged == run.spent:
        return f"{run.spent:,} queries in the ledger"
    return f"all {run.charged:,} queries of the plan, of which the ledger holds {run.spent:,}"


def _warnings(run: RecordedRun, spent: Spending | None) -> Iterator[str]:
    plan, record = run.plan, run.record
    if record.exposed and plan.private:
        yield "A run without privacy has read these records, so there is no guarantee for them. The ε below is of this run alone."
    if (unknown := explain_unknown_classes(plan)) is not None:
        yield f"{unknown[0].upper()}{unknown[1:]}."
    if not run.finished:
        words = f"This run is not finished: the last snapshot is of round {run.round:,} of {plan.total_rounds:,}."
        if record.abandoned:
            words += " It was abandoned by a decision in the ledger, and cannot be resumed."
        if spent is not None and run.charged != run.spent:
            words += " It is charged its whole plan, since the decision to stop may depend on its results."
        yield words
    if plan.private and spent is None:
        yield f"ε could not be derived: {record.problem}. Put the run back beside the ledger that it was charged to."
    if record.differences:
        differences = ", ".join(record.differences)
        yield (
            f"The plan in events.jsonl and the ledger disagree: {differences}. ε is derived from the ledger. Trust the ledger, "
            "and find out why."
        )
    if run.checked is not None and run.checked.failed:
        yield f"A check of these settings on {run.checked.checked[:10]} found a fault: {', '.join(run.checked.failed)}."
    if spent is not None and spent.stated is not None and not spent.agrees:
        yield (
            f"summary.json states ε = {write_epsilon(spent.stated)}{_everybody(spent, spent.stated_against.get(EVERYBODY.key))}, but "
            f"{write_epsilon(spent.guarantee.epsilon)}{_everybody(spent, spent.everybody.epsilon)} follows from the ledger. Trust the ledger, "
            "and find out why."
        )
    if spent is not None and spent.budget is not None and spent.guarantee.epsilon > spent.budget * (1 + 1e-3):
        yield f"Agent {spent.agent} has spent more than its budget of ε = {number(spent.budget)}."


def _everybody(spent: Spending, value: float | None) -> str:
    """State an ε against everybody else together, which follows the planned one."""
    return "" if value is None or not spent.masked else f" and, against {EVERYBODY}, {write_epsilon(value)}"


def _tiles(run: RecordedRun, spent: Spending | None) -> Iterator[str]:
    plan, scores = run.plan, run.scores
    if scores is not None:
        worst, best = (score(value, scores.measure) for value in scores.worst_and_best)
        more = f"worst agent {worst}, best {best}" if plan.agents > 1 else "on validation records"
        if scores.final_sample is not None:
            more += f"; on a sample of {scores.final_sample:,}"
        yield tile(f"mean {scores.measure}", score(float(scores.mean[-1]), scores.measure), more)
    if spent is not None:
        kept, budget = spent.guarantee, spent.budget
        more = "no budget: σ was given" if budget is None else f"of {number(budget)} allowed"
        more += "" if run.release else ", not a release"
        name = f"{per(kept.unit)}, against {kept.observer}" if spent.masked else f"{per(kept.unit)}, spent"
        yield tile(name, write_epsilon(kept.epsilon), more, budget and kept.epsilon / budget)
        if spent.masked:
            more = "if all others pool what they know" + ("" if run.release else ", not a release")
            yield tile(f"{per(kept.unit)}, against {EVERYBODY}", write_epsilon(spent.everybody.epsilon), more)
    if run.history:
        if (labels := run.history[-1].labels) is not None and (ballot := plan.ballot) is not None:
            yield tile("labels by teachers", f"{sum(labels):,}", describe_labels(labels, ballot))
        if plan.agents > 1:
            distance = number(run.history[-1].consensus_distance, 3)
            yield tile("consensus distance", distance, "of the models from their average")
        each = f"{amount(run.bytes_sent / plan.agents)} by each agent" if run.bytes_sent else "nothing was exchanged"
        yield tile("sent", amount(run.bytes_sent), each)
        rate = run.samples_per_second
        yield tile("training time", duration(run.seconds), "" if rate is None else f"{rate:,.0f} expected samples/s")


def _panels(each: ComparedRun) -> Iterator[Panel]:
    run, spent = each.run, each.spent
    plan, scores = run.plan, run.scores
    yield Panel(
        "accuracy",
        f"{'Accuracy' if scores is None else scores.measure.capitalize()} of every agent",
        _scored_on(run),
        draw(plot_scores([each])),
        kind="wide tall",
        missing="Nothing was scored: there were no validation records.",
    )
    yield Panel("graph", "Who talks to whom", text(_links(run)), maps.graph(run, spent), kind="narrow tall")
    yield Panel(
        "consensus",
        "Agreement",
        "Root mean square distance of the agents’ models from their average. Logarithmic.",
        draw(plot_distances([each])),
        kind="" if spent is not None else "full",
        missing=_no_distance(run),
    )
    if spent is not None:
        kept = spent.guarantee
        words = (
            f"Highest ε: {text(wording.name_site_or_agent(plan, spent.agent))}, against {kept.observer}, at δ = {kept.delta:g}, {ADJACENCIES[kept.adjacency]}, of the queries made by each round. "
            "Derived from the ledger."
        )
        words += "" if run.release else " <strong>Not a release.</strong>"
        chart = draw(plot_epsilons([each]))
        yield Panel("epsilon", "Privacy spent", words, chart, missing="There is no snapshot of this run yet.")
    if spent is not None and spent.masked:
        words = text(" ".join(wording.explain_exposures(spent)))
        words += "" if run.release else " <strong>Not a release.</strong>"
        yield Panel("observers", "ε against curious agents", words, draw(plot_observers(spent)))
    held = f"{sum(plan.sizes):,} {plan.protected}s in all."
    if plan.counts is not None:
        held += " Counts by class are known because this is a simulation: ε does not cover them, and real parties would not share them."
    yield Panel("partition", "Who holds what", text(held), maps.partition(run), kind="tall")


def _no_distance(run: RecordedRun) -> str:
    """Say why there is no distance between models to draw."""
    if run.plan.site is not None:
        return "A site does not know the models of all others."
    return "There is only one agent." if run.plan.agents == 1 else "No distance was recorded."


def _scored_on(run: RecordedRun) -> str:
    """Say which records accuracies are measured on."""
    words = "On validation records, which nobody trained on" if run.plan.agents > 1 else "On validation records"
    if run.scores is None or not run.scores.samples:
        return f"{words}."
    samples = " or ".join(f"{count:,}" for count in sorted(run.scores.samples))
    end = "" if run.scores.final_sample is not None else ", and on all of them at the end"
    return f"{words}: on a sample of {samples}{end}."


def _links(run: RecordedRun) -> str:
    """Describe the graph."""
    count, connected = run.graph.number_of_edges(), describe_connectivity(run.graph)
    if (site := run.plan.site) is not None:
        neighbors = ", ".join(site.members[number] for number in site.neighbors)
        finished = run.summary if run.summary and "rounds_away" in run.summary else None
        used = "" if finished is None else f" In this run, {say_links_used(finished)}."
        return f"This is {site.members[site.agent]}, one of {len(site.members)} sites, and this page is its own view. Its neighbours: {neighbors}.{used}"
    if count == 0:
        return "No messages: every agent trains alone." if run.plan.agents > 1 else "One agent holds all data."
    if run.plan.changing:
        return f"Links change from round to round; all {count:,} that are used in any round are drawn."
    links = counted(count, "link")
    return f"{links}; {connected}." if connected else f"{links}."
