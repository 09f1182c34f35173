"""Votes of teachers between sites: on public records that the agreement pins, charged once, and never asked for again."""

import re
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import tacit
from tacit.cli import app
from tacit.data import Records
from tacit.errors import DataError, InvalidInput, PrivacyError
from tacit.peer import checking, service
from tacit.peer.agreement.document import Agreement
from tacit.peer.agreement.terms import check_terms
from tacit.peer.preparation import load_own_data
from tacit.peer.protocol.core import Core
from tacit.peer.protocol.interface import CARRIES_MESSAGE, RecordKind
from tacit.peer.protocol.notes import Notes
from tacit.peer.protocol.sqlite import SQLiteJournal
from tacit.peer.public_records import PublicRecords, check_public_records, hash_of
from tacit.peer.recording import JOURNAL
from tacit.peer.settings import SiteSettings
from tacit.peer.wire.hub import GrpcWire
from tacit.privacy import DurableAccount, DurableLedger
from tacit.privacy.teacher_oracle import TeacherOracle
from tests.peer.consortia import draft, make_sites
from tests.peer.sites import Consortium, play, play_all, stop_at

RULE = "pate:teachers=4,records=30,answers=20,threshold=0.3,teacher_steps=3"
VOTES = {"algorithm": RULE, "epsilon": 20.0, "delta": 1e-3, "noise_multiplier": None, "lot_size": None}
OWN = """
import dataclasses, torch, tacit

def own():
    digits = tacit.data.load("digits")
    return dataclasses.replace(digits, train=digits.train.take(torch.arange(1000)))
"""


@pytest.fixture
def drawn(monkeypatch):
    """Owners whose teachers have voted, with a draw of noise, once for each time."""
    attempt, owners = TeacherOracle._attempt, []

    def attempted(oracle, *asked):
        owners.append(oracle._accounts[0].lines[0].owner)
        return attempt(oracle, *asked)

    monkeypatch.setattr(TeacherOracle, "_attempt", attempted)
    return owners


def spent(consortium, number):
    folder = consortium.run_folder(number)
    with closing(DurableLedger(folder.ledger_file, read_only=True)) as ledger:
        account = ledger.account(folder.name)
        return account.spent, account.state


def records_of(consortium, number):
    with closing(SQLiteJournal(consortium.run_folder(number).path / JOURNAL)) as journal:
        return list(journal.read())


def test_sites_that_are_stopped_go_on_with_the_labels_that_they_have(tmp_path, drawn):
    consortium = Consortium(tmp_path, 3, rounds=5, **VOTES)
    assert play_all(consortium, meanwhile=stop_at(2)) == ["stopped"] * 3
    assert len(drawn) == len({*drawn}) == 3
    assert play_all(consortium) == ["finished"] * 3
    assert len(drawn) == 3
    assert torch.equal(consortium.theta(), consortium.theta_in_one_process())
    for number in range(3):
        assert spent(consortium, number) == (1, "finished")
        summary = consortium.run_folder(number).summary()
        assert 0 < summary["labels_per_agent"][0] <= 20
        assert (summary["links_used"], summary["links_planned"]) == (10, 10)


_ORDER = ((RecordKind.INTENT, 0), (RecordKind.ANSWER, 0), (RecordKind.COMMIT, 1), (RecordKind.SEAL, 1))


