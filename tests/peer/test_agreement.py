"""An agreement is one file that all members sign; whatever is changed afterwards is noticed."""

from datetime import UTC, datetime, timedelta

import pytest

from tacit.errors import GraphError, InvalidInput
from tacit.peer.agreement.document import Agreement, DialledLink, version_file
from tacit.peer.agreement.drafting import add_member, change_agreement, connect_members
from tacit.peer.agreement.signed import (
    MemberSignature,
    check_change,
    missing_signatures,
    read_chain,
    read_signatures,
    sign_agreement,
    signature_file,
    versions_document,
)
from tacit.peer.agreement.terms import check_settings, check_terms, config_of
from tacit.peer.identity import Identity
from tests.peer.consortia import draft, make_sites, sign_everywhere


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    return folder, make_sites(folder, 4)


@pytest.fixture(scope="module")
def agreement(sites):
    return draft(sites[1])


def edited(agreement, **changes):
    return Agreement.of({**agreement.model_dump(exclude_none=True), **changes}, "an edited agreement")


def test_a_signed_agreement_is_read_back_everywhere(sites, agreement):
    folder, identities = sites
    check_terms(agreement)
    sign_everywhere(folder, agreement, identities)
    for site in identities:
        chain = read_chain(folder / site.name)
        assert chain.current == agreement
        assert chain.run_id == agreement.hash == chain.current.run_id


def test_layout_of_the_file_does_not_change_the_hash(agreement, tmp_path):
    path = tmp_path / "agreement.toml"
    agreement.save(path)
    path.write_text("# a comment\n\n" + path.read_text().replace(" = ", "   =  "))
    assert Agreement.read(path).hash == agreement.hash


