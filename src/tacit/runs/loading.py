"""A finished run, read from its folder: `tacit.load`."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.data import Schema
from tacit.errors import InvalidInput, TacitError, choose
from tacit.graphs.files import graph_of
from tacit.models import FlatModel
from tacit.privacy import Cancelling, DurableLedger, Plan, Privacy, Unit
from tacit.privacy.noise_kinds import Masks
from tacit.runs.building import loss_function, model_for
from tacit.runs.config import RunConfig
from tacit.runs.describe import snapshot_of
from tacit.runs.event_types import PlanEvent
from tacit.runs.folder import RunFolder
from tacit.runs.models import load_models
from tacit.runs.python_config import AnyConfig, Part, PythonConfig
from tacit.runs.rebuilding import rebuild
from tacit.runs.recorded_parts import describe_data, describe_function, describe_model, describe_rule, differences
from tacit.runs.resuming import LOADED, how_to_load, how_to_resume
from tacit.runs.run_accounts import RunAccounts
from tacit.runs.run_names import as_path, find_run
from tacit.training.preparation import make_module
from tacit.training.results import Absent, Result
from tacit.training.settings import check_kind


def load(run: str | os.PathLike[str], *, runs: str | os.PathLike[str] = "runs", **objects: Any) -> Result:
    """Return the result of a finished run: models, history, and guarantees that are derived from the ledger beside it.

    `module` needs the model, and `evaluate` the model and the data. They are made again by name if that is possible, or given
    as for `tacit.resume`, and compared with what the folder keeps. Without them everything else is available. This
    runs the code that the run's settings name.

    run: the run's folder, or its name.
    runs: the folder of all runs, where a name is given.
    """
    folder = RunFolder.find(find_run(as_path("run", run), as_path("runs", runs)))
    summary, story = folder.summary(), folder.events()
    plan = story.plan
    if summary is None or plan is None:
        resume = how_to_resume(folder.path, folder.config())
        raise InvalidInput(f"run {folder.name!r} is not finished, so there is nothing to load; resume it with {resume}")
    theta = load_models(folder.models_file, str(summary.get("models_sha256")))
    record = RunAccounts(folder.ledger_file).of(folder.name, story)
    if record.account is None:
        raise InvalidInput(f"the ε of run {folder.name!r} cannot be derived: {record.problem}")
    config = folder.config()
    if isinstance(config, PythonConfig):
        parts = _of_python(config, folder.path, objects)
    elif objects:
        raise InvalidInput(
            f"all settings of run {folder.name!r} are in its config.toml; leave out {', '.join(objects)}"
        )
    else:
        parts = _of_command_line(config)
    _check_fit(folder, parts["model"], theta)
    return Result(
        **parts,
        run=folder.name,
        theta=theta,
        schema=Schema.of(plan.schema),
        sizes=plan.sizes,
        plan=_plan(plan, config),
        ledger=DurableLedger(folder.ledger_file, read_only=True),
        history=[snapshot_of(event) for event in story.snapshots],
        release=plan.release and record.release,
        seconds=float(summary["seconds"]),
        evaluation_seconds=float(summary["evaluation_seconds"]),
        private_diagnostics=None,
        owners=plan.owners,
        folder=folder.path,
        loaded_by=how_to_load(folder.path, config),
    )


def _check_fit(folder: RunFolder, model: Any, theta: Tensor) -> None:
    if isinstance(model, FlatModel) and model.size != theta.shape[1]:
        raise InvalidInput(
            f"the model has {model.size:,} parameters and those of run {folder.name!r} have {theta.shape[1]:,}; it was changed"
        )


def _of_command_line(config: RunConfig) -> dict[str, Any]:
    """Return rule, model and data of a run that `tacit train` started."""
    data = _tried(config.load_data)
    model = _tried(lambda: model_for(config, data.dataset))
    return {
        "algorithm": _tried(config.rule, config.algorithm),
        "data": data,
        "model": _tried(lambda: FlatModel(make_module(model, config.seed), loss_function(config))),
    }


def _of_python(config: PythonConfig, path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return rule, model and data of a run from Python; what is given and differs is an error."""
    for key in given:
        choose("object", key, LOADED)
    described: dict[str, Callable[[Any], Part]] = {
        "data": lambda data: describe_data(data, config.sizes, None if config.unit is None else Unit.of(config.unit)),
        "algorithm": describe_rule,
        "loss": describe_function,
        "model": lambda model: describe_model(model, config.seed),
    }
    found: dict[str, Any] = {}

    def have(key: str) -> Any:
        value = rebuild(config, given, path, had=found, only=(key,), by="tacit.load")[key]
        check_kind(key, value)
        if changed := differences({key: config.parts[key]}, {key: described[key](value)}):
            raise InvalidInput(f"this is not what the run was trained with. {'; '.join(changed)}")
        return value

    for key in described:
        found[key] = have(key) if key in given else _tried(partial(have, key), config.parts[key].shown)
    model = found["model"]
    flat = _tried(lambda: FlatModel(make_module(model, config.seed), found["loss"]))
    return {
        "algorithm": found["algorithm"],
        "data": found["data"],
        "model": model if isinstance(model, Absent) else flat,
    }


def _tried(make: Callable[[], Any], shown: str = "absent") -> Any:
    """Return what can be made, or an object that says why not when it is used."""
    try:
        return make()
    except TacitError as error:
        return Absent(str(error), shown)


def _plan(plan: PlanEvent, config: AnyConfig) -> Plan:
    """Return the mechanism of every agent, as the events state it."""
    privacy, masks = None, None if plan.masks is None else Masks.of_json(plan.masks)
    if plan.private:
        assert plan.delta is not None
        assert plan.adjacency is not None
        assert plan.accountant is not None
        privacy = Privacy(
            epsilon=plan.epsilon,
            noise_multiplier=config.noise_multiplier if plan.epsilon is None else None,
            delta=plan.delta,
            clip=plan.clips,
            lot_size=plan.lot_sizes,
            adjacency=plan.adjacency,
            accountant=plan.accountant,
            unit=None if plan.unit is None else Unit.of(plan.unit),
            noise=plan.discrete if masks is None else _cancelling(masks, plan, config),
            bands=max(1, len(plan.bands)),
        )
    return Plan(
        sample_rates=plan.sample_rates,
        lot_sizes=plan.lot_sizes,
        clips=plan.clips,
        noise_multipliers=plan.noise_multipliers,
        queries=plan.queries,
        privacy=privacy,
        masks=masks,
        bands=plan.bands,
        rounding=plan.discrete,
    )


def _cancelling(masks: Masks, plan: PlanEvent, config: AnyConfig) -> Cancelling:
    keys = masks.keys
    return Cancelling(
        curious=plan.planned_observer.curious or 0,
        keys="complete" if keys.pairs is None else graph_of(keys.agents, keys.pairs),
        ratio="auto" if config.mask_ratio is None else config.mask_ratio,
        lost=masks.lost,
    )
