"""Options that several audits have. Each audit is a dataclass with such fields; see `tacit.cli.terminal.command`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from tacit.cli.terminal.command import NOT_RECORDED, option
from tacit.registry import RULES

system = partial(option, panel="System")
"""An option about the system under attack."""
execution = partial(option, panel="Audit")
"""An option about how the audit is run."""

_AGENTS_HELP = "How many; default {}, or the number in the graph's file."


def linear_rules() -> tuple[str, ...]:
    """Return the rules whose answers audits can reconstruct from messages."""
    return tuple(name for name, line in RULES.lines.items() if line.exchanges and line.linear)


def attacked_rules() -> tuple[str, ...]:
    """Return the rules whose final models can be attacked: all but those of agents that learn alone."""
    return tuple(name for name, line in RULES.lines.items() if line.exchanges or line.pooled)


def name_list(names: Sequence[str]) -> str:
    """Return names as in `dsgd, dsgt or dinno`."""
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


if TYPE_CHECKING:
    LinearRule: TypeAlias = str
    AttackedRule: TypeAlias = str
else:
    LinearRule = Literal[linear_rules()]
    AttackedRule = Literal[(*attacked_rules(), "all")]

Rule = Annotated[LinearRule, system("NAME", f"{name_list(linear_rules())}.")]
Agents = Annotated[int | None, system("N", _AGENTS_HELP.format(3))]
TenAgents = Annotated[int | None, system("N", _AGENTS_HELP.format(10))]
Graph = Annotated[str, system("KIND", "A kind such as ring, or a file.")]
Epsilon = Annotated[float, system("ε", "The ε that is claimed.")]
Delta = Annotated[float, system("δ", "The δ of the claim.")]
LotSize = Annotated[float, system("RECORDS", "Expected number of an agent's records in a lot.")]
SampleRate = Annotated[float, system("SHARE", "Share of the records in a lot.")]
HeldRecords = Annotated[int, system("N", "Records that each agent holds.", min=1)]
Rounds = Annotated[int, system("N", "Rounds in each run.", min=1)]
StepSize = Annotated[float, system("NUMBER", "Step size.")]
DataFolder = Annotated[
    Path | None, system("FOLDER", "Where data sets are stored; default: TACIT_DATA, or a cache."), NOT_RECORDED
]
Runs = Annotated[int, execution("N", "Runs with the record, and as many without it.")]
Batch = Annotated[int | None, execution("N", "Runs side by side; a finished batch is kept.", min=1)]
Workers = Annotated[int | None, execution("N", "Processes; default: one per core.", min=1), NOT_RECORDED]
Confidence = Annotated[float, execution("SHARE", "Confidence that all bounds hold at once."), NOT_RECORDED]
NewFolder = Annotated[
    Path | None, execution("FOLDER", "Where to keep the result; default: a new one in audits/."), NOT_RECORDED
]
AsJson = Annotated[bool, execution("", "Print one JSON document only.", "--json"), NOT_RECORDED]
Silent = Annotated[bool, execution("", "Show no progress.", "--quiet", "-q"), NOT_RECORDED]
