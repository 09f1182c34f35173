"""Lists the update rules of the registry in the Python reference while the site is built: a new rule needs no entry of its own.

`api.md` has one line, `{{ rules }}`, in whose place this puts each rule's class and the equation at the top of its file.
"""

from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

import tacit
from tacit.registry import RULES

PLACE = "{{ rules }}"


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx about it."""
    app.connect("source-read", _fill_in)
    return {"parallel_read_safe": True}


def _fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = source[0].replace(PLACE, "\n".join(_entries()))


def _entries() -> Iterator[str]:
    for line in RULES.lines.values():
        module, _, name = line.place.partition(":")
        package = "tacit" if name in tacit.__all__ else "tacit.algorithms"
        yield from (f".. autoclass:: {package}.{name}", "   :no-members:", "")
        yield from (f".. automodule:: {module}", "   :no-members:", "")
