"""Validation errors of pydantic in our words: the value, and what would be right."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

_WANTED = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "finite_number": "a finite number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
}
_QUOTED = re.compile(r"'([^']*)'")


def mistake(name: str, error: Mapping[str, Any]) -> str:
    """Describe what is wrong with the value called `name`; `error` is one that a `ValidationError` lists."""
    value, kind = error["input"], error["type"]
    if kind == "missing":
        return f"{name} is missing"
    if wanted := _WANTED.get(kind):
        return f"{name} is {value!r}; it must be {wanted.format(**error.get('ctx', {}))}"
    # pydantic reports a wrong choice in a file, typer one on the command line.
    if kind == "literal_error" or "is not one of" in error["msg"]:
        known = _QUOTED.findall(
            error["ctx"]["expected"] if kind == "literal_error" else error["msg"].split("one of")[1]
        )
        near = get_close_matches(str(value), known, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{name} is {value!r}; it must be one of {', '.join(known)}{hint}"
    said = error["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{name} is {value!r}{';' if said.startswith('it must') else ':'} {said}"
