"""A site's key never leaves it, and its card cannot be changed by others."""

import os
import ssl
import stat
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.peer.cards import check_address, check_card, check_name, read_card, spoken
from tacit.peer.identity import Identity
from tacit.peer.secret_files import find_passphrase, write_secret


def test_a_new_identity_is_read_back_and_signs(tmp_path):
    made = Identity.create(tmp_path, "north", address="127.0.0.1:7400")
    read = Identity.load(tmp_path)
    assert read.card == made.card == read_card(tmp_path / "card.toml")
    assert read.card.verify(read.sign(b"words"), b"words")
    assert not read.card.verify(read.sign(b"words"), b"other words")


def test_the_key_file_is_for_its_owner_alone(tmp_path):
    Identity.create(tmp_path, "north")
    path = tmp_path / "identity.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for mode in (0o640, 0o604, 0o620):
        os.chmod(path, mode)
        with pytest.raises(InvalidInput, match=rf"mode {mode:04o}.*chmod 600"):
            Identity.load(tmp_path)


def test_a_key_is_never_overwritten(tmp_path):
    before = Identity.create(tmp_path, "north").card
    with pytest.raises(InvalidInput, match="never overwritten"):
        Identity.create(tmp_path, "north")
    assert read_card(tmp_path / "card.toml") == before


def test_a_link_in_place_of_the_key_is_refused(tmp_path):
    Identity.create(tmp_path / "real", "north")
    Identity.create(tmp_path / "other", "north")
    (tmp_path / "other" / "identity.key").unlink()
    (tmp_path / "other" / "identity.key").symlink_to(tmp_path / "real" / "identity.key")
    with pytest.raises(InvalidInput, match="cannot be read"):
        Identity.load(tmp_path / "other")


def test_a_passphrase_protects_the_key(tmp_path):
    Identity.create(tmp_path, "north", passphrase=b"correct horse")
    assert b"ENCRYPTED" in (tmp_path / "identity.key").read_bytes()
    Identity.load(tmp_path, b"correct horse")
    with pytest.raises(InvalidInput, match="is encrypted; give its passphrase"):
        Identity.load(tmp_path)
    with pytest.raises(InvalidInput, match="the passphrase is wrong"):
        Identity.load(tmp_path, b"battery staple")


def test_the_passphrase_comes_from_a_systemd_credential(tmp_path, monkeypatch):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert find_passphrase(None) is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert find_passphrase(None) is None
    write_secret(tmp_path / "tacit-passphrase", b"correct horse\n")
    assert find_passphrase(None) == b"correct horse"
    os.chmod(tmp_path / "tacit-passphrase", 0o644)
    with pytest.raises(InvalidInput, match="mode 0644"):
        find_passphrase(None)


def test_a_credential_of_root_may_be_readable_by_an_access_control_list(tmp_path, monkeypatch):
    """Where a service has a user of its own, systemd gives it a file of root with mode 0440, whose list names that user alone."""
    file = tmp_path / "tacit-passphrase"
    write_secret(file, b"correct horse\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    real_facts = tuple(file.stat())

    def readable(mode, user, group):
        facts = [stat.S_IFREG | mode, *real_facts[1:4], user, group, *real_facts[6:]]
        monkeypatch.setattr(os, "fstat", lambda _: os.stat_result(facts))

    readable(0o440, 0, 0)
    assert find_passphrase(None) == b"correct horse"
    with pytest.raises(InvalidInput, match="mode 0440"):
        find_passphrase(file)  # a file that somebody names is not systemd's
    for mode, user, group in ((0o444, 0, 0), (0o460, 0, 0), (0o440, 0, 100), (0o440, os.getuid() + 1, 0)):
        readable(mode, user, group)
        with pytest.raises(InvalidInput, match=f"mode {mode:04o}"):
            find_passphrase(None)


@pytest.mark.parametrize("changed", ["name", "address", "fingerprint", "public_key", "certificate", "signature"])
def test_a_card_that_was_changed_is_refused(tmp_path, changed):
    Identity.create(tmp_path / "a", "north", address="127.0.0.1:7400")
    Identity.create(tmp_path / "b", "south", address="127.0.0.1:7401")
    import tomllib

    import tomli_w

    one, other = (tomllib.loads((tmp_path / site / "card.toml").read_text()) for site in "ab")
    (tmp_path / "card.toml").write_text(tomli_w.dumps(one | {changed: other[changed]}))
    with pytest.raises(InvalidInput):
        read_card(tmp_path / "card.toml")


def test_a_certificate_of_a_version_that_does_not_exist_is_refused(tmp_path):
    """Found by fuzzing: the library raises an error of its own here, which readers of cards and agreements let through."""
    card = Identity.create(tmp_path, "north").card
    with pytest.raises(InvalidInput, match="the card of 'north' cannot be used: 28 is not a valid X509 version"):
        check_card(replace(card, certificate=with_version(card.certificate, 28)), "a version of the agreement")


def with_version(certificate, version):
    """Return a PEM certificate that states another version of X.509."""
    der, stated = ssl.PEM_cert_to_DER_cert(certificate), bytes((0xA0, 3, 2, 1))
    assert der.count(stated + b"\x02") == 1
    return ssl.DER_cert_to_PEM_cert(der.replace(stated + b"\x02", stated + bytes((version,))))


def test_words_to_read_over_the_telephone_are_those_of_the_published_scheme():
    """127.0.0.1 is lusab babad in the proposal for proquints, and 63.84.220.193 is gutih tugad."""
    assert spoken("7f0000013f54dcc1" + "00" * 24) == "lusab babad gutih tugad babab babab"


@given(st.binary(min_size=32, max_size=32), st.integers(0, 95))
def test_any_bit_of_the_first_96_changes_the_words(content, bit):
    other = bytearray(content)
    other[bit // 8] ^= 1 << bit % 8
    assert spoken(content.hex()) != spoken(bytes(other).hex())


def test_names_and_addresses_are_checked():
    assert check_name("st-marys-2") == "st-marys-2"
    for name in ("", "North", "a/b", "..", "a" * 33, "-a", "a-", None, "ü"):
        with pytest.raises(InvalidInput, match="the name of a site"):
            check_name(name)
    assert check_address("") is None
    assert check_address("[::1]:80") == ("::1", 80)
    for address in ("host", "host:0", "host:70000", ":80", "a b:80", "host:-1", "a/b:80", "host:" + "9" * 5000):
        with pytest.raises(InvalidInput, match="write host:port"):
            check_address(address)
