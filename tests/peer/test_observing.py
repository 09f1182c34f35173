"""What the core says is written down, and nobody can fill a site's disk with it."""

from types import SimpleNamespace

from tacit.peer.observing import Observing
from tacit.peer.protocol.interface import NOWHERE, FrameRefused
from tacit.peer.views import SiteStatus


def test_a_neighbour_that_sends_rubbish_does_not_fill_the_events():
    notices = []
    status = SiteStatus("north", "run", "", 1, 5, ("north", "south", "east"), {})
    observing = Observing(SimpleNamespace(notice=notices.append), status, lambda: None)
    observing.core = SimpleNamespace(position=NOWHERE)
    for _ in range(1000):
        observing(FrameRefused(1, "another run"))
    observing(FrameRefused(2, "another run"))
    assert [notice.words for notice in notices if notice.neighbor == 2] == ["another run"]
    words = [notice.words for notice in notices if notice.neighbor == 1]
    assert (len(words), words[0], words[-1]) == (10, "another run", "another run; 512 frames so far")
