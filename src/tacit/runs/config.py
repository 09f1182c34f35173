"""The settings of a run as a file or a command line gives them, and how they become a `Training`.

Flat keys, one meaning each; a misspelt key is an error that names the nearest right one. To read settings takes no
PyTorch, and runs no code of the user's that they name: what they are made into is imported when it is made.
"""

import hashlib
import tomllib
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, PrivateAttr, ValidationError
from pydantic_core import PydanticKnownError

from tacit.errors import InvalidInput, choose
from tacit.io.validation import mistake
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.runs.naming import is_own

if TYPE_CHECKING:
    import networkx as nx

    from tacit.algorithms import Algorithm, Step
    from tacit.data import AgentData
    from tacit.networks import Topology
    from tacit.privacy import Ledger, Sources
    from tacit.training.settings import Training


def _as_option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


# How advice names what contradicts something else: as keys of a file, and as options of a command line.
_NAMED = ("epsilon", "noise_multiplier", "private_diagnostics", "tensorboard")
_KEYS = {"no_private": "private = false"} | {key: key for key in _NAMED}
_OPTIONS = {"no_private": "--no-private"} | {key: _as_option(key) for key in _NAMED}


def _displaced(options: Mapping[str, Any]) -> Collection[str]:
    """Return the settings that cannot stand beside these options."""
    displaced: set[str] = set()
    if options.get("epsilon") is not None:
        displaced |= {"noise_multiplier", "private"}
    if options.get("noise_multiplier") is not None:
        displaced |= {"epsilon", "private"}
    if options.get("private") is False:
        displaced |= {"epsilon", "noise_multiplier", "private_diagnostics", "unit"}
    if options.get("algorithm") is not None:
        displaced |= _idle(str(options["algorithm"]))
    return displaced


def _idle(algorithm: str) -> set[str]:
    """Return the settings that mean nothing to an algorithm."""
    idle = set() if algorithm == "dinno" else {"rho", "rho_growth", "inner_steps", "carry"}
    if algorithm == "dsgt" or is_own(algorithm):  # which have steps of their own
        idle |= {"step", "momentum"}
    if algorithm in ("sgd", "local"):
        idle |= {"graph", "mixing", "allow_drift"}
    return idle


ALGORITHMS = ("sgd", "local", "dsgd", "dsgt", "dinno")  # those of `tacit.algorithms.RULES`, which takes PyTorch to read


def _algorithm(value: Any) -> Any:
    """Return the name of a rule, shipped or the user's own."""
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    if value not in ALGORITHMS and not is_own(value):
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, ALGORITHMS))})
    return value


def _is_own_data(dataset: str) -> bool:
    return is_own(dataset) and not dataset.strip().startswith("synthetic:")


