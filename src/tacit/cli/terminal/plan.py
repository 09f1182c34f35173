"""The plan of a run, printed before its first query."""

import resource
import shlex
from collections.abc import Iterator

from rich.table import Table

from tacit.algorithms.averaged import name_of, rule_of
from tacit.cli.terminal.output import plain_table, round_up
from tacit.data.inputs import parts
from tacit.privacy.guarantees import per, terms
from tacit.privacy.observers import observers_to_state
from tacit.privacy.stated_epsilons import find_cut_off
from tacit.privacy.votes import Ballot
from tacit.registry import CODECS
from tacit.report.absent import describe_absences
from tacit.report.teachers import explain_unknown_classes
from tacit.report.wording import amount, counted, drops_masks, name_agents, span
from tacit.runs import Runner
from tacit.runs.event_types import PlanEvent
from tacit.training.monitor import SCORED_SHARE

_AGENTS_SHOWN = 20


def plan_tables(runner: Runner) -> list[Table]:
    """Return the plan of the run and, if agents differ and are not too many to list, of each agent."""
    private = runner.session.plan.privacy is not None
    guarantee = _guarantee(runner) if private else [("privacy", "none: there is no guarantee")]
    rows = (*_training(runner), *guarantee, *_costs(runner))
    return [plain_table(f"plan of {runner.folder.name}", "what", "value", rows=rows), *_mechanisms(runner)]


def _training(runner: Runner) -> Iterator[tuple[str, str]]:
    """Yield what is trained, and how often records are queried."""
    session = runner.session
    yield "algorithm", f"{name_of(session.training.algorithm)}, {_rounds(runner)}"
    yield "data", _data(runner)
    if session.training.graph is not None and session.cost.messages:
        yield "graph", _graph(runner)
        yield "codec of messages", _codec(runner)
    yield "model", f"{runner.config.model}, {session.model.size:,} parameters"
    yield "queries of each agent", f"{session.cost.queries:,} and {session.training.spare_queries} spare"


def _data(runner: Runner) -> str:
    """Say whose records are trained on, and how they were divided."""
    session, split = runner.session, getattr(runner.config, "split", None)
    data = session.training.data
    held = span(session.sizes, "{:,.0f}".format)
    if session.hosted.total == 1:
        return f"{data.dataset.name}, one agent with {held} {runner.protected}s"
    words = f"{data.dataset.name}, {session.hosted.total} agents with {held} {runner.protected}s each"
    if split is None or "/seed " not in data.partition:
        return f"{words}, as their owners divided them"
    return f"{words}, split {split}"


def _graph(runner: Runner) -> str:
    """Say who talks to whom, and how neighbours are mixed."""
    planned = _recorded(runner)
    words = f"{runner.config.graph}, {counted(len(planned.edges), 'link')}"
    if planned.changing:
        return f"{words}, some of them in each round"
    return f"{words}; mixing: {runner.config.mixing}"


def _codec(runner: Runner) -> str:
    """Say how messages are encoded, by the name that --codec takes."""
    codec = getattr(rule_of(runner.session.training.algorithm), "codec", None)
    if codec is None:
        return "that of the rule"
    kind = f"{type(codec).__module__}:{type(codec).__qualname__}"
    name = next((name for name, line in CODECS.lines.items() if line.place == kind), type(codec).__name__)
    numbers = [value for value in vars(codec).values() if isinstance(value, int | float)]
    return ":".join([name, *(f"{value:g}" for value in numbers)])


def _guarantee(runner: Runner) -> Iterator[tuple[str, str]]:
    """Yield what is guaranteed to whom, and the noise that it takes."""
    training, plan = runner.session.training, runner.session.plan
    assert plan.privacy is not None
    unit = training.unit
    most = "" if unit is None else f", with up to {unit.most} records in a query"
    yield "protects", f"every {runner.protected}{most}"
    yield from _noise(runner)
    if plan.bands:
        yield "bands", f"noise is correlated over {len(plan.bands)} queries; as many groups of records take turns"
    elif runner.config.bands == "auto":
        yield "bands", "none: at this ε and number of queries they would not help"
    if plan.ballot is None:
        yield "sampling rate q", _span(plan.sample_rates)
    name, stated = (
        f"{per(runner.protected)} at the end",
        terms(plan.privacy.delta, plan.privacy.adjacency, plan.privacy.accountant),
    )
    for observer in observers_to_state(plan.observer):
        planned = runner.epsilon(plan.queries, observer)
        assert planned is not None
        yield name, f"{round_up(planned)} at {stated}, against {observer}"
        name = ""
    if plan.ballot is None:  # audits are of gradients
        yield "checked", _checked(runner)
    yield "release", "yes" if training.is_release else "no: lots and noise can be repeated or seen"


