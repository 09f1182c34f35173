"""A consortium in one process under a virtual clock: a network that loses, repeats, delays and partitions, and members that crash.

Everything follows from one seed. The members run the code that real sites run; only clock, wire, journal and oracle are the simulation's.
"""

import heapq
import json
from collections import Counter, defaultdict
from hashlib import sha256
from random import Random
from typing import NamedTuple

import networkx as nx
from simulated_rules import ChainPlayer, Problem, RulePlayer

from tacit.peer.protocol.core import Core
from tacit.peer.protocol.driver import play
from tacit.peer.protocol.interface import (
    CARRIES_MESSAGE,
    NOWHERE,
    Equivocation,
    Kind,
    LinkSkipped,
    PeerBehind,
    PeerTerms,
    RecordKind,
)
from tacit.peer.protocol.sqlite import SQLiteJournal

RUN = sha256(b"simulated run").digest()
PATIENCE = 4_000.0  # virtual seconds after which a run that has healed counts as stuck


class Crash(BaseException):
    """The process ends here."""


class Stuck(AssertionError):
    """A run that healed and did not end."""


class Faults(NamedTuple):
    """How bad it gets, until `heals`."""

    heals: float
    loss: float
    repeats: float
    slow: float
    crash: float
    partitions: float
    rollback: bool
    leaver: int | None

    @staticmethod
    def draw(chance, agents):
        calm = chance.random() < 0.1
        severity = 0.0 if calm else chance.random()
        return Faults(
            heals=chance.choice([10.0, 30.0, 80.0]),
            loss=severity * chance.choice([0, 0.05, 0.3]),
            repeats=severity * chance.choice([0, 0.1, 0.4]),
            slow=severity * chance.choice([0, 0.05, 0.3]),
            crash=severity * chance.choice([0, 0.005, 0.02, 0.05]),
            partitions=severity * chance.choice([0, 0.05, 0.2]),
            rollback=chance.random() < 0.05,
            leaver=chance.randrange(agents) if chance.random() < 0.1 else None,
        )


class _Pause:
    """What a member waits for: a time, or also being woken."""

    def __init__(self, until, wakeable):
        self.until, self.wakeable = until, wakeable

    def __await__(self):
        yield self


class SimulatedJournal:
    """Records in memory. A crash loses what was not synced, wholly or from some record on."""

    def __init__(self, risk, *, forgets):
        self.risk, self.durable, self.pending, self._forgets = risk, [], [], forgets
        self._forgotten = None

    def append(self, *records, sync=True):
        self.risk()
        self.pending += records
        if sync:
            self._write(self.pending)
            self.risk()

    def read(self):
        return list(self.durable)

    def find(self, slot):
        return [record for record in self.durable + self.pending if record.slot == slot]

    def forget(self, before, keep):
        self._forgotten = (before, keep) if self._forgets else None

    def _write(self, records):
        """Bodies are gone as soon as the state that makes them superfluous is there."""
        self.durable, self.pending = self.durable + records, []
        if self._forgotten is None or not any(each.kind == RecordKind.COMMIT for each in records):
            return
        before, keep = self._forgotten

        def emptied(record):
            forgettable = record.kind in (RecordKind.SEAL, RecordKind.USED, RecordKind.ANSWER, RecordKind.COMMIT)
            kept = record.kind == RecordKind.SEAL and record.slot in keep
            return record._replace(body=b"") if forgettable and not kept and record.slot.round < before else record

        self.durable = [emptied(record) for record in self.durable]
        self._forgotten = None

    def crash(self, chance):
        self._write(self.pending[: chance.randint(0, len(self.pending))])
        self._forgotten = None

    def close(self):
        pass


class MirroredJournal(SimulatedJournal):
    """The simulated journal and that of a real site, which must have the same records and bodies after every crash.

    A crash loses all that was not synced, as it is only in the memory of the process.
    """

    def __init__(self, risk, path):
        super().__init__(risk, forgets=True)
        self._path, self._real, self.reopened = path, self._open(path), 0

    def _open(self, path):
        real = SQLiteJournal(path)
        real._database.execute("PRAGMA synchronous = OFF")  # the machine does not crash here
        return real

    def append(self, *records, sync=True):
        self.risk()
        self.pending += records
        self._real.append(*records, sync=sync)
        if sync:
            self._write(self.pending)
            self.risk()

    def find(self, slot):
        simulated, real = (
            [each._replace(body=b"") for each in found] for found in (super().find(slot), self._real.find(slot))
        )
        assert real == simulated, f"the journals differ about {slot}"
        return real

    def forget(self, before, keep):
        super().forget(before, keep)
        self._real.forget(before, keep)

    def crash(self, chance):
        self.pending, self._forgotten = [], None
        self.close()
        self._real = self._open(self._path)
        self.reopened += 1
        assert list(self._real.read()) == self.durable, "the journals differ after a crash"

    def close(self):
        """End as a process does that is killed: what waits is not written."""
        self._real._waiting = []
        self._real.close()


