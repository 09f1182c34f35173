"""The settings of a run as a file or a command line gives them, and how they become a `Training`.

Flat keys, one meaning each; a misspelt key is an error that names the nearest right one. Reading settings needs no
PyTorch, and runs none of the user's code that they name.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from tacit.errors import InvalidInput, choose
from tacit.io.toml import read_toml
from tacit.io.validation import mistake
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.rounding import MOST_BITS
from tacit.registry import CODECS, DATA_SETS, GRAPHS, LOSSES, MODELS, ROBUST_MEANS, RULES, SCHEDULES, rule_line
from tacit.runs.config_checks import KEYS, OPTIONS, as_option, check_numbers_of_agents, check_together, displaced
from tacit.runs.config_values import (
    PerAgent,
    as_text,
    bands_or_auto,
    bool_or_auto,
    mixing_name,
    part_name,
    positive_or_none,
    ratio_or_auto,
    rule_name,
)
from tacit.runs.kept_settings import AbsenceSettings, KeptSettings

if TYPE_CHECKING:
    import networkx as nx

    from tacit.algorithms import Algorithm
    from tacit.data import AgentData
    from tacit.networks import Topology
    from tacit.privacy import Ledger
    from tacit.training.settings import Training


_OWN = "or your own as file.py:NAME"


class RunConfig(KeptSettings):
    """All settings of a run's `config.toml` or of the command line of `tacit train`."""

    algorithm: Annotated[str, PlainValidator(rule_name)] = Field(
        "dsgt",
        description=RULES.listed(f"each with options behind it, as in dinno:rho=1; {_OWN}"),
    )
    dataset: Annotated[str, BeforeValidator(part_name)] = Field(
        "digits",
        description=DATA_SETS.listed("synthetic:RECORDS", _OWN),
    )
    data_dir: str | None = Field(None, description="folder with the data; TACIT_DATA unless given")
    agents: int = Field(10, ge=1, description="number of agents")
    split: Annotated[str, BeforeValidator(as_text)] = Field(
        "1.0", description="who gets what: t of A(t), iid, dirichlet:ALPHA or dirichlet:ALPHA,min_size=N"
    )
    graph: Annotated[str, BeforeValidator(part_name)] = Field(
        "ring",
        description=GRAPHS.listed("random:fiedler=0.39", f"a file, one that changes ({SCHEDULES.listed()})", _OWN),
    )
    mixing: Annotated[str, PlainValidator(mixing_name)] = Field(
        "metropolis",
        description="how neighbours are weighted: metropolis, max_degree or uniform; or, against agents that send nonsense: median, trimmed:B "
        "or clipped:τ",
    )
    allow_drift: bool = Field(False, description="accept weights that move the average")
    model: Annotated[str, BeforeValidator(part_name)] = Field("logistic", description=MODELS.listed(_OWN))
    loss: Annotated[str, BeforeValidator(part_name)] = Field("cross_entropy", description=LOSSES.listed(_OWN))

    private: bool = Field(True, description="clip and add noise")
    epsilon: Annotated[float | list[float] | None, PlainValidator(positive_or_none)] = Field(
        None, description="highest ε of any record, from which the noise follows; or one for each agent, as in 1,2,4"
    )
    noise_multiplier: Annotated[float | list[float] | None, PlainValidator(positive_or_none)] = Field(
        None, description="σ, instead of epsilon; or one for each agent"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="δ of (ε, δ)")
    clip: PerAgent = Field(1.0, description="norm C to which gradients are clipped; or one for each agent")
    lot_size: PerAgent = Field(64.0, description="expected records in a lot; or one for each agent")
    adjacency: Adjacency = Field("add_remove", description="what neighbouring data sets are: add_remove or replace_one")
    accountant: Accountant = Field(
        "pld",
        description="how ε is derived: pld (tight) or rdp (a looser bound, which discrete noise needs and has unless given)",
    )
    unit: str | None = Field(
        None,
        description="protect whoever has several records, by the data's column of units: NAME:MOST, as in patient:8",
    )
    bands: Annotated["int | Literal['auto']", PlainValidator(bands_or_auto)] = Field(
        1,
        description="over how many queries noise is correlated, so that it partly cancels in sums of answers, or auto; 1 for not at all",
    )
    source: Literal["secret", "seeded", "fast"] = Field(
        "secret", description="where lots and noise come from: secret, seeded or fast; only secret makes a release"
    )
    spare_queries: int = Field(
        2, ge=0, le=10**6, description="queries held for answers that a crash may lose; none for pate unless given"
    )
    private_diagnostics: bool = Field(False, description="write what queries saw of private data; not a release")

    noise: Literal["local", "cancelling", "discrete"] = Field(
        "local",
        description="local; cancelling: pairs of agents share masks that vanish from the average; discrete: records are rounded to a grid "
        "and noise lies on it",
    )
    curious: int = Field(1, ge=0, description="cancelling: how many curious agents together ε holds against")
    keys: str = Field(
        "complete",
        description="cancelling: which pairs share masks: complete, graph (neighbours), or a graph as for graph, such as torus",
    )
    mask_ratio: Annotated["float | Literal['auto']", PlainValidator(ratio_or_auto)] = Field(
        "auto", description="cancelling: size of a mask beside the noise that an agent without masks needs, or auto"
    )
    lost: int = Field(
        0, ge=0, description="cancelling: how many agents may leave for good and be left out of the masks"
    )
    rounding_bits: int = Field(
        10, ge=0, le=MOST_BITS, description="discrete: the grid has steps of 2^-N of the clipping norm, or less"
    )

    rounds: int = Field(200, ge=1, le=10**7, description="number of rounds")
    gossip_rounds: int = Field(
        0, ge=0, le=10**7, description="further rounds in which agents only mix their models, which costs no privacy"
    )
    exchanges_per_query: int = Field(
        1, ge=1, le=10**4, description="rounds of the graph's links in each exchange of dsgd and dsgt"
    )
    absences: list[AbsenceSettings] = Field(
        default_factory=list,
        description="agents that are away for some rounds or for good, each with agent, first, until and rekey; not an option",
    )
    lr: float = Field(0.5, gt=0, description="step size, in the first round if it changes")
    lr_final: float | None = Field(None, gt=0, description="step size in the last round, log-spaced from lr")
    step: Literal["plain", "momentum", "adam"] | None = Field(
        None, description="direction of descent: plain, momentum or adam; adam for dinno, else plain"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="for step momentum")
    codec: str | None = Field(None, description=f"how messages are encoded, for rules that allow it: {CODECS.listed()}")
    averaging: float | None = Field(
        None, ge=0, lt=1, description="keep each agent's average over rounds, with this decay, as in 0.95"
    )
    rho: float = Field(0.5, gt=0, description="dinno: weight of agreement")
    rho_growth: float = Field(1.0003, gt=0, description="dinno: factor of rho in each round")
    inner_steps: int = Field(1, ge=1, description="dinno: steps, and queries, of each round")
    carry: bool = Field(False, description="dinno: carry the inner step from round to round")

    seed: int = Field(0, ge=0, description="seed of public randomness: start, split, graph")
    device: str = Field("cpu", description="cpu or cuda")
    compile: Annotated["bool | Literal['auto']", PlainValidator(bool_or_auto)] = Field(
        "auto", description="compile gradients: auto (long runs), true or false"
    )
    step_agents: int | None = Field(
        None,
        ge=1,
        description="for how many agents' lots a step of gradients is shaped: all unless given; 1 as for one agent alone",
    )
    workers: int | None = Field(
        None,
        ge=1,
        description="processes that share the agents, each with one thread; all agents in one process unless given",
    )
    placement: Literal["auto", "contiguous", "metis"] = Field(
        "auto", description="which agents share a process: contiguous, metis, or auto, the better of both"
    )
    evaluate_every: int | None = Field(
        None,
        ge=1,
        description="rounds between snapshots, which score models on validation records; at most 20 snapshots unless given",
    )
    checkpoint_every: int = Field(50, ge=1, description="rounds between checkpoints")
    tensorboard: bool = Field(False, description="also write event files for TensorBoard")

    code: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="where the user's own code is defined, with the hashes of these files; not an option",
    )
    _divided: Any = PrivateAttr(None)  # the user's own records, once they were read and divided

    @model_validator(mode="before")
    @classmethod
    def _follow(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Fill in settings that are not given and follow from the rule or kind of noise, so that `config.toml` has them."""
        line = rule_line(given["algorithm"]) if isinstance(given.get("algorithm"), str) else None
        follows: dict[str, Any] = {}
        if line is not None and line.discrete and given.get("private", True) is True:
            follows["noise"] = "discrete"
        if given.get("noise", follows.get("noise")) == "discrete":
            follows["accountant"] = "rdp"
        if line is not None and line.votes:
            follows["spare_queries"] = 0  # two spare queries would triple what the noise must cover
        return follows | given

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """Return the settings in a TOML file, not yet checked."""
        return read_toml(path)

    @staticmethod
    def of(settings: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> "RunConfig":
        """Check settings; every mistake is named with its value and what would be right.

        `options` are those of a command line. They win over settings, and displace settings that contradict them;
        errors name them as options.
        """
        if settings.get("started_from") == "python":
            raise InvalidInput(
                "these are the settings of a run that was started from Python, with objects that no file can hold; start another "
                "one from Python, with tacit.train(..., run=...)"
            )
        for key in settings:
            choose("setting", key, RunConfig.model_fields)
        if options is not None:  # a new run, of whatever code there is now
            settings = {key: value for key, value in settings.items() if key != "code"}
        given = dict(options or {})
        together = {key: value for key, value in settings.items() if key not in displaced(given)} | given
        try:
            config = RunConfig(**together)
        except ValidationError as error:
            found = [(".".join(map(str, each["loc"])), each) for each in error.errors()]
            lines = [mistake(as_option(key) if key in given else key, each) for key, each in found]
            raise InvalidInput("; ".join(lines)) from None
        check_together(config, KEYS if options is None else OPTIONS, given)
        if (
            options is not None
            and rule_line(config.algorithm)
            and (":" in config.algorithm or config.step is not None or config.codec is not None or config.is_robust)
        ):
            config.rule()  # so that its options are refused before anything is loaded
        return config

    @property
    def total_rounds(self) -> int:
        """All rounds, also those in which models are only mixed."""
        return self.rounds + self.gossip_rounds

    @property
    def is_pooled(self) -> bool:
        """Whether one agent trains on all records."""
        line = rule_line(self.algorithm)
        return line is not None and line.pooled

    @property
    def is_robust(self) -> bool:
        """Whether neighbours are mixed by a robust mean."""
        return self.mixing.partition(":")[0] in ROBUST_MEANS

    @property
    def has_exchanges(self) -> bool:
        """Whether agents exchange messages, as far as the name of the rule shows."""
        line = rule_line(self.algorithm)
        return line is None or line.exchanges

    def pinned(self) -> "RunConfig":
        """Return the same settings, with the files that define the user's own code and their hashes.

        This runs the files. If the settings have hashes already, as those of a run do, files that were changed are refused.
        The number of agents is that of the records, where these are divided already.
        """
        from tacit.runs.building import divide_data, pins

        if self._divided is not None or not (code := pins(self)):
            return self
        config = self.model_copy(update={"code": code})
        if "dataset" in code:
            held = divide_data(self)
            config = config.model_copy(update={"agents": held.agents})
            config._divided = held
            check_numbers_of_agents(config, KEYS)
        return config

    def load_data(self) -> "AgentData":
        """Load the records and divide them among the agents."""
        from tacit.runs.building import divide_data

        held = divide_data(self) if self._divided is None else self._divided
        return held.pooled() if self.is_pooled else held

    def prepare(self, on_step: Callable[[str], None]) -> "Training":
        """Load what the settings name and return a run's settings as the library takes them; `on_step` is called with what is being done."""
        on_step("loading data")
        data = self.load_data()
        return self.training(name="", ledger=None, data=data, graph=self.load_graph(data.agents))

    def load_graph(self, agents: int) -> "nx.Graph | Topology | None":
        """Build or read the graph, or none where no messages are sent."""
        from tacit.runs.building import links

        return links(self, agents) if self.has_exchanges else None

    def training(
        self,
        *,
        name: str,
        ledger: "Ledger | None",
        data: "AgentData",
        graph: "nx.Graph | Topology | None",
        key_graph: "nx.Graph | None" = None,
        compiled: bool | None = None,
    ) -> "Training":
        """Return the settings of the run as the library takes them.

        `key_graph` takes the place of the file that `keys` names, and `compiled` of the choice in `compile`.
        """
        from tacit.runs.building import make_training

        return make_training(
            self, name=name, ledger=ledger, data=data, graph=graph, key_graph=key_graph, compiled=compiled
        )

    def rule(self) -> "Algorithm[Any]":
        """Return the update rule, with averages if these are wanted."""
        from tacit.runs.building import make_rule

        return make_rule(self)
