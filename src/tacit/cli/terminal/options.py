"""Options that are settings of a run: all of them for `tacit train`, in the panels of its help, and some for other commands.

A new setting of `RunConfig` gets its option automatically. A setting that is on or off has two options: help shows the one that
changes the default; the other is hidden, and reverses a setting in a file.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from tacit.cli.terminal.command import with_parameters
from tacit.errors import InvalidInput
from tacit.runs.config import RunConfig
from tacit.runs.config_checks import PER_AGENT, as_option

PRIVACY, MASKS, RUN, PLAIN = "Privacy", "Noise that cancels", "Run", "Options"
"""Panels of help; the last is that of options without one."""
_BEGINS = {
    "dataset": "Data and graph",
    "model": "Model",
    "private": PRIVACY,
    "noise": MASKS,
    "rounding_bits": "Noise on a grid",
    "rounds": "Algorithm",
    "seed": RUN,
}
"""The first setting of each panel. The others follow in the order of `RunConfig`, whose very first is the algorithm."""
_NOT_OPTIONS = ("absences", "code")


def _panels() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {panel: [] for panel in _BEGINS.values()}
    panel = "Algorithm"
    for key in RunConfig.model_fields:
        panel = _BEGINS.get(key, panel)
        if key not in _NOT_OPTIONS:
            found[panel].append(key)
    return found


PANELS = _panels()
COMPILE: dict[str, Any] = {"auto": "auto", "true": True, "yes": True, "false": False, "no": False}
FLAG = ""  # the placeholder of an option that takes no value
_PLACEHOLDERS = {int: "N", float: "NUMBER", str: "NAME"}
_PLACEHOLDER_OF = {
    "data_dir": "FOLDER",
    "split": "HOW",
    "graph": "KIND",
    "epsilon": "ε",
    "noise_multiplier": "σ",
    "delta": "δ",
    "clip": "C",
    "lot_size": "RECORDS",
    "evaluate_every": "ROUNDS",
    "checkpoint_every": "ROUNDS",
    "compile": "WHEN",
    "curious": "K",
    "keys": "KIND",
    "mask_ratio": "RATIO",
    "bands": "N",
    "rounding_bits": "N",
}

_HELP_OF_OFF = {"private": "neither clip nor add noise, which gives no guarantee"}


def with_settings(
    panels: Mapping[str, Iterable[str]] = PANELS, *, own: str | None = None, **help: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each of these settings of a run, instead of its `**settings`.

    own: the panel of the command's own options that name none. `help` replaces what a setting's help says.
    """

    def give(command: Callable[..., None]) -> Callable[..., None]:
        declared = {name: each for name, each in inspect.signature(command).parameters.items() if name != "settings"}
        settings = {
            name: option
            for panel, keys in panels.items()
            for key in keys
            for name, option in _options(key, panel, help.get(key))
        }
        rest = {name: (_alike(each.annotation, own), each.default) for name, each in declared.items()}
        return with_parameters(command, settings | rest, command.__doc__)

    return give


def _alike(annotation: Any, panel: str | None) -> Any:
    """Return an option whose help is written like that of settings, without a capital letter and a full stop."""
    kind, info = annotation.__origin__, copy(annotation.__metadata__[0])
    if isinstance(info, ArgumentInfo):
        return annotation
    info.help = info.help[:1].lower() + info.help[1:].rstrip(".")
    info.rich_help_panel = info.rich_help_panel or panel
    return Annotated[kind, info]


def given_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were given as options, from the values that typer passes."""
    given = {key: _read(key, values[key]) for key in RunConfig.model_fields if values.get(key) is not None}
    for key in RunConfig.model_fields:
        if values.get(f"no_{key}"):
            if key in given:
                raise InvalidInput(
                    f"{as_option(key)} and {as_option(f'no_{key}')} contradict each other; leave one out"
                )
            given[key] = False
    return given


def _read(key: str, value: Any) -> Any:
    """Return the value of an option; one that may differ between agents is a number, or several with commas."""
    if key == "compile":
        return COMPILE.get(value.lower(), value)
    if key == "bands":
        return int(value) if value.isdecimal() and len(value) <= 9 else value
    if key not in (*PER_AGENT, "mask_ratio"):
        return value
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError:
        if key == "mask_ratio":  # a word that the settings take or refuse
            return value
        raise InvalidInput(
            f"{as_option(key)} is {value!r}; it must be a number, or one for each agent with commas, as in 1,2,4"
        ) from None
    return numbers if "," in value else numbers[0]


def _options(key: str, panel: str, help: str | None = None) -> Iterator[tuple[str, tuple[Any, Any]]]:
    field, kind = RunConfig.model_fields[key], get_type_hints(RunConfig)[key]
    words = help or field.description
    look: dict[str, Any] = {"rich_help_panel": panel, "show_default": False}
    if kind is bool:
        on = typer.Option(as_option(key), help=words, hidden=field.default, metavar=FLAG, **look)
        off = typer.Option(
            as_option(f"no_{key}"), help=_HELP_OF_OFF.get(key), hidden=not field.default, metavar=FLAG, **look
        )
        yield key, (Annotated[bool | None, on], None)
        yield f"no_{key}", (Annotated[bool | None, off], None)
        return
    if key in PER_AGENT or key in ("compile", "mask_ratio", "bands"):
        kind = str  # one number or several with commas; a word that the library has as a bool; a number or a word
    default = "" if help or field.default is None else f" [dim]\\[{_shown(field.default)}][/]"
    placeholder = _PLACEHOLDER_OF.get(key) or _placeholder(kind)
    option = typer.Option(help=f"{words}{default}", metavar=placeholder, **look)
    yield key, (Annotated[kind | None, option], None)


def _placeholder(kind: Any) -> str:
    """Return the placeholder in help for a value of a type, or of one that may also be missing."""
    kinds = (kind, *get_args(kind))
    return next((word for each, word in _PLACEHOLDERS.items() if each in kinds), "NAME")


def _shown(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)
