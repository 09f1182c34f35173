"""Lets Sphinx read docstrings as they are written: for a person with an editor, without markup.

Indented lines are shown as they stand (they are equations), and a list of `name: what it is` becomes a list.
"""

import re
from typing import Any

from sphinx.application import Sphinx

_FIELD = re.compile(r"^([a-z_]+): (.*)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx about it."""
    app.connect("autodoc-process-docstring", _prepare)
    app.connect("autodoc-process-signature", _name_defaults)
    return {"parallel_read_safe": True}


def _prepare(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = _equations(_fields(lines))


def _name_defaults(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Show a function that is a default by its name."""
    return re.sub(r"<function (\w+)>", r"\1", signature) if signature else signature, returns


def _fields(lines: list[str]) -> list[str]:
    """Turn three or more `name: text` lines in a row, with what is indented below them, into a definition list."""
    names = [bool(_FIELD.match(line)) for line in lines]
    if sum(names) < 3:
        return lines
    result: list[str] = []
    inside = False
    for line, is_field in zip(lines, names, strict=True):
        if is_field:
            found = _FIELD.match(line)
            assert found is not None
            result += ["", f"`{found[1]}`", f"    {found[2]}"]
            inside = True
        elif inside and line.startswith(" "):
            result.append(f"    {line.strip()}")
        else:
            inside = False
            result.append(line)
    return result


def _equations(lines: list[str]) -> list[str]:
    """Put `::` before blocks that stand indented after a blank line, unless they belong to a list."""
    result: list[str] = []
    for number, line in enumerate(lines):
        begins = line.startswith("    ") and number > 0 and not lines[number - 1].strip()
        before = next((text for text in reversed(lines[:number]) if text.strip()), "")
        if begins and before and not before.startswith((" ", "-", "*")):
            result += ["::", ""]
        result.append(line)
    return result
