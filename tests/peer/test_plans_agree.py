"""Members that settled different plans, as processors that round differently or other releases of a library may do, ask nothing."""

import math
from dataclasses import replace
from hashlib import sha256

import pytest
from test_frames import RUN, Site, _Clock, _Wire, header

import tacit.privacy.settings
from tacit.errors import NetworkError
from tacit.peer.protocol.core import Core
from tacit.peer.protocol.interface import Frame, FrameRefused, Kind, PeerTerms, PlanDiffers, Slot
from tests.peer.consortium import MemoryJournal
from tests.peer.sites import Consortium, play_all

OURS, OTHER = sha256(b"our plan").digest(), sha256(b"another plan").digest()


def starting(plan):
    """Member 1 of two, waiting for what its neighbour says."""
    terms = PeerTerms(
        run=RUN,
        agreement=RUN,
        agent=1,
        members=(0, 1),
        neighbors=(0,),
        rounds=5,
        most_bytes=1000,
        norm_bound=9,
        plan=plan,
    )
    wire = _Wire()
    core = Core(terms, clock=_Clock(), wire=wire, journal=MemoryJournal())
    start = core.start()
    start.send(None)
    return core, start, wire


def test_every_greeting_and_nothing_else_says_what_is_planned():
    _, _, wire = starting(OURS)
    assert [(frame.header.kind, frame.header.plan) for _, frame in wire.sent] == [(Kind.HELLO, OURS)]
    site = Site(plan=OURS)
    assert {frame.header.plan for _, frame in site.wire.sent if frame.header.kind != Kind.HELLO} == {b""}


@pytest.mark.parametrize(
    ("ours", "theirs"), [(OURS, OURS), (OURS, b""), (b"", OTHER)], ids=["equal", "theirs has ended", "ours has ended"]
)
def test_a_run_begins_where_plans_agree(ours, theirs):
    core, start, _ = starting(ours)
    core.received(0, Frame(header(Kind.HELLO, b"", plan=theirs), b""))
    with pytest.raises(StopIteration):
        start.send(None)


def test_a_run_does_not_begin_beside_another_plan():
    core, start, _ = starting(OURS)
    core.received(0, Frame(header(Kind.HELLO, b"", plan=OTHER), b""))
    with pytest.raises(PlanDiffers, match="another plan of lots, noise and masks at member 0 than here"):
        start.send(None)


def test_a_neighbour_that_comes_back_with_another_plan_stops_nobody_who_has_begun():
    core, start, _ = starting(OURS)
    core.received(0, Frame(header(Kind.HELLO, b"", plan=OURS), b""))
    with pytest.raises(StopIteration):
        start.send(None)
    seen = []
    core.observe = seen.append
    core.received(0, Frame(header(Kind.HELLO, b"", slot=Slot(0, 0), plan=OTHER), b""))
    assert seen == [FrameRefused(0, "another plan of lots, noise and masks at member 0")]
    core._raise_failure()


def test_sites_whose_masks_differ_in_the_last_digit_ask_nothing(tmp_path, monkeypatch):
    """The two ends of a key would draw masks of different sizes, which do not cancel, and each site would count on noise that others do not add."""
    settled, sizes = tacit.privacy.settings.masks_for, []

    def elsewhere(*given, **settings):
        masks = settled(*given, **settings)
        sizes.append(
            masks.size * (1 + 1e-9) if len(sizes) == 1 else masks.size
        )  # as the second site's processor rounds
        return replace(masks, size=sizes[-1])

    monkeypatch.setattr(tacit.privacy.settings, "masks_for", elsewhere)
    consortium = Consortium(tmp_path, 3, noise="cancelling", mask_ratio=2.0)
    with pytest.raises(NetworkError, match="another plan of lots, noise and masks at member"):
        play_all(consortium)
    assert len(sizes) == 3
    assert not math.isclose(sizes[0], sizes[1], rel_tol=1e-12)
    for number in range(3):
        folder = consortium.run_folder(number)
        assert folder.events().plan is None
        assert not folder.summary_file.exists()
