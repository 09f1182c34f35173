"""The same search by Ray Tune: a thin wrapper over its PopulationBasedTraining, for published data sets. Its API is still beta.

Each trial runs on a worker of its own and is not stacked with others. A plain search needs no communication, so it uses Ray's own grid of
the values that `tacit.tuning` draws.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tacit.errors import InvalidInput
from tacit.io.ray_session import ray_session
from tacit.runs.config import RunConfig
from tacit.tuning.search import Search, SearchOutcome, TrialOutcome, check_scored, rank
from tacit.tuning.space import Parameter, draw_values
from tacit.tuning.stack import make_stack

_STATE, _COURSE = "state.safetensors", "course.json"


def tune_on_ray(config: RunConfig, search: Search, *, say: Callable[[str], None] = lambda text: None) -> SearchOutcome:
    """Search on Ray's workers; records must be public. `say` gets a line for every score."""
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

    class ScoreLines(tune.Callback):
        """Says every score. Ray pickles it to resume a search, which is not offered, so it leaves out what cannot be pickled."""

        def __init__(self, say: Callable[[str], None], generations: int) -> None:
            self.say, self.generations = say, generations

        def __getstate__(self) -> dict[str, Any]:
            return {}

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            """Say how good a trial is after a generation."""
            done = f" after generation {len(json.loads(result['course']))} of {self.generations}"
            self.say(f"trial {result['number']}: {result['score']:.4f}{done if self.generations > 1 else ''}")

    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # which prints a panel whatever `verbose` is
    session, quiet = ray_session(1, OMP_NUM_THREADS="1"), redirect_stdout(sys.stderr)  # stdout is for the result
    with session, quiet, tempfile.TemporaryDirectory() as folder:
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
            run_config=tune.RunConfig(
                storage_path=folder, name="tune", verbose=0, callbacks=[ScoreLines(say, search.generations)]
            ),
        ).fit()
        if found.errors:
            raise InvalidInput(f"a trial failed on Ray: {str(found.errors[0]).strip().splitlines()[-1]}")
        each = [found[place].metrics for place in range(len(found))]
        outcomes = [_outcome(metrics) for metrics in each if metrics is not None]
    return rank(outcomes)


def _value_of_trial(drawn: list[dict[str, float]], name: str, config: Mapping[str, Any]) -> float:
    """Return what was drawn for a parameter of the trial that Ray asks for."""
    return drawn[config["number"]][name]


def _play_trial(given: Mapping[str, Any], *, base: str, drawn: list[dict[str, float]], length: int) -> None:
    """Play one trial on a worker, from where another one was if Ray says so, and report after every generation."""
    from ray import tune

    values = {name: given.get(name, value) for name, value in drawn[given["number"]].items()}
    config = RunConfig.of(json.loads(base) | values)
    stack = make_stack([config], [given["number"]], name="tune", ledger=None, every=length)
    # Values and score of each generation, also of trials that this one has taken over.
    course: list[tuple[dict[str, float], float]] = []
    if (saved := tune.get_checkpoint()) is not None:
        with saved.as_directory() as folder:
            stack.session.load_state_dict(load_file(str(Path(folder) / _STATE)))
            course = json.loads((Path(folder) / _COURSE).read_text())
    with stack.session:
        while not stack.session.finished:
            stack.play(stack.session.round + length)
            course.append((values, stack.scores()[0]))
            with tempfile.TemporaryDirectory() as folder:
                save_file(
                    {name: value.contiguous() for name, value in stack.session.state_dict().items()},
                    str(Path(folder) / _STATE),
                )
                text = json.dumps(course)
                (Path(folder) / _COURSE).write_text(text)
                report = {"score": course[-1][1], "number": given["number"], "course": text}
                tune.report(report, checkpoint=tune.Checkpoint.from_directory(folder))


def _outcome(metrics: Mapping[str, Any]) -> TrialOutcome:
    """Return a trial from its last report. Scores are those of the models that it continues, whichever trial they were in."""
    values, scores = zip(*json.loads(metrics["course"]), strict=True)
    several: dict[str, Any] = {"course": values, "scores": scores} if len(values) > 1 else {}
    return TrialOutcome(number=int(metrics["number"]), values=values[-1], score=scores[-1], **several)
