"""Fuzzes everything that reads what somebody else wrote: openings, frames up to the core, keys, versions of the agreement, files.

    pip install atheris
    PYTHONPATH=src:. python tests/peer/fuzz_frames.py -max_total_time=3600 -rss_limit_mb=1024 -max_len=8192

Only the declared errors may come out of a reader, and what is kept of a neighbour must stay bounded; anything else ends the run with the input that did it.
Give a folder as the last word to keep interesting inputs for the next run.
"""

import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import atheris
import networkx  # noqa: F401  (what is large and not fuzzed is imported before instrumentation)
import torch  # noqa: F401

with atheris.instrument_imports(include=["tacit.peer", "tacit.io"]):
    from test_frames import GOOD, SIZE, Site, header

    from tacit.errors import InvalidInput, TacitError
    from tacit.peer.agreement.document import Agreement
    from tacit.peer.agreement.drafting import change_agreement
    from tacit.peer.agreement.signed import Chain, MemberSignature, sign_agreement, versions_document
    from tacit.peer.agreement.terms import check_terms
    from tacit.peer.cards import read_card
    from tacit.peer.protocol.clock import SystemRandomness
    from tacit.peer.protocol.interface import Frame, Kind, Refused, Slot
    from tacit.peer.secrets import KeyExchange
    from tacit.peer.wire.framing import (
        FrameReader,
        LinkBroken,
        decode_opening,
        encode_frame,
        encode_header,
        encode_opening,
    )

from consortium import verify

from tests.peer.consortia import draft, make_sites

MOST = 1000
FOLDER = Path(tempfile.mkdtemp(prefix="tacit-fuzz-"))


def make_chain():
    sites = make_sites(FOLDER, 3)
    first = draft(sites)
    return Chain((first,), ({site.name: sign_agreement(first, site) for site in sites},)), sites


CHAIN, SITES = make_chain()


class Listener:
    """A core behind a reader, as the wire has them for each neighbour."""

    def __init__(self):
        self.site = Site(most_bytes=MOST)
        self.site.core._accept = self._accept
        self.readers = {
            number: FrameReader(MOST, lambda each, number=number: self.site.core.admit(number, each))
            for number in (0, 2)
        }

    def _accept(self, document):
        CHAIN.learn(document)
        return self.site.core.terms

    def feed(self, neighbor, message):
        frame = self.readers[neighbor].feed(message)
        if frame is not None:
            assert len(frame.payload) == frame.header.length <= MOST
            self.site.core.received(neighbor, frame)

    def close(self):
        with suppress(StopIteration, TacitError):
            self.site.settling.send(None)
        self.site.settling.close()
        kept = self.site.core.notes._slots.values()
        assert sum(len(each.decided) for each in kept) <= 2
        assert sum(len(each.hashes) for each in kept) <= 6


def fuzz_opening(given):
    with suppress(LinkBroken):
        decode_opening(given.ConsumeBytes(2000))


def fuzz_messages(given):
    """Any bytes as the messages of two streams."""
    listener = Listener()
    with suppress(LinkBroken):
        while given.remaining_bytes():
            neighbor = 0 if given.ConsumeBool() else 2
            listener.feed(neighbor, given.ConsumeBytes(given.ConsumeIntInRange(0, MOST)))
    listener.close()


def fuzz_frames(given):
    """Frames that are whole and mostly plausible, in any order, with any field changed."""
    listener = Listener()
    with suppress(LinkBroken):
        while given.remaining_bytes():
            neighbor = 0 if given.ConsumeBool() else 2
            for message in encode_frame(draw_frame(given)):
                listener.feed(neighbor, message)
    listener.close()


def draw_frame(given):
    kind = given.PickValueInList(list(Kind))
    payload = given.PickValueInList([b"", GOOD, b"bad" + GOOD[3:], CHAIN.document])
    if given.ConsumeBool():
        payload = given.ConsumeBytes(given.ConsumeIntInRange(0, 2 * SIZE))
    changes = {"slot": Slot(given.ConsumeIntInRange(-1, 7), given.ConsumeIntInRange(0, 3))}
    if given.ConsumeBool():
        changes["answer"] = True
        changes["held"] = Slot(given.ConsumeIntInRange(-1, 7), given.ConsumeIntInRange(-1, 3))
        changes["held_sha256"] = sha256(b"m" * SIZE).digest() if given.ConsumeBool() else given.ConsumeBytes(32)
    for name, width in (("run", 32), ("agreement", 32), ("sha256", 32)):
        if given.ConsumeIntInRange(0, 9) == 0:
            changes[name] = given.ConsumeBytes(width)
    if given.ConsumeIntInRange(0, 9) == 0:
        changes["length"] = given.ConsumeIntInRange(0, 2**64 - 1)
    return Frame(header(kind, payload, **changes), payload)


def fuzz_keys(given):
    keys = KeyExchange(
        bytes(32), 0, range(4), sign=lambda message: bytes(64), verify=verify, randomness=SystemRandomness()
    )
    with suppress(Refused):
        keys.learn(given.ConsumeBytes(given.remaining_bytes()))


def fuzz_versions(given):
    with suppress(InvalidInput):
        CHAIN.learn(given.ConsumeBytes(given.remaining_bytes()))


def fuzz_signature(given):
    with suppress(InvalidInput):
        MemberSignature.of(given.ConsumeBytes(given.remaining_bytes()), "a signature")


def fuzz_card(given):
    with suppress(InvalidInput):
        read_card(write(given))


def fuzz_agreement(given):
    with suppress(InvalidInput):
        agreement = Agreement.read(write(given))
        assert len(agreement.hash) == 64
        check_terms(agreement)


def write(given):
    path = FOLDER / "file.toml"
    path.write_bytes(given.ConsumeBytes(given.remaining_bytes()))
    return path


READERS = (
    fuzz_opening,
    fuzz_messages,
    fuzz_frames,
    fuzz_keys,
    fuzz_versions,
    fuzz_signature,
    fuzz_card,
    fuzz_agreement,
)


def fuzz(data):
    given = atheris.FuzzedDataProvider(data[1:])
    READERS[data[0] % len(READERS) if data else 0](given)


def write_examples(folder):
    """Begin with valid inputs: mutations of these get past the first checks."""
    after = change_agreement(CHAIN.current, gone=[SITES[2].name])
    signatures = {site.name: sign_agreement(after, site) for site in SITES[:2]}
    versions = versions_document([(after, signatures)])
    run = bytes.fromhex(CHAIN.run_id)
    examples = {
        fuzz_opening: [encode_opening("north", run, run, check=False)],
        fuzz_messages: [encode_header(header(kind)) for kind in Kind],
        fuzz_frames: [bytes(range(start, start + 64)) for start in range(0, 192, 16)],
        fuzz_keys: [bytes(100)],
        fuzz_versions: [versions],
        fuzz_signature: [signatures[SITES[0].name].to_json()],
        fuzz_card: [(FOLDER / SITES[0].name / "card.toml").read_bytes()],
        fuzz_agreement: [CHAIN.current.to_toml().encode()],
    }
    for number, reader in enumerate(READERS):
        for place, content in enumerate(examples[reader]):
            (folder / f"{reader.__name__}-{place}").write_bytes(bytes([number]) + content)


def main():
    examples = FOLDER / "examples"
    examples.mkdir()
    write_examples(examples)
    given = [word for word in sys.argv[1:] if not word.startswith("-")]
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    atheris.Setup([sys.argv[0], *options, *given, str(examples)], fuzz)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
