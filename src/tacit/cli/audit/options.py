"""Options that several audits have. Each audit is a dataclass with such fields; see `tacit.cli.terminal.command`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from tacit.cli.terminal.command import NOT_RECORDED, option
from tacit.registry import RULES

system = partial(option, panel="System")
"""An option about the system under attack."""
execution = partial(option, panel="Audit")
"""An option about how the audit is run."""


def linear_rules() -> tuple[str, ...]:
    """Return the rules whose answers audits can reconstruct from messages."""
    return tuple(name for name, line in RULES.lines.items() if line.exchanges and line.linear)


def attacked_rules() -> tuple[str, ...]:
    """Return the rules whose final models can be attacked: all but those of agents that learn alone, and those that ask teachers."""
    return tuple(name for name, line in RULES.lines.items() if (line.exchanges or line.pooled) and not line.votes)


def name_list(names: Sequence[str]) -> str:
    """Return names as in `dsgd, dsgt or dinno`."""
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def agents_option(default: int) -> Any:
    """Return the option for the number of agents."""
    return system("N", f"How many; default {default}, or the number in the graph's file.")


def observers_option(default: str) -> Any:
    """Return the option for observers, which may be repeated."""
    return system("AGENT", f"An observer; may be repeated. Default: {default}.", "--observer")


if TYPE_CHECKING:
    LinearRule: TypeAlias = str
    AttackedRule: TypeAlias = str
else:
    LinearRule = Literal[linear_rules()]
    AttackedRule = Literal[(*attacked_rules(), "all")]

_KEYS = "who shares masks: complete (all pairs) or graph (neighbours); default complete."
_RATIO = "size of a mask beside the noise needed without; default: chosen for the rule."

Rule = Annotated[LinearRule, system("NAME", f"{name_list(linear_rules())}.")]
Agents = Annotated[int | None, agents_option(3)]
Graph = Annotated[str, system("KIND", "A kind such as ring, or a file.")]
Target = Annotated[int, system("AGENT", "The agent that may hold the record.")]
Epsilon = Annotated[float, system("ε", "The ε that is claimed.")]
Delta = Annotated[float, system("δ", "The δ of the claim.")]
LotSize = Annotated[float, system("RECORDS", "Expected number of an agent's records in a lot.")]
SampleRate = Annotated[float, system("SHARE", "Share of the records in a lot.")]
HeldRecords = Annotated[int, system("N", "Records that each agent holds.", min=1)]
Rounds = Annotated[int, system("N", "Rounds in each run.", min=1)]
StepSize = Annotated[float, system("NUMBER", "Step size.")]
Seed = Annotated[int, system("N", "Seed of the other records and of random graphs.", min=0)]
DataFolder = Annotated[
    Path | None, system("FOLDER", "Where data sets are stored; default: TACIT_DATA, or a cache."), NOT_RECORDED
]
NoiseKind = Annotated[
    Literal["local", "cancelling"], system("KIND", "local, or cancelling: pairs of agents share masks.", "--noise")
]
AnyNoiseKind = Annotated[
    Literal["local", "cancelling", "discrete"],
    system("KIND", "local, cancelling: pairs of agents share masks, or discrete: noise on a grid.", "--noise"),
]
Bands = Annotated[int, system("N", "Over how many queries noise is correlated; 1 for not at all.", min=1)]
RoundingBits = Annotated[
    int | None, system("BITS", "discrete: every record is rounded to 2^-BITS of the clipping norm; default 10.", min=0)
]
Curious = Annotated[
    int | None, system("N", "cancelling: how many curious agents the ε is claimed against; default 1.", min=0)
]
KeysChoice = Literal["complete", "graph"] | None
KeyPairs = Annotated[KeysChoice, system("PAIRS", f"cancelling: {_KEYS}", "--keys")]
MaskRatio = Annotated[float | None, system("NUMBER", f"cancelling: {_RATIO}")]
OwnKeyPairs = Annotated[KeysChoice, system("PAIRS", _KEYS.capitalize(), "--keys")]
OwnMaskRatio = Annotated[float | None, system("NUMBER", _RATIO.capitalize())]
Runs = Annotated[int, execution("N", "Runs with the record, and as many without it.")]
Batch = Annotated[
    int | None,
    execution("N", "Runs side by side; a finished batch is kept. Default 250, or what fits into memory.", min=1),
]
Workers = Annotated[int | None, execution("N", "Processes; default: one per core.", min=1), NOT_RECORDED]
Confidence = Annotated[float, execution("SHARE", "Confidence that all bounds hold at once."), NOT_RECORDED]
NewFolder = Annotated[
    Path | None, execution("FOLDER", "Where to keep the result; default: a new one in audits/."), NOT_RECORDED
]
KeptFolder = Annotated[
    Path | None, execution("FOLDER", "Where to keep it, or to resume; default: a new one in audits/."), NOT_RECORDED
]
AsJson = Annotated[bool, execution("", "Print one JSON document only.", "--json"), NOT_RECORDED]
Silent = Annotated[bool, execution("", "Show no progress.", "--quiet", "-q"), NOT_RECORDED]
