"""Who a site is: an Ed25519 key that never leaves it.

The key signs agreements and, at every start, a fresh P-256 key for TLS: grpcio cannot complete a handshake with an Ed25519 certificate,
but accepts one that an Ed25519 key has signed. What others pin is the identity, so a restart or a new TLS key changes nothing for them.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from tacit.errors import InvalidInput
from tacit.io.files import sync_folder, write_atomically
from tacit.peer.cards import CARD_FILE, Card, card_file, check_address, check_name, raw_public_key, read_card
from tacit.peer.secret_files import read_secret, write_secret

KEY_FILE = "identity.key"
_EARLIER = "identity-{}.key"


class Identity:
    """A site's private key. It signs; nothing returns it."""

    def __init__(self, key: Ed25519PrivateKey, card: Card) -> None:
        self._key, self.card = key, card
        if raw_public_key(key.public_key()).hex() != card.public_key:
            raise InvalidInput(f"the key of site {card.name!r} does not belong to its card")

    @property
    def name(self) -> str:
        """The name of the site."""
        return self.card.name

    def sign(self, content: bytes) -> bytes:
        """Return the signature of some content."""
        return self._key.sign(content)

    def issue(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        """Sign a certificate for TLS."""
        certificate = x509.load_pem_x509_certificate(self.card.certificate.encode())
        return builder.issuer_name(certificate.subject).sign(self._key, None)

    @staticmethod
    def create(folder: Path, name: str, *, address: str = "", passphrase: bytes | None = None) -> "Identity":
        """Make a new key and card in a folder. An existing key is never overwritten."""
        check_name(name)
        check_address(address)
        key = Ed25519PrivateKey.generate()
        card = Card(
            name=name,
            public_key=raw_public_key(key.public_key()).hex(),
            certificate=_self_signed(key, name),
            address=address,
        )
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if passphrase is not None:
            protection = serialization.BestAvailableEncryption(passphrase)
        content = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
        write_secret(folder / KEY_FILE, content)
        identity = Identity(key, card)
        write_atomically(folder / CARD_FILE, card_file(card, identity.sign))
        return identity

    @staticmethod
    def load(folder: Path, passphrase: bytes | None = None) -> "Identity":
        """Read a site's key and card. A key that others on the machine can read is refused."""
        return Identity(_read_key(folder / KEY_FILE, passphrase), read_card(folder / CARD_FILE))

    def renew(self, folder: Path, passphrase: bytes | None = None) -> "Identity":
        """Return an identity of the same name and address with a new key, which is written; the old one stays under another name."""
        with tempfile.TemporaryDirectory(prefix=".renewed-", dir=folder) as new:
            made = Identity.create(Path(new), self.name, address=self.card.address, passphrase=passphrase)
            os.link(folder / KEY_FILE, folder / _EARLIER.format(self.card.fingerprint[:16]))
            for name in (KEY_FILE, CARD_FILE):
                os.replace(Path(new) / name, folder / name)
        sync_folder(folder)
        return made

    def move(self, folder: Path, address: str) -> "Identity":
        """Return the same identity with a card of another address, which is written."""
        check_address(address)
        card = replace(self.card, address=address)
        write_atomically(folder / CARD_FILE, card_file(card, self.sign))
        return Identity(self._key, card)


def earlier_signers(folder: Path, passphrase: bytes | None = None) -> list[Callable[[bytes], bytes]]:
    """Return what signs with the keys that a site had before: what it sealed under these is still its own."""
    return [_read_key(path, passphrase).sign for path in sorted(folder.glob(_EARLIER.format("*")))]


def _read_key(path: Path, passphrase: bytes | None) -> Ed25519PrivateKey:
    content = read_secret(path)
    try:
        key = serialization.load_pem_private_key(content, password=passphrase)
    except TypeError:
        need = "is not encrypted; leave the passphrase out" if passphrase else "is encrypted; give its passphrase"
        raise InvalidInput(f"{path} {need}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidInput(f"{path} cannot be read: the passphrase is wrong, or the file is broken") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{path} holds a different kind of key; `tacit peer init` makes an Ed25519 key")
    return key


def _self_signed(key: Ed25519PrivateKey, name: str) -> str:
    """Return the certificate at the top of a chain for TLS. Agreements expire; it does not."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"identity of {name}")])
    usage = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
            "crl_sign",
        ),
        False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, **usage), critical=True)
        .sign(key, None)
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