@pytest.mark.parametrize(
    "change",
    [
        {"title": "other"},
        {"software": "9.9"},
        {"settings": {"algorithm": "dsgd", "noise_multiplier": 3.0}},
        {"code": {"model": "0" * 64}},
        {"links": []},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_is_changed_changes_the_hash_and_voids_signatures(sites, agreement, change, tmp_path):
    other = edited(agreement, **change)
    assert other.hash != agreement.hash
    path = tmp_path / "agreement.toml"
    other.save(path)
    signature = sign_agreement(agreement, sites[1][0])
    signature_file(path, "north").write_bytes(signature.to_json())
    with pytest.raises(InvalidInput, match="for another version of the agreement"):
        read_signatures(other, path)


def test_an_agreement_without_all_signatures_is_refused(sites, agreement, tmp_path):
    identities = sites[1]
    sign_everywhere(tmp_path, agreement, identities[:3], holders=identities[:1])
    with pytest.raises(InvalidInput, match=r"not signed by west; each signs with `tacit peer agreement sign`"):
        read_chain(tmp_path / "north")


def test_a_signature_by_another_member_or_a_stranger_is_refused(sites, agreement, tmp_path):
    path = tmp_path / "agreement.toml"
    agreement.save(path)
    signature_file(path, "south").write_bytes(sign_agreement(agreement, sites[1][0]).to_json())
    with pytest.raises(InvalidInput, match="by another key than the agreement has for 'south'"):
        read_signatures(agreement, path)
    stranger = Identity.create(tmp_path / "stranger", "south")
    with pytest.raises(InvalidInput, match="another key for 'south'"):
        sign_agreement(agreement, stranger)


def test_a_signature_that_was_changed_is_refused(sites, agreement):
    content = sign_agreement(agreement, sites[1][0]).to_json()
    assert MemberSignature.of(content, "it").name == "north"
    for old, new in ((b'"north"', b'"south"'), (agreement.hash.encode(), b"0" * 64), (b'"time":"20', b'"time":"21')):
        with pytest.raises(InvalidInput, match="the signature is not valid"):
            MemberSignature.of(content.replace(old, new), "it")
    for broken in (b"", b"{}", b"\xff", content[:-10], b"[" * 5000, content * 100):
        with pytest.raises(InvalidInput, match="not a signature of an agreement"):
            MemberSignature.of(broken, "it")


def test_a_quorum_declares_a_member_gone(sites, agreement):
    folder, identities = sites
    after = change_agreement(agreement, gone=["west"])
    check_change(agreement, after)
    assert [member.gone for member in after.members] == [False, False, False, True]
    signed = {site.name: sign_agreement(after, site) for site in identities[:2]}
    assert missing_signatures(after, agreement, signed) == ("east",)
    signed["east"] = sign_agreement(after, identities[2])
    assert missing_signatures(after, agreement, signed) == ()
    sign_everywhere(folder, after, identities[:3])
    chain = read_chain(folder / "north")
    assert (chain.current.version, chain.run_id) == (2, agreement.hash)
    version_file(folder / "north", 2).unlink()


def test_later_versions_travel_as_one_message(sites, agreement, tmp_path):
    folder, identities = sites
    sign_everywhere(folder, agreement, identities)
    sign_everywhere(tmp_path, agreement, identities, holders=identities[:2])
    after = change_agreement(agreement, gone=["west"], gone_from=7)
    sign_everywhere(tmp_path, after, identities[:3], holders=identities[:1])
    north, south = read_chain(tmp_path / "north"), read_chain(tmp_path / "south")
    learned = south.learn(north.document)
    assert learned.versions == north.versions
    assert learned.learn(north.document) == learned
    learned.save(tmp_path / "south")
    assert read_chain(tmp_path / "south").current.members[3].gone_from == 7
    other = change_agreement(agreement, gone=["east"])
    with pytest.raises(InvalidInput, match="is not signed by south, west"):
        south.learn(versions_document([(other, {"north": sign_agreement(other, identities[0])})]))
    own = {site.name: sign_agreement(other, site) for site in (identities[0], identities[1], identities[3])}
    with pytest.raises(InvalidInput, match="is another one than this site has"):
        learned.learn(versions_document([(other, own)]))
    for broken in (b"", b"{}", b"[]", north.document[:-5], b'{"format":"tacit-agreement-versions-1","versions":[{}]}'):
        with pytest.raises(InvalidInput, match="not a version of the agreement"):
            south.learn(broken)


def test_the_one_who_is_declared_gone_does_not_count_for_the_quorum(sites, agreement):
    after = change_agreement(agreement, gone=["west"])
    signed = {site.name: sign_agreement(after, site) for site in (sites[1][0], sites[1][3], sites[1][1])}
    assert missing_signatures(after, agreement, signed) == ("east",)


def test_a_new_address_and_a_new_key_need_everybody(sites, agreement, tmp_path):
    renewed = Identity.create(tmp_path, "west", address="127.0.0.1:9999")
    after = change_agreement(agreement, cards=[renewed.card])
    check_change(agreement, after)
    identities = [*sites[1][:3], renewed]
    signed = {site.name: sign_agreement(after, site) for site in identities[:3]}
    assert missing_signatures(after, agreement, signed) == ("west",)
    assert missing_signatures(after, agreement, signed | {"west": sign_agreement(after, renewed)}) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gone": ["south", "east", "west"]}, "leaves 1 of 4 members, and the quorum is 3"),
        ({"gone": ["east", "west"]}, "leaves 2 of 4 members, and the quorum is 3"),
        ({"gone": ["south", "east", "west"], "expires": datetime(2999, 1, 1, tzinfo=UTC)}, "leaves 1 of 4 members"),
        ({"renewed": ["south", "east", "west"]}, "only 1 members keep theirs, and 3 must"),
        ({"renewed": ["south"], "gone": ["east"]}, "only 2 members keep theirs, and 3 must"),
    ],
)
def test_a_few_cannot_declare_the_others_gone_or_take_their_keys(sites, agreement, changes, said, tmp_path):
    """All signatures that the version asks for are there: those who wrote it have made the new keys themselves."""
    folder, identities = sites
    sign_everywhere(folder, agreement, identities)
    changes = dict(changes)
    forged = {
        name: Identity.create(tmp_path / name, name, address="127.0.0.1:1") for name in changes.pop("renewed", ())
    }
    after = change_agreement(agreement, cards=[site.card for site in forged.values()], **changes)
    signers = [forged.get(site.name, site) for site in identities if site.name not in changes.get("gone", ())]
    signed = {site.name: sign_agreement(after, site) for site in signers}
    chain = read_chain(folder / "north")
    with pytest.raises(InvalidInput, match=said):
        chain.extended(after, signed)
    with pytest.raises(InvalidInput, match=said):
        chain.learn(versions_document([(after, signed)]))


