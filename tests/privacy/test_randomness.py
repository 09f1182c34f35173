"""Randomness tested as a distribution. Each statistical test states how often it fails a perfect source that is secret."""

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats
from source_kinds import every_kind

from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy.randomness import ChaChaStream, Fast, Secret, Seeded


def test_keystream_passes_the_known_answer_of_rfc_8439():
    """Section 2.3.2, the block function's test vector."""
    key = bytes(range(32))
    nonce = bytes.fromhex("000000090000004a00000000")
    expected = bytes.fromhex(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert bytes(ChaChaStream(key, nonce=nonce, block=1).read(64)) == expected


def test_words_are_the_keystream_in_little_endian_order_however_they_are_read():
    key, nonce = bytes(range(32)), bytes(12)
    whole = bytes(ChaChaStream(key, nonce=nonce).read(160))
    pieces = ChaChaStream(key, nonce=nonce)
    words = [*pieces.words(3), *pieces.words(17)]
    assert [int(word) for word in words] == [int.from_bytes(whole[i : i + 8], "little") for i in range(0, 160, 8)]


def test_fast_words_are_philoxs_however_they_are_read():
    """Streams that are read in turn do not disturb each other."""
    one, other = (Fast(3).make(1)[0] for _ in range(2))
    other.position = 1
    streams = one.next(), other.next()
    read = [
        np.concatenate(parts) for parts in zip(*([each.words(n) for each in streams] for n in (3, 1, 6)), strict=True)
    ]
    key = np.frombuffer(one._key[:16], dtype="<u8")
    for position, words in enumerate(read):
        counter = np.array([0, 0, 0, position], dtype=np.uint64)
        assert words.tolist() == np.random.Philox(key=key, counter=counter).random_raw(10).tolist()


@every_kind(seed=3, rate=4e-6)
def test_normals_are_standard_normal(kind):
    """Kolmogorov–Smirnov, mean, variance and fourth moment, 1e-6 each at most."""
    n = 400_000
    values = kind.make(1)[0].next().normals(n)
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert abs(values.mean()) * np.sqrt(n) < stats.norm.isf(5e-7)
    assert abs(values.var() - 1) * np.sqrt(n / 2) < stats.norm.isf(5e-7)
    assert abs((values**4).mean() - 3) * np.sqrt(n / 96) < 5.5


@every_kind(seed=3, rate=66e-8)
def test_normals_are_independent_across_agents_queries_and_coordinates(kind):
    """Largest of 66 correlations over 20,000 draws, 1e-8 each by the normal approximation."""
    n = 20_000
    sources = kind.make(3)
    rows = [source.next().normals(n) for _ in range(2) for source in sources]
    rows += [np.roll(row, 1) for row in rows]  # the neighbouring coordinate
    correlation = np.corrcoef(rows)
    off_diagonal = np.abs(correlation[np.triu_indices(12, 1)])
    assert len(off_diagonal) == 66
    assert off_diagonal.max() * np.sqrt(n) < stats.norm.isf(5e-9)


@every_kind(seed=3, rate=1e-7)
def test_both_halves_of_box_and_muller_are_unrelated_in_square(kind):
    """cos and sin share a radius; their squares must not correlate."""
    n = 100_000
    values = kind.make(1)[0].next().normals(2 * n)
    squares = np.corrcoef(values[:n] ** 2, values[n:] ** 2)[0, 1]
    assert abs(squares) * np.sqrt(n) < stats.norm.isf(5e-8)


def test_an_odd_number_of_normals_can_be_had():
    assert Seeded(0).make(1)[0].next().normals(7).shape == (7,)
    assert Seeded(0).make(1)[0].next().normals(0).shape == (0,)


@every_kind(seed=3, rate=1e-30)
def test_no_two_streams_are_alike(kind):
    first = [source.next().words(4).tolist() for trial in range(2) for source in kind.make(3, trial)]
    source = kind.make(1)[0]
    later = [source.next().words(4).tolist() for _ in range(3)][1:]
    flat = [tuple(words) for words in first + later]
    assert len(set(flat)) == len(flat)


@pytest.mark.parametrize("kind", [Seeded(3), Fast(3)], ids=["seeded", "fast"])
def test_seeded_sources_repeat_and_can_be_resumed_by_position(kind):
    one, other = kind.make(2)[1], kind.make(2)[1]
    draws = [one.next().normals(5).tolist() for _ in range(4)]
    other.position = 3
    assert other.next().normals(5).tolist() == draws[3]
    assert not kind.secret


def test_a_secret_source_cannot_go_back():
    source = Secret().make(1)[0]
    source.next()
    source.position = 5
    with pytest.raises(PrivacyError, match="cannot move back"):
        source.position = 4


def test_secret_sources_never_repeat():
    draws = {Secret().make(1)[0].next().words(1).tobytes() for _ in range(50)}
    assert len(draws) == 50
    assert Secret().secret


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_secret_source_cannot_be_copied(duplicate):
    with pytest.raises(PrivacyError, match="cannot be copied"):
        duplicate(Secret().make(1)[0])


def test_a_secret_source_shows_no_key():
    source = Secret().make(1)[0]
    key = source._ChaChaSource__key
    assert key.hex() not in f"{source!r} {source}"
    assert str(key) not in f"{source!r} {source}"


def test_threads_never_share_a_stream():
    source = Secret().make(1)[0]
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda _: source.next().words(1)[0], range(4000)))
    assert len(set(draws)) == 4000


