"""Privacy settings and what enforces them: oracle, lots, clipping, noise, accounting, ledger."""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.privacy.accounting import Accountant, Adjacency, epsilon
    from tacit.privacy.accounts import Account, Entry, Line
    from tacit.privacy.calibration import noise_multiplier
    from tacit.privacy.cancelling import Cancelling
    from tacit.privacy.decisions import Decision
    from tacit.privacy.event import Event
    from tacit.privacy.gradients import Chosen, Compile, GhostEngine, VmapEngine, choose_engine
    from tacit.privacy.gradients.clipping import Engine, Lot, PerSample, Sample
    from tacit.privacy.guarantees import Basis, Budget, Guarantee
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.mechanisms import Mechanism
    from tacit.privacy.observers import Observer
    from tacit.privacy.oracle import Diagnostics, Oracle, PrivateOracle
    from tacit.privacy.plain_oracle import PlainOracle
    from tacit.privacy.plans import Plan
    from tacit.privacy.randomness import Fast, Secret, Seeded, Sources
    from tacit.privacy.rounding import Discrete
    from tacit.privacy.settings import NoPrivacy, Privacy
    from tacit.privacy.store import DurableAccount, DurableLedger
    from tacit.privacy.teachers import VoteOracle, students_data
    from tacit.privacy.units import Unit
    from tacit.privacy.votes import Voting
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.privacy.accounting": ("Accountant", "Adjacency", "epsilon"),
            "tacit.privacy.event": ("Event",),
            "tacit.privacy.accounts": ("Account", "Entry", "Line"),
            "tacit.privacy.gradients.clipping": ("Engine", "Lot", "PerSample", "Sample"),
            "tacit.privacy.calibration": ("noise_multiplier",),
            "tacit.privacy.cancelling": ("Cancelling",),
            "tacit.privacy.decisions": ("Decision",),
            "tacit.privacy.gradients": ("Chosen", "Compile", "GhostEngine", "VmapEngine", "choose_engine"),
            "tacit.privacy.guarantees": ("Basis", "Budget", "Guarantee"),
            "tacit.privacy.ledger": ("Ledger",),
            "tacit.privacy.mechanisms": ("Mechanism",),
            "tacit.privacy.observers": ("Observer",),
            "tacit.privacy.oracle": ("Diagnostics", "Oracle", "PrivateOracle"),
            "tacit.privacy.plain_oracle": ("PlainOracle",),
            "tacit.privacy.randomness": ("Fast", "Secret", "Seeded", "Sources"),
            "tacit.privacy.plans": ("Plan",),
            "tacit.privacy.settings": ("NoPrivacy", "Privacy"),
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
