"""Everything that ships with Tacit under a name, one line each: rules, data sets, models, losses, graphs, schedules, codecs, audits.

A line says where a part is defined. The part is imported when it is looked up, so that help texts and settings have all names
without PyTorch. The library, the command line, audits and verification take their names from here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar


@dataclass(frozen=True)
class Shipped:
    """Where a part is defined, and what help says about it."""

    place: str
    """As in `tacit.models.zoo:mlp`."""
    about: str = ""
    """A few words in help, behind the name."""
    example: str = ""
    """How it is written with an option, where a name alone is not enough or would hide the option."""

    @property
    def class_name(self) -> str:
        """The name of the class or function itself."""
        return self.place.partition(":")[2]


@dataclass(frozen=True)
class ShippedRule(Shipped):
    """A line of an update rule. Which settings it takes follows from its fields."""

    queries: int | str | None = None
    """Queries in each round: a number, or the field that has it; None if rounds differ. Verification checks the plan by it."""
    exchanges: bool = True
    """Whether agents exchange messages: otherwise settings of graphs and masks do not apply."""
    mixes: bool = True
    """Whether it mixes what it exchanges, so that several exchanges in place of one make sense."""
    pooled: bool = False
    """Whether one agent trains on all records."""
    even: bool = True
    """Whether it sends as many bytes in every round."""
    replicas: bool = False
    """Whether it keeps what it has read of its neighbours, so that a message that never came makes it wrong for good."""
    robust: bool = False
    """Whether a robust mean of the neighbours may take the place of the weighted one: not where sums over agents must stay."""
    discrete: bool = False
    """Whether it is meant for discrete noise, and refused with any other."""
    votes: bool = False
    """Whether it asks teachers for votes, once in a run, and nothing else: settings of lots, clipping and the noise of sums do not apply."""
    linear: bool = True
    """Whether messages are linear in the answers when its `step`, if it has one, is `Plain`: audits that reconstruct answers need that."""


Line = TypeVar("Line", bound=Shipped)


class Registry(Mapping[str, Any], Generic[Line]):
    """Parts by name. Names and lines are there at once; looking up a part imports it."""

    def __init__(self, lines: dict[str, Line]) -> None:
        self.lines = lines

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = self.lines[name].place.partition(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, name: object) -> bool:
        return name in self.lines  # without importing it

    def listed(self, *more: str) -> str:
        """Return the names for a help text, with what is said about some of them."""
        lines = self.lines.items()
        names = [(line.example or name) + (f" ({line.about})" if line.about else "") for name, line in lines]
        return ", ".join([*names, *more])


RULES = Registry(
    {
        "sgd": ShippedRule(
            "tacit.algorithms.sgd:SGD", "all data in one place", queries=1, exchanges=False, pooled=True
        ),
        "local": ShippedRule("tacit.algorithms.local:Local", "no messages", queries=1, exchanges=False),
        "dsgd": ShippedRule("tacit.algorithms.dsgd:DSGD", queries=1, robust=True),
        "dsgt": ShippedRule("tacit.algorithms.dsgt:DSGT", queries=1),
        "dinno": ShippedRule("tacit.algorithms.dinno:DiNNO", queries="inner_steps", mixes=False),
        "local-dsgd": ShippedRule("tacit.algorithms.local_dsgd:LocalDSGD", queries="local_steps", robust=True),
        "d2": ShippedRule("tacit.algorithms.d2:D2", queries=1),
        "extra": ShippedRule("tacit.algorithms.extra:EXTRA", queries=1),
        "choco": ShippedRule("tacit.algorithms.choco:ChocoSGD", queries=1, linear=False, replicas=True),
        "deepsqueeze": ShippedRule("tacit.algorithms.deepsqueeze:DeepSqueeze", queries=1, mixes=False, linear=False),
        "sdm-dsgd": ShippedRule(
            "tacit.algorithms.sdm_dsgd:SDMDSGD", queries=1, mixes=False, even=False, linear=False, replicas=True
        ),
        "q-dpsgd-1": ShippedRule("tacit.algorithms.q_dpsgd:QDPSGD1", queries=1, mixes=False, linear=False),
        "q-dpsgd-2": ShippedRule(
            "tacit.algorithms.q_dpsgd_2:QDPSGD2",
            "discrete noise, by the rdp accountant",
            queries=1,
            mixes=False,
            linear=False,
            discrete=True,
        ),
        "dp-srm": ShippedRule("tacit.algorithms.dp_srm:DPSRM", queries=1, robust=True),
        "leasgd": ShippedRule("tacit.algorithms.leasgd:LEASGD", mixes=False, linear=False),
        "muffliato": ShippedRule("tacit.algorithms.muffliato:Muffliato", queries=1, robust=True),
        "ad-psgd": ShippedRule("tacit.algorithms.ad_psgd:ADPSGD", "with --graph matchings", queries=1, linear=False),
        "pate": ShippedRule(
            "tacit.algorithms.pate:PATE", "votes of teachers, for --split iid", linear=False, votes=True, robust=True
        ),
    }
)
DATA_SETS = Registry(
    {
        "digits": Shipped("tacit.data.catalog:DIGITS"),
        "mnist": Shipped("tacit.data.catalog:MNIST"),
        "fashion-mnist": Shipped("tacit.data.catalog:FASHION_MNIST"),
        "cifar10": Shipped("tacit.data.catalog:CIFAR10"),
        "cifar100": Shipped("tacit.data.catalog:CIFAR100"),
        "cifar100-small": Shipped("tacit.data.catalog:CIFAR100_SMALL"),
    }
)
MODELS = Registry(
    {
        "logistic": Shipped("tacit.models.zoo:logistic"),
        "mlp": Shipped("tacit.models.zoo:mlp"),
        "convnet": Shipped("tacit.models.zoo:convnet"),
        "resnet9": Shipped("tacit.models.zoo:resnet9"),
    }
)
LOSSES = Registry(
    {
        "cross_entropy": Shipped("tacit.models.functional:cross_entropy"),
        "views_cross_entropy": Shipped("tacit.models.views:views_cross_entropy"),
    }
)
GRAPHS = Registry(
    {
        "complete": Shipped("tacit.graphs.topologies:complete"),
        "ring": Shipped("tacit.graphs.topologies:ring"),
        "path": Shipped("tacit.graphs.topologies:path"),
        "star": Shipped("tacit.graphs.topologies:star"),
        "wheel": Shipped("tacit.graphs.topologies:wheel"),
        "grid": Shipped("tacit.graphs.topologies:grid"),
        "torus": Shipped("tacit.graphs.topologies:torus"),
        "hypercube": Shipped("tacit.graphs.topologies:hypercube"),
        "exponential": Shipped("tacit.graphs.topologies:exponential"),
        "small_world": Shipped("tacit.graphs.random_graphs:small_world"),
        "random_regular": Shipped("tacit.graphs.random_graphs:random_regular"),
        "erdos_renyi": Shipped("tacit.graphs.random_graphs:erdos_renyi"),
    }
)
SCHEDULES = Registry(
    {
        "matchings": Shipped("tacit.networks.schedules:RandomMatchings"),
        "one_peer_exponential": Shipped("tacit.networks.schedules:one_peer_exponential"),
        "base": Shipped("tacit.networks.schedules:base_graphs", example="base:peers=2"),
        "moving": Shipped("tacit.networks.schedules:Moving", example="moving:reach=0.4"),
    }
)
CODECS = Registry(
    {
        "dense": Shipped("tacit.networks.codecs:Dense"),
        "bfloat16": Shipped("tacit.networks.codecs:BFloat16"),
        "float16": Shipped("tacit.networks.codecs:Float16"),
        "topk": Shipped("tacit.networks.sparse:TopK", example="topk:0.1"),
        "randomk": Shipped("tacit.networks.sparse:RandomK", example="randomk:0.1"),
        "qsgd": Shipped("tacit.networks.quantised:QSGD", example="qsgd:8"),
    }
)
AUDITS = Registry(
    {
        "check": Shipped("tacit.cli.audit.check:CheckAudit"),
        "neighbor": Shipped("tacit.cli.audit.neighbor:NeighborAudit"),
        "coalition": Shipped("tacit.cli.audit.coalition:CoalitionAudit"),
        "membership": Shipped("tacit.cli.audit.membership:MembershipAudit"),
        "noise": Shipped("tacit.cli.audit.noise:NoiseAudit"),
        "one-run": Shipped("tacit.cli.audit.one_run:OneRunAudit"),
        "distance": Shipped("tacit.cli.audit.distance:DistanceAudit"),
        "gossip": Shipped("tacit.cli.audit.gossip:GossipAudit"),
        "votes": Shipped("tacit.cli.audit.votes:VotesAudit"),
    }
)


ROBUST_MEANS = ("median", "trimmed", "clipped")
"""What may take the place of the weighted mean in rules that allow it; see `tacit.algorithms.robust`."""


def rule_line(text: str) -> ShippedRule | None:
    """Return the line of a rule, by its name with or without options behind it; None if it is not a shipped one."""
    return RULES.lines.get(text.strip().partition(":")[0])
