"""Shipped update rules by name, with options behind it: `dinno:rho=1,inner_steps=2`. What a rule takes follows from its fields."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from tacit.algorithms import RULES, STEPS, Algorithm, Step
from tacit.errors import InvalidInput, choose
from tacit.networks import Codec, find_codec

_TRUTH = {"true": True, "false": False}


def make_shipped_rule(text: str, settings: Mapping[str, Any] | None = None) -> Algorithm[Any]:
    """Return the rule that a text names. `settings` are values of fields by name; options in the text may not repeat them."""
    name, colon, rest = text.strip().partition(":")
    make = RULES[choose("algorithm", name, RULES)]
    readers = _readers(make)
    given = dict(settings or {})
    for key in given:
        if key not in readers:
            raise InvalidInput(f"{key} does not apply to {name}, which has no such field; leave it out")
    written = rest.split(",") if colon else ()
    for part in written:
        key, _, value = (piece.strip() for piece in part.partition("="))
        if not readers:
            raise InvalidInput(f"{name} takes no options, got {key!r}")
        choose(f"option of {name}", key, readers)
        if key in given:
            raise InvalidInput(f"{key} of {name} is given twice; leave one of them out")
        try:
            given[key] = readers[key](value)
        except InvalidInput as error:
            raise InvalidInput(f"{key} of {name}: {error}") from None
        except (KeyError, ValueError):
            raise InvalidInput(f"{key} of {name} is {value!r}; it must be {_WANTED[readers[key]]}") from None
    rule: Algorithm[Any] = make(**given)
    return rule


def _read_bool(value: str) -> bool:
    return _TRUTH[value.lower()]


def _read_step(value: str) -> Step:
    return STEPS[choose("step", value, STEPS)]()


_READERS: dict[Any, Callable[[str], Any]] = {
    bool: _read_bool,
    int: int,
    float: float,
    str: str,
    Step: _read_step,
    Codec: find_codec,
}
_WANTED: dict[Callable[[str], Any], str] = {_read_bool: "true or false", int: "a whole number", float: "a number"}


def _readers(make: type) -> dict[str, Callable[[str], Any]]:
    """Return what reads each field of a rule from a text; fields of other types cannot be set by one."""
    hints = get_type_hints(make)
    kinds = {field.name: (hints[field.name], *get_args(hints[field.name])) for field in fields(make) if field.init}
    found = {name: next((each for each in among if each in _READERS), None) for name, among in kinds.items()}
    return {name: _READERS[kind] for name, kind in found.items() if kind is not None}
