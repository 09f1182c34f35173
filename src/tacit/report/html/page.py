"""The report of one run as a page."""

from pathlib import Path

from tacit.io.files import write_atomically
from tacit.privacy.guarantees import per
from tacit.report.figures.layout import connectivity
from tacit.report.html import charts, maps, sections
from tacit.report.html.frame import document, figure, text, tile
from tacit.report.reading import Run
from tacit.report.spent import Spending, spending
from tacit.report.wording import ACCOUNTANTS, ADJACENCIES, about, amount, duration, epsilon, number, promise, score


def write_report(run: Run, path: Path | str) -> Path:
    """Write the page of one run to `path`, whole or not at all, and return where it is."""
    return write_atomically(path, report(run).encode())


def report(run: Run) -> str:
    """Return the page of one run."""
    spent = spending(run)
    drawn = {
        "accuracy": None if run.scores is None else charts.accuracy(run, run.scores),
        "graph": maps.graph(run, spent),
        "consensus": charts.consensus(run),
        "epsilon": None if spent is None else charts.epsilon(run, spent),
        "partition": maps.partition(run),
    }
    main = "".join(
        [
            _warnings(run, spent),
            _tiles(run, spent),
            '<div class="grid">',
            *_figures(run, spent, drawn),
            sections.plan(run),
            sections.ledger(run, spent),
            sections.meaning(run, spent),
            sections.checked(run),
            sections.errata(run),
            sections.settings(run),
            "</div>",
        ]
    )
    return document(
        title=f"{run.name} · Tacit",
        header=_header(run, spent),
        main=main,
        charts={name: chart for name, chart in drawn.items() if chart is not None},
    )


def badge(run: Run) -> str:
    """Return the word that stands beside every ε."""
    if run.release:
        return '<span class="badge">✓ RELEASE</span>'
    if run.plan.private and run.record.account is None:
        return '<span class="badge warned">✕ ε NOT KNOWN</span>'
    nothing = "" if run.plan.private else ' <span class="badge warned">NO PRIVACY</span>'
    return f'<span class="badge warned">✕ NOT A RELEASE</span>{nothing}'


def _header(run: Run, spent: Spending | None) -> str:
    plan = run.plan
    if not plan.private:
        claim, terms = "ε: none, nothing is promised", "the same lots, without clipping and noise"
    elif spent is None:
        claim, terms = "ε could not be derived", f"{run.record.problem}; nothing else tells what was spent"
    else:
        kept = spent.guarantee
        claim = f"ε = {epsilon(kept.epsilon)} per {kept.unit} at δ = {kept.delta:g}"
        terms = (
            f"{ADJACENCIES[kept.adjacency]} adjacency · by {ACCOUNTANTS[kept.accountant]} · "
            f"derived from {_counted(run)}"
        )
    started = f" · started {plan.time:%Y-%m-%d %H:%M}"
    warned = "" if run.release else " warned"
    return (
        f'<p class="eyebrow">Tacit · report of a run</p><h1>{text(run.name)}</h1>'
        f'<p class="about">{text(about(run) + started)}</p>'
        f'<section class="card guarantee{warned}" aria-label="Guarantee">{badge(run)}'
        f'<p class="figure">{text(claim)}</p><p class="terms">{text(terms)}</p>'
        f"<p>{text(promise(spent, central=plan.agents == 1, private=plan.private))}</p></section>"
    )


def _counted(run: Run) -> str:
    """Say how many queries ε is derived from and, where those of a plan count, how many were made."""
    if run.charged == run.spent:
        return f"{run.spent:,} queries in the ledger"
    return f"all {run.charged:,} queries of the plan, of which the ledger holds {run.spent:,}"


def _warnings(run: Run, spent: Spending | None) -> str:
    found = []
    if run.record.exposed and run.plan.private:
        found.append(
            "A run without privacy has read these records: nothing is promised of them. ε below is what this run alone told."
        )
    if not run.finished:
        found.append(
            f"This run is not finished: round {run.round:,} of {run.plan.rounds:,} was the last looked at."
            + (" It was abandoned by a decision in the ledger, and cannot be resumed." if run.record.abandoned else "")
            + (
                " It is charged its whole plan, since when to stop may depend on what it gave."
                if spent is not None and run.charged != run.spent
                else ""
            )
        )
    if run.plan.private and spent is None:
        found.append(
            f"ε could not be derived: {run.record.problem}. Put the run beside the ledger that it was charged to."
        )
    if run.record.differences:
        found.append(
            f"The plan in events.jsonl and the ledger disagree: {', '.join(run.record.differences)}. ε is the ledger’s. Trust "
            "the ledger, and find out why."
        )
    if run.checked is not None and run.checked.failed:
        found.append(
            f"A check of these settings found a fault on {run.checked.checked[:10]}: {', '.join(run.checked.failed)}."
        )
    if spent is not None and spent.stated is not None and not spent.agrees:
        found.append(
            f"summary.json states ε = {epsilon(spent.stated)}, but {epsilon(spent.guarantee.epsilon)} follows from the "
            "ledger. Trust the ledger, and find out why."
        )
    if spent is not None and spent.budget is not None and spent.guarantee.epsilon > spent.budget * (1 + 1e-3):
        found.append(f"Agent {spent.agent} has spent more than its budget of ε = {number(spent.budget)}.")
    return "".join(f'<p class="card warning" role="note">{text(words)}</p>' for words in found)


