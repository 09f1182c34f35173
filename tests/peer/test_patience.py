"""A member waits beyond its deadline only for what may still come: nobody is kept waiting for ever by one that is there, or was."""

from contextlib import suppress

from simulation import Faults, World
from test_frames import GOOD, SIZE, Site, header

from tacit.peer.protocol.interface import Frame, Kind, LinkSkipped, Slot

CALM = Faults(heals=0, loss=0, repeats=0, slow=0, crash=0, partitions=0, rollback=False, leaver=None)


def pass_time(site, seconds):
    """Let so many seconds pass, ten at a time."""
    with suppress(StopIteration):
        for _ in range(0, seconds, 10):
            site.clock.time += 10
            site.settling.send(None)


def skips(site):
    return [(event.neighbor, event.why) for event in site.events if isinstance(event, LinkSkipped)]


def alone_with_voter():
    """Member 1 with its voter 2 alone: its decider 0 was declared gone."""
    site = Site(gone={0: 0})
    assert skips(site) == [(0, "it was declared gone")]
    return site


def test_a_neighbour_that_is_there_and_behind_is_waited_for():
    site = alone_with_voter()
    pass_time(site, 600)
    assert len(skips(site)) == 1
    site.receive(2, Frame(header(), GOOD))
    pass_time(site, 10)
    assert site.core.notes.at(Slot(0, 0)).used(2)


def test_a_neighbour_whose_message_fails_a_check_of_its_header_is_not_waited_for():
    """It has voted and waits for this member's word: both would wait for ever."""
    for wrong in (GOOD + b"more", GOOD[:-4]):
        site = alone_with_voter()
        (refused,) = site.receive(2, Frame(header(payload=wrong), wrong))
        assert f"instead of {SIZE}" in refused.why
        pass_time(site, 600)
        assert skips(site)[1:] == [(2, "nothing was heard in time")]
        assert site.wire.sent[-1][1].header.kind == Kind.SKIP


def test_a_neighbour_that_has_ended_and_left_is_not_waited_for():
    """It is past the slot for good, and will not be up again."""
    site = alone_with_voter()
    site.receive(2, Frame(header(Kind.HELLO, b"", slot=Slot(5, 0)), b""))
    site.core.disconnected(2)
    pass_time(site, 600)
    assert skips(site)[1:] == [(2, "nothing was heard in time")]


def test_a_neighbour_that_is_down_is_waited_for_while_it_may_come_back():
    site = alone_with_voter()
    site.core.disconnected(2)
    pass_time(site, 600)
    assert len(skips(site)) == 1


def test_with_every_end_patient_a_run_that_lost_a_member_ends():
    """All need all their links, and one leaves for good: those who wait for it go on as soon as it is declared gone, without anything skipped before."""
    for seed in range(20):
        world = World(seed, faults=CALM._replace(leaver=0), agents=4, rule="chain", fewest=4, rounds=6).run()
        assert all(member.finished for member in world.members[1:])
        impatient = [event for _, event in world.events if isinstance(event, LinkSkipped) and "in time" in event.why]
        assert not impatient


def test_members_that_restart_again_and_again_do_not_make_patient_ones_wait_for_ever():
    faults = CALM._replace(heals=60.0, crash=0.03, loss=0.1)
    for seed in range(30):
        World(seed, faults=faults, rule="chain", fewest=4, rounds=6).run()
