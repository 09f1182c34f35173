"""Commands made from frozen dataclasses, in which a field is an option with its type, default, help and bounds.

    @dataclass(frozen=True, kw_only=True)
    class Greet(Options):
        '''Say hello. This is the help of the command.'''

        name: Annotated[str, option("NAME", "Whom to greet.")] = "world"

        def run(self) -> None:
            print(f"hello {self.name}")

    command = command_of(Greet)

A module in a package of commands has such a `command`, or a function that typer takes, or a group of commands; its name
in a registry is all else that is needed.
"""

import inspect
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo

NOT_RECORDED = "not recorded"
"""Marks, in an annotation, an option that changes nothing about the result, such as the number of processes."""

Parameters = Mapping[str, tuple[Any, Any]]
"""Annotation and default by name."""


def option(metavar: str, help: str, *names: str, panel: str | None = None, **rest: Any) -> Any:
    """Return an option; an empty metavar is that of a flag."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **rest)


RunsFolder = Annotated[Path, option("FOLDER", "Folder of all runs, with their ledger.")]
DataFolder = Annotated[Path | None, option("FOLDER", "Where data sets are stored; default: TACIT_DATA, or a cache.")]
Plot = Annotated[Path | None, option("FILE", "Draw it: png, pdf or svg.")]
Json = Annotated[bool, option("", "Print one JSON document, and nothing else.", "--json")]
Quiet = Annotated[bool, option("", "Show no plan and no progress.", "--quiet", "-q")]
NamedRun = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run, or its name.")]


@dataclass(frozen=True, kw_only=True)
class Options(ABC):
    """The options of a command, and what it does with them."""

    @abstractmethod
    def run(self) -> None:
        """Do what the command is for."""

    def recorded(self) -> dict[str, Any]:
        """Return the options that decide the result and have a value, by name."""
        given = {
            name: getattr(self, name)
            for name, (annotation, _) in parameters_of(type(self)).items()
            if NOT_RECORDED not in annotation.__metadata__
        }
        return {name: value for name, value in given.items() if value is not None}

    def command_line(self, *words: str) -> str:
        """Return what to type for these options: `words`, and all options that differ from their defaults."""
        typed = list(words)
        for name, (annotation, default) in parameters_of(type(self)).items():
            value, info = getattr(self, name), annotation.__metadata__[0]
            if value is None or value == [] or value == default:
                continue
            own_name = info.default if isinstance(info.default, str) else None  # where typer keeps it in an annotation
            on, _, off = (own_name or f"--{name.replace('_', '-')}").partition("/")
            if isinstance(info, ArgumentInfo):
                typed.append(str(value))
            elif isinstance(value, bool):
                typed.append(on if value else off)
            else:
                for each in value if isinstance(value, list) else [value]:
                    typed += [on, str(each)]
        return shlex.join(typed)


def parameters_of(options: type[Options]) -> dict[str, tuple[Any, Any]]:
    """Return the options of a class; its own come before those that it inherits."""
    hints, own = get_type_hints(options, include_extras=True), vars(options).get("__annotations__", {})
    found = {
        each.name: (hints[each.name], inspect.Parameter.empty if each.default is MISSING else each.default)
        for each in fields(options)
    }
    return {name: found[name] for name in (*(name for name in own if name in found), *found)}


def command_of(options: type[Options]) -> Callable[..., None]:
    """Return the command whose options are the fields of a class, and whose help is its docstring."""

    def command(**values: Any) -> None:
        options(**values).run()

    return with_parameters(command, parameters_of(options), inspect.getdoc(options))


def with_parameters(command: Callable[..., None], parameters: Parameters, help: str | None) -> Callable[..., None]:
    """Give a command these parameters, all of them keywords, in the way that typer reads them."""
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in parameters.items()
        ]
    )
    command.__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
    command.__doc__ = help
    return command


def add_commands(app: typer.Typer, package: str, names: Iterable[str]) -> None:
    """Add commands to a group by their names, each from the module of that name in a package.

    A module may also set `HIDDEN`, to be left out of the list of commands, and `COMMAND_CLASS`, for a parser of its own.
    """
    for name in names:
        module = import_module(f"{package}.{name.replace('-', '_')}")
        if isinstance(module.command, typer.Typer):
            app.add_typer(module.command, name=name)
        else:
            own_class, hidden = getattr(module, "COMMAND_CLASS", None), getattr(module, "HIDDEN", False)
            app.command(name, cls=own_class, hidden=hidden)(module.command)
