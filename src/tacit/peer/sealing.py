"""Seals what a site keeps on disk for its own eyes, under a key that follows from its identity: without that, the disk alone says nothing."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.errors import StorageError

_NONCE = 12


class Seal:
    """Encrypts and decrypts for one site and run. `sign` is the identity's: Ed25519 gives the same signature every time.

    earlier: those of keys that the site had before, under which it may have sealed something that it still needs.
    """

    def __init__(
        self, sign: Callable[[bytes], bytes], run: bytes, earlier: Iterable[Callable[[bytes], bytes]] = ()
    ) -> None:
        self.__ciphers = [_cipher(each, run) for each in (sign, *earlier)]

    def seal(self, content: bytes) -> bytes:
        """Return the content, encrypted."""
        nonce = os.urandom(_NONCE)
        return nonce + self.__ciphers[0].encrypt(nonce, content, None)

    def unseal(self, sealed: bytes) -> bytes:
        """Return what was sealed; something that this site did not seal for this run is refused."""
        for cipher in self.__ciphers:
            with suppress(InvalidTag):
                return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], None)
        raise StorageError("a secret in the journal was not sealed by this site for this run, or is damaged")


def _cipher(sign: Callable[[bytes], bytes], run: bytes) -> ChaCha20Poly1305:
    secret = sign(b"tacit seal of a site's secrets v1\0" + run)
    return ChaCha20Poly1305(HKDF(algorithm=hashes.SHA256(), length=32, salt=run, info=b"tacit seal").derive(secret))
