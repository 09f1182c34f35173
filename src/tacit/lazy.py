"""Names of a package that are imported on first use: `tacit --version` does not need PyTorch."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as in `tacit`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


def lazily(
    package: str, names: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__` (PEP 562).

    names: the public names of the package, by the module that each comes from.
    modules: public submodules.
    """
    origin = {name: module for module, group in names.items() for name in group}

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        here = sys.modules[package]
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=here)
        value = getattr(import_module(origin[name]), name)
        setattr(here, name, value)  # found directly from then on
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *origin, *modules})

    return get, listed
