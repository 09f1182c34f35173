"""The options of `tacit train`: one for every setting of a run, in the panels of its help.

A new setting of `RunConfig` needs a place in `PANELS`. A setting that is on or off has two options: help shows the one that
changes the default; the other is hidden, and reverses a setting in a file.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Optional, get_args, get_type_hints

import typer

from tacit.cli.terminal.command import with_parameters
from tacit.errors import InvalidInput
from tacit.runs.config import RunConfig
from tacit.runs.config_checks import PER_AGENT

PANELS = {
    "Data and graph": ("dataset", "data_dir", "agents", "split", "graph", "mixing", "allow_drift"),
    "Model": ("model", "loss"),
    "Privacy": (
        "epsilon",
        "noise_multiplier",
        "private",
        "delta",
        "clip",
        "lot_size",
        "adjacency",
        "accountant",
        "unit",
        "source",
        "spare_queries",
        "private_diagnostics",
    ),
    "Noise that cancels": ("noise", "curious", "keys", "mask_ratio", "lost"),
    "Algorithm": (
        "algorithm",
        "rounds",
        "gossip_rounds",
        "exchanges_per_query",
        "lr",
        "lr_final",
        "step",
        "momentum",
        "averaging",
        "rho",
        "rho_growth",
        "inner_steps",
        "carry",
    ),
    "Run": ("seed", "device", "compile", "step_agents", "evaluate_every", "checkpoint_every", "tensorboard"),
}
RUN_PANEL = "Run"
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
}

_HELP_OF_OFF = {"private": "neither clip nor add noise: nothing is promised"}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every setting of a run, instead of its `**settings`."""
    own = inspect.signature(command).parameters
    declared = {name: (own[name].annotation, own[name].default) for name in own if name != "settings"}
    return with_parameters(command, settings_options() | declared, command.__doc__)


def settings_options() -> dict[str, tuple[Any, Any]]:
    """Return an option for every setting, and the hidden counterpart of each flag."""
    return {name: option for panel, keys in PANELS.items() for key in keys for name, option in _options(key, panel)}


def given_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were given as options, from the values that typer passes."""
    keys = [key for panel in PANELS.values() for key in panel]
    given = {key: _read(key, values[key]) for key in keys if values[key] is not None}
    for key in keys:
        if values.get(f"no_{key}"):
            if key in given:
                name = key.replace("_", "-")
                raise InvalidInput(f"--{name} and --no-{name} contradict each other; leave one of them out")
            given[key] = False
    return given


def _read(key: str, value: Any) -> Any:
    """Return the value of an option; one that may differ between agents is a number, or several with commas."""
    if key == "compile":
        return COMPILE.get(value.lower(), value)
    if key == "mask_ratio":
        return _read_ratio(value)
    if key not in PER_AGENT:
        return value
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError:
        name = key.replace("_", "-")
        raise InvalidInput(
            f"--{name} is {value!r}; it must be a number, or one for each agent with commas, as in 1,2,4"
        ) from None
    return numbers if "," in value else numbers[0]


def _read_ratio(value: str) -> Any:
    """Return the size of masks: a number, or a word that the settings take or refuse."""
    try:
        return float(value)
    except ValueError:
        return value


def _options(key: str, panel: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    field, kind = RunConfig.model_fields[key], get_type_hints(RunConfig)[key]
    look: dict[str, Any] = {"rich_help_panel": panel, "show_default": False}
    if kind is bool:
        name = key.replace("_", "-")
        on = typer.Option(f"--{name}", help=field.description, hidden=field.default, metavar=FLAG, **look)
        off = typer.Option(f"--no-{name}", help=_HELP_OF_OFF.get(key), hidden=not field.default, metavar=FLAG, **look)
        yield key, (Annotated[Optional[bool], on], None)  # noqa: UP045
        yield f"no_{key}", (Annotated[Optional[bool], off], None)  # noqa: UP045
        return
    if key in PER_AGENT or key in ("compile", "mask_ratio"):
        kind = str  # one number or several with commas; a word that the library has as a bool; a number or a word
    default = "" if field.default is None else f" [dim]\\[{_shown(field.default)}][/]"
    placeholder = _PLACEHOLDER_OF.get(key) or _placeholder(kind)
    option = typer.Option(help=f"{field.description}{default}", metavar=placeholder, **look)
    yield key, (Annotated[Optional[kind], option], None)  # noqa: UP045


def _placeholder(kind: Any) -> str:
    """Return the placeholder in help for a value of a type, or of one that may also be missing."""
    kinds = (kind, *get_args(kind))
    return next((word for each, word in _PLACEHOLDERS.items() if each in kinds), "NAME")


def _shown(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)
