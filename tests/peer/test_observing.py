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


def test_the_epsilon_that_is_shown_is_never_less_than_that_of_the_queries_made():
    derived = []

    def epsilon(queries, observer=None):
        derived.append(queries)
        return float(queries)

    account = SimpleNamespace(spent=0, charged=2000)
    session = SimpleNamespace(accounts=[account], plan=SimpleNamespace(queries=2000, masks=None, privacy=None))
    status = SiteStatus("north", "run", "", 1, 2000, ("north", "south"), {})
    observing = Observing(SimpleNamespace(session=session, epsilon=epsilon), status, lambda: None)
    observing.note_spending(now_in_full=True)
    assert (status.queries, status.epsilon_made, status.epsilon_charged) == (0, 0.0, 2000.0)
    for made in range(1, 2011):  # a query that was lost is asked again, beyond the plan
        account.spent = made
        observing.note_spending()
        assert status.queries == made
        assert made <= status.epsilon_made <= max(made, min(2000, 1.125 * made))
    assert len(derived) < 100
    observing.note_spending(now_in_full=True)
    assert status.epsilon_made == 2010.0
