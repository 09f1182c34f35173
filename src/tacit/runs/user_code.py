"""Functions and objects of a user's own, by name: `package.module:name`, or `file.py:name`.

Finding what a name stands for runs the user's file. So a name is followed only when a run is started, resumed, loaded or checked, or
if an auditor asks for it, and never when files are listed, reported or verified. Each is kept with the hash of the file that defines it.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.errors import InvalidInput
from tacit.io.tracebacks import failure

_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_OWN = re.compile(rf"(?P<place>.+\.py|{_NAME}):(?P<name>{_NAME})")
_files: dict[tuple[Path, str], ModuleType] = {}


@dataclass(frozen=True, kw_only=True)
class UserCode:
    """What a name stands for."""

    text: str
    """The name, as it was given."""
    value: Any
    defined_in: str
    """Where it is defined: the same name, or another one where a file imports it from elsewhere."""
    sha256: str
    """Of the file that defines it."""

    @property
    def code(self) -> dict[str, str]:
        """What a run's settings keep of it."""
        return {"defined_in": self.defined_in, "sha256": self.sha256}


def is_user_code(text: str) -> bool:
    """Return whether a text has the form of a name of the user's own."""
    return _OWN.fullmatch(text.strip()) is not None


def refuse_file_alone(text: str, kind: str | None = None) -> None:
    """Refuse a Python file without the name of what to take from it; the error begins with what it is for, if that is given."""
    file = text.strip().removesuffix(":")
    if file.endswith(".py"):
        begin = "" if kind is None else f"{kind} is {text!r}; "
        raise InvalidInput(f"{begin}it must have the name of what to take from that file: {file}:NAME")


def last_part(text: str) -> str:
    """Return the name without the file or module that it is in; any other text as it is."""
    return text.strip().rpartition(":")[2] if is_user_code(text) else text


def find(kind: str, text: str, kept: Mapping[str, str] | None = None) -> UserCode:
    """Return what a name stands for; `kind` is what it is for, such as `model`, and begins every error.

    kept: what a run keeps of the same name. A file that was changed since then is refused, before it is run where that is
    possible.
    """
    text = text.strip()
    found = _OWN.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{kind} is {text!r}; name your own as package.module:name or file.py:name")
    place, name, about = found["place"], found["name"], f"{kind} {text}"
    if place.endswith(".py"):
        module, place = _from_file(about, Path(place), kept, text), Path(place).name
    else:
        module = _from_package(about, place, kept, text)
    value = _attribute(about, module, place, name)
    origin, file = _defined_in(value, module, text)
    own = UserCode(text=text, value=value, defined_in=origin, sha256=_sha256(file))
    if kept is not None and own.code != dict(kept):
        raise InvalidInput(changed(about, file))
    return own


def changed(about: str, file: Path | None) -> str:
    """Say that a source is not the one that a run began with."""
    which = "what defines it" if file is None else str(file)
    return f"{about}: {which} was changed since the run began; put it back, or start a new run"


def _from_file(about: str, path: Path, kept: Mapping[str, str] | None, text: str) -> ModuleType:
    """Run a file, once for each of its contents, as a module that nothing else imports."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else f"does not exist (looked for in {Path.cwd()})"
        raise InvalidInput(f"{about}: the file {path} {what}")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{about}: {path} cannot be read: {error.strerror}") from error
    digest, full = hashlib.sha256(source).hexdigest(), path.resolve()
    if kept is not None and kept.get("defined_in") == text and kept.get("sha256") != digest:
        raise InvalidInput(changed(about, path))
    if (full, digest) in _files:
        return _files[full, digest]
    _importable(full.parent)
    name = f"_{full.stem}_{hashlib.sha256(f'{full} {digest}'.encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(full)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, str(full), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InvalidInput(f"{about}: running {path} failed: {failure(error)}") from error
    _files[full, digest] = module
    return module


def _from_package(about: str, place: str, kept: Mapping[str, str] | None, text: str) -> ModuleType:
    _importable(Path.cwd())
    try:
        found = find_spec(place)
        if found is None:
            raise ModuleNotFoundError(f"there is no module {place!r}", name=place)
        if kept is not None and kept.get("defined_in") == text and found.origin is not None:
            file = Path(found.origin)
            if kept.get("sha256") != _sha256(file):
                raise InvalidInput(changed(about, file))
        return import_module(place)
    except InvalidInput:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            near = f"; for the file {place}.py write {place}.py:…" if Path(f"{place}.py").is_file() else ""
            raise InvalidInput(
                f"{about}: there is no module {error.name!r}, neither installed nor in {Path.cwd()}{near}"
            ) from error
        raise InvalidInput(f"{about}: importing {place} failed: {failure(error)}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"{about}: importing {place} failed: {failure(error)}") from error


def _attribute(about: str, module: ModuleType, place: str, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            known = [each for each in vars(value) if not each.startswith("_")] if hasattr(value, "__dict__") else []
            near = get_close_matches(part, known, n=1, cutoff=0.6)
            raise InvalidInput(f"{about}: {place} has no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        value = getattr(value, part)
    return value


def _defined_in(value: Any, module: ModuleType, text: str) -> tuple[str, Path | None]:
    """Return the name and the file of a definition; for anything but a function or class, the name and file that were given."""
    if inspect.isclass(value) or inspect.isroutine(value):
        origin = sys.modules.get(str(getattr(value, "__module__", None)))
        if origin is not None and origin is not module:
            return f"{origin.__name__}:{value.__qualname__}", _file_of(origin)
    return text, _file_of(module)


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file)


def _sha256(file: Path | None) -> str:
    try:
        return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _importable(folder: Path) -> None:
    """Let what lies in a folder be imported, after everything else."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
