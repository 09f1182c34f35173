"""The settings of a run as a file or a command line gives them, and how they become a `Training`.

Flat keys, one meaning each; a misspelt key is an error that names the nearest right one.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit import models
from tacit.algorithms import DSGD, DSGT, SGD, Adam, Algorithm, DiNNO, Local, Momentum, Plain, Step
from tacit.data import AgentData, load, synthetic
from tacit.errors import InvalidInput, choose
from tacit.privacy import Accountant, Adjacency, Fast, Ledger, NoPrivacy, Privacy, Secret, Seeded, Sources
from tacit.schedules import Constant, LogSpaced
from tacit.settings import Training
from tacit.specs import parse_graph, parse_split


class RunConfig(BaseModel):
    """All that can be said in a run's `config.toml` or on the command line of `tacit train`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Literal["sgd", "local", "dsgd", "dsgt", "dinno"] = Field(
        "dsgt", description="update rule; sgd pools all data in one place"
    )
    dataset: str = Field(
        "digits", description="digits, mnist, fashion-mnist, cifar10, cifar100, cifar100-small, synthetic:RECORDS"
    )
    data_dir: str | None = Field(None, description="folder with the data; TACIT_DATA unless given")
    agents: int = Field(10, ge=1, description="number of agents")
    split: str = Field("1.0", description="who gets what: t of A(t), iid, or dirichlet:ALPHA")
    graph: str = Field("ring", description="a kind such as ring or torus, random:fiedler=0.39, or a file")
    mixing: Literal["metropolis", "max_degree", "uniform"] = Field(
        "metropolis", description="how neighbours are weighed"
    )
    allow_drift: bool = Field(False, description="let weights through that move the average")
    model: str = Field("logistic", description="logistic, mlp, convnet or resnet9")

    private: bool = Field(True, description="clip and add noise; --no-private trains without a promise")
    epsilon: float | None = Field(None, gt=0, description="what every record may lose; noise follows from it")
    noise_multiplier: float | None = Field(None, gt=0, description="σ, in the place of epsilon")
    delta: float = Field(1e-5, gt=0, lt=1, description="the δ of (ε, δ)")
    clip: float = Field(1.0, gt=0, description="norm C to which gradients are clipped")
    lot_size: float = Field(64.0, gt=0, description="expected records in a lot")
    adjacency: Adjacency = Field("add_remove", description="what neighbouring data sets are")
    accountant: Accountant = Field("pld", description="how ε is derived")
    source: Literal["secret", "seeded", "fast"] = Field(
        "secret", description="where lots and noise come from; only secret makes a release"
    )
    spare_queries: int = Field(2, ge=0, description="queries held for answers that a crash may lose")
    private_diagnostics: bool = Field(False, description="write what queries saw of private data; not a release")

    rounds: int = Field(200, ge=1, description="number of rounds")
    lr: float = Field(0.5, gt=0, description="step size, in the first round if it changes")
    lr_final: float | None = Field(None, gt=0, description="step size in the last round, log-spaced from lr")
    step: Literal["plain", "momentum", "adam"] | None = Field(
        None, description="direction of descent; adam for dinno, else plain"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="for step momentum")
    rho: float = Field(0.5, gt=0, description="dinno: weight of agreement")
    rho_growth: float = Field(1.0003, gt=0, description="dinno: factor of rho in each round")
    inner_steps: int = Field(1, ge=1, description="dinno: steps, and queries, of each round")
    carry: bool = Field(False, description="dinno: carry the inner step from round to round")

    seed: int = Field(0, ge=0, description="public chance: start, split, graph")
    device: str = Field("cpu", description="cpu or cuda")
    evaluate_every: int | None = Field(None, ge=1, description="rounds between looks at validation records")
    checkpoint_every: int = Field(50, ge=1, description="rounds between checkpoints")
    tensorboard: bool = Field(False, description="also write event files for TensorBoard")

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
    def of(settings: Mapping[str, Any]) -> "RunConfig":
        """Check settings; every mistake is named with its value and what would be right."""
        for key in settings:
            choose("setting", key, RunConfig.model_fields)
        try:
            config = RunConfig(**settings)
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, e['loc']))} is {e['input']!r}: {e['msg']}" for e in error.errors()]
            raise InvalidInput("; ".join(lines)) from None
        config._check()
        return config

    def to_toml(self) -> str:
        """Return all settings, defaults too, as a file that gives this very configuration."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    @property
    def fingerprint(self) -> str:
        """Tells this configuration from any other."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()

    def load_data(self) -> AgentData:
        """Load the records and deal them out."""
        if self.dataset.startswith("synthetic"):
            _, _, records = self.dataset.partition(":")
            if records and not records.isdigit():
                raise InvalidInput(f"dataset is {self.dataset!r}; write synthetic:RECORDS, such as synthetic:6400")
            whole = synthetic(int(records or 6400), seed=self.seed)
        else:
            whole = load(self.dataset, self.data_dir)
        data = whole.split(self.agents, parse_split(self.split), seed=self.seed)
        return data.pooled() if self.algorithm == "sgd" else data

    def load_graph(self, agents: int) -> nx.Graph | None:
        """Build or read the graph, or none where nobody talks."""
        return None if self.algorithm in ("sgd", "local") else parse_graph(self.graph, agents, self.seed)

    def training(self, *, name: str, ledger: Ledger | None, data: AgentData, graph: nx.Graph | None) -> Training:
        """Return the settings of the run as the library takes them."""
        shape, classes = data.data.input_shape, data.data.classes
        if classes is None:
            raise InvalidInput(f"{self.dataset} has no classes; the command line trains classifiers only")
        choose("model", self.model, models.MODELS)
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
            )
        return Training(
            algorithm=self._algorithm(),
            model=lambda: models.build(self.model, shape, classes),
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
            evaluate_every=self.evaluate_every,
            private_diagnostics=self.private_diagnostics,
            device=self.device,
        )

    def _check(self) -> None:
        given = (self.epsilon is not None) + (self.noise_multiplier is not None)
        if self.private and given != 1:
            raise InvalidInput(
                "say what to promise: either epsilon or noise_multiplier, and not both; or private = false for no privacy"
            )
        if not self.private and given:
            raise InvalidInput("private is false, so epsilon and noise_multiplier mean nothing; leave one of them out")
        if not self.private and self.private_diagnostics:
            raise InvalidInput("private_diagnostics tell of clipping, and a run without privacy does not clip")
        if self.tensorboard and find_spec("tensorboard") is None:
            raise InvalidInput(
                "tensorboard is true, but it is not installed; install tacit[tensorboard], or leave the setting out"
            )

    def _algorithm(self) -> Algorithm[Any]:
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
        kinds: dict[str, type[SGD] | type[DSGD]] = {"sgd": SGD, "local": Local, "dsgd": DSGD}
        return kinds[self.algorithm](step=steps[self.step or "plain"])

    def _sources(self) -> Sources:
        kinds: dict[str, Sources] = {"secret": Secret(), "seeded": Seeded(self.seed), "fast": Fast(self.seed)}
        return kinds[self.source if self.private else "fast"]
