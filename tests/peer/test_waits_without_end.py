"""Two waits that no deadline ends, in the simulation: what ends them, and that nothing goes wrong meanwhile.

A round needs its fewest links, so a member whose only link in a round leads to a dead one waits. And two versions of the agreement with one
number, both signed, keep those apart who hold the one and those who hold the other.
"""

import json
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

import pytest
import simulation
from invariants import check_run
from simulation import Faults, Stuck, World

from tacit.errors import InvalidInput
from tacit.peer.observing import is_foreign
from tacit.peer.protocol.interface import FrameRefused, LinkSkipped, RoundDone, VersionAdopted

SEEDS = 8
CALM = Faults(heals=0, loss=0, repeats=0, slow=0, crash=0, partitions=0, rollback=False, leaver=None)


class Path(World):
    """Members 0 – 1 – 2 – 3, of whom 1 dies. In even rounds the only link of 0 is to 1, in odd ones that of 2 is."""

    def __init__(self, seed, *, fewest, declared=True):
        choices = {"rule": "chain", "agents": 4, "edges": ((0, 1), (1, 2), (2, 3)), "rounds": 100, "exchanges": 1}
        super().__init__(seed, faults=CALM, fewest=fewest, changing=True, **choices)
        self._declared, self.died, self.seen = declared, 4.0, []
        self.at(self.died, self.remove, self.members[1])

    def _declare(self, member):
        if self._declared:
            super()._declare(member)

    def _observe(self, member, event):
        super()._observe(member, event)
        self.seen.append((self.time, member.agent, event))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_member_whose_only_link_is_to_a_dead_one_goes_on_when_that_one_is_declared_gone(seed):
    world = Path(seed, fewest=1).run()
    check_run(world)
    assert all(member.finished for member in world.members if member.agent != 1)
    adopted = {who: time for time, who, event in world.seen if isinstance(event, VersionAdopted)}
    for time, who, event in world.seen:
        assert not isinstance(event, LinkSkipped) or time >= adopted[who]
    before = [
        event
        for time, who, event in world.seen
        if who == 0 and world.died < time < adopted[0] and type(event) is RoundDone
    ]
    assert len(before) <= 2  # the round that was under way, and one without any link


def test_without_a_new_version_it_waits_and_where_no_links_are_needed_only_those_wait_who_have_voted(monkeypatch):
    monkeypatch.setattr(simulation, "PATIENCE", 600.0)
    for seed in range(SEEDS // 2):
        waiting = Path(seed, fewest=1, declared=False)
        with pytest.raises(Stuck):
            waiting.run()
        assert not [event for _, event in waiting.events if isinstance(event, LinkSkipped)]
        world = Path(seed, fewest=0, declared=False)
        with suppress(Stuck):
            world.run()
        assert world.members[0].finished  # 0 decides about its link, so it has not voted
        assert world.members[3].finished
        assert world.members[2].finished or world.members[2].core.links[1].bound


class Forked(World):
    """Five members in a ring, of whom 4 dies. 0 and 1 adopt one version 2; 2 and 3 another, and 2 is started again while it holds that.

    At `mended` these two take the first one instead, as a site does whose operator puts it into the folder and starts the site again.
    """

    def __init__(self, seed, gone_by_others, *, fewest=1, mended=60.0):
        edges = ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))
        choices = {"rule": "chain", "agents": 5, "edges": edges, "rounds": 40, "changing": False}
        super().__init__(seed, faults=CALM, fewest=fewest, **choices)
        self.at(3.0, self.remove, self.members[4])
        self._gone_by_others, self._mended = gone_by_others, mended
        self.versions[2], self.others, self.forked = {4: 0}, set(), None

    def terms(self, agent, version):
        made = super().terms(agent, version)
        if version == 2 and agent in self.others:
            document = json.dumps({"version": 2, "other": True}).encode()
            return replace(made, agreement=sha256(document).digest(), gone=self._gone_by_others, document=document)
        return made

    def terms_in_folder(self, member):
        return self.terms(member.agent, 1 if self.forked is None else 2)

    def accept(self, member, document):
        if bool(json.loads(document).get("other")) != (member.agent in self.others):
            raise InvalidInput("version 2 of the agreement is another one than this site has")
        return super().accept(member, document)

    def remove(self, member):
        member.gone = True
        member.end()
        self.after(1.0, self._declare, member)

    def _declare(self, member):
        self.others, self.forked = {2, 3}, self.time
        for each in self.members[:4]:
            each.guarded(each.core.renew, self.terms(each.agent, 2))
        self.after(0.5, self.members[2].end)
        self.after(self._mended, self._mend)

    def _mend(self):
        self.others = set()
        for each in self.members[2:4]:
            each.end()


@pytest.mark.parametrize("fewest", [1, 2])
@pytest.mark.parametrize("gone_by_others", [{4: 3}, {}])
def test_two_versions_with_one_number_keep_members_apart_until_one_takes_the_others_place(gone_by_others, fewest):
    """Whatever both ends had decided stands: no disagreement, no second release, and the models of the stacked simulation."""
    for seed in range(SEEDS):
        world = Forked(seed, gone_by_others, fewest=fewest).run()
        check_run(world)
        assert world.time > world.forked + 60
        refused = [(who, event) for who, event in world.events if isinstance(event, FrameRefused)]
        assert {(who, event.neighbor) for who, event in refused} == {(1, 2), (2, 1)}
        assert all(is_foreign(event.why) for _, event in refused)


def test_two_versions_with_one_number_are_waited_with_until_somebody_acts(monkeypatch):
    monkeypatch.setattr(simulation, "PATIENCE", 600.0)
    for seed in range(SEEDS // 4):
        world = Forked(seed, {4: 3}, mended=1e9)
        with pytest.raises(Stuck):
            world.run()
        two = world.members[2].core
        assert (two.links[1].connected, two.links[1].greeted, two.links[3].greeted) == (True, False, True)
