"""The plan of a run, printed before its first query."""

import resource
import shlex

from rich.table import Table

from tacit.algorithms.averaged import name_of
from tacit.cli.terminal.output import plain_table, round_up
from tacit.data.inputs import parts
from tacit.privacy import Unit
from tacit.privacy.guarantees import per, terms
from tacit.privacy.mechanisms import RECORD
from tacit.privacy.observers import find_cut_off, observers_to_state
from tacit.report.absent import describe_absences
from tacit.report.wording import agents, amount, counted
from tacit.runs import Runner
from tacit.training.monitor import SCORED_SHARE

_AGENTS_SHOWN = 20


def plan_tables(runner: Runner) -> list[Table]:
    """Return the plan of the run and, if agents differ and are not too many to list, of each agent."""
    return [_plan(runner), *_mechanisms(runner)]


def _plan(runner: Runner) -> Table:
    session = runner.session
    plan, cost = session.plan, session.cost
    width = session.model.size
    table = plain_table(f"plan of {runner.folder.name}", "what", "value")
    table.add_row("algorithm", f"{name_of(session.training.algorithm)}, {_rounds(runner)}")
    table.add_row("model", f"{runner.config.model}, {width:,} parameters")
    table.add_row("queries of each agent", f"{cost.queries:,} and {session.training.spare_queries} spare")
    if plan.privacy is not None:
        table.add_row("protects", _protected(session.training.unit))
        for row in _noise(runner):
            table.add_row(*row)
        table.add_row("sampling rate q", _span(plan.sample_rates))
        name, stated = (
            f"{per(runner.protected)} at the end",
            terms(plan.privacy.delta, plan.privacy.adjacency, plan.privacy.accountant),
        )
        for observer in observers_to_state(plan.observer):
            promised = runner.epsilon(plan.queries, observer)
            assert promised is not None
            table.add_row(name, f"{round_up(promised)} at {stated}, against {observer}")
            name = ""
        table.add_row("checked", _checked(runner))
        table.add_row("release", "yes" if session.training.is_release else "no: lots and noise can be repeated or seen")
    else:
        table.add_row("privacy", "none: nothing is promised")
    for words in describe_absences(session.training.absences, plan.masks, session.training.rounds):
        table.add_row("away", words)
    sent = cost.bytes_sent.max() / session.training.total_rounds
    table.add_row("sent by an agent in a round", f"{amount(sent)} at most")
    table.add_row("gradients", session.chosen.why)
    if session.scored_share > SCORED_SHARE:
        table.add_row("scoring", _scoring(runner))
    table.add_row("memory, about", amount(_memory(runner)))
    return table


def _scoring(runner: Runner) -> str:
    """Say that a run this short scores more records than the tenth that is planned for."""
    share, validation = runner.session.scored_share, runner.session.training.data.dataset.validation
    assert validation is not None
    return f"{share:.2g} records for each one trained on: all {len(validation):,} validation records at the end of a short run"


def _rounds(runner: Runner) -> str:
    """Say how many rounds there are, and how many of them make no query."""
    training = runner.session.training
    words = f"{training.rounds} rounds"
    if training.exchanges_per_query > 1:
        words += f" of {training.exchanges_per_query} exchanges"
    return words if not training.gossip_rounds else f"{words}, then {training.gossip_rounds} without queries"


def _noise(runner: Runner) -> list[tuple[str, str]]:
    """Say how much noise agents add and, if pairs of them share masks, how large these are and who is not protected by them."""
    plan = runner.session.plan
    if plan.masks is None:
        rows = [("noise multiplier σ", _span(plan.noise_multipliers))]
        if getattr(runner.config, "noise", "local") == "cancelling":
            rows.append(("masks", "none: with this rule and graph they would not help"))
        return rows
    sizes = tuple(plan.masks.size * lot / clip for lot, clip in zip(plan.lot_sizes, plan.clips, strict=True))
    keys = plan.masks.keys
    pairs = "all pairs" if keys.pairs is None else counted(len(keys.all_pairs), "pair")
    rows = [
        ("own noise σ", _span(plan.noise_multipliers)),
        ("masks", f"{_span(sizes)} (like σ, in units of the clipping norm), shared by {pairs}"),
    ]
    if cut_off := find_cut_off(plan.mechanisms, plan.observer):
        rows.append(("without masks' protection", f"agents {agents(cut_off)}: own noise alone against {plan.observer}"))
    return rows


def _protected(unit: Unit | None) -> str:
    """Say who is protected."""
    return f"every {RECORD}" if unit is None else f"every {unit.name}, with up to {unit.most} records in a query"


def _checked(runner: Runner) -> str:
    """Say whether these settings were checked, or how to check them."""
    found = runner.folder.events().check
    if found is None:
        return f"not checked: tacit audit {shlex.quote(str(runner.folder.config_file))}"
    return f"{found.verdict}, {found.checked[:10]}"


def _mechanisms(runner: Runner) -> list[Table]:
    plan, sizes = runner.session.plan, runner.session.sizes
    each = list(zip(sizes, plan.lot_sizes, plan.sample_rates, plan.noise_multipliers, strict=True))
    if plan.privacy is None or len(set(each)) == 1 or len(each) > _AGENTS_SHOWN:
        return []
    table = plain_table(
        None, ">agent", f">{runner.protected}s", ">lot", ">rate q", ">noise σ" if plan.masks is None else ">own noise σ"
    )
    for agent, (size, lot, rate, sigma) in enumerate(each):
        table.add_row(str(agent), f"{size:,}", f"{lot:g}", f"{rate:.5g}", f"{sigma:.5g}")
    return [table]


def _span(values: tuple[float, ...]) -> str:
    low, high = min(values), max(values)
    return f"{low:.5g}" if low == high else f"{low:.5g} to {high:.5g}"


def _memory(runner: Runner) -> float:
    """Return roughly how much memory the run takes: what the process holds now, states, and the lots and work of a query."""
    session = runner.session
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    theta = session.state.theta
    lots = sum(session.plan.lot_sizes)
    numbers = sum(table[0].numel() for table in parts(session.training.data.dataset.train.inputs))
    inputs = 2 * lots * numbers * theta.element_size()
    states = 8 * theta.numel() * theta.element_size()
    return float(held + states + inputs + session.chosen.engine.working_bytes(lots))
