"""Frames travel whole and in order over one long-lived stream; a lost link comes back by itself."""

import asyncio

import grpc
import pytest

from tacit.peer.protocol.interface import Kind
from tacit.peer.wire.generate import HERE, generate
from tacit.peer.wire.hub import GrpcWire
from tacit.peer.wire.listening import METHOD, OPTIONS
from tacit.peer.wire.tls import dialling_credentials, issue_tls_key, tls_name
from tests.peer.wires import MOST_BYTES, Recorder, frame_of, linked, make_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_pair(tmp_path_factory.mktemp("pair"))


def test_the_generated_module_is_that_of_the_definition(tmp_path):
    generate(tmp_path)
    for name in ("frames_pb2.py", "frames_pb2.pyi"):
        assert (tmp_path / name).read_text() == (HERE / name).read_text()


def test_frames_of_all_sizes_arrive_whole_and_in_order_both_ways(pair):
    sizes = [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20 + 17, 40_000]
    payloads = [bytes([size % 251]) * size for size in sizes]

    async def play():
        async with linked(*pair) as ((north, at_north), (south, at_south)):
            for wire, to in ((north, 1), (south, 0)):
                for payload in payloads:
                    wire.send(to, frame_of(pair[1], payload))
                await wire.drain()
            for recorder in (at_north, at_south):
                await recorder.until(lambda each: len(each.frames) == len(payloads))
                assert [frame.payload for frame in recorder.frames] == payloads
                assert recorder.frames == [frame_of(pair[1], payload) for payload in payloads]
            assert north.views[1].traffic.sent >= sum(sizes)
            assert north.views[1].connections == 1

    asyncio.run(play())


def test_a_frame_that_is_not_admitted_is_passed_over_and_the_next_one_arrives(pair):
    async def play():
        async with linked(*pair) as ((north, at_north), (south, _)):
            at_north.refuses = {Kind.USE}
            south.send(0, frame_of(pair[1], b"x" * (2**20 + 5), Kind.USE))
            south.send(0, frame_of(pair[1], b"y" * 5, Kind.VOTE))
            await at_north.until(lambda each: each.frames)
            assert [frame.payload for frame in at_north.frames] == [b"y" * 5]
            assert north.views[1].connections == 1

    asyncio.run(play())


def test_a_frame_that_is_too_long_closes_the_link_which_then_comes_back(pair):
    async def play():
        async with linked(*pair) as ((_, at_north), (south, _)):
            south.send(0, frame_of(pair[1], b"z" * (MOST_BYTES + 1)))
            await at_north.until(lambda each: each.calls.count(("connected", 1)) == 2)
            assert at_north.calls == [("connected", 1), ("disconnected", 1), ("connected", 1)]
            assert at_north.frames == []

    asyncio.run(play())


def test_the_text_of_an_unforeseen_error_does_not_leave_the_site(pair):
    sites, agreement = pair
    north, south = (GrpcWire(site, agreement, most_bytes=MOST_BYTES) for site in sites)

    def fail(neighbor):
        raise ValueError("patient 17")

    async def play():
        north.core = Recorder()
        north.core.connected = fail
        await north.start()
        card = sites[0].card
        options = [*OPTIONS, ("grpc.ssl_target_name_override", tls_name(card))]
        credentials = dialling_credentials(issue_tls_key(sites[1]), card)
        async with grpc.aio.secure_channel(card.address, credentials, options=options) as channel:
            call = channel.stream_stream(METHOD)()
            await call.write(south._opening())
            await call.read()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
        await north.stop()
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INTERNAL, "an error at this end")

    asyncio.run(play())


def test_an_unforeseen_error_at_the_end_that_dials_is_logged_and_it_dials_again(pair, caplog):
    sites, agreement = pair
    north, south = (GrpcWire(site, agreement, most_bytes=MOST_BYTES) for site in sites)

    class FailsOnce(Recorder):
        def connected(self, neighbor):
            super().connected(neighbor)
            if len(self.calls) == 1:
                raise ValueError("for once")

    async def play():
        north.core, south.core = Recorder(), FailsOnce()
        await north.start()
        await south.start()
        await south.core.until(lambda each: each.calls.count(("connected", 0)) == 2)
        await south.stop()
        await north.stop()

    asyncio.run(play())
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "a link that this site opened has failed"
    ]


def test_a_site_that_is_restarted_is_linked_again(pair):
    sites, agreement = pair

    async def play():
        async with linked(*pair) as ((north, at_north), (south, _)):
            await south.stop()
            await at_north.until(lambda each: each.calls[-1] == ("disconnected", 1))
            north.send(1, frame_of(agreement))  # dropped
            again, recorder = GrpcWire(sites[1], agreement, most_bytes=MOST_BYTES), Recorder()
            again.core = recorder
            await again.start()
            await recorder.until(lambda each: ("connected", 0) in each.calls)
            await at_north.until(lambda each: each.calls[-1] == ("connected", 1))
            north.send(1, frame_of(agreement, b"back"))
            await recorder.until(lambda each: each.frames)
            assert [frame.payload for frame in recorder.frames] == [b"back"]
            await again.stop()

    asyncio.run(play())


def test_a_listener_that_is_restarted_is_dialled_again(pair):
    sites, agreement = pair

    async def play():
        async with linked(*pair) as ((north, _), (_, at_south)):
            await north.stop()
            await at_south.until(lambda each: each.calls[-1] == ("disconnected", 0))
            again, recorder = GrpcWire(sites[0], agreement, most_bytes=MOST_BYTES), Recorder()
            again.core = recorder
            await again.start()
            await recorder.until(lambda each: ("connected", 1) in each.calls)
            await again.stop()

    asyncio.run(play())


def test_a_second_link_of_the_same_member_replaces_the_first(pair):
    """A site that was cut off comes back before the other end has noticed."""
    sites, agreement = pair

    async def play():
        async with linked(*pair) as ((_, at_north), _):
            again, recorder = GrpcWire(sites[1], agreement, most_bytes=MOST_BYTES), Recorder()
            again.core = recorder
            await again.start()
            await recorder.until(lambda each: ("connected", 0) in each.calls)
            await at_north.until(lambda each: len(each.calls) >= 3)
            assert at_north.calls[:3] == [("connected", 1), ("disconnected", 1), ("connected", 1)]
            await again.stop()

    asyncio.run(play())


def test_a_link_that_was_cut_stays_down(pair):
    async def play():
        async with linked(*pair) as ((north, at_north), (south, at_south)):
            north.cut(1, "two messages for one slot")
            await at_north.until(lambda each: each.calls[-1] == ("disconnected", 1))
            await at_south.until(lambda each: each.calls[-1] == ("disconnected", 0))
            async with asyncio.timeout(20):
                while south.views[0].why != "refused there: the link was cut":  # it dials again and again
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.6)
            assert at_north.calls == [("connected", 1), ("disconnected", 1)]
            assert not north.views[1].up

    asyncio.run(play())


def test_a_check_exchanges_openings_and_leaves_the_run_alone(pair):
    sites, agreement = pair

    async def play():
        north, recorder = GrpcWire(sites[0], agreement, most_bytes=MOST_BYTES), Recorder()
        north.core = recorder
        await north.start()
        south = GrpcWire(sites[1], agreement, most_bytes=MOST_BYTES, check=True)
        await south.start()
        async with asyncio.timeout(10):
            await asyncio.gather(*south._tasks)
        view = south.views[0]
        assert view.agreement == agreement.hash
        assert abs(view.clock) < 5
        assert recorder.calls == []
        await south.stop()
        await north.stop()

    asyncio.run(play())
