"""Transports: how bytes get from one agent to another."""

from tacit.networks.transports.loopback import Loopback

__all__ = ["Loopback"]
