"""What a function, class or object is, as a text that can be compared: its code as Python compiled it, and its settings.

Comments, line numbers and places in memory make no difference. What a function refers to is followed where it is a constant, or a function or
class that is not a library's. Of anything else (lists, tensors, objects of any kind) only the type is included: a model may refer to a data
set, and no fact about private records may come into a run's settings. Models, losses, rules and preparations are public, and so
are their settings.
"""

import dis
import functools
import hashlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

_LIBRARIES = {"torch", "tacit", "numpy", "scipy", "networkx", "sklearn", *sys.stdlib_module_names} - {"__main__"}
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), torch.dtype, torch.Size)
_LONGEST = 32
_ASIDE = {
    "__module__",
    "__doc__",
    "__dict__",
    "__weakref__",
    "__qualname__",
    "__firstlineno__",
    "__static_attributes__",
}


def code_sha256(*things: Any) -> str:
    """Return the hash of what some functions, classes or objects are, with the version of Python that compiled them."""
    digest, seen = hashlib.sha256(), set[int]()
    for thing in things:
        for word in _words(thing, seen):
            digest.update(word.encode() + b"\0")
    return f"python {sys.version_info.major}.{sys.version_info.minor}: {digest.hexdigest()}"


def tensor_sha256(*tensors: Tensor) -> str:
    """Return the hash of types, shapes and values. Only for what is public."""
    digest = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def written(value: Any) -> str:
    """Write settings down, without places in memory: plain values, and objects with plain fields."""
    if isinstance(value, int | float | str | Enum | None):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    if inspect.isclass(value) or isinstance(value, FunctionType | BuiltinFunctionType):
        return str(value.__qualname__)
    settings = _settings(value)
    return f"{type(value).__qualname__}({', '.join(f'{name}={written(each)}' for name, each in settings.items())})"


def is_library(thing: Any) -> bool:
    """Return whether a function or class comes with Python or a library that Tacit depends on."""
    return str(getattr(thing, "__module__", None) or "builtins").partition(".")[0] in _LIBRARIES


def _settings(value: Any) -> dict[str, Any]:
    """Return the fields of an object whose values say something."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    own = getattr(value, "__dict__", {})
    return {name: each for name, each in sorted(own.items()) if isinstance(each, (*_PLAIN, list, tuple))}


def _words(thing: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(thing, _PLAIN):
        yield f"{type(thing).__name__} {thing!r}"
    elif isinstance(thing, list | tuple | set | frozenset | dict) and len(thing) > _LONGEST:
        yield f"a long {type(thing).__name__}"  # a table, not a setting
    elif isinstance(thing, list | tuple):
        yield f"{len(thing)} in order"
        for each in thing:
            yield from _words(each, seen)
    elif isinstance(thing, set | frozenset):
        yield f"{len(thing)} in any order"
        yield from sorted(" ".join(_words(each, seen)) for each in thing)
    elif isinstance(thing, dict):
        yield f"{len(thing)} by name"
        for key in sorted(thing, key=repr):
            yield from _words(key, seen)
            yield from _words(thing[key], seen)
    elif isinstance(thing, CodeType):
        yield from _of_code(thing, seen)
    elif isinstance(thing, functools.partial):
        yield from _words(thing.func, seen)
        for value in (*thing.args, *sorted(thing.keywords), *(thing.keywords[name] for name in sorted(thing.keywords))):
            yield from _referred(value, seen)
    elif isinstance(thing, MethodType):
        yield from _words(thing.__func__, seen)
        yield from _referred(thing.__self__, seen)
    elif isinstance(thing, staticmethod | classmethod):
        yield from _words(thing.__func__, seen)
    elif isinstance(thing, functools.cached_property):
        yield from _words(thing.func, seen)
    elif isinstance(thing, functools._lru_cache_wrapper):
        yield from _words(thing.__wrapped__, seen)
    elif isinstance(thing, property):
        yield from _words((thing.fget, thing.fset), seen)
    elif inspect.isclass(thing) or inspect.isroutine(thing):
        yield from _of_definition(thing, seen)
    else:
        yield from _of_object(thing, seen)


def _of_definition(thing: Any, seen: set[int]) -> Iterator[str]:
    if is_library(thing) or not (inspect.isclass(thing) or isinstance(thing, FunctionType)):
        yield f"{getattr(thing, '__module__', None)}:{getattr(thing, '__qualname__', None)}"
    elif id(thing) in seen:
        yield f"again {thing.__qualname__}"
    elif inspect.isclass(thing):
        seen.add(id(thing))
        yield f"class {thing.__name__}"
        yield from _words(thing.__bases__, seen)
        for name, value in sorted(vars(thing).items()):
            if name not in _ASIDE and not name.startswith("__annot"):
                yield name
                yield from _words(value, seen)
    else:
        seen.add(id(thing))
        yield "function"
        yield from _words((thing.__code__, thing.__defaults__, thing.__kwdefaults__), seen)
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        for name, cell in cells:
            yield name
            try:
                yield from _referred(cell.cell_contents, seen)
            except ValueError:  # a name that was never bound
                yield "unbound"
        for name in sorted(_names(thing.__code__)):
            if name in thing.__globals__:
                yield name
                yield from _referred(thing.__globals__[name], seen)


def _referred(value: Any, seen: set[int]) -> Iterator[str]:
    """Follow what a function refers to: constants, functions and classes. Of anything else only the type is included."""
    constants = isinstance(value, tuple) and len(value) <= _LONGEST and all(isinstance(one, _PLAIN) for one in value)
    if isinstance(value, _PLAIN) or constants or inspect.isclass(value) or inspect.isroutine(value):
        yield from _words(value, seen)
    else:
        yield f"some {type(value).__qualname__}"


def _of_code(code: CodeType, seen: set[int]) -> Iterator[str]:
    yield f"code {code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}"
    yield code.co_code.hex()
    for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        yield " ".join(names)
    for constant in code.co_consts:
        yield from _constant(constant, seen)


def _constant(value: Any, seen: set[int]) -> Iterator[str]:
    """Describe a constant in code, however long it is."""
    if isinstance(value, tuple | frozenset):
        each = [" ".join(_constant(one, seen)) for one in value]
        yield f"{len(value)} {type(value).__name__}"
        yield from each if isinstance(value, tuple) else sorted(each)
    else:
        yield from _words(value, seen)


def _of_object(thing: Any, seen: set[int]) -> Iterator[str]:
    """An object: its class, and its fields where these are plain."""
    kind = type(thing)
    yield f"object {kind.__qualname__}"
    if id(thing) in seen:
        return
    seen.add(id(thing))
    yield from _words(kind, seen)
    if isinstance(thing, torch.nn.Module):
        for layer in dict.fromkeys(type(each) for each in thing.modules()):
            yield from _words(layer, seen)
        yield repr(thing)
    else:
        for name, value in _settings(thing).items():
            yield name
            yield from _words(value, seen)


def _names(code: CodeType) -> set[str]:
    """Return the global names that code, and code within it, refers to."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    own = (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return set(own).union(*inner)