class Member:
    """One site: its disk, and its process while there is one."""

    def __init__(self, world, agent):
        self.world, self.agent = world, agent
        self.journal = world.make_journal(self)
        self.charged = 0
        self.life = 0
        self.core = self.task = self.player = None
        self.gone = self.rolled_back = False
        self._pause, self._woken, self._token = None, False, 0

    @property
    def alive(self):
        return self.task is not None

    @property
    def finished(self):
        if self.core is not None:
            return self.core.notes.position.round >= self.world.problem.rounds
        return any(
            each.slot.round >= self.world.problem.rounds or each.number >= self.world.problem.rounds
            for each in self.journal.durable
            if each.kind in (RecordKind.COMMIT, RecordKind.AWAY)
        )

    def risk(self):
        """A point at which the process may end."""
        world = self.world
        if world.time < world.faults.heals and world.chance.random() < world.faults.crash:
            raise Crash

    def start(self):
        if self.gone or self.alive:
            return
        self.life += 1
        self._pause, self._woken = None, False
        try:
            self.core = self.world.make_core(self)
        except Crash:
            self.end()
            return
        self.task = self._live()
        self.world.link_up(self.agent)
        self.resume()

    async def _live(self):
        await self.core.start()
        self.player = self.world.make_player(self)
        await play(self.core, self.player)
        while True:  # it stays for those who restart, until all are through
            await self.core.linger()
            await _Pause(None, wakeable=True)

    def end(self):
        """Lose everything but the disk."""
        self.journal.crash(self.world.chance)
        if self.world.faults.rollback and self.world.chance.random() < 0.3:
            self.rolled_back = True
            del self.journal.durable[self.world.chance.randint(0, len(self.journal.durable)) :]
        self.core = self.task = self.player = None
        self.world.link_down(self.agent)
        if not self.gone:
            delay = self.world.chance.choice([0.1, 1.0, 5.0, 20.0])
            self.world.after(delay * (0.5 + self.world.chance.random()), self.start)

    def guarded(self, act, *given):
        """Let the process do something, which may be its last."""
        try:
            act(*given)
        except Crash:
            self.end()

    def resume(self):
        self._token += 1
        self._pause, self._woken = None, False
        try:
            pause = self.task.send(None)
        except Crash:
            self.end()
            return
        except PeerBehind as refusal:
            self.world.refused(self, refusal)
            return
        self._pause = pause
        if pause.until is not None:
            self.world.at(max(pause.until, self.world.time), self._resume_if, self.life, self._token)
        if self._woken and pause.wakeable:
            self.world.at(self.world.time, self._resume_if, self.life, self._token)

    def wake(self):
        if self._pause is not None and self._pause.wakeable and not self._woken:
            self.world.at(self.world.time, self._resume_if, self.life, self._token)
        self._woken = True

    def _resume_if(self, life, token):
        if self.alive and (life, token) == (self.life, self._token):
            self.resume()


class _Clock:
    def __init__(self, member):
        self._member = member

    def now(self):
        return self._member.world.time

    async def wait(self, until):
        await _Pause(until, wakeable=True)

    def wake(self):
        self._member.wake()


class _Wire:
    def __init__(self, member):
        self._member, self._world = member, member.world

    def send(self, neighbor, frame):
        self._member.risk()
        self._world.send(self._member, neighbor, frame)
        self._member.risk()

    def cut(self, neighbor, why):
        raise AssertionError(f"an honest neighbour was cut: {why}")

    async def drain(self):
        self._member.risk()
        await _Pause(self._world.time + self._world.compute_seconds(), wakeable=False)


