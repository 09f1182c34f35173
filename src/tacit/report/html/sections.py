"""The parts of a run's page that are text and tables: plan, ledger, what ε means, errata, settings. Each is a function."""

from collections.abc import Sequence
from typing import TypeVar

import tomli_w

from tacit.privacy import Guarantee
from tacit.privacy.guarantees import per
from tacit.privacy.mechanisms import unit_in
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.observers import EVERYBODY, short_name
from tacit.report.absent import describe_absences
from tacit.report.errata import list_errata
from tacit.report.html.frame import card, listing, table, text
from tacit.report.recorded import RecordedRun
from tacit.report.spending import Spending
from tacit.report.wording import (
    attacks,
    counted,
    list_agents,
    name_site_or_agent,
    number,
    percent,
    percent_at_most,
    span,
    write_epsilon,
)
from tacit.runs.event_types import PlanEvent
from tacit.runs.kept_settings import AbsenceSettings

Row = TypeVar("Row")


def plan(run: RecordedRun) -> str:
    """Show what was fixed for every agent before the first query."""
    plan = run.plan
    fixed = zip(plan.lot_sizes, plan.sample_rates, plan.clips, plan.noise_multipliers, strict=True)
    shown = [tuple(number(value) for value in row) for row in fixed]
    if not plan.private:
        shown = [(lot, rate, "none", "none") for lot, rate, *_ in shown]
    cells = [(who, span([plan.sizes[i] for i in members]), *row) for row, members, who in _groups(shown)]
    budget = "" if plan.epsilon is None or run.record.account is None else f" for ε = {span(plan.epsilon)}"
    size = "" if plan.params is None else f" The model has {plan.params:,} parameters."
    words = f"{plan.queries:,} queries of each agent’s data were planned{budget}.{size}"
    who = plan.protected
    masks = None if plan.masks is None else Masks.of_json(plan.masks)
    head: tuple[str, ...] = (
        "agent",
        f"{who}s",
        "lot L",
        "rate q",
        "clip C",
        "noise σ" if masks is None else "own noise σ",
    )
    own = "Its gradient"
    if plan.unit is not None:
        own = f"The sum of the gradients of its records ({unit_in(plan.unit)[1]} at most)"
    added = "Gaussian noise of σ·C is added to the sum, which is divided by L"
    if (discrete := plan.discrete) is not None:
        added = (
            f"it is rounded to a grid of 2^-{discrete.bits}·C or finer, and is then at most {discrete.room}·C long; discrete Gaussian noise "
            f"of σ·{discrete.room}·C is added to the sum, which is divided by L"
        )
    how = (
        f"Each {who} joins a lot with probability q. {own} is clipped to norm C; {added}."
        if plan.private
        else "Each record joins a lot with probability q. The sum of the lot’s gradients is divided by L."
    )
    if (ballot := plan.ballot) is not None:
        votes = ballot.votes(min(plan.noise_multipliers))
        head = ("agent", f"{who}s", "noise σ")
        cells = [(agent, records, row[-1]) for agent, records, *row in cells]
        how = (
            f"Each agent divides its records among {ballot.teachers} teachers, one by one. They vote on {ballot.records} public records. Whether "
            f"{votes.threshold:g} of them agree is checked under noise of {number(votes.threshold_noise)} votes, and up to {ballot.answers} records are labelled, "
            f"under noise of {number(votes.answer_noise)} votes for each class. All of that is one Gaussian mechanism of σ. What students learn from the labels costs nothing."
        )
    details = f'<p class="note">{text(how)}{text(_describe_masks(masks, plan))}</p>{_absences(run, masks)}'
    kind = "full" if masks is not None else ""  # one column more than fits beside another card
    return card("The plan", table(head, cells), details, note=text(words), kind=kind)


def _describe_masks(masks: Masks | None, plan: PlanEvent) -> str:
    """Say which masks come on top of own noise, and who shares them."""
    if masks is None:
        return ""
    sizes = [masks.size * lot / clip for lot, clip in zip(plan.lot_sizes, plan.clips, strict=True)]
    pairs = "all pairs of agents" if masks.keys.pairs is None else f"{len(masks.keys.all_pairs):,} pairs of agents"
    lost = f" Up to {counted(masks.lost, 'agent')} may leave for good; they count as curious." if masks.lost else ""
    return (
        f" Masks come on top: {pairs} share some, fresh for every query, of {span(sizes)}·C in units of the sum. One of the two adds "
        f"what the other subtracts, so that masks vanish from the average.{lost}"
    )


