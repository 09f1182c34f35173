"""The randomness of lots and noise: one source per agent, independent of every other seed.

Known noise can be subtracted and known lots undo the amplification by sampling, so a release draws both
from a ChaCha20 keystream under a fresh 256-bit key of the operating system that never leaves the object.
`Seeded` (the same keystream under a known key) and `Fast` (numpy's Philox) are for tests and research;
a run with them is not a release. Each query of an agent reads a stream of its own.

Masks come from streams that a pair of agents shares. Their key follows by HKDF from the pair's secret, the run and the number of the
query, so that no query has the masks of another.
"""

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy.normals import box_muller

Words = npt.NDArray[np.uint64]
Reals = npt.NDArray[np.float64]


BLOCK = 2**16
"""How many normals are made at once."""


class Stream(Protocol):
    """The randomness of one query of one agent, read front to back."""

    def words(self, count: int) -> Words:
        """Return uniform 64-bit words."""

    def normals(self, count: int) -> Reals:
        """Return independent standard normals."""


class Source(Protocol):
    """One agent's randomness. `position` counts the streams taken so far."""

    position: int

    def next(self) -> Stream:
        """Return the stream of the next query."""


Opener = Callable[[], Stream]
"""Opens the stream of one query's mask from its beginning; a process with both ends opens it once for each."""


class MaskSource(Protocol):
    """The randomness that a pair of agents shares. `position` counts the masks taken so far."""

    position: int

    def next(self) -> Opener:
        """Return the mask of the next query."""


class Sources(Protocol):
    """Makes one source per agent. `secret` says whether their draws are unpredictable to everyone."""

    @property
    def secret(self) -> bool:
        """Whether a run with these sources can be a release."""

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        """Return a source for each agent of one trial."""

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[MaskSource]:
        """Return the source that each of these pairs shares in one trial of a run."""


@dataclass(frozen=True)
class Secret:
    """ChaCha20 under a fresh key for every agent: the only kind that makes a release."""

    secret = True

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        """Return sources under new keys from the operating system."""
        return [_ChaChaSource(secrets.token_bytes(32), secret=True) for _ in range(agents)]

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[MaskSource]:
        """Return sources under new secrets from the operating system."""
        return [_KeyedMasks(secrets.token_bytes(32), run, secret=True) for _ in pairs]


@dataclass(frozen=True)
class Seeded:
    """ChaCha20 under a key made from a seed: repeatable, and not a release."""

    seed: int
    secret = False

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        """Return sources whose keys follow from the seed, the trial and the agent."""
        return [_ChaChaSource(_key(self.seed, trial, agent), secret=False) for agent in range(agents)]

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[MaskSource]:
        """Return sources whose secrets follow from the seed, the trial and the pair."""
        return [_KeyedMasks(_key(self.seed, trial, *pair), "", secret=False) for pair in pairs]


@dataclass(frozen=True)
class Fast:
    """numpy's and torch's own generators from a seed: the quickest, repeatable, and not a release."""

    seed: int
    secret = False

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        """Return sources that follow from the seed, the trial and the agent."""
        return [_FastSource(_key(self.seed, trial, agent)) for agent in range(agents)]

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[MaskSource]:
        """Return sources that follow from the seed, the trial and the pair."""
        return [_FastMasks(_key(self.seed, trial, *pair)) for pair in pairs]


def _key(seed: int, trial: int, *agents: int) -> bytes:
    if seed < 0:
        raise InvalidInput(f"a seed cannot be negative, got {seed}")
    whose = " ".join(map(str, agents))
    return hashlib.blake2b(f"tacit source {seed} {trial} {whose}".encode(), digest_size=32).digest()


class _Secretive:
    """Counts queries, and holds a secret that neither a forked child nor a copy may use again."""

    def __init__(self, *, secret: bool) -> None:
        self._secret = secret
        self._process = os.getpid()
        self._position = 0
        self._lock = threading.Lock()  # two threads must not read one keystream

    @property
    def position(self) -> int:
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if self._secret and position < self._position:
            raise PrivacyError("a secret source cannot move back: it would draw the same noise again")
        if not 0 <= position < 2**64:
            raise InvalidInput(f"a source has 2^64 positions, starting at 0; got {position}")
        self._position = position

    def _take(self) -> int:
        """Return the number of the next query, once."""
        # A forked child would draw the same noise as its parent.
        if self._secret and os.getpid() != self._process:
            raise PrivacyError("this secret source belongs to another process; make a new one after a fork")
        with self._lock:
            position = self._position
            self._position += 1
        return position

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a secret source cannot be copied or stored: its noise would be drawn twice")


class _ChaChaSource(_Secretive):
    """A keystream per query: the query's number is the nonce, so no keystream is ever read twice.

    The nonce's last four bytes are 0; other values are for the additional bits of `ChaChaStream.more`.
    """

    def __init__(self, key: bytes, *, secret: bool) -> None:
        super().__init__(secret=secret)
        self.__key = key

    def next(self) -> "ChaChaStream":
        return ChaChaStream(self.__key, nonce=self._take().to_bytes(8, "little") + bytes(4))