def _tiles(run: Run, spent: Spending | None) -> str:
    plan, found = run.plan, []
    if run.scores is not None:
        scores = run.scores
        worst, best = (score(value, scores.measure) for value in scores.worst_and_best)
        more = f"worst agent {worst}, best {best}" if plan.agents > 1 else "on validation records"
        if scores.final_sample is not None:
            more += f"; on a sample of {scores.final_sample:,}"
        found.append(tile(f"mean {scores.measure}", score(float(scores.mean[-1]), scores.measure), more))
    if spent is not None:
        budget = spent.budget
        more = "no budget was set; σ was" if budget is None else f"of {number(budget)} allowed"
        release = "" if run.release else ", not a release"
        share = None if budget is None else spent.guarantee.epsilon / budget
        found.append(
            tile(f"{per(spent.guarantee.unit)}, spent", epsilon(spent.guarantee.epsilon), more + release, share)
        )
    if run.history:
        apart = run.history[-1].consensus_distance
        if plan.agents > 1:
            found.append(tile("consensus distance", number(apart, 3), "of the models from their average"))
        each = f"{amount(run.bytes_sent / plan.agents)} by each agent" if run.bytes_sent else "nothing was exchanged"
        found.append(tile("sent", amount(run.bytes_sent), each))
        rate = run.samples_per_second
        speed = "" if rate is None else f"{rate:,.0f} expected samples/s"
        found.append(tile("training time", duration(run.seconds), speed))
    return f'<div class="tiles">{"".join(found)}</div>'


def _scored_on(run: Run) -> str:
    """Say which records accuracies are of."""
    words = "On validation records, which nobody trained on" if run.plan.agents > 1 else "On validation records"
    if run.scores is None or not run.scores.samples:
        return f"{words}."
    samples = " or ".join(f"{count:,}" for count in sorted(run.scores.samples))
    end = "" if run.scores.final_sample is not None else ", and on all of them in the end"
    return f"{words}: on a sample of {samples}{end}."


def _figures(run: Run, spent: Spending | None, drawn: dict[str, charts.Chart | None]) -> list[str]:
    plan = run.plan
    measure = "Accuracy" if run.scores is None else run.scores.measure.capitalize()
    count, connected = run.graph.number_of_edges(), connectivity(run.graph)
    links = "1 link" if count == 1 else f"{count:,} links"
    who = f"{links}; {connected}." if connected else f"{links}."
    if plan.changing:
        who = f"Links change from round to round; drawn are all {count:,} that are used in some round."
    if count == 0:
        who = "No messages: every agent is on its own." if plan.agents > 1 else "One agent holds all data."
    release = "" if run.release or spent is None else " <strong>Not a release.</strong>"
    over = ""
    if spent is not None:
        over = (
            f"Of agent {spent.agent}, who spent most, at δ = {spent.guarantee.delta:g}, "
            f"{ADJACENCIES[spent.guarantee.adjacency]}: ε of so many queries. Derived, never copied.{release}"
        )
    held = f"{sum(plan.sizes):,} {plan.protected}s in all."
    if plan.counts is not None:
        held += (
            " Counts by class are known because this is a simulation: ε does not cover them, and real parties would keep "
            "them to themselves."
        )
    apart = "Root mean square distance of the agents’ models from their average. Logarithmic."
    return [
        figure(
            "accuracy",
            f"{measure} of every agent",
            _scored_on(run),
            drawn["accuracy"],
            kind="wide tall",
            missing="Nothing was scored: there were no validation records.",
        ),
        figure("graph", "Who talks to whom", text(who), drawn["graph"], kind="narrow tall"),
        figure(
            "consensus",
            "Agreement",
            text(apart),
            drawn["consensus"],
            kind="" if spent is not None else "full",
            missing="One agent agrees with itself." if plan.agents == 1 else "No distance was recorded.",
        ),
        figure("epsilon", "Privacy spent", over, drawn["epsilon"], missing="The run has not been looked at yet.")
        if spent is not None
        else "",
        figure("partition", "Who holds what", text(held), drawn["partition"], kind="tall"),
    ]
