"""Pair secrets: signed keys that neighbours relay, the same secret at both ends, and masks that are never used twice."""

import pickle

import numpy as np
import pytest
from consortium import MemoryJournal, Switch, make_terms, sign_as, verify

from tacit import graphs
from tacit.errors import NetworkError, PrivacyError
from tacit.networks.topology import as_topology
from tacit.peer.protocol.clock import SystemRandomness
from tacit.peer.protocol.core import Core
from tacit.peer.protocol.interface import Refused
from tacit.peer.protocol.notes import Notes
from tacit.peer.secrets import KeyExchange, PairMasks, PeerSources

RUN = b"r" * 32


def exchange(agent, *, run=RUN, agents=4, journal=None, **settings):
    keys = KeyExchange(
        run, agent, range(agents), sign=sign_as(agent), verify=verify, randomness=SystemRandomness(), **settings
    )
    keys.begin(Notes(journal or MemoryJournal()))
    return keys


def introduced(*exchanges):
    for each in exchanges:
        for other in exchanges:
            each.learn(other.document())
    return exchanges


def test_both_ends_have_one_secret_and_others_have_another():
    a, b, _ = introduced(exchange(0), exchange(1), exchange(2))
    assert a.pair_secret(1) == b.pair_secret(0)
    assert len({a.pair_secret(1), a.pair_secret(2), b.pair_secret(2)}) == 3
    assert not a.complete  # member 3 is missing
    with pytest.raises(NetworkError, match="no key of member 3 yet"):
        a.pair_secret(3)


def test_a_secret_is_of_one_run():
    journals = [MemoryJournal(), MemoryJournal()]
    first = introduced(*(exchange(agent, journal=journals[agent]) for agent in (0, 1)))
    other = introduced(*(exchange(agent, run=b"s" * 32, journal=journals[agent]) for agent in (0, 1)))
    assert first[0].pair_secret(1) != other[0].pair_secret(1)


def test_a_restarted_member_has_its_secrets_again_and_they_are_sealed_on_its_disk():
    journal = MemoryJournal()

    def turned(key):
        return bytes(255 - byte for byte in key)

    a, b = introduced(exchange(0, journal=journal, seal=turned, unseal=turned), exchange(1))
    again = exchange(0, journal=journal, seal=turned, unseal=turned)
    assert again.document()[:36] == a.document()[:36]
    again.learn(b.document())
    assert again.pair_secret(1) == b.pair_secret(0)
    assert len(journal.records) == 1
    unsealed = exchange(0, journal=journal)
    assert unsealed.document()[:36] != a.document()[:36]


def test_keys_that_are_not_signed_or_change_are_refused_and_nothing_of_them_is_kept():
    a, b = exchange(0), exchange(1)
    forged = bytearray(b.document())
    forged[-1] ^= 1
    with pytest.raises(Refused, match="a key of member 1 that is not signed by it"):
        a.learn(bytes(forged))
    assert a.learn(b.document())
    assert not a.learn(b.document())
    with pytest.raises(Refused, match="two different keys of member 1"):
        a.learn(exchange(1).document())
    with pytest.raises(Refused, match="cannot be read"):
        a.learn(b.document()[:-1])
    with pytest.raises(Refused, match="a key of member 1 that is not signed"):
        exchange(0, run=b"s" * 32).learn(b.document())


def test_keys_are_relayed_to_members_without_a_link():
    """On a path of five, the ends have each other's keys."""
    topology, agents = as_topology(graphs.path(5)), 5
    switch, waiting = Switch(), []
    switch.carry = lambda sender, to, frame: waiting.append((sender, to, frame))
    keys = [
        KeyExchange(
            make_terms(agent, agents, topology, 1).run,
            agent,
            range(agents),
            sign=sign_as(agent),
            verify=verify,
            randomness=SystemRandomness(),
        )
        for agent in range(agents)
    ]
    for agent in range(agents):
        switch.cores[agent] = Core(
            make_terms(agent, agents, topology, 1),
            clock=_Still(),
            wire=switch.wire(agent),
            journal=MemoryJournal(),
            keys=keys[agent],
        )
    switch.connect_all()
    for _ in range(1000):
        if not waiting:
            break
        sender, to, frame = waiting.pop(0)
        switch.cores[to].received(sender, frame)
    assert not waiting
    assert all(each.complete for each in keys)
    assert keys[0].pair_secret(4) == keys[4].pair_secret(0)


class _Still:
    def now(self):
        return 0.0

    def wake(self):
        pass


def test_masks_are_addressed_by_the_query_and_equal_at_both_ends():
    a, b = introduced(exchange(0, agents=2), exchange(1, agents=2))
    (mine,) = PeerSources(a, 0).make_masks([(0, 1)], "a run")
    (theirs,) = PeerSources(b, 1).make_masks([(0, 1)], "a run by another name at this site")
    mine.position = theirs.position = 5
    fifth = mine.next()
    assert np.array_equal(fifth().words(4), theirs.next()().words(4))
    mine.position = theirs.position = 9
    ninth = mine.next()
    assert np.array_equal(ninth().words(4), theirs.next()().words(4))
    assert not np.array_equal(fifth().words(4), ninth().words(4))


def test_a_mask_is_never_used_twice():
    masks = PairMasks(b"s" * 32, "", lambda: b"f" * 32)
    masks.position = 3
    masks.next()
    with pytest.raises(PrivacyError, match="the mask of query 3 was used"):
        masks.position = 3
    with pytest.raises(PrivacyError, match="cannot be copied or stored"):
        pickle.dumps(masks)


def test_a_query_whose_answer_was_lost_gets_a_mask_that_nobody_shares():
    a, b = introduced(exchange(0, agents=2), exchange(1, agents=2))
    sources = PeerSources(a, 0)
    (mine,), (theirs,) = sources.make_masks([(0, 1)], ""), PeerSources(b, 1).make_masks([(0, 1)], "")
    mine.position = theirs.position = 2
    sources.unshare(2)
    assert not np.array_equal(mine.next()().words(4), theirs.next()().words(4))
    assert np.array_equal(mine.next()().words(4), theirs.next()().words(4))  # only that one


def test_an_erased_exchange_has_no_secrets():
    a, _ = introduced(exchange(0), exchange(1))
    a.erase()
    with pytest.raises(NetworkError):
        a.pair_secret(1)


def test_masks_of_other_pairs_are_refused():
    a, _ = introduced(exchange(0), exchange(1))
    with pytest.raises(PrivacyError, match="member 0 does not share the masks of members 1 and 2"):
        PeerSources(a, 0).make_masks([(1, 2)], "")


def test_keys_of_members_that_are_gone_are_not_waited_for():
    a, b = introduced(exchange(0, agents=3), exchange(1, agents=3))
    assert not a.complete
    a.forgo({1, 2})
    assert a.complete
    assert a.pair_secret(1) == b.pair_secret(0)  # its key is there, and others may still add its masks
    assert a.pair_secret(2) != a.pair_secret(2)  # nobody has the other end
