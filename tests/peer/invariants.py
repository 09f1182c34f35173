"""What must hold after any run, whatever the network did and whoever crashed."""

from collections import defaultdict

import numpy as np
from simulated_rules import last_state, play_chain, play_stacked, rounds_away, slots

from tacit.peer.protocol.slots import SlotNotes
from tacit.training.states import flatten


def check_run(world):
    """Raise AssertionError for the first invariant that a finished run breaks."""
    notes = [read_disk(member.journal) for member in world.members]
    check_releases(world, notes)
    skipped, agreed = check_links(world, notes)
    check_messages(world, notes)
    if agreed:
        check_models(world, skipped)


def read_disk(journal):
    """Return what a journal says of every slot."""
    slots = defaultdict(SlotNotes)
    for record in journal.durable + journal.pending:
        slots[record.slot].take(record)
    return slots


def check_releases(world, notes):
    """Everything sent was charged before; a message is sent again only as it was; no mask serves twice."""
    assert not world.faulty_releases, f"sent before it was charged: {world.faulty_releases[0]}"
    for (agent, slot), contents in world.released.items():
        if world.members[agent].rolled_back:
            # Those that are gone cannot be asked what they hold.
            left = [own for own, member in zip(notes, world.members, strict=True) if not member.gone]
            held = {own[slot].hashes[agent] for own in left if agent in own[slot].hashes}
            assert len(held) <= 1, f"agent {agent} released {slot} twice from an old disk"
            continue
        assert len(contents) == 1, f"agent {agent} sent {len(contents)} different messages in {slot}"
    for (agent, number), times in world.masks.items():
        assert times == 1 or world.members[agent].rolled_back, (
            f"agent {agent} used its masks of query {number} {times} times"
        )


def check_links(world, notes):
    """Return the links that each exchange skipped, and whether both ends of all links agree.

    A member that was declared gone may know less or more than those that are left; nobody else may.
    """
    skipped, agreed = {}, True
    for slot in slots(world):
        for low, high in world.problem.edges_in(slot.round):
            ends = [notes[end][slot].used(other) for end, other in ((low, high), (high, low))]
            there = [not world.members[end].gone for end in (low, high)]
            if all(there):
                assert ends[0] == ends[1], f"agents {low} and {high} disagree about {slot}: {ends}"
            agreed = agreed and ends[0] == ends[1]
            if not ends[0]:
                skipped.setdefault(tuple(slot), set()).add((low, high))
    return skipped, agreed


def check_messages(world, notes):
    """What was used is what the other end sealed, whole."""
    for member, own in zip(world.members, notes, strict=True):
        for slot, known in [*own.items()]:
            for other in known.decided:
                if known.used(other) and not (world.members[other].gone or member.gone):
                    assert known.hashes[other] == notes[other][slot].sealed.sha256
                    assert slot.round not in rounds_away(member)


def check_models(world, skipped):
    """Every member's state is that of the stacked simulation, to the bit, and weights stayed symmetric and doubly stochastic."""
    if world.problem.rule == "chain":
        together = play_chain(world, skipped)
    else:
        state, topology = play_stacked(world, skipped)
        check_weights(topology, {round for round, _ in skipped})
        together = [_row(state, agent) for agent in range(world.problem.agents)]
    for member in world.members:
        own = last_state(member)
        if own is not None and not member.gone:
            assert own == together[member.agent], f"the state of agent {member.agent} differs"


def _row(state, agent):
    return b"".join(tensor[agent : agent + 1].numpy().tobytes() for tensor in flatten(state).values())


def check_weights(topology, rounds):
    for round in rounds:
        (links,) = topology.at(round)
        weights = links.weights.toarray()
        assert (weights == weights.T).all()
        assert np.abs(weights.sum(axis=0) - 1).max() < 1e-12
        assert (weights.diagonal() > 0).all()