def _as_text(value: Any) -> Any:
    """Return the t of A(t) as a text: a file may give it as a number."""
    return repr(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _positive(value: Any) -> Any:
    """Return one positive number for all agents, or a list with one for each."""
    numbers = value if isinstance(value, list) and value else [value]
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        raise ValueError("it must be a number, or a list with one for each agent")
    for number in numbers:
        if not number > 0:
            raise PydanticKnownError("greater_than", {"gt": 0.0})
    return [float(number) for number in value] if isinstance(value, list) else float(value)


def _known(value: Any) -> Any:
    """Return a ε or σ that may be missing."""
    return None if value is None else _positive(value)


def _compile(value: Any) -> Any:
    """Return what the library takes: True, False or "auto"."""
    if isinstance(value, bool) or value == "auto":
        return value
    raise ValueError('it must be true, false or "auto"')


def need_tensorboard(said: str) -> None:
    """Refuse a setting that needs TensorBoard where that is not installed."""
    if find_spec("tensorboard") is None:
        raise InvalidInput(f"{said}: TensorBoard is not installed; install tacit[tensorboard], or leave this out")


PerAgent = Annotated[float | list[float], PlainValidator(_positive)]
PER_AGENT = ("epsilon", "noise_multiplier", "clip", "lot_size")


class RunConfig(BaseModel):
    """All that can be said in a run's `config.toml` or on the command line of `tacit train`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    algorithm: Annotated[str, PlainValidator(_algorithm)] = Field(
        "dsgt",
        description="dsgt, dsgd, dinno, local (nobody talks), sgd (all data in one place), or your own as file.py:NAME",
    )
    dataset: str = Field(
        "digits",
        description="digits, mnist, fashion-mnist, cifar10, cifar100, cifar100-small, synthetic:RECORDS, or your own as "
        "file.py:NAME",
    )
    data_dir: str | None = Field(None, description="folder with the data; TACIT_DATA unless given")
    agents: int = Field(10, ge=1, description="number of agents")
    split: Annotated[str, BeforeValidator(_as_text)] = Field(
        "1.0", description="who gets what: t of A(t), iid, dirichlet:ALPHA or dirichlet:ALPHA,min_size=N"
    )
    graph: str = Field(
        "ring",
        description="a kind such as ring, random:fiedler=0.39, a file, one that changes: matchings, base, moving:reach=0.5, or "
        "your own as file.py:NAME",
    )
    mixing: Literal["metropolis", "max_degree", "uniform"] = Field(
        "metropolis", description="how neighbours are weighed: metropolis, max_degree or uniform"
    )
    allow_drift: bool = Field(False, description="let weights through that move the average")
    model: str = Field("logistic", description="logistic, mlp, convnet, resnet9, or your own as file.py:NAME")
    loss: str = Field("cross_entropy", description="cross_entropy, views_cross_entropy, or your own as file.py:NAME")

    private: bool = Field(True, description="clip and add noise")
    epsilon: Annotated[float | list[float] | None, PlainValidator(_known)] = Field(
        None, description="ε that every record may lose; noise follows from it; or one for each agent, as in 1,2,4"
    )
    noise_multiplier: Annotated[float | list[float] | None, PlainValidator(_known)] = Field(
        None, description="σ, in the place of epsilon; or one for each agent"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="δ of (ε, δ)")
    clip: PerAgent = Field(1.0, description="norm C to which gradients are clipped; or one for each agent")
    lot_size: PerAgent = Field(64.0, description="expected records in a lot; or one for each agent")
    adjacency: Adjacency = Field("add_remove", description="what neighbouring data sets are: add_remove or replace_one")
    accountant: Accountant = Field("pld", description="how ε is derived: pld (tight) or rdp (a looser bound)")
    unit: str | None = Field(
        None,
        description="protect whoever has several records, by the data's column of units: NAME:MOST, as in patient:8",
    )
    source: Literal["secret", "seeded", "fast"] = Field(
        "secret", description="where lots and noise come from: secret, seeded or fast; only secret makes a release"
    )
    spare_queries: int = Field(2, ge=0, le=10**6, description="queries held for answers that a crash may lose")
    private_diagnostics: bool = Field(False, description="write what queries saw of private data; not a release")

    rounds: int = Field(200, ge=1, le=10**7, description="number of rounds")
    lr: float = Field(0.5, gt=0, description="step size, in the first round if it changes")
    lr_final: float | None = Field(None, gt=0, description="step size in the last round, log-spaced from lr")
    step: Literal["plain", "momentum", "adam"] | None = Field(
        None, description="direction of descent: plain, momentum or adam; adam for dinno, else plain"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="for step momentum")
    averaging: float | None = Field(
        None, ge=0, lt=1, description="keep each agent's average over rounds, with this decay, as in 0.95"
    )
    rho: float = Field(0.5, gt=0, description="dinno: weight of agreement")
    rho_growth: float = Field(1.0003, gt=0, description="dinno: factor of rho in each round")
    inner_steps: int = Field(1, ge=1, description="dinno: steps, and queries, of each round")
    carry: bool = Field(False, description="dinno: carry the inner step from round to round")

    seed: int = Field(0, ge=0, description="public chance: start, split, graph")
    device: str = Field("cpu", description="cpu or cuda")
    compile: Annotated["bool | Literal['auto']", PlainValidator(_compile)] = Field(
        "auto", description="compile gradients: auto (long runs), true or false"
    )
    step_agents: int | None = Field(
        None,
        ge=1,
        description="agents whose lots shape a step of gradients: all, unless given; 1 is what one agent alone has",
    )
    evaluate_every: int | None = Field(
        None, ge=1, description="rounds between looks at validation records; 20 looks or fewer unless given"
    )
    checkpoint_every: int = Field(50, ge=1, description="rounds between checkpoints")
    tensorboard: bool = Field(False, description="also write event files for TensorBoard")

    code: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="where the user's own code is defined, with the hashes of these files; not an option",
    )
    _dealt: Any = PrivateAttr(None)  # the user's own records, once they were read and divided

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """Return the settings in a TOML file, not yet checked."""
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} is not TOML: {error}") from error

    @staticmethod
    def of(settings: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> "RunConfig":
        """Check settings; every mistake is named with its value and what would be right.

        `options` are those of a command line. They win over settings, and displace settings that contradict them;
        what is wrong with them is told in their terms.
        """
        if settings.get("door") == "python":
            raise InvalidInput(
                "these are the settings of a run that was started from Python, with objects that no file can hold; start another "
                "one there, with tacit.train(..., run=...)"
            )
        for key in settings:
            choose("setting", key, RunConfig.model_fields)
        if options is not None:  # a new run, of whatever code there is now
            settings = {key: value for key, value in settings.items() if key != "code"}
        given = dict(options or {})
        together = {key: value for key, value in settings.items() if key not in _displaced(given)} | given
        try:
            config = RunConfig(**together)
        except ValidationError as error:
            found = [(".".join(map(str, each["loc"])), each) for each in error.errors()]
            lines = [mistake(_as_option(key) if key in given else key, each) for key, each in found]
            raise InvalidInput("; ".join(lines)) from None
        config._check(_KEYS if options is None else _OPTIONS)
        return config

    def to_toml(self) -> str:
        """Return all settings, defaults too, as a file that gives this very configuration."""
        return tomli_w.dumps(self.model_dump(exclude_none=True, exclude=None if self.code else {"code"}))

    @property
    def fingerprint(self) -> str:
        """Tells this configuration from any other."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()

    def pinned(self) -> "RunConfig":
        """Return the same settings with where the user's own code is defined, and the hashes of these files.

        This runs the files. Where the settings have hashes already, as those of a run do, files that were changed are refused.
        The number of agents is that of the records, where these are divided already.
        """
        from tacit.runs.building import deal, pins

        if self._dealt is not None or not (code := pins(self)):
            return self
        config = self.model_copy(update={"code": code})
        if "dataset" in code:
            dealt = deal(self)
            config = config.model_copy(update={"agents": dealt.agents})
            config._dealt = dealt
            config._check_lengths(_KEYS)
        return config

    def load_data(self) -> "AgentData":
        """Load the records and deal them out."""
        from tacit.runs.building import deal

        dealt = deal(self) if self._dealt is None else self._dealt
        return dealt.pooled() if self.algorithm == "sgd" else dealt

    def prepare(self, on_step: Callable[[str], None]) -> "Training":
        """Load what the settings name and return a run's settings as the library takes them; `on_step` is told what is done."""
        on_step("loading data")
        data = self.load_data()
        return self.training(name="", ledger=None, data=data, graph=self.load_graph(data.agents))

    def load_graph(self, agents: int) -> "nx.Graph | Topology | None":
        """Build or read the graph, or none where nobody talks."""
        from tacit.runs.building import links

        return None if self.algorithm in ("sgd", "local") else links(self, agents)

    def training(
        self,
        *,
        name: str,
        ledger: "Ledger | None",
        data: "AgentData",
        graph: "nx.Graph | Topology | None",
        compiled: bool | None = None,
    ) -> "Training":
        """Return the settings of the run as the library takes them; `compiled` tells what was chosen before."""
        from tacit.privacy import NoPrivacy, Privacy, Unit
        from tacit.runs.building import loss_function, model_for
        from tacit.training.schedules import Constant, LogSpaced
        from tacit.training.settings import Training

        privacy: Privacy | NoPrivacy = NoPrivacy(lot_size=self.lot_size)
        if self.private:
            privacy = Privacy(
                epsilon=self.epsilon,
                noise_multiplier=self.noise_multiplier,
                delta=self.delta,
                clip=self.clip,
                lot_size=self.lot_size,
                adjacency=self.adjacency,
                accountant=self.accountant,
                unit=None if self.unit is None else Unit.of(self.unit),
            )
        return Training(
            algorithm=self.rule(),
            model=model_for(self, data.dataset),
            loss=loss_function(self),
            data=data,
            privacy=privacy,
            rounds=self.rounds,
            lr=Constant(self.lr) if self.lr_final is None else LogSpaced(self.lr, self.lr_final),
            graph=graph,
            mixing=self.mixing,
            allow_drift=self.allow_drift,
            seed=self.seed,
            sources=self._sources(),
            ledger=ledger,
            name=name,
            spare_queries=self.spare_queries if self.private else 0,
            step_agents=self.step_agents,
            evaluate_every=self.evaluate_every,
            private_diagnostics=self.private_diagnostics,
            compile=self.compile if compiled is None else compiled,
            device=self.device,
        )

    def _check(self, said: Mapping[str, str]) -> None:
        """Refuse settings that contradict each other, which are called as `said`."""
        given = (self.epsilon is not None) + (self.noise_multiplier is not None)
        if self.private and given != 1:
            raise InvalidInput(
                f"say what to promise: either {said['epsilon']} or {said['noise_multiplier']}, and not both; or "
                f"{said['no_private']} for no privacy"
            )
        if not self.private and given:
            raise InvalidInput(
                f"{said['no_private']} promises nothing, so {said['epsilon']} and {said['noise_multiplier']} mean "
                "nothing; leave one or the other out"
            )
        if not self.private and self.unit is not None:
            raise InvalidInput(
                f"{'--unit' if said is _OPTIONS else 'unit'} says who is protected, and without privacy nobody is; leave it out"
            )
        if not self.private and self.private_diagnostics:
            raise InvalidInput(
                f"{said['private_diagnostics']} tells of clipping, and a run without privacy does not clip"
            )
        if not _is_own_data(self.dataset):  # which may know how many agents there are
            self._check_lengths(said)
        for key in sorted(_idle(self.algorithm)):
            if key == "step" and not is_own(self.algorithm):
                continue  # the rule itself says why
            if getattr(self, key) != RunConfig.model_fields[key].default:
                named = _as_option(key) if said is _OPTIONS else key
                raise InvalidInput(f"{named} means nothing to {self.algorithm}; leave it out")
        momentum = RunConfig.model_fields["momentum"].default
        if self.algorithm != "dsgt" and self.momentum != momentum and self.step != "momentum":
            raise InvalidInput("momentum means nothing without step momentum; leave it out, or set the step")
        if self.tensorboard:
            need_tensorboard(said["tensorboard"])

    def _check_lengths(self, said: Mapping[str, str]) -> None:
        """Refuse lists that have not one value for each agent."""
        agents = 1 if self.algorithm == "sgd" else self.agents
        for key in PER_AGENT:
            value = getattr(self, key)
            if isinstance(value, list) and len(value) != agents:
                named = _as_option(key) if said is _OPTIONS else key
                raise InvalidInput(
                    f"{named} has {len(value)} values, and {'sgd trains one agent' if agents == 1 else f'there are {agents} agents'}; "
                    "give one for each, or one for all"
                )

    def rule(self) -> "Algorithm[Any]":
        """Return the update rule, with averages if these are wanted."""
        from tacit.algorithms import Averaged

        rule = self._rule()
        return rule if self.averaging is None else Averaged(rule, self.averaging)

    def _rule(self) -> "Algorithm[Any]":
        from tacit.algorithms import DSGT, RULES, Adam, DiNNO, Momentum, Plain
        from tacit.runs.building import own_rule

        if (own := own_rule(self)) is not None:
            return own
        steps: dict[str, Step] = {"plain": Plain(), "momentum": Momentum(self.momentum), "adam": Adam()}
        if self.algorithm == "dsgt":
            if self.step is not None:
                raise InvalidInput(
                    f"dsgt takes plain steps along its tracker; step = {self.step!r} does not apply to it"
                )
            return DSGT()
        if self.algorithm == "dinno":
            return DiNNO(
                rho=self.rho,
                rho_growth=self.rho_growth,
                inner_steps=self.inner_steps,
                step=steps[self.step or "adam"],
                carry=self.carry,
            )
        rule: Callable[..., Algorithm[Any]] = RULES[self.algorithm]  # one that takes a step
        return rule(step=steps[self.step or "plain"])

    def _sources(self) -> "Sources":
        from tacit.privacy import Fast, Secret, Seeded

        kinds: dict[str, Sources] = {"secret": Secret(), "seeded": Seeded(self.seed), "fast": Fast(self.seed)}
        return kinds[self.source if self.private else "fast"]