def _absences(run: RecordedRun, masks: Masks | None) -> str:
    """Say who was planned to be away when, and what the average suffers."""
    away = [AbsenceSettings(**each) for each in run.plan.absences]
    if not away:
        return ""
    items = "".join(f"<li>{text(words)}</li>" for words in describe_absences(away, masks, run.plan.rounds))
    return f'<p class="note">Agents that are away (rounds are counted from 0):</p><ul class="note">{items}</ul>'


def ledger(run: RecordedRun, spent: Spending | None) -> str:
    """Show what the run has spent of each owner's privacy, and whether its own summary agrees."""
    if spent is None:
        return ""
    plan, kept, other = run.plan, spent.guarantee, spent.other
    lost = f", {run.lost_queries:,} of them lost in a crash but charged" if run.lost_queries else ""
    unfinished = "" if run.charged == run.spent else ", the whole plan: the run is not finished"
    pairs = [
        ("data owners", f"{plan.agents:,}"),
        ("queries of each", f"{run.spent:,} of {plan.queries:,} planned{lost}"),
        ("charged", f"{run.charged:,}{unfinished}"),
        ("counted by", "the ledger, one row per query"),
        ("highest ε", f"{name_site_or_agent(plan, spent.agent)}: {kept}"),
        ("other adjacency", str(other)),
    ]
    if spent.masked:
        stated = f"{per(kept.unit, write_epsilon(spent.everybody.epsilon))} against {EVERYBODY}"
        pairs.insert(5, ("if all others collude", f"agent {spent.exposures[-1].agent}: {stated}"))
    if run.resumes:
        pairs.append(("resumed", "once" if run.resumes == 1 else f"{run.resumes:,} times"))
    if spent.stated is not None:
        verdict = "agrees with the ledger" if spent.agrees else "does NOT agree with the ledger"
        pairs.append(("summary.json", f"states ε = {write_epsilon(spent.stated)}, which {verdict}"))
    budgets = [None] * plan.agents if plan.epsilon is None else plan.epsilon
    each = zip(spent.per_agent, budgets, spent.per_agent_everybody, strict=True)
    lines = [
        (write_epsilon(value), number(budget), *[write_epsilon(most)] * spent.masked) for value, budget, most in each
    ]
    head: tuple[str, ...] = ("ε spent", "of")
    if spent.masked:
        head = (f"ε against {short_name(kept.observer)}", "of", "ε against everybody")
    begin = _common(plan.owners)
    if begin:
        pairs.insert(1, ("names", f"{begin}…"))
    rows = []
    for line, members, who in _groups(lines):
        name = plan.owners[members[0]].removeprefix(begin)
        whose = name if len(members) == 1 else who if who.endswith("agents") else f"agents {who}"
        rows.append((text(whose), f"{run.charged:,}", *line))
    note = (
        "What this run alone spent of each owner’s privacy. Other runs on the same data add to it; <code>tacit ledger</code> shows "
        "them all. Their sum holds if no run was planned after seeing another’s results, or if a budget was set before the first."
    )
    kind = "full" if spent.masked else ""
    return card("The ledger", listing(pairs), "<br>", table(("owner", "queries", *head), rows), note=note, kind=kind)


