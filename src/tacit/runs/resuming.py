"""How a run that stopped is resumed, in a line that can be pasted."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from tacit.errors import RuleError
from tacit.runs.python_config import PARTS, AnyConfig, PythonConfig

LOADED = ("algorithm", "data", "loss", "model")
"""What `tacit.load` takes of the objects of a run."""


def call(function: str, path: Path, keys: Sequence[str]) -> str:
    """Return the line of Python that resumes or loads a run to which these objects must be given again."""
    return f"{function}({', '.join([repr(str(path)), *(f'{key}={key}' for key in keys)])})"


def to_give(config: AnyConfig) -> list[str]:
    """Return which objects of a run no file holds, so that they must be given again."""
    if not isinstance(config, PythonConfig):
        return []
    return [key for key in PARTS if key in config.parts and config.parts[key].made is None]


def described(config: PythonConfig, keys: Sequence[str]) -> str:
    """Say what such objects were."""
    return " and ".join(f"{key} ({config.parts[key].shown})" for key in keys)


def how_to_resume(path: Path, config: AnyConfig) -> str:
    """Return the line of Python that resumes a run, and say what its names stand for."""
    keys = to_give(config)
    line = call("tacit.resume", path, keys)
    if not keys:
        return line
    assert isinstance(config, PythonConfig)
    return f"{line}, with {described(config, keys)} as tacit.train was given {'it' if len(keys) == 1 else 'them'}"


def how_to_load(path: Path, config: AnyConfig) -> str:
    """Return the line of Python that loads a finished run with all that it was made of."""
    return call("tacit.load", path, [key for key in to_give(config) if key in LOADED])


def is_kept(path: Path, config: AnyConfig) -> str:
    """Say that a run is on disk, and how to resume it."""
    return f"The run is kept in {path}; resume it with {how_to_resume(path, config)}"


def after_failure(error: BaseException, path: Path, config: AnyConfig) -> str:
    """Say what becomes of a run that an error ended."""
    if isinstance(error, RuleError):
        abandon = f"tacit ledger abandon {shlex.quote(path.name)} --runs {shlex.quote(str(path.parent))} --reason WHY"
        return f"The queries of the run stay charged. A rule that was changed needs a new run; `{abandon}` gives this one up"
    return is_kept(path, config)
