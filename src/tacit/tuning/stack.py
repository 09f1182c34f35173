"""Trials of a search that differ in numbers alone, stacked on the agents' axis and played as one session."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.privacy import Ledger, NoPrivacy, Privacy
from tacit.privacy.randomness import MaskSource, Source, Sources
from tacit.runs.config import RunConfig
from tacit.training.runtimes import Stacked
from tacit.training.schedules import Constant, LogSpaced
from tacit.training.session import Session
from tacit.training.settings import Training
from tacit.tuning.trial_rule import TrialRule

OF_STEPS = ("lr", "lr_final")
OF_RULES = ("momentum", "rho", "rho_growth")
OF_MECHANISMS = ("clip", "epsilon", "lot_size", "noise_multiplier")
STACKED = OF_STEPS + OF_RULES + OF_MECHANISMS
"""Settings in which trials of one stack may differ; those of a mechanism where noise is local and without bands."""


def stacked_names(config: RunConfig) -> tuple[str, ...]:
    """Return the settings in which trials of such runs may differ side by side. Masks, bands and grids are the same for a whole stack."""
    return STACKED if config.noise == "local" and config.bands == 1 else OF_STEPS + OF_RULES


@dataclass(frozen=True)
class TrialSources:
    """Repeatable sources of trials by their numbers in the search: trials in other stacks or processes do not draw the same noise."""

    sources: Sources
    numbers: tuple[int, ...]
    secret = False

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        """Return a source for each agent of one trial of the stack."""
        return self.sources.make(agents, self.numbers[trial])

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[MaskSource]:
        """Return the source that each of these pairs shares in one trial of the stack."""
        return self.sources.make_masks(pairs, run, self.numbers[trial])


class TrialSteps:
    """The step size of every agent of every trial: each trial has a schedule of its own, which may be changed between rounds."""

    def __init__(self, configs: Sequence[RunConfig], agents: int) -> None:
        self._agents = agents
        self.change(configs)

    def change(self, configs: Sequence[RunConfig]) -> None:
        """Take other step sizes from now on."""
        self._each = [_schedule(config) for config in configs]

    def __call__(self, round: int, rounds: int) -> Tensor:
        """Return the step sizes at a round."""
        sizes = [float(schedule(round, rounds)) for schedule in self._each]
        return torch.tensor(sizes, dtype=torch.float64).repeat_interleave(self._agents)


@dataclass(eq=False)
class Stack:
    """Several trials in one session, by their numbers in the search."""

    numbers: tuple[int, ...]
    configs: tuple[RunConfig, ...]
    session: Session
    steps: TrialSteps
    rules: TrialRule

    def play(
        self,
        until: int | None = None,
        stop: Callable[[], bool] = lambda: False,
        on_round: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Play to the end or until a round, or until `stop()` is true before one. `on_round` gets the number of rounds played, from the start on."""
        on_round(self.session.round)
        while not self.session.finished and (until is None or self.session.round < until) and not stop():
            self.session.advance()
            on_round(self.session.round)

    def scores(self) -> list[float]:
        """Return how good each trial is now on all public validation records: its agents' mean accuracy, or minus their loss."""
        newest = self.session.monitor.histories[0][-1]
        if newest.round < self.session.round or newest.sample is not None:  # too few records to choose trials by
            self.session.take_snapshot(whole=True)
        found = []
        for history in self.session.monitor.histories:
            last = history[-1]
            if last.accuracy is not None:
                found.append(float(np.nan_to_num(last.accuracy, nan=0.0).mean()))
            else:
                assert last.loss is not None
                found.append(-float(np.nan_to_num(last.loss, nan=np.inf).mean()))
        return found

    def copy_trials(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Let trials continue from the state of others: pairs of a source and a target, by their places in this stack."""
        session = self.session
        agents, rows = session.hosted.total, session.trials * session.hosted.total
        order = torch.arange(rows)
        for source, target in pairs:
            order[target * agents : (target + 1) * agents] = torch.arange(source * agents, (source + 1) * agents)
        saved = session.state_dict()
        for name, value in saved.items():
            if name.startswith("state") and value.ndim and len(value) == rows:
                saved[name] = value.index_select(0, order.to(value.device))
        session.load_state_dict(saved)

    def change(self, configs: Sequence[RunConfig]) -> None:
        """Continue with other numbers. Trials on private records keep their lots, clipping norms and noise, which the ledger holds."""
        before, self.configs = _privacies(self.session.training, self.configs), tuple(configs)
        self.steps.change(configs)
        self.rules.each = _rules(configs)
        privacies = _privacies(self.session.training, configs)
        if privacies == before:
            return
        after = Session(self.session.training, Stacked(len(configs)), privacies=privacies)
        after.load_state_dict(self.session.state_dict())
        after.restore_histories(self.session.monitor.histories)
        self.session.close()
        self.session = after


def make_stack(
    configs: Sequence[RunConfig], numbers: Sequence[int], *, name: str, ledger: Ledger | None, every: int
) -> Stack:
    """Open a session for these trials, which may differ in `stacked_names` alone; a ledger that has no room for all of them refuses."""
    training = configs[0].prepare(lambda _: None)
    steps, rules = TrialSteps(configs, training.data.agents), TrialRule(_rules(configs))
    if not (sources := training.chosen_sources).secret:
        training = replace(training, sources=TrialSources(sources, tuple(numbers)))
    training = replace(training, algorithm=rules, lr=steps, name=name, ledger=ledger, evaluate_every=every)
    session = Session(training, Stacked(len(configs)), privacies=_privacies(training, configs))
    return Stack(tuple(numbers), tuple(configs), session, steps, rules)


def _schedule(config: RunConfig) -> Any:
    return Constant(config.lr) if config.lr_final is None else LogSpaced(config.lr, config.lr_final)


def _rules(configs: Sequence[RunConfig]) -> list[Algorithm[Any]]:
    """Return each trial's rule; it is one object where their numbers are the same."""
    made: dict[tuple[float, ...], Algorithm[Any]] = {}
    keys = [tuple(getattr(config, name) for name in OF_RULES) for config in configs]
    for key, config in zip(keys, configs, strict=True):
        if key not in made:
            made[key] = config.rule()
    return [made[key] for key in keys]


def _privacies(training: Training, configs: Sequence[RunConfig]) -> list[Privacy | NoPrivacy]:
    """Return the privacy settings of each trial; nothing if all have those of the training."""
    each: list[Privacy | NoPrivacy] = []
    for config in configs:
        settings: dict[str, Any] = {"lot_size": config.lot_size}
        if isinstance(training.privacy, Privacy):
            settings |= {"clip": config.clip, "epsilon": config.epsilon, "noise_multiplier": config.noise_multiplier}
        each.append(replace(training.privacy, **settings))
    return [] if all(privacy == training.privacy for privacy in each) else each