def test_of_two_members_one_vouches_for_the_others_new_key(tmp_path):
    two = make_sites(tmp_path, 2)
    agreement = draft(two)
    sign_everywhere(tmp_path, agreement, two)
    renewed = Identity.create(tmp_path / "new", "south", address="127.0.0.1:9999")
    after = change_agreement(agreement, cards=[renewed.card])
    signed = {site.name: sign_agreement(after, site) for site in (two[0], renewed)}
    assert read_chain(tmp_path / "north").extended(after, signed).current == after
    with pytest.raises(InvalidInput, match="leaves 1 of 2 members"):
        check_change(agreement, change_agreement(agreement, gone=["south"]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"algorithm": "dsgd", "noise_multiplier": 3.0}}, "changes settings; that needs a new run"),
        ({"limits": {"quorum": 4}}, "changes limits"),
        ({"previous": "0" * 64}, "does not follow version 1"),
        ({"version": 3}, "does not follow version 1"),
        ({"run": "0" * 64}, "does not follow version 1"),
    ],
)
def test_a_later_version_changes_nothing_that_needs_a_new_run(agreement, change, said):
    after = edited(change_agreement(agreement, gone=["west"]), **change)
    with pytest.raises(InvalidInput, match=said):
        check_change(agreement, after)


def test_a_later_version_neither_adds_members_nor_changes_what_they_declare(sites, agreement, tmp_path):
    after = change_agreement(agreement, gone=["west"])
    with pytest.raises(InvalidInput, match="members join before the run begins"):
        add_member(after, Identity.create(tmp_path, "late").card, 10)
    members = [member.model_dump() for member in after.members]
    members[0]["records"] = 999
    with pytest.raises(InvalidInput, match="what they declare"):
        check_change(agreement, edited(after, members=members))


def test_nobody_who_is_gone_comes_back(agreement):
    gone = change_agreement(agreement, gone=["west"])
    members = [member.model_copy(update={"gone_from": None}).model_dump(exclude_none=True) for member in gone.members]
    back = change_agreement(gone, expires=gone.expires + timedelta(days=1))
    with pytest.raises(InvalidInput, match="cannot come back"):
        check_change(gone, edited(back, members=members))


def test_a_version_that_changes_nothing_is_refused(agreement):
    with pytest.raises(InvalidInput, match="nothing was changed"):
        change_agreement(agreement)


def test_two_neighbours_that_only_dial_out_get_a_clear_error(tmp_path):
    sites = make_sites(tmp_path, 3, ["127.0.0.1:7400", "", ""])
    with pytest.raises(InvalidInput, match=r"'east' dials 'south', which has no address, and neither has 'east'"):
        check_terms(draft(sites))


def test_the_one_without_an_address_dials(tmp_path):
    sites = make_sites(tmp_path, 3, ["127.0.0.1:7400", "", "127.0.0.1:7402"])
    agreement = draft(sites)
    check_terms(agreement)
    assert {(link.dials, link.to) for link in agreement.links} == {
        ("south", "north"),
        ("east", "north"),
        ("south", "east"),
    }
    assert agreement.links_of(1) == {0: True, 2: True}
    assert agreement.links_of(0) == {1: False, 2: False}


def test_links_must_be_those_of_the_graph(agreement):
    with pytest.raises(InvalidInput, match="not those of the graph 'ring'"):
        check_terms(edited(agreement, links=[link.model_dump() for link in agreement.links[1:]]))


def test_members_may_write_the_links_themselves(sites):
    agreement = draft(sites[1], graph="links")
    star = connect_members(agreement, [(0, 1), (0, 2), (0, 3)])
    check_terms(star)
    assert star.edges == [(0, 1), (0, 2), (0, 3)]
    with pytest.raises(GraphError, match="never hear of each other"):
        check_terms(connect_members(agreement, [(0, 1), (2, 3)]))


def test_a_schedule_needs_every_link_that_it_ever_uses(sites):
    agreement = draft(sites[1], graph="base:peers=1")
    check_terms(agreement)
    assert len(agreement.edges) == 4


