"""What travels is counted as it is, and read as it was sent."""

import pytest
import torch

from tacit.errors import InvalidInput
from tacit.graphs import ring
from tacit.networks import QSGD, BFloat16, Dense, Float16, RandomK, StackedNetwork, TopK, as_topology, find_codec
from tacit.networks.codecs import drawn
from tacit.networks.sparse import kept_of


class Chance:
    """Public chance of some agents, or of one of them in a process of its own."""

    def __init__(self, agents, only=None):
        self.agents, self.only = agents, only

    def chance(self, *shape):
        numbers = torch.rand(self.agents, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return numbers if self.only is None else numbers[self.only : self.only + 1]

    def shared_chance(self, *shape):
        return torch.rand(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def rows(dtype=torch.float32, count=4, width=20):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("codec", "of_row"),
    [
        (Dense(), lambda size: 20 * size),
        (BFloat16(), lambda _: 40),
        (Float16(), lambda _: 40),
        (TopK(0.25), lambda size: 5 * (4 + size)),
        (RandomK(0.25), lambda size: 5 * size),
        (QSGD(8), lambda _: 20 + 4),
        (QSGD(4), lambda _: 10 + 4),
        (QSGD(2), lambda _: 5 + 4),
    ],
    ids=lambda part: "" if callable(part) else str(part),
)
def test_bytes_are_those_that_travel(codec, of_row, dtype):
    x = rows(dtype)
    codec, of_one = drawn(codec, Chance(4), [x]), drawn(codec, Chance(4, only=2), [x[2:3]])
    packet = codec.encode(x)
    network = StackedNetwork(as_topology(ring(4)), dtype=dtype)
    network.exchange(0, x, codec=codec)
    assert packet.bytes_of_row == len(packet.to_bytes(2)) == of_row(x.element_size())
    assert network.bytes_sent.tolist() == [2 * packet.bytes_of_row] * 4
    alone = of_one.encode(x[2:3])
    assert alone.to_bytes() == packet.to_bytes(2)
    assert torch.equal(codec.decode(alone.like(packet.to_bytes(1))), codec.decode(packet)[1:2])


def test_the_largest_numbers_are_sent_and_the_first_of_equal_ones():
    x = torch.tensor([[1.0, -5.0, 2.0, 0.0], [3.0, 3.0, -3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    read = TopK(0.5).decode(TopK(0.5).encode(x))
    assert read.tolist() == [[0.0, -5.0, 2.0, 0.0], [3.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]


def test_rows_of_any_shape_come_back_in_it():
    x = rows().reshape(4, 4, 5)
    for codec in (Dense(), BFloat16(), Float16(), TopK(1.0), RandomK(0.5), QSGD(4)):
        codec = drawn(codec, Chance(4), [x])
        read = codec.decode(codec.encode(x))
        assert (read.shape, read.dtype) == (x.shape, x.dtype)
    assert torch.equal(TopK(1.0).decode(TopK(1.0).encode(x)), x)


def test_what_is_not_a_number_travels_as_such():
    x = torch.tensor([[1.0, torch.nan, 2.0, torch.inf]])
    read = TopK(0.5).decode(TopK(0.5).encode(x))
    assert read[0, 1].isnan()
    assert read[0, 3].isinf()


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_lies_between_none_and_all(share):
    for make in (TopK, RandomK):
        with pytest.raises(InvalidInput, match="share is"):
            make(share)


@pytest.mark.parametrize("bits", [0, 1, 3, 16, 2.5, float("nan")])
def test_qsgd_has_bits_that_fill_bytes(bits):
    with pytest.raises(InvalidInput, match="QSGD takes 2, 4 or 8"):
        QSGD(bits)


def test_random_codecs_are_drawn_for_every_message():
    for codec in (RandomK(0.5), QSGD(8)):
        with pytest.raises(InvalidInput, match=r"for every message, which at\.exchange of a rule draws"):
            codec.encode(rows())


def test_everybody_chooses_the_same_numbers_and_sends_them_as_they_are():
    x = rows()
    codec = drawn(RandomK(0.25), Chance(4), [x])
    read = codec.decode(codec.encode(x))
    kept = (read != 0).all(0)
    assert int(kept.sum()) == 5
    assert torch.equal(read, x * kept)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_qsgd_is_right_on_average_and_never_off_by_more_than_a_level(bits):
    """2,000 roundings: a mean lies within 5.5 of its standard deviations. Public chance follows from a fixed seed."""
    x = rows(torch.float64, count=1, width=700).repeat(2_000, 1)
    codec = QSGD(bits).draw(Chance(2_000), [700])
    read = codec.decode(codec.encode(x))
    scale = torch.cat([x[0, :512].abs().max().repeat(512), x[0, 512:].abs().max().repeat(188)])
    level = scale / (2 ** (bits - 1) - 1)
    assert bool(((read - x).abs() <= 1.001 * level).all())
    share = (x[0].abs() / level) % 1
    deviation = level * (share * (1 - share)).sqrt() / 2_000**0.5
    assert bool(((read.mean(0) - x[0]).abs() <= 5.5 * deviation + 1e-6 * scale).all())


def test_qsgd_reads_any_bytes_and_keeps_what_is_not_finite():
    x = rows(count=1, width=600)
    x[0, 3] = torch.nan
    codec = QSGD(8).draw(Chance(1), [600])
    packet = codec.encode(x)
    read = codec.decode(packet)
    assert read[0, :512].isnan().all()
    assert read[0, 512:].isfinite().all()
    forged = codec.decode(packet.like(b"\xff" * 600 + b"\0" * 8))
    assert forged.tolist() == [[0.0] * 600]


def test_a_hostile_message_is_refused():
    packet = TopK(0.5).encode(rows(count=1, width=4))
    with pytest.raises(InvalidInput, match="7 bytes instead of 16"):
        packet.like(b"1234567")
    for place in (4, -1, 2**31 - 1):
        forged = torch.tensor([place, 0], dtype=torch.int32).numpy().tobytes() + bytes(8)
        with pytest.raises(InvalidInput, match="a place outside its 4 numbers"):
            TopK(0.5).decode(packet.like(forged))


def test_what_a_compressed_message_says_of_oneself_is_mixed_like_a_neighbours():
    """So the average of what was read stays, whatever was lost on the way."""
    x = rows(torch.float64)
    inbox = StackedNetwork(as_topology(ring(4)), dtype=torch.float64).exchange(0, x, codec=TopK(0.2))
    torch.testing.assert_close(inbox.mix().mean(0), inbox.own.mean(0), rtol=0, atol=1e-15)
    assert not torch.equal(inbox.own, x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topk:2", r"codec is 'topk:2': share is 2\.0; it must lie in \(0, 1\]; write it as in topk:0\.1"),
        ("qsgd:3", "codec is 'qsgd:3': bits is 3; QSGD takes 2, 4 or 8 bits for each number; write it as in qsgd:8"),
        ("topk:half", r"codec is 'topk:half'; write it as in topk:0\.1"),
        ("topj:0.1", "unknown codec 'topj'; did you mean 'topk'"),
    ],
)
def test_a_codec_that_cannot_be_made_is_refused_with_one_that_can(text, message):
    with pytest.raises(InvalidInput, match=message):
        find_codec(text)


def test_a_share_that_floats_do_not_hold_exactly_keeps_as_many_numbers_as_it_says():
    """0.07 * 100 is a little more than 7."""
    assert [kept_of(100, share) for share in (0.07, 0.071, 0.14, 1.0, 1e-9)] == [7, 8, 14, 100, 1]
