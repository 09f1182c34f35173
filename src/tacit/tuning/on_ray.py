"""The same search by Ray Tune: a thin wrapper over its PopulationBasedTraining, for published data sets. Its API is still beta.

Each trial runs on a worker of its own and is not stacked with others. A plain search needs no communication, so it uses Ray's own grid of
the values that `tacit.tuning` draws.
"""

import json
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tacit.errors import InvalidInput
from tacit.io.ray_session import ray_session
from tacit.runs.config import RunConfig
from tacit.tuning.search import Search, SearchOutcome, TrialOutcome, check_scored
from tacit.tuning.space import Parameter, draw_values
from tacit.tuning.stack import make_stack

_STATE = "state.safetensors"


def tune_on_ray(config: RunConfig, search: Search) -> SearchOutcome:
    """Search on Ray's workers; records must be public."""
    try:
        from ray import tune
        from ray.tune.schedulers import PopulationBasedTraining
    except ImportError:
        raise InvalidInput(
            "--on ray needs Ray Tune: install tacit with the extra 'ray' (pip install 'tacit[ray]')"
        ) from None

    check_scored(config, charged=False)
    drawn = draw_values(search.parameters, search.population, config.seed)
    length = -(-config.rounds // search.generations)
    scheduler = None
    if search.generations > 1:
        search.check(config, charged=False)

        def mutation(parameter: Parameter) -> Any:
            draw = tune.loguniform if parameter.log else tune.uniform
            return list(parameter.choices) or draw(parameter.low, parameter.high)

        scheduler = PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=1,
            hyperparam_mutations={parameter.name: mutation(parameter) for parameter in search.parameters},
            metric="score",
            mode="max",
        )
    with ray_session(1, OMP_NUM_THREADS="1"), tempfile.TemporaryDirectory() as folder:
        space: dict[str, Any] = {"number": tune.grid_search(list(range(search.population)))}
        how: dict[str, Any] = {"metric": "score", "mode": "max"}
        if scheduler is not None:
            how = {"scheduler": scheduler}
            for parameter in search.parameters:
                space[parameter.name] = tune.sample_from(partial(_value_of_trial, drawn, parameter.name))
        trainable = tune.with_parameters(_play_trial, base=config.model_dump_json(), drawn=drawn, length=length)
        found = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}),
            param_space=space,
            tune_config=tune.TuneConfig(**how),
            run_config=tune.RunConfig(storage_path=folder, name="tune", verbose=0),
        ).fit()
        if found.errors:
            raise InvalidInput(f"a trial failed on Ray: {str(found.errors[0]).strip().splitlines()[-1]}")
        each = [found[place].metrics for place in range(len(found))]
        outcomes = [_outcome(metrics) for metrics in each if metrics is not None]
    return SearchOutcome(trials=tuple(sorted(outcomes, key=lambda trial: (-trial.score, trial.number))))


def _value_of_trial(drawn: list[dict[str, float]], name: str, config: Mapping[str, Any]) -> float:
    """Return what was drawn for a parameter of the trial that Ray asks for."""
    return drawn[config["number"]][name]


def _play_trial(given: Mapping[str, Any], *, base: str, drawn: list[dict[str, float]], length: int) -> None:
    """Play one trial on a worker, from where another one was if Ray says so, and report after every generation."""
    from ray import tune

    values = {name: given.get(name, value) for name, value in drawn[given["number"]].items()}
    config = RunConfig.of(json.loads(base) | values)
    stack = make_stack([config], [given["number"]], name="tune", ledger=None, every=length)
    if (saved := tune.get_checkpoint()) is not None:
        with saved.as_directory() as folder:
            stack.session.load_state_dict(load_file(str(Path(folder) / _STATE)))
    with stack.session:
        while not stack.session.finished:
            stack.play(stack.session.round + length)
            with tempfile.TemporaryDirectory() as folder:
                save_file(
                    {name: value.contiguous() for name, value in stack.session.state_dict().items()},
                    str(Path(folder) / _STATE),
                )
                report = {"score": stack.scores()[0], "number": given["number"], "values": values}
                tune.report(report, checkpoint=tune.Checkpoint.from_directory(folder))


def _outcome(metrics: Mapping[str, Any]) -> TrialOutcome:
    return TrialOutcome(number=int(metrics["number"]), values=dict(metrics["values"]), score=float(metrics["score"]))
