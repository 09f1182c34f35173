"""One rank's part of a training: its agents with their records, and a runtime that waits for all ranks before anything is exchanged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tacit.cluster.agreeing import agree_on_secrets
from tacit.cluster.group import Group
from tacit.networks import Network, Topology
from tacit.privacy import Secret
from tacit.training.preparation import declared_sizes
from tacit.training.runtimes import NetworkSettings, Sharded
from tacit.training.settings import Training


@dataclass(frozen=True, eq=False)
class ClusterRuntime(Sharded):
    """Hosts a rank's agents. `before` is called once, when all that can be wrong with this rank's part has been checked."""

    before: Callable[[], object] = field(default=lambda: None, kw_only=True)

    def connect(self, topologies: Sequence[Topology], wanted: NetworkSettings) -> Network:
        """Wait for all ranks, then connect the agents."""
        network = super().connect(topologies, wanted)
        self.before()
        return network


def take_part(training: Training, group: Group, shards: tuple[tuple[int, ...], ...]) -> tuple[Training, ClusterRuntime]:
    """Return the training of this rank's agents, with their records alone, and their runtime."""
    data, own = training.data, list(shards[group.rank])
    sizes = declared_sizes(data, training.sizes, data.agents, training.unit)
    sources = training.sources
    if training.cancelling is not None and isinstance(training.chosen_sources, Secret) and group.ranks > 1:
        sources = agree_on_secrets(group, shards)
    part = replace(training, data=data.only(own), sizes=sizes, sources=sources)
    return part, ClusterRuntime(shards, group.rank, before=lambda: group.agree("made", {}))
