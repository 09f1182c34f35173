"""Real sessions of all members of a consortium in one event loop, joined by wires that hand frames over in memory."""

import asyncio
from dataclasses import replace
from hashlib import sha256

import tacit
from tacit.networks.topology import as_topology, edges_over
from tacit.peer.protocol.clock import LoopClock, SystemRandomness
from tacit.peer.protocol.core import Core
from tacit.peer.protocol.driver import play
from tacit.peer.protocol.interface import PeerTerms
from tacit.peer.runtime import Peer, SessionPlayer
from tacit.peer.secrets import KeyExchange, PeerSources


class MemoryJournal:
    """A journal without a disk."""

    def __init__(self):
        self.records = []

    def append(self, *records, sync=True):
        self.records += records

    def read(self):
        return list(self.records)

    def find(self, slot):
        return [record for record in self.records if record.slot == slot]

    def forget(self, before, keep):
        pass

    def close(self):
        pass


class Switch:
    """All members' cores by number. `drops(sender, to, frame)` says which frames are lost."""

    def __init__(self, drops=lambda sender, to, frame: False):
        self.cores, self.sent, self._drops = {}, [], drops

    def wire(self, agent):
        return _End(self, agent)

    def connect_all(self):
        for core in self.cores.values():
            for other in core.terms.neighbors:
                core.connected(other)

    def carry(self, sender, to, frame):
        self.sent.append((sender, to, frame))
        if not self._drops(sender, to, frame):
            asyncio.get_running_loop().call_soon(self.cores[to].received, sender, frame)


class _End:
    def __init__(self, switch, agent):
        self._switch, self._agent = switch, agent

    def send(self, neighbor, frame):
        if neighbor in self._switch.cores:
            self._switch.carry(self._agent, neighbor, frame)

    def cut(self, neighbor, why):
        raise AssertionError(why)

    async def drain(self):
        await asyncio.sleep(0)


def make_terms(agent, agents, topology, rounds, **changes):
    pairs = edges_over(topology, rounds)
    terms = PeerTerms(
        run=sha256(b"run").digest(),
        agreement=sha256(b"run").digest(),
        agent=agent,
        members=tuple(range(agents)),
        neighbors=tuple(sorted({other for pair in pairs if agent in pair for other in pair} - {agent})),
        rounds=rounds,
        most_bytes=10**6,
        norm_bound=1e6,
        linger_seconds=5.0,
    )
    return replace(terms, **changes)


def sign_as(member):
    return lambda message: sha256(b"%d" % member + message).digest() * 2


def verify(member, message, signature):
    return signature == sign_as(member)(message)


def play_apart(
    settings, switch=None, *, masks=False, journals=None, absent=(), agreed_rounds=None, public=None, **terms
):
    """Play every agent on a core of its own and return the sessions; with `masks`, under secrets that members share. Those who are absent never start.

    `public` are the records that teachers may be asked about, as an agreement has them.
    """
    agents, switch = settings.data.agents, switch or Switch()
    topology = as_topology(settings.graph)
    every = [
        make_terms(agent, agents, topology, agreed_rounds or settings.total_rounds, **terms) for agent in range(agents)
    ]
    journals = journals or [MemoryJournal() for _ in range(agents)]

    async def run():
        keys = [
            KeyExchange(
                every[agent].run,
                agent,
                range(agents),
                sign=sign_as(agent),
                verify=verify,
                randomness=SystemRandomness(),
            )
            for agent in range(agents)
        ]
        for agent in sorted({*range(agents)} - {*absent}):
            switch.cores[agent] = Core(
                every[agent],
                clock=LoopClock(),
                wire=switch.wire(agent),
                journal=journals[agent],
                keys=keys[agent] if masks else None,
            )
        switch.connect_all()
        await asyncio.gather(*(core.start() for core in switch.cores.values()))
        sessions = []
        for agent, core in switch.cores.items():
            own = replace(settings, data=settings.data.only([agent]), sizes=settings.data.sizes)
            if masks:
                own = replace(own, sources=PeerSources(keys[agent], agent))
            sessions.append(tacit.Session(own, Peer(agent, agents, core)))

        async def one(session, core):
            with session:
                await play(core, SessionPlayer(session, core, public))
                await core.linger()

        await asyncio.gather(*map(one, sessions, switch.cores.values()))
        return sessions

    return asyncio.run(run())
