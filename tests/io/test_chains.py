"""Canonical JSON, strict reading, and chains of hashes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.io import chains

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_a_document_has_one_text_which_is_read_back(document):
    text = chains.canonical(document)
    assert text.isascii()
    assert chains.canonical(chains.parse(text)) == text
    assert chains.canonical(json.loads(json.dumps(document, indent=2))) == text


def test_the_order_of_keys_makes_no_difference():
    assert chains.canonical({"b": 1, "a": [2.0]}) == chains.canonical({"a": [2.0], "b": 1}) == '{"a":[2.0],"b":1}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_has_no_text(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        chains.canonical({"x": value})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NaN", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("1e400", "too large"),
        ("9" * 30, "too large"),
        (str(2**63), "too large"),
        ('{"a": 1, "a": 2}', "a key is repeated"),
        ("[" * 100 + "]" * 100, "nested too deeply"),
        ("[" * 1_000_000, "nested too deeply"),
        ("{", "Expecting property name"),
        (b"\xff\xff\xff", "decode"),
    ],
)
def test_what_no_writer_of_ours_writes_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        chains.parse(text)


def test_every_line_changes_all_hashes_after_it():
    def hashes(lines):
        found = [chains.start("test")]
        for line in lines:
            found.append(chains.link(found[-1], chains.digest(line)))
        return found

    one, other = hashes(["a", "b", "c"]), hashes(["a", "x", "c"])
    assert [left == right for left, right in zip(one, other, strict=True)] == [True, True, False, False]
    assert all(map(chains.is_hash, one))
    assert not any(map(chains.is_hash, ["", "A" * 64, "0" * 63, None, 3]))
