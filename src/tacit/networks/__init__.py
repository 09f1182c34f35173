"""How neighbours' values arrive: who hears whom in which round, the format of messages, and their transport."""

from tacit.networks.checks import check_topology
from tacit.networks.codecs import DENSE, BFloat16, Codec, Dense, Float16, Packet, PublicChance, RandomCodec, find_codec
from tacit.networks.echo import EchoInbox, EchoNetwork
from tacit.networks.interface import Inbox, Messages, Network, Transport
from tacit.networks.measures import ScheduleMeasures, measure_schedule
from tacit.networks.quantised import QSGD
from tacit.networks.schedules import Moving, RandomMatchings, base_graphs, one_peer_exponential, schedule
from tacit.networks.sharded import ShardedNetwork
from tacit.networks.sparse import RandomK, TopK
from tacit.networks.stacked import StackedNetwork, Tap
from tacit.networks.tables import TableInbox
from tacit.networks.topology import (
    Changing,
    Cycle,
    Links,
    Several,
    Static,
    Topology,
    as_links,
    as_topology,
)
from tacit.networks.transports import Loopback
from tacit.networks.wired import WiredInbox, WiredNetwork

__all__ = [
    "DENSE",
    "QSGD",
    "BFloat16",
    "Changing",
    "Codec",
    "Cycle",
    "Dense",
    "EchoInbox",
    "EchoNetwork",
    "Float16",
    "Inbox",
    "Links",
    "Loopback",
    "Messages",
    "Moving",
    "Network",
    "Packet",
    "PublicChance",
    "RandomCodec",
    "RandomK",
    "RandomMatchings",
    "ScheduleMeasures",
    "Several",
    "ShardedNetwork",
    "StackedNetwork",
    "Static",
    "TableInbox",
    "Tap",
    "TopK",
    "Topology",
    "Transport",
    "WiredInbox",
    "WiredNetwork",
    "as_links",
    "as_topology",
    "base_graphs",
    "check_topology",
    "find_codec",
    "measure_schedule",
    "one_peer_exponential",
    "schedule",
]
