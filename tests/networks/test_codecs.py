"""What travels is counted as it is, and read as it was sent."""

import pytest
import torch

from tacit.errors import InvalidInput
from tacit.graphs import ring
from tacit.networks import BFloat16, Dense, StackedNetwork, TopK, as_topology


def rows(dtype=torch.float32, count=4, width=20):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("codec", "of_row"),
    [(Dense(), lambda size: 20 * size), (BFloat16(), lambda _: 40), (TopK(0.25), lambda size: 5 * (4 + size))],
)
def test_bytes_are_those_that_travel(codec, of_row, dtype):
    x = rows(dtype)
    packet = codec.encode(x)
    network = StackedNetwork(as_topology(ring(4)), dtype=dtype)
    network.exchange(0, x, codec=codec)
    assert packet.bytes_of_row == len(packet.to_bytes(2)) == of_row(x.element_size())
    assert network.bytes_sent.tolist() == [2 * packet.bytes_of_row] * 4
    alone = codec.encode(x[2:3])
    assert alone.to_bytes() == packet.to_bytes(2)
    assert torch.equal(codec.decode(alone.like(packet.to_bytes(1))), codec.decode(packet)[1:2])


def test_the_largest_numbers_are_sent_and_the_first_of_equal_ones():
    x = torch.tensor([[1.0, -5.0, 2.0, 0.0], [3.0, 3.0, -3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    read = TopK(0.5).decode(TopK(0.5).encode(x))
    assert read.tolist() == [[0.0, -5.0, 2.0, 0.0], [3.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]


def test_rows_of_any_shape_come_back_in_it():
    x = rows().reshape(4, 4, 5)
    for codec in (Dense(), BFloat16(), TopK(1.0)):
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
    with pytest.raises(InvalidInput, match="share is"):
        TopK(share)


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
