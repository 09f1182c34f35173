"""A site continues with the records with which its run began, in any order, and with no others."""

import stat
from dataclasses import replace

import pytest
import torch

import tacit
from tacit.data import Records, load
from tacit.errors import InvalidInput
from tacit.peer.agreement.terms import config_of, privacy_terms
from tacit.peer.checking import check_site
from tacit.peer.preparation import load_own_data
from tacit.peer.records import RECORDS_FILE, check_unchanged, keep_fingerprint
from tests.peer.sites import Consortium, play_all


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Return a consortium whose run is finished, its first site's folder, records and declared number."""
    consortium = Consortium(tmp_path_factory.mktemp("sites"), 2, graph="complete", rounds=1)
    assert play_all(consortium) == ["finished"] * 2
    site = consortium.service(0)
    data = load_own_data(site.settings, consortium.agreement, 0)
    return consortium, consortium.run_folder(0), data, consortium.agreement.members[0].records


def with_records(data, inputs, targets):
    train = Records(inputs, targets)
    return replace(data, dataset=replace(data.dataset, train=train))


def test_the_same_records_are_accepted_in_any_order(begun):
    _, folder, data, declared = begun
    check_unchanged(folder, data, declared)
    (rows,) = data.indices
    check_unchanged(folder, replace(data, indices=(rows.flip(0),)), declared)


def test_one_changed_record_or_target_is_refused(begun):
    _, folder, data, declared = begun
    train, row = data.dataset.train, data.indices[0][3]
    inputs, targets = train.inputs.clone(), train.targets.clone()
    inputs[row].view(-1)[0] += 1
    for changed in ((inputs, targets), (train.inputs, (targets + 1) % 10)):
        with pytest.raises(
            InvalidInput, match=f"the training records are not those with which run '{folder.name}' began"
        ):
            check_unchanged(folder, with_records(data, *changed), declared)
    fewer = replace(data.dataset, validation=data.dataset.validation.take(torch.arange(5)))
    with pytest.raises(InvalidInput, match="the validation records are not those"):
        check_unchanged(folder, replace(data, dataset=fewer), declared)
    with pytest.raises(InvalidInput, match="numbers of records differ"):
        check_unchanged(folder, data, declared + 1)


def test_someone_at_several_sites_is_not_covered_and_every_site_says_so(begun, monkeypatch, caplog):
    consortium, *_ = begun
    site = consortium.service(0)
    own = site.settings.model_copy(update={"part": None})
    whole = load("digits")
    units = replace(whole, train=whole.train.of_units(torch.arange(len(whole.train)) // 3))
    monkeypatch.setattr("tacit.runs.building.whole_data", lambda *_: units)
    privacy = tacit.Privacy(noise_multiplier=3.0, delta=1e-5, clip=1.0, lot_size=10, unit=tacit.Unit("patient", most=3))
    training = tacit.Training(
        algorithm=tacit.SGD(),
        model=lambda: tacit.models.logistic((1, 8, 8), 10),
        data=load_own_data(own, consortium.agreement, 0),
        privacy=privacy,
        rounds=1,
        lr=0.1,
    )
    tacit.Session(training).close()
    assert "so one may be at several agents. ε then covers what a single agent holds of a patient" in caplog.text
    config = config_of(consortium.agreement).model_copy(update={"unit": "patient:3"})
    assert privacy_terms(config).startswith("per patient of one site alone at δ=")


def test_what_is_kept_is_for_the_owner_alone_and_is_salted(begun, tmp_path):
    _, folder, data, declared = begun
    file = folder.path / RECORDS_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    try:
        keep_fingerprint(folder, data)
        assert file.read_bytes() != before
        check_unchanged(folder, data, declared)
        file.write_text("{}")
        with pytest.raises(InvalidInput, match="is damaged"):
            check_unchanged(folder, data, declared)
        file.unlink()
        with pytest.raises(InvalidInput, match="is missing, so nobody can tell"):
            check_unchanged(folder, data, declared)
    finally:
        file.write_bytes(before)
        file.chmod(0o600)


def test_a_site_with_other_records_is_refused_before_it_speaks(begun):
    consortium, folder, _, _ = begun
    settings = consortium.folder / "north" / "site.toml"
    before, summary = settings.read_text(), folder.summary_file.read_bytes()
    folder.summary_file.unlink()
    settings.write_text(before.replace("part = 0", "part = 1"))
    try:
        with pytest.raises(InvalidInput, match=r"the data is not what run .* began with"):
            play_all(consortium)
        found = {line.what: line for line in check_site(consortium.folder / "north", 0.0)}
        assert found["data"].good is False
        assert "owners" in found["data"].words
    finally:
        settings.write_text(before)
        folder.summary_file.write_bytes(summary)
