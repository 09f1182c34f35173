"""Sums of clipped per-sample gradients of stacked agents: clipping, and several engines behind one interface."""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.privacy.gradients.batches import Unsupported
    from tacit.privacy.gradients.choice import Chosen, Compile, choose_engine
    from tacit.privacy.gradients.general import VmapEngine
    from tacit.privacy.gradients.ghost import GhostEngine
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.privacy.gradients.choice": ("Chosen", "Compile", "choose_engine"),
            "tacit.privacy.gradients.general": ("VmapEngine",),
            "tacit.privacy.gradients.ghost": ("GhostEngine",),
            "tacit.privacy.gradients.batches": ("Unsupported",),
        },
    )

__all__ = ["Chosen", "Compile", "GhostEngine", "Unsupported", "VmapEngine", "choose_engine"]
