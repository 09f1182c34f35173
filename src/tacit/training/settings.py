"""All settings of a run, in one frozen object. Nothing happens here."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import networkx as nx
import torch
from scipy import sparse
from torch import nn

from tacit.algorithms import Algorithm
from tacit.algorithms.averaged import is_pooled, line_of, name_of
from tacit.algorithms.interface import check_rule
from tacit.algorithms.robust import is_robust
from tacit.data import AgentData
from tacit.errors import InvalidInput
from tacit.models import Loss, cross_entropy, views_cross_entropy
from tacit.networks import Tap
from tacit.networks.topology import is_topology
from tacit.privacy import Cancelling, Compile, Discrete, Fast, Ledger, NoPrivacy, Privacy, Secret, Sources, Unit
from tacit.registry import ROBUST_MEANS
from tacit.training.absences import Absence
from tacit.training.preparation import Graphs, Model
from tacit.training.schedules import Schedule


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """All settings of a run: `tacit.train(algorithm, **settings)` takes these.

    algorithm: the update rule Ψ, such as `DSGT()`.
    model: a module, whose present parameters are the start, or a function that makes one, called under `seed`.
    data: who holds which records: `data_set.split(agents, ...)` or `AgentData.from_parts([...])`. In a process that hosts some of
        the agents, those of these agents alone.
    privacy: `Privacy(...)`, or `NoPrivacy(lot_size=...)`.
    rounds: how many rounds to play.
    gossip_rounds: rounds after these in which agents only mix their models: no query, so they cost no privacy. They remove the differences
        between agents that masks or uneven data have left.
    exchanges_per_query: how many exchanges, over successive rounds of the graph's links, take the place of each exchange of a rule.
        For rules that mix; with `tacit.networks.base_graphs` a few of them are an exact average.
    absences: agents that are away for some rounds or for good, each an `Absence(agent, first, until)`.
    lr: the step size: a number, one for each agent, or a schedule such as `LogSpaced(0.06, 0.005)`.
    graph: who talks to whom: a networkx graph, or one that changes from round to round, such as `tacit.networks.Cycle`; a list
        gives every trial its own. Not needed by rules that never exchange.
    mixing: how neighbours are weighted: `metropolis`, `max_degree`, `uniform`, or a matrix of your own.
    any_order: let a matrix product choose the order in which neighbours' values are added: faster where everyone has many
        neighbours. Such a run agrees with the same run on another runtime to a tolerance, not to the bit.
    allow_drift: accept weights that move the average; only for reproducing the published code.
    loss: maps a batch of outputs and targets to one loss per record; cross-entropy unless given.
    seed: drives all public randomness: initialisation and `at.chance`. Lots and noise never come from it.
    sources: where lots and noise come from: `Secret()` unless given. `Seeded(s)` or `Fast(s)` can be repeated, and make a
        run that is not a release. A run without privacy draws its lots from `Fast(seed)`.
    ledger: where queries are written, a new one unless given. Its budget, if it has one, is enforced. A run without privacy is also
        written there, and is refused if a budget is set.
    name: the run's label in the ledger, used once; of several trials, trial t is `<name>/<t>`.
    sizes: the declared number of records of each agent, from which q = L/n follows; the true number unless given.
    step_agents: for how many agents' lots a step of the engine is shaped, all that are hosted here unless given. Libraries round by
        the shape: runtimes agree to the bit where it is the same, such as 1.
    same_start: whether all agents of a trial start from one θ. If not, `model` must be a function.
    evaluate_every: rounds between snapshots of the models; at most twenty snapshots unless given. All validation records are scored after
        the last round and a fixed sample of them before, planned so that a run scores a tenth as many records as it trains on.
        A short run scores more, since its end is scored in full.
    spare_queries: queries beyond those that the run makes, for answers that a crash may lose; the noise covers them as well.
    private_diagnostics: collect what each query saw of the private data. Such a run is not a release.
    taps: functions that see every exchange's tensors, as an observer of all links would.
    compile: whether gradients are compiled, which takes about a minute and makes them a few times faster. `"auto"`
        compiles if the run is long enough to make up for that. Rounding differs from that of a run that is not compiled.
    device: where tensors live.
    progress: show a progress bar, if the error stream is a terminal.
    """

    algorithm: Algorithm[Any]
    model: Model
    data: AgentData
    privacy: Privacy | NoPrivacy
    rounds: int
    lr: float | Sequence[float] | Schedule
    graph: Graphs | None = None
    mixing: str | sparse.csr_array = "metropolis"
    any_order: bool = False
    allow_drift: bool = False
    loss: Loss = cross_entropy
    seed: int = 0
    sources: Sources | None = None
    ledger: Ledger | None = None
    name: str | None = None
    sizes: Sequence[int] | None = None
    step_agents: int | None = None
    same_start: bool = True
    evaluate_every: int | None = None
    spare_queries: int = 0
    gossip_rounds: int = 0
    exchanges_per_query: int = 1
    absences: Sequence[Absence] = ()
    private_diagnostics: bool = False
    taps: Sequence[Tap] = ()
    compile: Compile = "auto"
    device: torch.device | str = "cpu"
    progress: bool = False

    def __post_init__(self) -> None:
        self._check_kinds()
        for name, least in (
            ("rounds", 1),
            ("gossip_rounds", 0),
            ("exchanges_per_query", 1),
            ("spare_queries", 0),
            ("seed", 0),
            ("evaluate_every", 1),
            ("step_agents", 1),
        ):
            value = getattr(self, name)
            if value is None and name in ("evaluate_every", "step_agents"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**62:
                raise InvalidInput(f"{name} is {value!r}; it must be a whole number, at least {least}")
        if is_pooled(self.algorithm) and self.data.agents > 1:
            raise InvalidInput(
                f"{name_of(self.algorithm)} trains one agent, but the data has {self.data.agents}: pass data.pooled(), or use Local for "
                "agents that learn alone"
            )
        line, privacy = line_of(self.algorithm), self.privacy
        continuous = isinstance(privacy, Privacy) and not isinstance(privacy.noise, Discrete)
        if line is not None and line.discrete and continuous:
            raise InvalidInput(
                f"{name_of(self.algorithm)} rounds every record and needs noise on the same grid: give privacy noise=Discrete() and "
                "accountant='rdp', or --noise discrete"
            )
        if self.data.dataset.classes is None and self.loss in (cross_entropy, views_cross_entropy):
            raise InvalidInput("the targets are not class labels, so cross-entropy does not apply; give loss=")
        self._check_robust()
        if isinstance(self.privacy, NoPrivacy) and self.private_diagnostics:
            raise InvalidInput("private_diagnostics describe clipping, but a run without privacy does not clip")

    def _check_robust(self) -> None:
        """Refuse what a robust mean would break, or what would mix without one."""
        if isinstance(self.mixing, str) and self.mixing.partition(":")[0] in ROBUST_MEANS:
            raise InvalidInput(
                f"mixing is {self.mixing!r}, which is not a kind of weights; give algorithm=tacit.algorithms.Robust(rule, "
                f"{self.mixing.partition(':')[0]!r})"
            )
        if not is_robust(self.algorithm):
            return
        if self.cancelling is not None:
            raise InvalidInput(
                "masks cancel in a weighted mean of all agents, but a robust mean is not one; leave out Robust or noise=Cancelling(...)"
            )
        if self.gossip_rounds:
            raise InvalidInput("gossip_rounds mix by weights, which a robust mean is to avoid; leave them out")

    def _check_kinds(self) -> None:
        """Say what was expected where something else was given: the most common mistakes."""
        for key in ("algorithm", "data", "model", "loss"):
            check_kind(key, getattr(self, key))
        if not isinstance(self.privacy, Privacy | NoPrivacy):
            raise InvalidInput(f"privacy is {self.privacy!r}; give Privacy(...), or NoPrivacy(lot_size=...) for none")
        if self.compile not in (True, False, "auto"):
            raise InvalidInput(f"compile is {self.compile!r}; it must be True, False or 'auto'")
        given: Any = self.graph
        graphs = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        if given is not None and not (
            graphs and all(isinstance(graph, nx.Graph) or is_topology(graph) for graph in graphs)
        ):
            what = f"the text {given!r}" if isinstance(given, str) else f"a {type(given).__name__}"
            changing = callable(given) and not isinstance(given, type)
            function = (
                ". A function of the round's number is tacit.networks.Changing(function, agents)" if changing else ""
            )
            raise InvalidInput(
                f"graph is {what}; give a networkx graph such as tacit.graphs.ring(10), links that change such as "
                f"tacit.networks.base_graphs(10), or a list with one for each trial{function}"
            )
        if not isinstance(self.taps, Sequence) or not all(callable(tap) for tap in self.taps):
            raise InvalidInput(f"taps is {self.taps!r}; give a list of functions")
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise InvalidInput(f"ledger is a {type(self.ledger).__name__}; give a Ledger, such as Ledger(Budget(...))")
        if self.sources is not None and (isinstance(self.sources, type) or not hasattr(self.sources, "make")):
            raise InvalidInput(f"sources is {self.sources!r}; give Secret(), Seeded(seed) or Fast(seed)")
        if self.name is not None and not isinstance(self.name, str):
            raise InvalidInput(f"name is {self.name!r}; it must be a text")
        try:
            torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError, TypeError) as error:
            raise InvalidInput(f"device is {self.device!r}, which cannot be used here: {error}") from None

    def __repr__(self) -> str:
        # If sizes are declared, the true numbers of records are private.
        shown = {field.name: repr(getattr(self, field.name)) for field in fields(self)}
        shown["data"] = self.data.described(None if self.sizes is None else ())
        return f"Training({', '.join(f'{name}={value}' for name, value in shown.items())})"

    @property
    def chosen_sources(self) -> Sources:
        """Where lots and noise come from, after defaults."""
        if self.sources is not None:
            return self.sources
        return Secret() if isinstance(self.privacy, Privacy) else Fast(self.seed)

    @property
    def total_rounds(self) -> int:
        """All rounds, also those in which models are only mixed."""
        return self.rounds + self.gossip_rounds

    @property
    def link_rounds(self) -> int:
        """How many rounds of the graph's links these take."""
        return self.total_rounds * self.exchanges_per_query

    @property
    def cancelling(self) -> Cancelling | None:
        """How noise cancels between agents; None if every agent adds only its own noise."""
        noise = self.privacy.noise if isinstance(self.privacy, Privacy) else None
        return noise if isinstance(noise, Cancelling) else None

    @property
    def unit(self) -> Unit | None:
        """Who is protected, if not every record by itself."""
        return self.privacy.unit if isinstance(self.privacy, Privacy) else None

    @property
    def is_release(self) -> bool:
        """Whether the results of the run may be shown to others with its ε."""
        return isinstance(self.privacy, Privacy) and self.chosen_sources.secret and not self.private_diagnostics


def check_kind(key: str, value: Any) -> None:
    """Say what was expected of an algorithm, data, a model or a loss where something else was given."""
    if key == "algorithm":
        check_rule(value)
    elif key == "data" and not isinstance(value, AgentData):
        raise InvalidInput(explain_undivided(value))
    elif key == "model" and not isinstance(value, nn.Module) and not callable(value):
        raise InvalidInput(f"model is {value!r}; give an nn.Module or a function that makes one")
    elif key == "loss" and not callable(value):
        raise InvalidInput(f"loss is {value!r}; give a function of outputs and targets, one value per record")


def explain_undivided(data: Any) -> str:
    """Say what to do with data that is not divided among agents."""
    return f'data is a {type(data).__name__}; divide it among agents: data.split(10, IID()), or agents=10, split="iid"'
