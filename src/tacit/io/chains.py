"""Hash chains: every line's hash covers that line and all lines before it.

Keep one hash, a *head*, to check later that all lines up to it are unchanged. A line enters the chain by the digest of its
canonical JSON, so that a chain can be followed even if some lines are shown by their digests alone.
"""

import hashlib
import json
import math
from typing import Any, NoReturn

MOST_DEPTH = 64
_MOST = 2**63


def canonical(document: Any) -> str:
    """Return the canonical JSON of a document: sorted keys, no spaces, ASCII, finite numbers."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(text: str) -> str:
    """Return SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def start(name: str) -> str:
    """Return the hash at the start of a kind of chain, before its first line."""
    return digest(name)


def link(previous: str, of_line: str) -> str:
    """Return the hash of a line: of the hash before it and of the digest of the line itself."""
    return digest(f"{previous}\n{of_line}\n")


def is_hash(text: Any) -> bool:
    """Return whether something is a hash as this module writes it."""
    return isinstance(text, str) and len(text) == 64 and not set(text) - set("0123456789abcdef")


def parse(text: str | bytes) -> Any:
    """Read JSON strictly: no NaN, no infinity, no number beyond 64 bits, no repeated key, no deep nesting; otherwise ValueError."""
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(found, MOST_DEPTH)
    return found


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _whole(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= _MOST:
        raise ValueError(f"{text[:40]} is too large a number")
    return int(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _check_depth(value: Any, left: int) -> None:
    if not left:
        raise ValueError("it is nested too deeply")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, left - 1)
