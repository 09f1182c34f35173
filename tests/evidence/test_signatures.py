"""Valid signatures are read, changed ones are refused, keys are never overwritten."""

import json
import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tacit.errors import InvalidInput
from tacit.evidence.signatures import Statement, new_key, public_file, read_public_key, read_signature, save, sign
from tacit.io import chains

STATEMENT = Statement(ledger="a" * 64, ledger_rows=7, run="Ä", events="b" * 64, events_lines=3)


@pytest.fixture
def key(tmp_path):
    new_key(tmp_path / "owner.key")
    return tmp_path / "owner.key"


@pytest.fixture
def signed(key, tmp_path):
    path = tmp_path / "signature.json"
    save(sign(STATEMENT, key), path)
    return path


def test_a_key_is_its_owner_s_alone_and_is_never_overwritten(key, tmp_path):
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    with pytest.raises(InvalidInput, match="a key is never overwritten"):
        new_key(key)
    public_file(tmp_path / "other.key").write_text("")
    with pytest.raises(InvalidInput, match=r"other.key.pub already exists"):
        new_key(tmp_path / "other.key")
    assert key.read_bytes() == before
    assert not (tmp_path / "other.key").exists()


def test_a_signature_is_what_ed25519_makes_of_the_canonical_statement(key, signed):
    """By the definition, with the library of the signature alone."""
    document = json.loads(signed.read_text())
    by = Ed25519PublicKey.from_public_bytes(bytes.fromhex(document["public_key"]))
    signed_part = {name: document[name] for name in ("format", "statement", "time", "public_key")}
    by.verify(bytes.fromhex(document["signature"]), chains.canonical(signed_part).encode())
    found = read_signature(signed)
    assert found.statement == STATEMENT
    assert found.public_key == read_public_key(public_file(key))


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["statement"].update(ledger_rows=8),
        lambda document: document["statement"].update(models_sha256="c" * 64),
        lambda document: document.update(time="2020-01-01T00:00:00+00:00"),
        lambda document: document.update(signature="00" * 64),
    ],
    ids=["rows", "models", "time", "signature"],
)
def test_a_signature_of_something_else_is_refused(signed, change):
    document = json.loads(signed.read_text())
    change(document)
    signed.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="the signature is not valid"):
        read_signature(signed)


def test_another_s_key_does_not_make_it_another_s_signature(signed, tmp_path):
    document = json.loads(signed.read_text())
    document["public_key"] = new_key(tmp_path / "other.key")
    signed.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="the signature is not valid"):
        read_signature(signed)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": "tacit-signature-1"}',
        "[" * 10_000,
        '{"format": "tacit-signature-1", "statement": {}, "time": "", "public_key": "", "signature": ""}',
        '{"format": "tacit-signature-1", "statement": NaN, "time": "", "public_key": "", "signature": ""}',
    ],
)
def test_what_is_not_a_signature_is_refused(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(InvalidInput, match="is not a signature of a head"):
        read_signature(path)


def test_files_that_are_not_keys_are_refused(tmp_path, key):
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("no key")
    other.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    for path, words in (
        (text, "readable private key"),
        (other, "different kind"),
        (tmp_path / "none", "cannot be read"),
    ):
        with pytest.raises(InvalidInput, match=words):
            sign(STATEMENT, path)
    for path in (text, key):
        with pytest.raises(InvalidInput, match="readable public key"):
            read_public_key(path)
    text.write_bytes(b"x" * 2_000_000)
    with pytest.raises(InvalidInput, match="too large"):
        read_public_key(text)


def test_others_sign_the_same_statement(signed, tmp_path):
    new_key(tmp_path / "witness.key")
    save(sign(read_signature(signed).statement, tmp_path / "witness.key"), tmp_path / "counter.json")
    counter = read_signature(tmp_path / "counter.json")
    assert counter.statement == STATEMENT
    assert counter.public_key != read_signature(signed).public_key
    with pytest.raises(InvalidInput, match="already exists"):
        save(counter, signed)