def _costs(runner: Runner) -> Iterator[tuple[str, str]]:
    """Yield who is away or elsewhere, and what a round costs."""
    session = runner.session
    for words in describe_absences(runner.config.absences, session.plan.masks, session.training.rounds):
        yield "away", words
    if runner.team.description is not None:
        yield "processes", runner.team.description
    sent = max(int(session.cost.bytes_sent.max()), runner.team.most_sent) / session.training.total_rounds
    yield "sent by an agent in a round", f"{amount(sent)} at most"
    yield "gradients", session.chosen.why
    validation = session.training.data.dataset.validation
    if validation is None:
        yield "scoring", "none: the data has no validation records"
    elif session.scored_share > SCORED_SHARE:  # a run this short scores more records than the tenth that is planned for
        scored = f"all {len(validation):,} validation records at the end of a short run"
        yield "scoring", f"{session.scored_share:.2g} records for each one trained on: {scored}"
    yield "memory, roughly", amount(_memory(runner))


def _rounds(runner: Runner) -> str:
    """Say how many rounds there are, and how many of them make no query."""
    training = runner.session.training
    words = counted(training.rounds, "round")
    if training.exchanges_per_query > 1:
        words += f" of {training.exchanges_per_query} exchanges"
    return words if not training.gossip_rounds else f"{words}, then {training.gossip_rounds:,} without queries"


def _noise(runner: Runner) -> Iterator[tuple[str, str]]:
    """Yield how much noise agents add and, if pairs of them share masks, how large these are and who is not protected by them."""
    plan, masks = runner.session.plan, runner.session.plan.masks
    if plan.ballot is not None:
        yield from _votes(runner, plan.ballot)
        return
    yield "own noise σ" if masks else "noise multiplier σ", _span(plan.noise_multipliers)
    if plan.rounding is not None:
        room = plan.rounding.bound(1.0)
        yield "rounding", f"{plan.rounding.bits} bits, discrete noise of σ times {room:g} clipping norms"
    if drops_masks(runner.config, masks):
        yield "masks", "none: with this rule and graph they would not help"
    if masks is not None:
        sizes = tuple(masks.size * lot / clip for lot, clip in zip(plan.lot_sizes, plan.clips, strict=True))
        pairs = "all pairs" if masks.keys.pairs is None else counted(len(masks.keys.all_pairs), "pair")
        yield "masks", f"{_span(sizes)} (like σ, in units of the clipping norm), shared by {pairs}"
        if cut_off := find_cut_off(plan.mechanisms, plan.observer):
            alone = f"{name_agents(cut_off)}: own noise alone against {plan.observer}"
            yield "not protected by masks", alone


def _votes(runner: Runner, ballot: Ballot) -> Iterator[tuple[str, str]]:
    """Yield what teachers are asked, how much noise their votes get, and a warning of those who cannot know all classes."""
    each = [ballot.votes(sigma) for sigma in runner.session.plan.noise_multipliers]
    agree, answer = (_span(tuple(getattr(one, f"{kind}_noise") for one in each)) for kind in ("threshold", "answer"))
    asked = f"asked about {ballot.records} public records, {ballot.answers} answers at most"
    yield "teachers of each agent", f"{ballot.teachers}, {asked}"
    yield "noise on whether they agree", f"{agree} votes, compared with {each[0].threshold:g}"
    yield "noise on what they answer", f"{answer} votes for each class"
    planned = _recorded(runner)
    if (unknown := explain_unknown_classes(planned)) is not None:
        yield "warning" if planned.counts is not None else "not checked", unknown


def _recorded(runner: Runner) -> PlanEvent:
    """Return the plan in the run's folder."""
    planned = runner.folder.events().plan
    assert planned is not None, "a plan is on record before it is shown"
    return planned


def _checked(runner: Runner) -> str:
    """Say whether these settings were checked, or how to check them."""
    found = runner.folder.events().check
    if found is None:
        return f"no; to check these settings: tacit audit {shlex.quote(str(runner.folder.config_file))}"
    return f"{found.verdict}, {found.checked[:10]}"


def _mechanisms(runner: Runner) -> list[Table]:
    plan, sizes = runner.session.plan, runner.session.sizes
    each = list(zip(sizes, plan.lot_sizes, plan.sample_rates, plan.noise_multipliers, strict=True))
    if plan.privacy is None or plan.ballot is not None or len(set(each)) == 1 or len(each) > _AGENTS_SHOWN:
        return []
    noise = ">noise σ" if plan.masks is None else ">own noise σ"
    rows = [
        (str(agent), f"{size:,}", f"{lot:g}", f"{rate:.5g}", f"{sigma:.5g}")
        for agent, (size, lot, rate, sigma) in enumerate(each)
    ]
    return [plain_table(None, ">agent", f">{runner.protected}s", ">lot", ">rate q", noise, rows=rows)]


def _span(values: tuple[float, ...]) -> str:
    return span(values, "{:.5g}".format)


def _memory(runner: Runner) -> float:
    """Return roughly how much memory the run takes in this process: what the process holds now, states, and the lots and work of a query."""
    session = runner.session
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    theta = session.state.theta
    lots = sum(session.plan.lot_sizes[agent] for agent in session.hosted.agents)
    records = session.training.data.dataset.train
    numbers = sum(table[0].numel() for table in parts(records.inputs))
    inputs = 2 * lots * numbers * theta.element_size()
    states = 8 * theta.numel() * theta.element_size()
    return float(held + states + inputs + session.chosen.engine.working_bytes(lots))
