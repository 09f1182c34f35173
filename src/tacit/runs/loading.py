"""A finished run, read from its folder: `tacit.load`."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.data import AgentData, Schema
from tacit.errors import InvalidInput, TacitError, choose
from tacit.graphs.files import graph_of
from tacit.models import FlatModel
from tacit.privacy import DurableLedger, Plan, Privacy, Unit
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.votes import Ballot
from tacit.runs.building import data_of_site, loss_function, make_privacy, model_for
from tacit.runs.config import RunConfig
from tacit.runs.describe import snapshot_of
from tacit.runs.event_types import PlanEvent
from tacit.runs.folder import RunFolder
from tacit.runs.models import load_models
from tacit.runs.python_config import AnyConfig, Part, PythonConfig
from tacit.runs.python_training import privacy_of
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
        parts = _of_command_line(config, plan)
    if plan.ballot is not None and isinstance(parts["data"], AgentData):
        parts["data"] = _tried(partial(_without_pool, parts["data"], plan.ballot))
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


def _of_command_line(config: RunConfig, plan: PlanEvent) -> dict[str, Any]:
    """Return rule, model and data of a run that `tacit train` started."""
    data = _tried(lambda: config.load_data() if plan.site is None else _data_of_site(config, plan))
    model = _tried(lambda: model_for(config, data.dataset))
    return {
        "algorithm": _tried(config.rule, config.algorithm),
        "data": data,
        "model": _tried(lambda: FlatModel(make_module(model, config.seed), loss_function(config))),
    }


def _data_of_site(config: RunConfig, plan: PlanEvent) -> AgentData:
    """Return the records of the site whose view of a run this is, under the schema that was agreed on."""
    assert plan.site is not None
    name = plan.site.members[plan.site.agent]
    if plan.owners == (name,):
        data = data_of_site(config, name)
    else:  # it has a part of a data set that is divided among all members
        divided = config.load_data()
        if plan.owners[0] not in divided.owners:
            raise InvalidInput(f"the records of {config.dataset} are not divided as when {name!r} had its part of them")
        data = divided.only([divided.owners.index(plan.owners[0])])
    return replace(data, dataset=replace(data.dataset, schema=Schema.of(plan.schema)))


def _without_pool(data: AgentData, ballot: Ballot) -> AgentData:
    """Return data with the public records that teachers were asked about set aside, as they were for the run."""
    return replace(data, dataset=data.dataset.with_pool(ballot.records))


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
    masks = None if plan.masks is None else Masks.of_json(plan.masks)
    return Plan(
        sample_rates=plan.sample_rates,
        lot_sizes=plan.lot_sizes,
        clips=plan.clips if plan.private else (math.inf,) * plan.agents,  # JSON has no word for that
        noise_multipliers=plan.noise_multipliers,
        queries=plan.queries,
        privacy=_privacy(config, masks),
        masks=masks,
        numbers=None if plan.site is None else (plan.site.agent,),
        bands=plan.bands,
        rounding=plan.discrete,
        ballot=plan.ballot,
    )


def _privacy(config: AnyConfig, masks: Masks | None) -> Privacy | None:
    """Return the privacy settings of a run; without masks, if these were wanted and not worth while."""
    if masks is None and config.noise == "cancelling":
        config = config.model_copy(update={"noise": "local"})
    if isinstance(config, PythonConfig):
        found = privacy_of(config)
    else:
        keys = None
        if masks is not None and config.keys.strip() not in ("complete", "graph"):
            keys = graph_of(masks.keys.agents, masks.keys.all_pairs)  # where it was in a file, that may be gone
        found = make_privacy(config, config.agents, keys)
    return found if isinstance(found, Privacy) else None
