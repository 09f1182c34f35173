"""`tacit peer`: from keys to a signed agreement, by commands alone, and what is refused on the way."""

import os
import re
import stat

import pytest
from invoking import complaint, document, one_line
from typer.testing import CliRunner

from tacit.cli import app

RUN = """
algorithm = "dsgt"
graph = "ring"
rounds = 3
noise_multiplier = 2.0
lot_size = 16.0
"""


TERMS = "per record at δ=1e-05, add-or-remove-one, pld, against everybody else together"


def done(*args):
    """Return what a command prints; it must succeed. Paths make lines longer than 80 columns."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def sites(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("north", "south", "east"):
        address = [] if name == "east" else ["--address", "127.0.0.1:74" + str(len(name) + ord(name[0]))[-2:]]
        said = done("peer", "init", name, "--name", name, *address)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
        assert (tmp_path / name / "site.toml").read_text() == 'dataset = "digits"\n'
        words = re.search(r"in words +(.+)", said).group(1)
        assert len(words.split()) == 6
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path


def agree(sites):
    done("peer", "agreement", "new", "run.toml", "--records", "500", "--title", "trial", "--site", "north")
    for name in ("south", "east"):
        said = done("peer", "agreement", "add", f"{name}/card.toml", "--records", "500", "--site", "north")
        assert said.startswith(f"{name} is member")
    content = (sites / "north" / "agreement.toml").read_bytes()
    for name in ("south", "east"):
        (sites / name / "agreement.toml").write_bytes(content)
    for name in ("north", "south", "east"):
        done("peer", "agreement", "sign", "--site", name)


def hand_out(sites):
    for path in list(sites.glob("*/*.sig")):
        for name in ("north", "south", "east"):
            (sites / name / path.name).write_bytes(path.read_bytes())


def test_from_keys_to_an_agreement_that_all_have_signed(sites):
    agree(sites)
    said = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["peer", "agreement", "check", "--site", "east"])
    assert said.exit_code == 2
    assert "not signed by north, south" in said.stderr
    hand_out(sites)
    checked = done("peer", "agreement", "check", "--site", "east")
    assert "version 1 is valid" in checked
    assert f"σ = 2; tacit peer check derives ε, {TERMS}" in checked
    found = document("peer", "status", "--site", "east")
    assert (found["phase"], found["rounds"], found["round"]) == ("not started", 3, 0)
    assert [link["neighbor"] for link in found["links"]] == ["north", "south"]


def test_check_finds_nothing_wrong_and_shows_who_did_not_answer(sites):
    agree(sites)
    hand_out(sites)
    said = one_line(done("peer", "check", "--site", "east", "--seconds", "0.3"))
    for words in (
        "identity ok",
        "agreement ok",
        "code ok",
        "data ok",
        "budget ok",
        "σ = 2 fit: ε=",
        TERMS,
        "link to north ?",
        "nothing listens",
    ):
        assert words in said


def test_an_agreement_states_epsilon_with_all_that_belongs_to_it(sites):
    (sites / "run.toml").write_text(
        RUN.replace("noise_multiplier = 2.0", "epsilon = 8.0\ndelta = 1e-3\nnoise = 'cancelling'")
    )
    agree(sites)
    hand_out(sites)
    said = done("peer", "agreement", "check", "--site", "south")
    assert "ε = 8 per record at δ=0.001, add-or-remove-one, pld, against any one other agent" in said


def test_check_refuses_code_and_data_that_were_not_agreed_on(sites):
    agree(sites)
    hand_out(sites)
    (sites / "east" / "site.toml").write_text('dataset = "synthetic:640"\n')
    said = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["peer", "check", "--site", "east", "--seconds", "0.1"])
    assert said.exit_code == 1
    assert "data WRONG" in one_line(said.stdout)
    assert "and the agreement says" in said.stdout


def test_a_signed_agreement_takes_no_more_members(sites):
    agree(sites)
    done("peer", "init", "west", "--name", "west")
    said = complaint("peer", "agreement", "add", "west/card.toml", "--records", "5", "--site", "north")
    assert "is signed already" in said


def test_a_member_that_is_gone_is_a_new_version(sites):
    agree(sites)
    hand_out(sites)
    assert "version 2, to be signed" in done("peer", "agreement", "change", "--gone", "east", "--site", "north")
    assert "did you mean 'north'" in complaint("peer", "agreement", "change", "--gone", "nort", "--site", "south")
    done("peer", "agreement", "sign", "--site", "north")
    (sites / "south" / "agreement-2.toml").write_bytes((sites / "north" / "agreement-2.toml").read_bytes())
    done("peer", "agreement", "sign", "--site", "south")
    hand_out(sites)
    assert "version 2 is valid" in done("peer", "agreement", "check", "--site", "north")


def test_another_address_and_a_new_key_are_a_new_card_and_a_new_version(sites):
    agree(sites)
    hand_out(sites)
    before = (sites / "north" / "identity.key").read_bytes()
    assert "stays as it is" in complaint("peer", "card", "--site", "north")
    assert "write host:port" in complaint("peer", "card", "--address", "nowhere", "--site", "north")
    assert "address      127.0.0.1:7999" in done("peer", "card", "--address", "127.0.0.1:7999", "--site", "north")
    assert (sites / "north" / "identity.key").read_bytes() == before
    words = re.search(r"in words +(.+)", done("peer", "card", "--renew-key", "--site", "north")).group(1)
    (kept,) = (sites / "north").glob("identity-*.key")
    assert kept.read_bytes() == before != (sites / "north" / "identity.key").read_bytes()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (kept, sites / "north" / "identity.key")} == {0o600}
    assert sorted(path.name for path in (sites / "north").iterdir() if path.is_dir()) == []
    done("peer", "agreement", "change", "--card", "north/card.toml", "--site", "south")
    content = (sites / "south" / "agreement-2.toml").read_bytes()
    assert words in content.decode()
    assert "127.0.0.1:7999" in content.decode()
    for name in ("north", "south", "east"):
        (sites / name / "agreement-2.toml").write_bytes(content)
        done("peer", "agreement", "sign", "--site", name)
    hand_out(sites)
    for name in ("north", "south", "east"):
        assert "version 2 is valid" in done("peer", "agreement", "check", "--site", name)


def test_a_passphrase_file_is_found_from_where_the_command_is_given(sites):
    (sites / "secret").write_text("open sesame\n")
    os.chmod(sites / "secret", 0o600)
    done("peer", "init", "hill", "--name", "hill", "--passphrase-file", "secret")
    (sites / "hill" / "site.toml").write_text("")
    assert "is encrypted; give its passphrase" in complaint("peer", "card", "--renew-key", "--site", "hill")
    done("peer", "card", "--renew-key", "--passphrase-file", "secret", "--site", "hill")
    done("peer", "agreement", "new", "run.toml", "--records", "5", "--site", "hill")
    done("peer", "agreement", "add", "north/card.toml", "--records", "5", "--site", "hill")
    done("peer", "agreement", "sign", "--passphrase-file", "secret", "--site", "hill")
    assert b"ENCRYPTED" in (sites / "hill" / "identity.key").read_bytes()


def test_a_site_signs_one_version_of_a_number(sites):
    agree(sites)
    hand_out(sites)
    assert "leaves 1 of 3" in complaint(
        *("peer", "agreement", "change", "--gone", "east", "--gone", "south", "--site", "north")
    )
    assert not (sites / "north" / "agreement-2.toml").exists()
    for name, gone in (("north", "east"), ("south", "north")):
        done("peer", "agreement", "change", "--gone", gone, "--site", name)
    for _ in range(2):  # the same one may be signed again
        done("peer", "agreement", "sign", "--site", "south")
    (sites / "south" / "agreement-2.toml").write_bytes((sites / "north" / "agreement-2.toml").read_bytes())
    said = complaint("peer", "agreement", "sign", "--site", "south")
    assert "'south' has signed another version 2 of the agreement, see agreement-2.toml.south.sig" in said
    (sites / "south" / "agreement-2.toml.south.sig").unlink()
    done("peer", "agreement", "sign", "--site", "south")


def test_mistakes_are_answered_by_a_sentence(sites):
    assert "never overwritten" in complaint("peer", "init", "north", "--name", "north")
    assert "small letters" in complaint("peer", "init", "x", "--name", "North Clinic")
    assert "write host:port" in complaint("peer", "init", "x", "--name", "x", "--address", "nowhere")
    assert "is not a folder" in complaint("peer", "run", "--site", "nowhere")
    assert "agreement.toml cannot be read" in complaint("peer", "run", "--site", "north")
    (sites / "run.toml").write_text(RUN + "private = false\n")
    said = complaint("peer", "agreement", "new", "run.toml", "--records", "5", "--site", "north")
    assert "private" in said
    os.chmod(sites / "north" / "identity.key", 0o644)
    (sites / "run.toml").write_text(RUN)
    done("peer", "agreement", "new", "run.toml", "--records", "5", "--site", "north")
    done("peer", "agreement", "add", "south/card.toml", "--records", "5", "--site", "north")
    assert "mode 0644" in complaint("peer", "agreement", "sign", "--site", "north")


def test_settings_of_the_environment_win_and_pages_stay_on_loopback(sites, monkeypatch):
    monkeypatch.setenv("TACIT_PEER_STATUS", "0.0.0.0:7500")
    assert "for this machine alone" in complaint("peer", "run", "--site", "north")
    monkeypatch.setenv("TACIT_PEER_STATUS", "")
    monkeypatch.setenv("TACIT_PEER_LISTN", "127.0.0.1:1")
    assert "did you mean 'listen'" in complaint("peer", "run", "--site", "north")
