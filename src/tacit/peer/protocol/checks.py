"""Every check of a frame, in the order in which they are made. A frame that fails one is not used at all.

Texts name the check and public numbers only.
"""

from hashlib import sha256

from tacit.peer.protocol.interface import (
    CARRIES_DOCUMENT,
    CARRIES_MESSAGE,
    PROTOCOL,
    Frame,
    Header,
    Kind,
    PeerTerms,
    Refused,
    Slot,
)

MOST_DOCUMENT_BYTES = 2**20
_MOST_EXCHANGES = 2**16
_DIGEST = 32
_OF_DECIDERS = (Kind.READY, Kind.USE, Kind.FORGOTTEN)
_OF_VOTERS = (Kind.ASK, Kind.VOTE)


class UnknownVersion(Refused):
    """A frame under an agreement that is not known here, which may be a newer version."""


def check_header(header: Header, neighbor: int, terms: PeerTerms, position: Slot, expected: int | None) -> None:
    """Refuse what a header shows to be unusable, before its payload is read.

    expected: the length of a message in the slot at `position`, where it is known.
    """
    if neighbor not in terms.neighbors:
        raise Refused(f"member {neighbor} has no link with this one")
    if neighbor in terms.gone:
        raise Refused(f"member {neighbor} was declared gone")
    if header.run != terms.run:
        raise Refused("another run")
    known = header.agreement == terms.agreement or header.agreement in terms.earlier
    if not known and header.kind != Kind.VERSION:  # a new version is known by what it carries
        raise UnknownVersion("another agreement, or a version of it that is not known here")
    if header.protocol != PROTOCOL:
        raise Refused(f"protocol {header.protocol} instead of {PROTOCOL}")
    if header.kind in (_OF_VOTERS if neighbor < terms.agent else _OF_DECIDERS):
        raise Refused(f"{header.kind.name}, which is not for member {neighbor} to say on this link")
    _check_slot(header, terms, position)
    _check_length(header, terms, position, expected)
    if header.kind in CARRIES_MESSAGE and header.dtype != terms.dtype:
        raise Refused(f"numbers that are not {terms.dtype}")
    if header.length and len(header.sha256) != _DIGEST:
        raise Refused("a hash that is not SHA-256")
    if header.held.round >= 0 and len(header.held_sha256) != _DIGEST:
        raise Refused("a hash that is not SHA-256")


def check_payload(frame: Frame) -> None:
    """Refuse a payload that is not what its header says."""
    if len(frame.payload) != frame.header.length:
        raise Refused(f"{len(frame.payload)} bytes instead of {frame.header.length}")
    if frame.header.length and sha256(frame.payload).digest() != frame.header.sha256:
        raise Refused("a payload with another hash")


def _check_slot(header: Header, terms: PeerTerms, position: Slot) -> None:
    for slot in (header.slot, header.held):
        if not -1 <= slot.round <= terms.rounds or not 0 <= slot.exchange < _MOST_EXCHANGES:
            raise Refused(f"round {slot.round}, exchange {slot.exchange} of {terms.rounds} rounds")
    if header.kind in CARRIES_MESSAGE and not 0 <= header.slot.round <= position.round + 1:
        raise Refused(f"a message of round {header.slot.round} in round {position.round}")


def _check_length(header: Header, terms: PeerTerms, position: Slot, expected: int | None) -> None:
    if header.kind in CARRIES_MESSAGE:
        most = terms.most_bytes
    else:
        most = MOST_DOCUMENT_BYTES if header.kind in CARRIES_DOCUMENT else 0
    if not 0 <= header.length <= most:
        raise Refused(f"{header.length} bytes, where at most {most} are allowed")
    if header.kind in CARRIES_MESSAGE:
        if header.length == 0:
            raise Refused("an empty message")
        if header.slot == position and expected is not None and header.length != expected:
            raise Refused(f"a message of {header.length} bytes instead of {expected}")
