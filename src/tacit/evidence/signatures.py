"""Signatures of heads, by the owner of a run and by others who saw the same head.

A statement says what the heads of the chains were. Its signature, by Ed25519, is a small JSON file: the statement, the time, the
public key and the signature. Others sign the same statement with their own keys.
"""

import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.errors import InvalidInput, StorageError
from tacit.io import chains
from tacit.io.files import write_atomically

_FORMAT = "tacit-signature-1"
_MOST_BYTES = 10**6


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What the heads were: of a ledger and, if a run is named, of its events."""

    ledger: str
    """The hash of the ledger's last row."""
    ledger_rows: int
    run: str | None = None
    events: str | None = None
    """The hash of the last of the run's events."""
    events_lines: int | None = None
    models_sha256: str | None = None
    """Of the run's final models, once it is finished."""

    @staticmethod
    def of(document: Any) -> "Statement":
        """Read plain data back, or raise a ValueError."""
        kinds: dict[str, tuple[type, ...]] = {
            "ledger": (str,),
            "ledger_rows": (int,),
            "run": (str, type(None)),
            "events": (str, type(None)),
            "events_lines": (int, type(None)),
            "models_sha256": (str, type(None)),
        }
        if not isinstance(document, dict) or set(document) != set(kinds):
            raise ValueError(f"a statement has the fields {', '.join(kinds)}")
        if wrong := [name for name, kind in kinds.items() if type(document[name]) not in kind]:
            raise ValueError(f"{wrong[0]} of a statement is {str(document[wrong[0]])[:80]!r}")
        return Statement(**document)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A statement with who signed it and when; `read_signature` returns only valid ones."""

    statement: Statement
    time: str
    public_key: str
    signature: str

    def to_json(self) -> bytes:
        """Return it as the content of a file."""
        return (chains.canonical({"format": _FORMAT, **asdict(self)}) + "\n").encode()


def new_key(path: Path) -> str:
    """Write a new private key, readable only by the user, and its public key beside it; return the public key.

    An existing file is never overwritten.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    beside = public_file(path)
    if os.path.lexists(beside):
        raise InvalidInput(f"{beside} already exists; a key is never overwritten")
    _write_new(path, private, 0o600)
    _write_new(beside, _pem(key.public_key()), 0o644)
    return _hex(key.public_key())


def public_file(path: Path) -> Path:
    """Return where the public key of a private key is written."""
    return path.with_name(path.name + ".pub")


def sign(statement: Statement, key_file: Path) -> Signature:
    """Sign a statement now, with the private key in a file."""
    try:
        key = serialization.load_pem_private_key(_content(key_file), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{key_file} does not hold a readable private key: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{key_file} holds a different kind of key; `tacit key new` makes an Ed25519 key")
    time, public = datetime.now(UTC).isoformat(timespec="seconds"), _hex(key.public_key())
    signed = key.sign(_signed_bytes(statement, time, public))
    return Signature(statement=statement, time=time, public_key=public, signature=signed.hex())


def read_signature(path: Path) -> Signature:
    """Read the file of a signature, and refuse one that is not valid."""
    try:
        document = chains.parse(_content(path))
        fields = {"format", "statement", "time", "public_key", "signature"}
        if not isinstance(document, dict) or set(document) != fields or document["format"] != _FORMAT:
            raise ValueError(f"it is not of the format {_FORMAT!r}")
        if not all(type(document[name]) is str for name in ("time", "public_key", "signature")):
            raise ValueError("its fields are not text")
        found = Signature(
            statement=Statement.of(document["statement"]),
            time=document["time"],
            public_key=document["public_key"],
            signature=document["signature"],
        )
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(found.public_key))
        key.verify(bytes.fromhex(found.signature), _signed_bytes(found.statement, found.time, found.public_key))
    except ValueError as error:
        raise InvalidInput(f"{path} is not a signature of a head: {error}") from None
    except InvalidSignature:
        raise InvalidInput(f"{path}: the signature is not valid: the statement or the signature was changed") from None
    return found


def read_public_key(path: Path) -> str:
    """Return the public key in a file, in hexadecimal."""
    try:
        key = serialization.load_pem_public_key(_content(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{path} does not hold a readable public key: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(f"{path} holds a different kind of key; `tacit key new` makes an Ed25519 key")
    return _hex(key)


def save(signature: Signature, path: Path) -> None:
    """Write a signature; an existing file is never overwritten."""
    if os.path.lexists(path):
        raise InvalidInput(f"{path} already exists; choose another name")
    write_atomically(path, signature.to_json())


def _signed_bytes(statement: Statement, time: str, public_key: str) -> bytes:
    signed = {"format": _FORMAT, "statement": asdict(statement), "time": time, "public_key": public_key}
    return chains.canonical(signed).encode()


def _hex(key: Ed25519PublicKey) -> str:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()


def _pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise InvalidInput(f"{path} is too large for a key or a signature")
    return content


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise InvalidInput(f"{path} already exists; a key is never overwritten") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
