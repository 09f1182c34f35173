"""Engines: ways to compute sums of clipped per-sample gradients of stacked agents, behind one interface."""

from tacit.privacy.engines.choice import Chosen, Compile, choose_engine
from tacit.privacy.engines.general import VmapEngine
from tacit.privacy.engines.ghost import GhostEngine
from tacit.privacy.engines.steps import Unsupported

__all__ = ["Chosen", "Compile", "GhostEngine", "Unsupported", "VmapEngine", "choose_engine"]