class _KeyedMasks(_Secretive):
    """A key per query, from the secret that a pair shares. Both ends open the same keystream."""

    def __init__(self, shared: bytes, run: str, *, secret: bool) -> None:
        super().__init__(secret=secret)
        self.__shared, self._run = shared, run

    def next(self) -> Opener:
        key = mask_key(self.__shared, self._run, self._take())
        return lambda: ChaChaStream(key, nonce=bytes(12))


def shared_masks(shared: bytes, run: str) -> MaskSource:
    """Return the masks that a pair makes in a run from a secret that only its two ends know."""
    return _KeyedMasks(shared, run, secret=True)


def mask_key(shared: bytes, run: str, query: int) -> bytes:
    """Return the key of a pair's masks in one query of a run, from the secret that the pair shares."""
    about = b"tacit mask " + query.to_bytes(8, "little") + run.encode()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=about).derive(shared)


class ChaChaStream:
    """ChaCha20 (RFC 8439) from block 0, read as little-endian 64-bit words."""

    _LIMIT = 2**32 * 64  # bytes until the block counter would wrap around

    def __init__(self, key: bytes, *, nonce: bytes, block: int = 0) -> None:
        counter = block.to_bytes(4, "little")
        self.__key, self._nonce = key, nonce[:8]
        self._cipher = Cipher(algorithms.ChaCha20(key, counter + nonce), mode=None).encryptor()
        self._left = self._LIMIT - block * 64

    def read(self, count: int) -> bytearray:
        """Return the next `count` bytes of the keystream."""
        if count > self._left:
            raise PrivacyError(f"one query needs {count} random bytes, but its stream has only {self._left} left")
        self._left -= count
        # update_into wants room for one more block than it fills
        out = bytearray(count + 63)
        self._cipher.update_into(bytes(count), out)
        del out[count:]
        return out

    def words(self, count: int) -> Words:
        """Return the keystream as words."""
        return np.frombuffer(self.read(8 * count), dtype="<u8")

    def pairs(self, count: int) -> tuple[int, Words]:
        """Return the words for `count` pairs of normals, radii before angles, and the position of the first in the keystream."""
        place = (self._LIMIT - self._left) // 8
        return place, self.words(2 * count)

    def more(self, place: int, level: int) -> bytes:
        """Return 64 bytes that belong to the word at this place: additional bits for its pair of normals.

        They come from keystreams that nothing else reads, and are the same on every call.
        """
        apart = 1 + (level << 3 | place >> 32)  # a keystream has less than 2³⁵ words; 0 is the keystream itself
        nonce = self._nonce + apart.to_bytes(4, "little")
        return bytes(ChaChaStream(self.__key, nonce=nonce, block=place & 0xFFFFFFFF).read(64))

    def normals(self, count: int) -> Reals:
        """Return normals by Box and Muller's transform in float64, in blocks that stay in the processor's cache.

        Their low bits reveal the words they were made from, so a release must go through `noise.GridNoise`.
        """
        out = np.empty(count)
        for start in range(0, count, BLOCK):
            part = out[start : start + BLOCK]
            words = self.pairs((len(part) + 1) // 2)[1]
            part[:] = box_muller(words[None]).values[0, : len(part)].numpy()
        return out

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a stream cannot be copied or stored: its noise would be drawn twice")


class _FastSource:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self.position = 0

    def next(self) -> "_FastStream":
        stream = _FastStream(self._key, self.position)
        self.position += 1
        return stream


class _FastMasks:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self.position = 0

    def next(self) -> Opener:
        position = self.position
        self.position += 1
        return lambda: _FastStream(self._key, position)


class _FastStream:
    """Words by numpy's Philox, normals by torch in float32: good enough for simulation, in half the time."""

    def __init__(self, key: bytes, position: int) -> None:
        self._key, self._position = key, position
        self._read = 0
        self._normals: torch.Generator | None = None

    def words(self, count: int) -> Words:
        words = _philox(self._key, self._position, self._read, count)
        self._read += count
        return words

    def normals(self, count: int) -> Reals:
        if self._normals is None:
            digest = hashlib.blake2b(self._key + self._position.to_bytes(8, "little"), digest_size=8).digest()
            self._normals = torch.Generator().manual_seed(int.from_bytes(digest))
        return torch.randn(count, generator=self._normals).double().numpy()


_LOCAL = threading.local()


def _philox(key: bytes, position: int, first: int, count: int) -> Words:
    """Return words of a Philox stream, starting at number `first`; each step of its counter gives four.

    One generator per thread is repositioned: making a new one takes ten times as long.
    """
    if not hasattr(_LOCAL, "philox"):
        _LOCAL.philox = np.random.Philox(key=0)
        _LOCAL.state = _LOCAL.philox.state
    place = _LOCAL.state["state"]
    place["key"][:] = np.frombuffer(key[:16], dtype="<u8")
    place["counter"][:] = (first // 4, 0, 0, position)
    _LOCAL.philox.state = _LOCAL.state
    skipped = first % 4
    return np.asarray(_LOCAL.philox.random_raw(skipped + count)[skipped:], dtype=np.uint64)
