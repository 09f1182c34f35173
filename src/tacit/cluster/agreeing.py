"""What ranks compare before anything is asked, and the secrets that they agree on for masks between their agents."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tacit import __version__
from tacit.cluster.group import Group
from tacit.errors import InvalidInput
from tacit.io.chains import canonical, digest
from tacit.privacy import Plan
from tacit.privacy.randomness import MaskSource, Secret, Source, shared_masks
from tacit.runs.config import RunConfig
from tacit.runs.describe import edges_of, links_of, weights_of
from tacit.runs.environment import code_sha256
from tacit.runs.recorded_parts import the_graph
from tacit.training.settings import Training


def facts_of(config: RunConfig, training: Training) -> dict[str, Any]:
    """Return everything in which ranks must not differ: versions, settings, who holds how many records, and who talks to whom."""
    data, graph = training.data, the_graph(training)
    links = links_of(edges_of(graph, min(training.link_rounds, 64)), weights_of(graph))
    return {
        "versions": {"tacit": __version__, "torch": torch.__version__, "code of tacit": code_sha256()[:12]},
        "settings": config.model_dump(mode="json"),
        "data": {"owners and numbers of records": digest(canonical([data.owners, list(data.sizes)]))[:12]},
        "graph": {"links of the graph": digest(canonical([list(link) for link in links]))[:12]},
    }


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Return what this rank has planned to ask of all agents: the ledger holds rank 0's plan, which must be that of all ranks."""
    return {"plan": {"the plan of lots, clipping norms, noise and keys": plan.sha256[:12]}}


def check_facts(each: Sequence[Mapping[str, Any]]) -> None:
    """Raise if ranks differ, and say in what."""
    first = each[0]
    for rank, other in enumerate(each[1:], 1):
        for part, facts in first.items():
            for key, value in facts.items():
                if other[part].get(key) != value:
                    raise InvalidInput(
                        f"{key} is {value!r} on rank 0 and {other[part].get(key)!r} on rank {rank}; all ranks need the same versions, "
                        "settings and files"
                    )


@dataclass(frozen=True)
class AgreedSecret:
    """Secret lots, noise and masks of the agents of one rank. Masks between ranks come from secrets that these agreed on.

    Lots and noise have fresh keys in every process, as with `Secret`. Ranks exchange fresh public keys (X25519) when they start, so
    whoever only reads their network learns no mask. Every attempt agrees anew: no mask is drawn twice.
    """

    rank_of: Mapping[int, int]
    rank: int
    shared: Mapping[int, bytes]
    """The secret shared with each other rank."""
    secret = True

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        """Return sources under new keys from the operating system."""
        return Secret().make(agents, trial)

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[MaskSource]:
        """Return the masks of these pairs, of which at least one end is hosted here."""
        return [shared_masks(self._secret_of(pair), run) for pair in pairs]

    def _secret_of(self, pair: tuple[int, int]) -> bytes:
        others = {self.rank_of[agent] for agent in pair} - {self.rank}
        if not others:
            return secrets.token_bytes(32)
        about = f"tacit pair {pair[0]} {pair[1]}".encode()
        return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=about).derive(self.shared[others.pop()])

    def __repr__(self) -> str:
        return f"AgreedSecret(rank={self.rank})"


def agree_on_secrets(group: Group, shards: Sequence[Sequence[int]]) -> AgreedSecret:
    """Exchange public keys with all ranks and return what masks are made from."""
    own = X25519PrivateKey.generate()
    public = own.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    keys = [bytes.fromhex(each["key"]) for each in group.agree("keys", {"key": public.hex()})]
    shared = {}
    for rank, key in enumerate(keys):
        if rank != group.rank:
            exchanged = own.exchange(X25519PublicKey.from_public_bytes(key))
            both = b"".join(sorted([public, key]))
            shared[rank] = hashlib.sha256(b"tacit ranks " + exchanged + both).digest()
    rank_of = {agent: rank for rank, agents in enumerate(shards) for agent in agents}
    return AgreedSecret(rank_of, group.rank, shared)