def meaning(run: RecordedRun, spent: Spending | None) -> str:
    """Explain what the ε of this run allows an attacker."""
    if spent is None:
        return ""
    kept = spent.guarantee
    even, caught = attacks(kept.epsilon, kept.delta)
    which = "was used or not" if kept.adjacency == "add_remove" else "or another was used"
    supposed = "" if kept.release else " All of this assumes secret lots and noise, which this run did not have."
    everybody = ""
    if spent.masked:
        most, found = attacks(spent.everybody.epsilon, kept.delta)
        everybody = (
            f"<p>If <strong>all other agents together</strong> do this, ε = {write_epsilon(spent.everybody.epsilon)} allows "
            f"<strong>{percent_at_most(most)}</strong> of even bets, and <strong>{percent_at_most(found)}</strong> found. Who must not collude is for the "
            "agents’ agreement to say; see docs/masks.md.</p>"
        )
    return card(
        "What ε means",
        f"<p>Suppose {_attacker(run, kept)} all {text(kept.unit)}s but one, and bets on whether that {text(kept.unit)} {which}. "
        f"With ε = {write_epsilon(kept.epsilon)} and δ = {kept.delta:g} even the best possible attack wins at most "
        f"<strong>{percent_at_most(even)}</strong> of even bets; guessing wins half. If it may be wrong about one in a hundred "
        f"others, it finds at most <strong>{percent_at_most(caught)}</strong> of those it looks for.</p>{everybody}"
        "<p>These are bounds, not measurements: real attacks usually do worse. Smaller ε is safer: ε = 1 bounds even bets at "
        f"{percent(attacks(1, 0)[0], 0)}, ε = 0.1 at {percent(attacks(0.1, 0)[0], 0)}.{supposed}</p>"
        f'<p class="note">ε covers single {text(kept.unit)}s, not groups of them, and not <em>that</em> an agent takes part. The numbers '
        f"of {text(kept.unit)}s and the settings of lots, clipping, noise, graph and model are public. Choosing settings by trying them "
        "on the same private data costs budget, too.</p>",
    )


def _attacker(run: RecordedRun, kept: Guarantee) -> str:
    """Say who attacks and what they see, up to what they know of the records."""
    if run.plan.agents == 1 and run.plan.site is None:
        return "someone sees the published model and every model before it, knows"
    if kept.observer == EVERYBODY or kept.observer.curious == 0:
        return "someone sees every message, knows"
    if kept.observer.curious == 1:
        return "another agent sees every message, removes the masks that it shares, knows"
    return f"a group of {kept.observer.curious} other agents sees every message, removes the masks that its members share, knows"


def checked(run: RecordedRun) -> str:
    """Show whether the settings were checked, when, and with which result."""
    if not run.plan.private or run.plan.votes is not None:  # there is no check of votes
        return ""
    found = run.checked
    if found is None:
        words = "These settings were not checked. To check them, run tacit audit with the run’s config.toml."
    elif found.verdict == "no fault found":
        words = f"Checked on {found.checked[:10]}: no fault was found, which does not prove that there is none."
    else:
        words = f"Checked on {found.checked[:10]}: a fault was found ({', '.join(found.failed)}). Do not rely on ε."
    how = '<p class="note">A check uses made-up records: it measures the influence of one record, bits, noise and lots.</p>'
    return card("Check of settings", f"<p>{text(words)}</p>", how)


def errata(run: RecordedRun) -> str:
    """List the errata of the paper that apply to this run."""
    items = "".join(
        f'<li><span class="number">{each.number}</span><span><span class="paper">{text(each.paper)}</span> '
        f"{text(each.here)}</span></li>"
        for each in list_errata(run)
    )
    body = f'<ol class="errata">{items}</ol>' if items else '<p class="note">None.</p>'
    note = "Where the paper or its code is wrong, and what this run did instead. Numbers as in docs/errata.md."
    return card("Errata that apply", body, note=note, kind="full")


def settings(run: RecordedRun) -> str:
    """Show all settings of the run."""
    return (
        '<details class="card full"><summary>All settings (config.toml)</summary>'
        f"<pre>{text(tomli_w.dumps(run.config))}</pre></details>"
    )


def _groups(rows: Sequence[Row]) -> list[tuple[Row, list[int], str]]:
    """Group agents with equal rows, and name the agents of each group."""
    members: dict[Row, list[int]] = {}
    for agent, row in enumerate(rows):
        members.setdefault(row, []).append(agent)
    return [(row, who, "all agents" if len(who) == len(rows) > 1 else list_agents(who)) for row, who in members.items()]


def _common(owners: Sequence[str]) -> str:
    """Return what all owners' names begin with, up to a slash, so that it need not be repeated for each."""
    begin = owners[0][: owners[0].rfind("/") + 1] if len(owners) > 1 else ""
    while begin and not all(owner.startswith(begin) for owner in owners):
        begin = begin[: begin.rfind("/", 0, -1) + 1]
    return begin
