"""Privacy settings and what enforces them: oracle, lots, clipping, noise, accounting, ledger."""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.privacy.accounting import Accountant, Adjacency, Event, epsilon, noise_multiplier
    from tacit.privacy.accounts import Account, Entry, Line
    from tacit.privacy.cancelling import Cancelling
    from tacit.privacy.decisions import Decision
    from tacit.privacy.gradients import Chosen, Compile, GhostEngine, VmapEngine, choose_engine
    from tacit.privacy.gradients.clipping import Engine, Lot, PerSample, Sample
    from tacit.privacy.guarantees import Basis, Budget, Guarantee
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.mechanisms import Mechanism, Observer
    from tacit.privacy.oracle import Diagnostics, Oracle, PlainOracle, PrivateOracle
    from tacit.privacy.planning import NoPrivacy, Plan, Privacy
    from tacit.privacy.randomness import Fast, Secret, Seeded, Sources
    from tacit.privacy.rounding import Discrete
    from tacit.privacy.store import DurableAccount, DurableLedger
    from tacit.privacy.teachers import VoteOracle, students_data
    from tacit.privacy.units import Unit
    from tacit.privacy.votes import Voting
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.privacy.accounting": ("Accountant", "Adjacency", "Event", "epsilon", "noise_multiplier"),
            "tacit.privacy.accounts": ("Account", "Entry", "Line"),
            "tacit.privacy.gradients.clipping": ("Engine", "Lot", "PerSample", "Sample"),
            "tacit.privacy.cancelling": ("Cancelling",),
            "tacit.privacy.decisions": ("Decision",),
            "tacit.privacy.gradients": ("Chosen", "Compile", "GhostEngine", "VmapEngine", "choose_engine"),
            "tacit.privacy.guarantees": ("Basis", "Budget", "Guarantee"),
            "tacit.privacy.ledger": ("Ledger",),
            "tacit.privacy.mechanisms": ("Mechanism", "Observer"),
            "tacit.privacy.oracle": ("Diagnostics", "Oracle", "PlainOracle", "PrivateOracle"),
            "tacit.privacy.randomness": ("Fast", "Secret", "Seeded", "Sources"),
            "tacit.privacy.planning": ("NoPrivacy", "Plan", "Privacy"),
            "tacit.privacy.rounding": ("Discrete",),
            "tacit.privacy.store": ("DurableAccount", "DurableLedger"),
            "tacit.privacy.teachers": ("VoteOracle", "students_data"),
            "tacit.privacy.units": ("Unit",),
            "tacit.privacy.votes": ("Voting",),
        },
    )

__all__ = [
    "Account",
    "Accountant",
    "Adjacency",
    "Basis",
    "Budget",
    "Cancelling",
    "Chosen",
    "Compile",
    "Decision",
    "Diagnostics",
    "Discrete",
    "DurableAccount",
    "DurableLedger",
    "Engine",
    "Entry",
    "Event",
    "Fast",
    "GhostEngine",
    "Guarantee",
    "Ledger",
    "Line",
    "Lot",
    "Mechanism",
    "NoPrivacy",
    "Observer",
    "Oracle",
    "PerSample",
    "PlainOracle",
    "Plan",
    "Privacy",
    "PrivateOracle",
    "Sample",
    "Secret",
    "Seeded",
    "Sources",
    "Unit",
    "VmapEngine",
    "VoteOracle",
    "Voting",
    "choose_engine",
    "epsilon",
    "noise_multiplier",
    "students_data",
]