class World:
    """All members, the network between them, and what an outsider can see of both."""

    def __init__(self, seed, *, faults=None, **choices):
        self.seed, self.chance = seed, Random(seed)
        self.problem = Problem.draw(self.chance, **choices)
        self.faults = faults or Faults.draw(self.chance, self.problem.agents)
        self.time, self._count, self._events = 0.0, 0, []
        self.members = [Member(self, agent) for agent in range(self.problem.agents)]
        self.edges = self.problem.edges
        self.up = set()
        self.blocked = set()
        self.epochs = Counter()
        self.released = defaultdict(set)
        self.furthest = defaultdict(lambda: NOWHERE)
        self.faulty_releases = []
        self.masks = Counter()
        self.noise = {}
        self.events = []
        self.steps = self.refusals = 0
        self.versions = {1: {}}
        self._delay = self.chance.choice([0.02, 0.2])
        self._compute = self.chance.choice([0.1, 0.5])

    # Time.

    def at(self, time, act, *given):
        self._count += 1
        heapq.heappush(self._events, (time, self._count, act, given))

    def after(self, delay, act, *given):
        self.at(self.time + delay, act, *given)

    def compute_seconds(self):
        slow = self.time < self.faults.heals and self.chance.random() < self.faults.slow
        return self._compute * self.chance.random() + (20 * self.chance.random() if slow else 0)

    def run(self):
        """Play until every member that is left has finished."""
        for member in self.members:
            self.after(self.chance.random() * 2, member.start)
        self.after(1.0, self._disturb)
        if self.faults.leaver is not None:
            self.after(6 * self.chance.random(), self.remove, self.members[self.faults.leaver])
        while not all(member.finished or member.gone for member in self.members):
            if not self._events or self.time > self.faults.heals + PATIENCE:
                raise Stuck(f"{[(m.agent, m.core and m.core.position) for m in self.members]} at {self.time:.1f}")
            self.time, _, act, given = heapq.heappop(self._events)
            self.steps += 1
            act(*given)
        return self

    # Members.

    def make_journal(self, member):
        # An old copy of a disk still has what the disk has forgotten since.
        return SimulatedJournal(member.risk, forgets=not self.faults.rollback)

    def make_core(self, member):
        return Core(
            self.terms_in_folder(member),
            clock=_Clock(member),
            wire=_Wire(member),
            journal=member.journal,
            observe=lambda event: self._observe(member, event),
            accept=lambda document: self.accept(member, document),
        )

    def terms_in_folder(self, member):
        """What a process reads when it starts: the first version. The journal has later ones."""
        return self.terms(member.agent, 1)

    def accept(self, member, document):
        return self.terms(member.agent, json.loads(document)["version"])

    def make_player(self, member):
        return (ChainPlayer if self.problem.rule == "chain" else RulePlayer)(self, member)

    def terms(self, agent, version):
        problem = self.problem

        def hashed(number):
            return RUN if number == 1 else sha256(json.dumps([number, self.versions[number]]).encode()).digest()

        return PeerTerms(
            run=RUN,
            agreement=hashed(version),
            version=version,
            earlier=tuple(hashed(number) for number in range(1, version)),
            document=json.dumps({"version": version}).encode(),
            agent=agent,
            members=tuple(range(problem.agents)),
            neighbors=problem.neighbors[agent],
            rounds=problem.rounds,
            gone=self.versions[version],
            most_bytes=10_000,
            norm_bound=1e9,
            dtype="float64",
            compute_seconds=6.0,
            least_bandwidth=1e6,
            grace_seconds=3.0,
            resend_seconds=1.0,
            linger_seconds=1e9,
            fewest=problem.fewest,
        )

    def remove(self, member):
        """Lose a site for good, and some time later declare it gone."""
        if member.gone:
            return
        member.gone = True
        if member.alive:
            member.end()
        self.after(5 + 20 * self.chance.random(), self._declare, member)

    def refused(self, member, refusal):
        """A member with an old disk says that it must not continue, and ends for good. Nobody else may, however long it was away."""
        assert member.rolled_back, f"a member with its whole journal refused to continue: {refusal}"
        self.refusals += 1
        member.core = member.task = None
        self.link_down(member.agent)
        self.remove(member)

    def _declare(self, member):
        """Hand a new version to one member of each part that is left; it spreads from there."""
        newest = max(self.versions)
        self.versions[newest + 1] = self.versions[newest] | {member.agent: 0}
        left = nx.Graph([pair for pair in self.edges if not any(self.members[end].gone for end in pair)])
        left.add_nodes_from(each.agent for each in self.members if not each.gone)
        for part in nx.connected_components(left):
            self._hand_out(newest + 1, [self.members[agent] for agent in sorted(part)])

    def _hand_out(self, version, part):
        """Give a version to one member, again if whoever had it crashed before it could spread the news, or has ended."""
        there = [member for member in part if member.alive]
        if there and all(member.core.terms.version < version for member in there) and self.chance.random() < 0.8:
            chosen = self.chance.choice(there)
            chosen.guarded(chosen.core.renew, self.terms(chosen.agent, version))
        self.after(2.0, self._hand_out, version, part)

    # The network.

    def link_up(self, agent):
        for pair in self.edges:
            if agent in pair:
                self.after(0.05 + self._delay * self.chance.random(), self._connect, pair)

    def link_down(self, agent):
        for pair in [pair for pair in self.up if agent in pair]:
            self._disconnect(pair)

    def _connect(self, pair):
        if pair in self.up or pair in self.blocked or not all(self.members[end].alive for end in pair):
            return
        self.up.add(pair)
        self.epochs[pair] += 1
        for end, other in (pair, pair[::-1]):
            member = self.members[end]
            if member.alive:
                member.guarded(member.core.connected, other)

    def _disconnect(self, pair):
        self.up.discard(pair)
        for end, other in (pair, pair[::-1]):
            if self.members[end].alive:
                self.members[end].core.disconnected(other)

    def _disturb(self):
        """Cut links for a while, and end processes."""
        if self.time >= self.faults.heals:
            return
        self.after(0.5 + self.chance.random(), self._disturb)
        for pair in self.edges:
            if pair not in self.blocked and self.chance.random() < self.faults.partitions:
                self.blocked.add(pair)
                self._disconnect(pair)
                self.after(self.chance.choice([0.5, 4.0, 15.0]), self._unblock, pair)
        for member in self.members:
            if member.alive and self.chance.random() < self.faults.crash * 2:
                member.end()

    def _unblock(self, pair):
        self.blocked.discard(pair)
        self._connect(pair)

    def send(self, sender, to, frame):
        if frame.header.kind in CARRIES_MESSAGE:
            self._see_release(sender, frame)
        if frame.header.kind in (Kind.HELLO, Kind.READY, Kind.ASK, Kind.VOTE):
            self.furthest[sender.agent] = max(self.furthest[sender.agent], frame.header.slot)
        pair = min(sender.agent, to), max(sender.agent, to)
        if pair not in self.up:
            return
        bad = self.time < self.faults.heals
        copies = 1 + (bad and self.chance.random() < self.faults.repeats)
        for _ in range(copies):
            if bad and self.chance.random() < self.faults.loss:
                continue
            late = bad and self.chance.random() < self.faults.slow
            delay = self._delay * self.chance.random() + (12 * self.chance.random() if late else 0)
            self.after(delay, self._arrive, sender.agent, to, frame, self.epochs[pair])

    def _arrive(self, sender, to, frame, epoch):
        """Hand over a frame; it may be of an earlier connection, unless that would get around what members with an old disk rely on."""
        member, pair = self.members[to], (min(sender, to), max(sender, to))
        if member.alive and pair in self.up and (epoch == self.epochs[pair] or not self.faults.rollback):
            member.guarded(member.core.received, sender, frame)

    # What an outsider sees.

    def _see_release(self, sender, frame):
        slot = frame.header.slot
        self.released[sender.agent, slot].add(frame.payload)
        if self.problem.answers_in_message(sender.agent, slot.round, self) > sender.charged:
            self.faulty_releases.append((sender.agent, slot))

    def _observe(self, member, event):
        assert not isinstance(event, Equivocation), f"{event} of an honest member"
        if isinstance(event, LinkSkipped) and event.why == "nothing was heard in time":
            self._check_company(member, event.slot)
        self.events.append((member.agent, event))

    def _check_company(self, member, slot):
        """Nobody gives up a link while it has used fewer than agreed, unless others have gone ahead: it would play the run alone."""
        neighbors = set(self.problem.neighbors_in(member.agent, slot.round)) - set(member.core.terms.gone)
        used = sum(member.core.notes.at(slot).used(other) for other in neighbors)
        enough = used >= min(self.problem.fewest, len(neighbors))
        assert enough or any(self.furthest[other] > slot for other in neighbors), f"{member.agent} plays {slot} alone"
