"""What carries bytes between two agents."""

from tacit.networks.transports.loopback import Loopback

__all__ = ["Loopback"]
