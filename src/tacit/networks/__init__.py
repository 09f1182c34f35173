"""How neighbours' values arrive."""

from tacit.networks.simulated import SimulatedInbox, SimulatedNetwork, Tap

__all__ = ["SimulatedInbox", "SimulatedNetwork", "Tap"]