def test_a_vote_is_announced_and_charged_before_anything_of_it_is_on_the_wire(tmp_path, monkeypatch):
    """In each site's journal and ledger: that it begins, the draw, the charge, the labels, the state and the message, in this order."""
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)], rounds=3, **VOTES)
    seen, sent_in = [], []
    write, attempt, spend, send = Notes._write, TeacherOracle._attempt, DurableAccount.spend, GrpcWire.send

    def writes(notes, record, **how):
        write(notes, record, **how)
        seen.append((notes, record.kind, record.slot.round))

    def attempts(oracle, *asked):
        seen.append("draw")
        return attempt(oracle, *asked)

    def spends(account):
        found = spend(account)
        seen.append("charge")
        return found

    def sends(wire, neighbor, frame):
        if frame.header.kind in CARRIES_MESSAGE and frame.header.slot.round > 0:
            own = [line[1:] for line in seen if line[0] is wire.core.notes]
            places = [own.index(line) for line in _ORDER]
            assert places == sorted(places)
            sent_in.append(frame.header.slot.round)
        send(wire, neighbor, frame)

    for owner, name, patched in (
        (Notes, "_write", writes),
        (TeacherOracle, "_attempt", attempts),
        (DurableAccount, "spend", spends),
        (GrpcWire, "send", sends),
    ):
        monkeypatch.setattr(owner, name, patched)
    assert play_all(consortium) == ["finished"] * 2
    assert set(sent_in) == {1, 2}
    answered = [place for place, line in enumerate(seen) if line[1] == RecordKind.ANSWER]
    for place in answered:
        assert seen[place - 3] == (seen[place][0], RecordKind.INTENT, 0)
        assert seen[place - 2 : place] == ["draw", "charge"]
    assert len(answered) == seen.count("draw") == seen.count("charge") == 2
    assert [spent(consortium, number) for number in range(2)] == [(1, "finished")] * 2


class _Killed(BaseException):
    """The process ends."""


@pytest.fixture
def killed_after_the_charge(monkeypatch):
    """The first vote is charged, and its process ends before the labels are on record."""
    record, kills = Notes.record_answer, []

    def killed(notes, number, round, answer):
        if not kills:
            kills.append(number)
            raise _Killed
        record(notes, number, round, answer)

    monkeypatch.setattr(Notes, "record_answer", killed)


def test_a_vote_whose_labels_were_lost_is_not_made_again(tmp_path, drawn, killed_after_the_charge):
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)], rounds=3, **VOTES)
    with pytest.raises(_Killed):
        play_all(consortium)
    (number,) = [
        each
        for each in range(2)
        if RecordKind.ANSWER not in {line.kind for line in records_of(consortium, each)} and spent(consortium, each)[0]
    ]
    lost, votes = consortium.run_folder(number), len(drawn)
    with pytest.raises(PrivacyError, match="has made all 1 queries that it was calibrated for"):
        play_all(consortium)
    assert spent(consortium, number)[0] == 1
    owner = lost.events().plan.owners[0]
    assert drawn.count(owner) == 1
    assert len(drawn) <= votes + 1  # at the other site, if it had not voted before
    sealed = [line.slot.round for line in records_of(consortium, number) if line.kind == RecordKind.SEAL]
    assert set(sealed) <= {0}  # the public start


def test_a_site_that_was_away_when_teachers_voted_stops_without_asking(tmp_path, drawn, monkeypatch):
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)], rounds=3, **VOTES)
    join = Core.round_to_join

    def too_late(core, neighbors_of):
        late = core.terms.agent == 1 and core.position.round == 0
        return 1 if late else join(core, neighbors_of)

    monkeypatch.setattr(Core, "round_to_join", too_late)
    for _ in range(2):
        with pytest.raises(InvalidInput, match="took no part in the round in which teachers vote"):
            play_all(consortium)
    assert spent(consortium, 1)[0] == 0
    assert len(drawn) <= 1  # of the other site
    assert RecordKind.SEAL not in {line.kind for line in records_of(consortium, 1)}


def test_with_a_spare_query_lost_labels_are_asked_for_again_and_charged_again(tmp_path, drawn, killed_after_the_charge):
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)], rounds=3, spare_queries=1, **VOTES)
    with pytest.raises(_Killed):
        play_all(consortium)
    assert play_all(consortium) == ["finished"] * 2
    charged = [spent(consortium, number)[0] for number in range(2)]
    assert max(charged) == 2
    assert sum(charged) == len(drawn)
    lost = consortium.run_folder(charged.index(2))
    assert lost.events().lost_queries == 1
    plan = lost.events().plan
    assert plan.queries == 2  # for which noise was planned


