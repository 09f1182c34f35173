"""Values of single settings that pydantic has no type for: each function returns the value, or says what would be right."""

from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic_core import PydanticKnownError

from tacit.privacy.turns import MOST_BANDS
from tacit.registry import ROBUST_MEANS, RULES, rule_line
from tacit.runs.user_code import is_user_code, refuse_file_alone

_WEIGHTS = ("metropolis", "max_degree", "uniform")


def rule_name(value: Any) -> Any:
    """Return the name of a rule, shipped or the user's own."""
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    refuse_file_alone(value)
    if rule_line(value) is None and not is_user_code(value):
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, RULES))})
    return value


def part_name(value: Any) -> Any:
    """Return the name of a shipped part or of the user's own, but refuse a file without the name of what to take from it."""
    if isinstance(value, str):
        refuse_file_alone(value)
    return value


def mixing_name(value: Any) -> Any:
    """Return a kind of weights or a robust mean, by name."""
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    name, colon, _ = value.strip().partition(":")
    if name in _WEIGHTS and not colon:
        return name
    if name not in ROBUST_MEANS or (name == "median" and colon):
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, (*_WEIGHTS, *ROBUST_MEANS)))})
    return value.strip()


def as_text(value: Any) -> Any:
    """Return the t of A(t) as a text: a file may give it as a number."""
    return repr(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def positive(value: Any) -> Any:
    """Return one positive number for all agents, or a list with one for each."""
    numbers = value if isinstance(value, list) and value else [value]
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        raise ValueError("it must be a number, or a list with one for each agent")
    for number in numbers:
        if not number > 0:
            raise PydanticKnownError("greater_than", {"gt": 0.0})
    return [float(number) for number in value] if isinstance(value, list) else float(value)


def positive_or_none(value: Any) -> Any:
    """Return an ε or σ that may be missing."""
    return None if value is None else positive(value)


def bool_or_auto(value: Any) -> Any:
    """Return what the library takes: True, False or "auto"."""
    if isinstance(value, bool) or value == "auto":
        return value
    raise ValueError('it must be true, false or "auto"')


def ratio_or_auto(value: Any) -> Any:
    """Return the size of masks: a positive number or "auto"."""
    if value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError('it must be a number or "auto"')
    if not 0 < value <= 1000:
        raise ValueError("it must lie between 0 and 1000")
    return float(value)


def bands_or_auto(value: Any) -> Any:
    """Return a number of bands, or "auto"."""
    if value == "auto" or (type(value) is int and 1 <= value <= MOST_BANDS):
        return value
    raise ValueError(f'it must be a whole number from 1 to {MOST_BANDS}, or "auto"')


PerAgent = Annotated[float | list[float], PlainValidator(positive)]