def test_a_schedule_whose_links_are_not_mutual_is_refused(sites):
    with pytest.raises(GraphError, match="'one_peer_exponential' in round 0 are not mutual with equal weights"):
        check_terms(draft(sites[1], graph="one_peer_exponential"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mixing": "median"}, "dsgt cannot mix by a median mean: it needs the average of all agents to stay"),
        ({"algorithm": "dsgd", "mixing": "trimmed:0.5"}, "the bound of trimmed is 0.5"),
        ({"step": "adam"}, "step does not apply to dsgt"),
        ({"algorithm": "d2", "codec": "topk:0.1"}, "codec does not apply to d2"),
    ],
)
def test_a_rule_that_cannot_be_made_with_its_settings_is_refused_when_the_agreement_is_written_and_checked(
    sites, agreement, settings, said
):
    with pytest.raises(InvalidInput, match=said):
        draft(sites[1], **settings)
    with pytest.raises(InvalidInput, match=said):
        check_terms(edited(agreement, settings={**agreement.settings, **settings}))


@pytest.mark.parametrize("mixing", ["median", "trimmed:1", "clipped:0.5"])
def test_a_consortium_can_agree_on_a_robust_mean(sites, mixing):
    check_terms(draft(sites[1], algorithm="dsgd", mixing=mixing, graph="complete"))


def test_a_robust_mean_of_masked_messages_is_refused(sites):
    with pytest.raises(InvalidInput, match="masks cancel only in a weighted mean"):
        check_terms(draft(sites[1], algorithm="dsgd", mixing="median", noise="cancelling"))


def test_weights_for_a_schedule_that_has_its_own_are_refused(sites):
    with pytest.raises(GraphError, match="a topology has its own; leave it out"):
        check_terms(draft(sites[1], graph="matchings", mixing="max_degree"))


def test_a_quorum_of_half_is_refused(sites):
    agreement = draft(sites[1])
    with pytest.raises(InvalidInput, match="must be more than half"):
        check_terms(edited(agreement, limits={"quorum": 2}))


def test_settings_of_a_site_and_runs_without_privacy_are_refused(agreement):
    with pytest.raises(InvalidInput, match="device is a site's own setting"):
        config_of(edited(agreement, settings={**agreement.settings, "device": "cuda"}))
    plain = {key: value for key, value in agreement.settings.items() if key != "noise_multiplier"}
    with pytest.raises(InvalidInput, match="without privacy is not offered"):
        config_of(edited(agreement, settings={**plain, "private": False}))
    with pytest.raises(InvalidInput, match="does not exchange messages"):
        config_of(edited(agreement, settings={"algorithm": "local", "noise_multiplier": 3.0}))
    for rule in ("choco", "choco:gamma=0.2", "sdm-dsgd"):
        with pytest.raises(
            InvalidInput, match=f"{rule} keeps what it has read of its neighbours, and peers skip a link"
        ):
            config_of(edited(agreement, settings={"algorithm": rule, "noise_multiplier": 3.0}))


def test_a_rule_that_sends_losses_on_validation_records_must_rank_by_private_ones():
    with pytest.raises(InvalidInput, match=r"charged: leasgd:private_ranking=true$"):
        check_settings({"algorithm": "leasgd", "epsilon": 8.0})
    for seldom in ("", ",rank_every=1"):
        check_settings({"algorithm": f"leasgd:private_ranking=true{seldom}", "epsilon": 8.0})


def test_broken_files_are_refused_with_a_sentence(tmp_path, agreement):
    path = tmp_path / "agreement.toml"
    for content, said in (
        ("", "not an agreement of the format"),
        ("= 3", "is not TOML"),
        (agreement.to_toml().replace("title =", "titel ="), "did you mean 'title'"),
        (agreement.to_toml().replace('"north"', '"south"'), "two members have the name 'south'"),
        (agreement.to_toml().replace(agreement.members[0].fingerprint, "0" * 64), "is not that of its key"),
        (agreement.to_toml().replace(agreement.members[0].words, "a b c"), "not those of its fingerprint"),
        (f"title = {'[' * 10_000}", "nested too deeply"),
        (f"version = {'1' * 10_000}", "is not TOML"),
        (agreement.to_toml().replace("lr = 1.0", "lr = nan"), "has a value that cannot be signed"),
        (agreement.to_toml().replace("lr = 1.0", "lr = 2026-01-01"), "has a value that cannot be signed"),
    ):
        path.write_text(content)
        with pytest.raises(InvalidInput, match=said):
            Agreement.read(path)
    with pytest.raises(InvalidInput, match="has a value that cannot be signed: date value out of range"):
        edited(agreement, expires=datetime.fromisoformat("9999-12-31T23:00:00-08:00"))
    with pytest.raises(InvalidInput, match="is linked to itself"):
        edited(agreement, links=[DialledLink(dials="north", to="north").model_dump()])
