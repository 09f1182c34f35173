"""What a site hands out about itself: a card with its name, public key and address, signed by that key."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tacit.errors import InvalidInput
from tacit.io import chains
from tacit.io.toml import read_toml

CARD_FILE = "card.toml"
_FORMAT = "tacit-card-1"
_MOST_BYTES = 10**5
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_CONSONANTS, _VOWELS = "bdfghjklmnprstvz", "aiou"
_SPOKEN_WORDS = 6
# What `cryptography` may raise while it reads a certificate or its extensions; not all of these are ValueErrors.
UNREADABLE_CERTIFICATE = (
    ValueError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.ExtensionNotFound,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


def check_name(name: Any) -> str:
    """Return the name of a site, which is part of file names and of TLS names; refuse any other text."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"the name of a site is {str(name)[:40]!r}; use up to 32 small letters, digits and hyphens, as in north-clinic"
        )
    return name


def fingerprint_of(public_key: bytes) -> str:
    """Return SHA-256 of a raw public key, in hexadecimal."""
    return hashlib.sha256(public_key).hexdigest()


def spoken(fingerprint: str) -> str:
    """Return the first 96 bits of a fingerprint as six short words to read over the telephone.

    Each word is 16 bits in the form of a proquint: consonant, vowel, consonant, vowel, consonant.
    """
    content = bytes.fromhex(fingerprint)[: 2 * _SPOKEN_WORDS]
    return " ".join(_word(int.from_bytes(content[at : at + 2], "big")) for at in range(0, len(content), 2))


def _word(bits: int) -> str:
    return (
        _CONSONANTS[bits >> 12]
        + _VOWELS[bits >> 10 & 3]
        + _CONSONANTS[bits >> 6 & 15]
        + _VOWELS[bits >> 4 & 3]
        + _CONSONANTS[bits & 15]
    )


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a site hands out: its name, its public key as a certificate that it signed itself, and where it listens."""

    name: str
    public_key: str
    """32 bytes, in hexadecimal."""
    certificate: str
    """PEM. Only its key counts: it exists because TLS needs a certificate at the top of a chain."""
    address: str = ""
    """host:port where others can reach it; empty where it only dials out."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, in hexadecimal."""
        return fingerprint_of(bytes.fromhex(self.public_key))

    def verify(self, signature: bytes, content: bytes) -> bool:
        """Return whether this site signed the content."""
        return verify(bytes.fromhex(self.public_key), signature, content)


def verify(public_key: bytes, signature: bytes, content: bytes) -> bool:
    """Return whether an Ed25519 signature is valid."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def read_card(path: Path) -> Card:
    """Read a card, and refuse one that its own key did not sign."""
    document = read_toml(path, what="a card", most_bytes=_MOST_BYTES)
    fields = {"format", "name", "public_key", "fingerprint", "words", "certificate", "address", "signature"}
    if set(document) != fields or not all(isinstance(value, str) for value in document.values()):
        raise InvalidInput(f"{path} is not a card; `tacit peer init` makes one")
    if document["format"] != _FORMAT:
        raise InvalidInput(f"{path} has the format {document['format'][:40]!r}; this version reads {_FORMAT!r}")
    card = check_card(
        Card(**{name: document[name] for name in ("name", "public_key", "certificate", "address")}), str(path)
    )
    try:
        signature = bytes.fromhex(document["signature"])
    except ValueError:
        signature = b""
    if not card.verify(signature, _signed_bytes(card)):
        raise InvalidInput(f"{path} was changed after its site signed it; ask for the card again")
    if document["fingerprint"] != card.fingerprint:
        raise InvalidInput(f"{path} states a fingerprint that is not that of its key; ask for the card again")
    return card


def check_card(card: Card, where: str) -> Card:
    """Refuse a card whose name, key, certificate or address cannot be used."""
    check_name(card.name)
    check_address(card.address)
    try:
        certificate = x509.load_pem_x509_certificate(card.certificate.encode())
        own = certificate.public_key()
        if not isinstance(own, Ed25519PublicKey) or raw_public_key(own).hex() != card.public_key:
            raise ValueError("its certificate belongs to another key")
        own.verify(certificate.signature, certificate.tbs_certificate_bytes)
    except UNREADABLE_CERTIFICATE as error:
        raise InvalidInput(f"{where}: the card of {card.name!r} cannot be used: {error}") from None
    except InvalidSignature:
        raise InvalidInput(f"{where}: the certificate of {card.name!r} is not signed by its own key") from None
    return card


def check_address(address: Any) -> tuple[str, int] | None:
    """Return the host and port of an address, or None where it is empty."""
    if address == "":
        return None
    host, _, port = str(address).rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536
    if not host or not is_port or len(host) > 253 or set(host) & set(" /@,\"'"):
        raise InvalidInput(f"the address is {str(address)[:80]!r}; write host:port, as in peer.example.org:7400")
    return host.strip("[]"), int(port)


def card_file(card: Card, sign: Callable[[bytes], bytes]) -> bytes:
    """Return the content of a card's file."""
    document = {
        "format": _FORMAT,
        "name": card.name,
        "fingerprint": card.fingerprint,
        "words": spoken(card.fingerprint),
        "address": card.address,
        "public_key": card.public_key,
        "certificate": card.certificate,
        "signature": sign(_signed_bytes(card)).hex(),
    }
    return tomli_w.dumps(document, multiline_strings=True).encode()


def _signed_bytes(card: Card) -> bytes:
    return chains.canonical({"format": _FORMAT, **vars(card)}).encode()


def raw_public_key(key: Ed25519PublicKey) -> bytes:
    """Return the 32 bytes of a public key."""
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