def test_a_forked_child_cannot_draw_its_parents_noise():
    source = Secret().make(1)[0]
    child = os.fork()
    if child == 0:
        try:
            source.next()
        except PrivacyError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_one_stream_cannot_be_read_past_its_end():
    stream = ChaChaStream(bytes(32), nonce=bytes(12), block=2**32 - 1)
    stream.words(8)
    with pytest.raises(PrivacyError, match="only 0 left"):
        stream.words(1)


def test_a_negative_seed_is_refused():
    with pytest.raises(InvalidInput, match="negative"):
        Seeded(-1).make(1)


def test_further_bits_are_of_keystreams_that_nothing_else_reads():
    """Each (place, level) has a nonce and a block of its own; the nonces end in other bytes than those of all queries."""
    key, query = bytes(range(32)), (7).to_bytes(8, "little")
    stream = ChaChaStream(key, nonce=query + bytes(4))
    for place, level, apart in [(0, 0, 1), (5, 0, 1), (5, 3, 25), (2**32 + 5, 3, 26), (2**35 - 1, 8191, 65536)]:
        nonce = query + apart.to_bytes(4, "little")
        expected = bytes(ChaChaStream(key, nonce=nonce, block=place % 2**32).read(64))
        assert stream.more(place, level) == expected
        assert stream.more(place, level) == expected
    assert stream.words(1) == ChaChaStream(key, nonce=query + bytes(4)).words(1)


def test_further_bits_differ_by_place_level_query_and_agent():
    sources = Seeded(0).make(2)
    streams = [source.next() for _ in range(2) for source in sources]
    drawn = {stream.more(place, level) for stream in streams for place in (0, 1, 2**32) for level in (0, 1)}
    assert len(drawn) == 24


def test_pairs_know_their_place_in_the_keystream():
    stream = Seeded(0).make(1)[0].next()
    assert stream.pairs(3)[0] == 0
    stream.words(5)
    place, words = stream.pairs(2)
    assert (place, len(words)) == (11, 4)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_cannot_be_copied_and_shows_no_key(duplicate):
    key = bytes(range(32))
    stream = ChaChaStream(key, nonce=bytes(12))
    with pytest.raises(PrivacyError, match="cannot be copied"):
        duplicate(stream)
    assert key.hex() not in f"{stream!r} {stream}"


@pytest.mark.parametrize("position", [-1, 2**64])
def test_a_position_outside_of_all_nonces_is_refused(position):
    source = Seeded(0).make(1)[0]
    with pytest.raises(InvalidInput, match="2\\^64 positions"):
        source.position = position
