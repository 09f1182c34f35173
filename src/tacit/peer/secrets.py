"""The secrets that pairs of members share for masks: made by X25519, one ephemeral key for each member and run.

A key is signed by its member's identity and relayed by neighbours, so that two members share a secret without a link between them. The
secret of a pair follows by HKDF from the run and both numbers, and the key of each query's mask from that and the query's number
(`tacit.privacy.randomness.mask_key`): masks are addressed, never counted, so that a crash cannot put two ends out of step.
"""

import struct
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, NoReturn

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.errors import NetworkError, PrivacyError
from tacit.peer.protocol.interface import Randomness, Refused
from tacit.peer.protocol.notes import Notes
from tacit.privacy.randomness import ChaChaStream, MaskSource, Opener, Secret, Source, mask_key

_ENTRY = struct.Struct("<I32s64s")  # member, public key, Ed25519 signature
_MOST_MEMBERS = 2**13

Sign = Callable[[bytes], bytes]
Verify = Callable[[int, bytes, bytes], bool]


class SignedKey(NamedTuple):
    """A member's public key of one run, signed by its identity."""

    public: bytes
    signature: bytes


def statement(run: bytes, member: int, public: bytes) -> bytes:
    """Return what a member signs about its key."""
    return b"tacit ephemeral key v1\0" + run + struct.pack("<I", member) + public


class KeyExchange:
    """This member's ephemeral key and everybody's public ones.

    partners: the members with whom this one shares a secret. sign, verify: by identities; `verify(member, message, signature)`.
    seal, unseal: encrypt the key for the journal, and back; by default it is protected by the file's mode alone.
    """

    def __init__(
        self,
        run: bytes,
        agent: int,
        partners: Collection[int],
        *,
        sign: Sign,
        verify: Verify,
        randomness: Randomness,
        seal: Callable[[bytes], bytes] = bytes,
        unseal: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._run, self._agent, self._partners = run, agent, frozenset(partners) - {agent}
        self._sign, self._verify, self._randomness, self._seal, self._unseal = sign, verify, randomness, seal, unseal
        self._known: dict[int, SignedKey] = {}
        self._forgone: frozenset[int] = frozenset()
        self.__private: X25519PrivateKey | None = None

    @property
    def complete(self) -> bool:
        """Whether the keys of all partners are there that are not given up."""
        return self._partners - self._forgone <= self._known.keys()

    def forgo(self, members: Collection[int]) -> None:
        """Do not wait for the keys of these members: they are gone. Masks with one whose key never came are shared with nobody."""
        self._forgone |= frozenset(members)

    def begin(self, notes: Notes) -> None:
        """Make a key and put it in the journal, or take the one that is there. One that was erased is not replaced: the run is over."""
        if notes.key is not None and not any(notes.key):
            return
        if notes.key is None:
            key = self._randomness.token(32)
            notes.keep_key(self._seal(key))
        else:
            key = self._unseal(notes.key)
        self.__private = X25519PrivateKey.from_private_bytes(key)
        public = self.__private.public_key().public_bytes_raw()
        self._known[self._agent] = SignedKey(public, self._sign(statement(self._run, self._agent, public)))

    def document(self) -> bytes:
        """Return all signed keys that are known here."""
        return b"".join(_ENTRY.pack(member, *key) for member, key in sorted(self._known.items()))

    def learn(self, document: bytes) -> bool:
        """Take in signed keys, all or none of them; return whether one was new."""
        if len(document) % _ENTRY.size or len(document) > _MOST_MEMBERS * _ENTRY.size:
            raise Refused("keys that cannot be read")
        new: dict[int, SignedKey] = {}
        for member, public, signature in _ENTRY.iter_unpack(document):
            known = self._known.get(member) or new.get(member)
            if known is None:
                if not self._verify(member, statement(self._run, member, public), signature):
                    raise Refused(f"a key of member {member} that is not signed by it")
                new[member] = SignedKey(public, signature)
            elif known.public != public:
                raise Refused(f"two different keys of member {member}")
        self._known |= new
        return bool(new)

    def pair_secret(self, other: int) -> bytes:
        """Return the secret that this member shares with another one."""
        if other in self._forgone - self._known.keys():
            return self.fresh()
        if self.__private is None:
            raise NetworkError("the key of this member for this run was erased, so that there are no masks")
        if other not in self._known:
            raise NetworkError(f"there is no key of member {other} yet")
        try:
            shared = self.__private.exchange(X25519PublicKey.from_public_bytes(self._known[other].public))
        except ValueError as error:
            raise NetworkError(f"the key of member {other} cannot be used") from error
        about = b"tacit pair secret" + struct.pack("<II", min(self._agent, other), max(self._agent, other))
        return HKDF(algorithm=hashes.SHA256(), length=32, salt=self._run, info=about).derive(shared)

    def erase(self) -> None:
        """Forget the private key. The journal's copy has to be erased with the journal."""
        self.__private = None

    def fresh(self) -> bytes:
        """Return a secret that nobody else has."""
        return self._randomness.token(32)

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a key exchange cannot be copied or stored: it holds a secret")


class PairMasks:
    """The masks of one pair, addressed by the query's number. None is opened twice."""

    def __init__(self, shared: bytes, run: str, fresh: Callable[[], bytes]) -> None:
        self.__shared, self._run, self._fresh = shared, run, fresh
        self._position, self._unshared = 0, -1

    @property
    def position(self) -> int:
        """The number of the next query."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if position < self._position:
            raise PrivacyError(f"the mask of query {position} was used; a mask is never used twice")
        self._position = position

    def unshare(self, number: int) -> None:
        """Give a query a mask that nobody shares, as its own one may have been used."""
        self.position, self._unshared = number, number

    def next(self) -> Opener:
        """Return the mask of the next query."""
        secret = self._fresh() if self._position == self._unshared else self.__shared
        key = mask_key(secret, self._run, self._position)
        self._position += 1
        return lambda: ChaChaStream(key, nonce=bytes(12))

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("masks cannot be copied or stored: they would be used twice")


class PeerSources:
    """Secret lots and noise of one member, and the masks that it shares with others: what makes a peer's run with masks a release."""

    secret = True

    def __init__(self, keys: KeyExchange, agent: int) -> None:
        self._keys, self._agent = keys, agent
        self._masks: list[PairMasks] = []

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        """Return sources under new keys from the operating system."""
        return Secret().make(agents, trial)

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[MaskSource]:
        """Return the source that this member shares in each of these pairs. The run's identity is in the pair's secret."""
        made = []
        for low, high in pairs:
            if self._agent not in (low, high):
                raise PrivacyError(f"member {self._agent} does not share the masks of members {low} and {high}")
            made.append(PairMasks(self._keys.pair_secret(high if low == self._agent else low), "", self._keys.fresh))
        self._masks += made
        return made

    def unshare(self, number: int) -> None:
        """Give a query masks that nobody shares."""
        for masks in self._masks:
            masks.unshare(number)
