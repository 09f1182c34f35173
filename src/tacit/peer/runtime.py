"""A session of one agent on the protocol core: the third runtime beside stacked and wired ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load, save

from tacit.errors import InvalidInput
from tacit.networks import Network, Tap, Topology
from tacit.peer.agreement.terms import OWN_VALIDATION
from tacit.peer.network import PeerNetwork
from tacit.peer.oracle import JournaledOracle
from tacit.peer.protocol.core import Core
from tacit.peer.public_records import check_votes
from tacit.peer.secrets import PeerSources
from tacit.privacy.oracle import PrivateOracle
from tacit.training.runtimes import OneAgent
from tacit.training.session import Session


@dataclass(frozen=True)
class Peer(OneAgent):
    """One agent out of `agents`, joined to its neighbours by a protocol core."""

    core: Core

    def join(self, topology: Topology, device: torch.device, taps: Sequence[Tap]) -> Network:
        """Return a network whose exchanges are settled by the core."""
        return PeerNetwork(self.agent, topology, self.core, device=device, taps=taps)


class SessionPlayer:
    """Plays a session's rounds on the core, with every answer in the journal; see `tacit.peer.protocol.driver.play`.

    public: the public records that teachers may be asked about, as in the agreement. Without them, a session with votes is refused.
    """

    def __init__(self, session: Session, core: Core, public: Mapping[str, Any] | None = None) -> None:
        if not isinstance(session.network, PeerNetwork):
            raise InvalidInput("a session between peers is made with the runtime Peer(agent, agents, core)")
        check_votes(session, public)
        self.session, self._core, self._network = session, core, session.network
        if core.terms.rounds != session.training.total_rounds:
            raise InvalidInput(
                f"the agreement has {core.terms.rounds} rounds, and the training has {session.training.total_rounds}"
            )
        sources = session.training.chosen_sources
        self._oracle = JournaledOracle(
            session.real_oracle,
            core.notes,
            asked=session.cost.asked,
            unshare=sources.unshare if isinstance(sources, PeerSources) else lambda number: None,
        )
        session.wrap_oracle(lambda oracle: self._oracle)
        session.withhold_public_loss(OWN_VALIDATION)

    @property
    def round(self) -> int:
        """How many rounds are played."""
        return self.session.round

    @property
    def finished(self) -> bool:
        """Whether all are."""
        return self.session.finished

    def attempt(self) -> None:
        """Play a round from its beginning, as far as exchanges are settled."""
        self._network.rewind()
        self._oracle.begin(self.round)
        masked = isinstance(self.session.real_oracle, PrivateOracle) and self.session.plan.masks is not None
        gone = self._core.terms.gone
        self.session.left_out = frozenset(each for each, first in gone.items() if masked and first <= self.round)
        self.session.advance()
        self._oracle.begin(self.round)

    def save(self) -> bytes:
        """Return the session's public state."""
        return save({name: tensor.contiguous() for name, tensor in self.session.state_dict().items()})

    def load(self, state: bytes | None, round: int) -> None:
        """Continue from a state, or from the start, at a round."""
        self._oracle.begin(round)
        saved = self.session.state_dict() if state is None else load(state)
        if self.session.cost.ballot is not None and self._oracle.queries and "labels" not in saved:
            raise InvalidInput(
                "this site took no part in the round in which teachers vote, so it has no labels to learn from and cannot go on. "
                "The others continue once a new version of the agreement declares it gone"
            )
        saved["round"], saved["queries"] = torch.tensor(round), torch.tensor(self._oracle.queries)
        self.session.load_state_dict(saved)

    def neighbors_of(self, round: int) -> Collection[int]:
        """Return with whom the agent exchanges messages in a round."""
        return self._network.neighbors_of(round)
