"""Turns a `Training` made in Python into the settings that its folder keeps, and these into a `Training` again."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.algorithms.averaged import name_of
from tacit.errors import InvalidInput, choose
from tacit.graphs.files import graph_of
from tacit.privacy import Cancelling, Discrete, Fast, NoPrivacy, Privacy, Secret, Seeded, Unit
from tacit.privacy.keys import Keys
from tacit.runs.building import make_absences
from tacit.runs.config_checks import need_tensorboard
from tacit.runs.kept_settings import AbsenceSettings
from tacit.runs.python_config import PARTS, AnyConfig, PythonConfig
from tacit.runs.rebuilding import rebuild
from tacit.runs.recorded_parts import describe, differences
from tacit.runs.user_code import UserCode
from tacit.training.settings import Training

_SOURCES: dict[type, str] = {Secret: "secret", Seeded: "seeded", Fast: "fast"}
_PRIVACY = ("epsilon", "noise_multiplier", "delta", "clip", "lot_size", "adjacency", "accountant")
_AS_THEY_ARE = (
    "any_order",
    "allow_drift",
    "same_start",
    "step_agents",
    "seed",
    "spare_queries",
    "private_diagnostics",
    "compile",
    "evaluate_every",
    "rounds",
    "gossip_rounds",
    "exchanges_per_query",
)


def maker(
    config: AnyConfig, path: Path, given: Mapping[str, Any] | None = None
) -> Callable[[Callable[[str], None]], Training]:
    """Return the function that makes the training of a run from the settings in its folder and objects that are given again."""
    if isinstance(config, PythonConfig):
        return lambda say: training_of(config, path, given or {}, say)
    if unused := {key: value for key, value in (given or {}).items() if key not in ("progress", "taps")}:
        raise InvalidInput(
            f"all settings of this run are in its config.toml: leave out {', '.join(unused)}, which must not be changed"
        )
    pinned = config.pinned()  # refuses code that was changed
    return lambda say: replace(pinned.prepare(say), taps=(given or {}).get("taps", ()))


def config_of(
    training: Training, names: Mapping[str, UserCode | str], *, checkpoint_every: int, tensorboard: bool
) -> PythonConfig:
    """Return what is kept of a training. `names` are those that were given instead of objects."""
    if tensorboard:
        need_tensorboard("tensorboard")
    parts = describe(training, names)
    privacy = training.privacy
    facts: dict[str, Any] = {key: getattr(training, key) for key in _AS_THEY_ARE}
    if isinstance(privacy, Privacy):
        facts |= {key: _plain(getattr(privacy, key)) for key in _PRIVACY} | _noise_settings(privacy.noise)
        facts["bands"] = privacy.bands
    try:
        return PythonConfig(
            **facts | {"lot_size": _plain(privacy.lot_size)},
            algorithm=parts["algorithm"].shown if "algorithm" in names else name_of(training.algorithm),
            dataset=training.data.dataset.name,
            agents=training.data.agents,
            graph=parts["graph"].shown if "graph" in parts else "none",
            mixing=training.mixing if isinstance(training.mixing, str) else parts["mixing"].shown,
            model=parts["model"].shown,
            loss=parts["loss"].shown,
            private=isinstance(privacy, Privacy),
            unit=None if training.unit is None else str(training.unit),
            source=_SOURCES.get(type(training.chosen_sources), type(training.chosen_sources).__qualname__),
            noise=_kind_of_noise(privacy),
            absences=[AbsenceSettings(**asdict(absence)) for absence in training.absences],
            sizes=None if training.sizes is None else [int(size) for size in training.sizes],
            lr=parts["lr"].shown,
            device=str(training.device),
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
            code={key: own.code for key, own in names.items() if isinstance(own, UserCode)},
            parts=parts,
        )
    except ValueError as error:
        raise InvalidInput(f"these settings cannot be kept: {error}") from error


def training_of(
    config: PythonConfig, path: Path, given: Mapping[str, Any], say: Callable[[str], None] = lambda _: None
) -> Training:
    """Return the training of a run from what its folder keeps and from objects that are given again; refuse any that differ."""
    aside = {key: given[key] for key in ("progress", "taps") if key in given}
    given = {key: value for key, value in given.items() if key not in aside}
    for key in given:
        if key in PythonConfig.model_fields and key not in PARTS:
            raise InvalidInput(f"{key} is kept with the run and cannot be changed; leave it out")
        choose("object", key, PARTS)
    say("loading data")
    training = training_with(config, rebuild(config, given, path) | aside)
    if changed := differences(config.parts, describe(training, {})):
        raise InvalidInput(
            f"this is not what the run began with. {'; '.join(changed)}. Give what it began with, or start a new run"
        )
    return training


def training_with(config: PythonConfig, objects: Mapping[str, Any]) -> Training:
    """Return the training of a run with these objects."""
    settings: dict[str, Any] = {"mixing": config.mixing, "sizes": config.sizes, "device": config.device}
    settings |= {key: getattr(config, key) for key in _AS_THEY_ARE} | {"absences": make_absences(config)}
    return Training(privacy=privacy_of(config), **settings | dict(objects))


def privacy_of(config: PythonConfig) -> Privacy | NoPrivacy:
    """Return the privacy settings of a run as the library takes them."""
    if not config.private:
        return NoPrivacy(lot_size=config.lot_size)
    settings = {key: value for key in _PRIVACY if (value := getattr(config, key)) is not None}
    unit = None if config.unit is None else Unit.of(config.unit)
    return Privacy(**settings, unit=unit, noise=_noise_of(config), bands=config.bands)


def _kind_of_noise(privacy: Privacy | NoPrivacy) -> Literal["local", "cancelling", "discrete"]:
    noise = privacy.noise if isinstance(privacy, Privacy) else None
    return "local" if noise is None else "discrete" if isinstance(noise, Discrete) else "cancelling"


def _noise_settings(noise: Cancelling | Discrete | None) -> dict[str, Any]:
    """Return what is kept of masks, or of rounding. Of a key graph, all pairs are kept, as the ledger keeps them."""
    if noise is None:
        return {}
    if isinstance(noise, Discrete):
        return {"rounding_bits": noise.bits, "rounding_room": noise.room}
    keys = noise.keys if isinstance(noise.keys, str) else [list(pair) for pair in Keys.of(noise.keys).all_pairs]
    ratio = noise.ratio if isinstance(noise.ratio, str) else float(noise.ratio)
    return {"curious": noise.curious, "keys": keys, "mask_ratio": ratio, "lost": noise.lost}


def _noise_of(config: PythonConfig) -> Cancelling | Discrete | None:
    if config.noise == "local":
        return None
    if config.noise == "discrete":
        if config.rounding_bits is None:
            raise InvalidInput("noise is discrete, but config.toml has no rounding_bits; it was changed")
        return Discrete(config.rounding_bits, config.rounding_room)
    if config.curious is None or config.keys is None or config.mask_ratio is None or config.lost is None:
        raise InvalidInput("noise is cancelling, but config.toml does not have all of its settings; it was changed")
    keys: Any = config.keys
    if not isinstance(keys, str):
        keys = graph_of(config.agents, [(low, high) for low, high in keys])
    return Cancelling(curious=config.curious, keys=keys, ratio=config.mask_ratio, lost=config.lost)


def _plain(value: Any) -> Any:
    """Return one number or several as Python's own; texts and nothing as they are."""
    if value is None or isinstance(value, str):
        return value
    return float(value) if np.ndim(value) == 0 else [float(each) for each in value]