def test_an_agreement_pins_the_records_that_are_voted_on(tmp_path):
    sites = make_sites(tmp_path, 2)
    agreement = draft(sites, **VOTES)
    check_terms(agreement)
    digits = tacit.data.load("digits")
    pinned = agreement.data["public"]
    assert pinned == {"dataset": "digits", "records": 30, "sha256": hash_of(digits.with_pool(30).pool)}

    def edited(**public):
        data = {key: value for key, value in agreement.data.items() if key != "public"}
        return Agreement.of({**agreement.model_dump(exclude_none=True), "data": data | public}, "an edited agreement")

    for changed, words in (
        ({}, "asks teachers about public records, and it names none"),
        ({"public": pinned | {"records": 29}}, "names 29 public records, and its rule asks about 30"),
        ({"public": pinned | {"sha256": "f00"}}, r"data\.public\.sha256"),
        ({"public": pinned | {"more": 1}}, r"data\.public\.more"),
        ({"public": 3}, "it must be a table"),
    ):
        with pytest.raises(InvalidInput, match=words):
            check_terms(edited(**changed))
    assert edited(public=pinned).hash == agreement.hash
    assert edited(public=pinned | {"sha256": "0" * 64}).hash != agreement.hash
    other = draft(sites)
    gradients = Agreement.of(
        {**other.model_dump(exclude_none=True), "data": other.data | {"public": pinned}}, "an edited agreement"
    )
    with pytest.raises(InvalidInput, match="asks no teachers, and it names public records for them"):
        check_terms(gradients)


def test_only_the_published_records_that_were_agreed_on_are_voted_on():
    digits = tacit.data.load("digits")
    agreed = PublicRecords.of(digits, 30).model_dump()
    check_public_records("digits", digits, agreed)
    check_public_records("own.py:own", digits, None)  # nobody votes
    own = replace(digits, name="own", published=False)
    validation = digits.validation
    inputs = validation.inputs.clone()
    inputs[digits_row(digits)] = 0  # one pixel image among those that are voted on
    others = (
        ("digits", own, "own is not a published data set, and teachers label only records that all sites can load"),
        ("own.py:own", digits, "dataset of this site is 'own.py:own', which is its own"),
        ("synthetic:640", tacit.data.synthetic(640), "the data set of this site is synthetic 640x"),
        (
            "digits",
            replace(digits, validation=Records(inputs, validation.targets)),
            "at this site are not those of the agreement",
        ),
        (
            "digits",
            replace(digits, validation=validation.take(torch.arange(len(validation)).flip(0))),
            "at this site are not",
        ),
    )
    for named, found, words in others:
        with pytest.raises(DataError, match=re.escape(words)):
            check_public_records(named, found, agreed)
    with pytest.raises(DataError, match="own is not a published data set"):
        PublicRecords.of(own, 30)
    with pytest.raises(DataError, match="digits has 182 validation records"):
        PublicRecords.of(digits, 182)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ('name="visits", published=False, ', "visits is not a published data set, and teachers label only records"),
        ("", "dataset of this site is 'own.py:own', which is its own"),
    ],
)
def test_an_agreement_on_votes_about_a_sites_own_records_is_not_written(kind, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(f'algorithm = "{RULE}"\nepsilon = 20.0\nrounds = 3\ndelta = 1e-3\n')
    given = ["--name", "north", "--dataset", "own.py:own", "--address", "127.0.0.1:7401"]
    assert CliRunner().invoke(app, ["peer", "init", "north", *given]).exit_code == 0
    (tmp_path / "north" / "own.py").write_text(OWN.replace("digits, train", f"digits, {kind}train"))
    new = ["peer", "agreement", "new", "run.toml", "--records", "1000", "--site", "north"]
    said = CliRunner(env={"COLUMNS": "300"}).invoke(app, new)
    assert said.exit_code == 2
    assert words in said.output
    assert not (tmp_path / "north" / "agreement.toml").exists()


OWN_RULE = """
from tacit import DSGD

class Votes:
    def init(self, theta):
        return DSGD().init(theta)

    def round(self, state, at):
        asked = {"teachers": 2, "records": 30, "answers": 20, "threshold": 0.3, "caution": 0.25, "steps": 1, "lr": 0.5}
        labels = at.vote(state.theta, **asked)
        mixed = at.exchange(state.theta).mix()
        return state._replace(theta=mixed - at.lr * at.labelled_gradient(state.theta, labels))
"""


def test_a_members_own_rule_that_asks_teachers_is_refused_before_it_has_an_account(tmp_path, drawn):
    """It may ask in every round, which the journal could serve; its students would send what they learn from each site's own records."""
    (tmp_path / "rule.py").write_text(OWN_RULE)
    rule = f"{tmp_path / 'rule.py'}:Votes"
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)], rounds=2, algorithm=rule, epsilon=20.0, noise_multiplier=None)
    words = "the rule asks teachers about public records, and the agreement names none"
    assert f"budget WRONG {words}" in check(tmp_path / "north", code=1)
    with pytest.raises(InvalidInput, match=words):
        play_all(consortium)
    for number in range(2):
        with closing(DurableLedger(consortium.run_folder(number).ledger_file)) as ledger:
            assert not ledger.accounts
    assert drawn == []


def digits_row(digits):
    """Return the place of one of the records that are voted on."""
    pool = digits.with_pool(30).pool
    return next(row for row in range(len(digits.validation)) if torch.equal(digits.validation.inputs[row], pool[0]))


def test_a_site_with_other_records_is_refused_by_check_and_by_run(tmp_path, drawn, monkeypatch):
    """Before it has an account, and before it listens."""
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)], rounds=2, **VOTES)
    site = tmp_path / "north"
    said = check(site)
    assert (
        "data ok all records fit the schema of the agreement; the 30 public records that teachers label are those of the agreement"
        in said
    )
    assert "budget ok 1 queries" in said
    (site / "own.py").write_text(OWN)
    SiteSettings(dataset="own.py:own").save(site)
    words = "teachers of this agreement label public records of digits, and dataset of this site is 'own.py:own', which is its own"
    assert f"data WRONG {words}" in check(site, code=1)
    monkeypatch.chdir(site)
    with pytest.raises(DataError, match=re.escape(words)):
        play(lambda: consortium.service(0))
    assert not consortium.run_folder(0).path.exists()
    assert drawn == []


def test_a_site_whose_copy_of_the_published_records_differs_is_refused(tmp_path, drawn, monkeypatch):
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)], rounds=2, **VOTES)

    def other(settings, agreement, agent):
        found = load_own_data(settings, agreement, agent)
        validation = found.dataset.validation
        order = torch.arange(len(validation)).flip(0)
        return replace(found, dataset=replace(found.dataset, validation=validation.take(order)))

    for module in (checking, service):
        monkeypatch.setattr(module, "load_own_data", other)
    words = "the public records of digits at this site are not those of the agreement: their hash is"
    assert f"data WRONG {words}" in check(tmp_path / "north", code=1)
    with pytest.raises(DataError, match=words):
        play(lambda: consortium.service(0))
    assert not consortium.run_folder(0).path.exists()
    assert drawn == []


def check(site, code=0):
    """Return what `tacit peer check` prints, on one line."""
    given = ["peer", "check", "--site", str(site), "--seconds", "0"]
    said = CliRunner(env={"COLUMNS": "300"}).invoke(app, given)
    assert said.exit_code == code, said.output
    return " ".join(said.stdout.split())
