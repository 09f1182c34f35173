"""What is fixed before a run asks anything, and is public: who hears whom, the model and its start, what the rule asks, everybody's plan.

It depends on the training and on which agents are hosted here, on no account, network or secret, so that parties can compare their plans
before they begin.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms.links import check_links
from tacit.data import Schema
from tacit.data.drafting import settle
from tacit.data.schema import check_records
from tacit.models import FlatModel, check_module
from tacit.networks import Topology
from tacit.privacy import NoPrivacy, Plan, Privacy
from tacit.training.absences import Absences, WithAbsences
from tacit.training.checks import warn_of_units
from tacit.training.counting import Cost
from tacit.training.planning import count_queries, settle_plans
from tacit.training.preparation import connect, declared_sizes, example, make_module, probe, starts
from tacit.training.runtimes import Hosted
from tacit.training.schedules import Schedule, as_schedule, only_rows
from tacit.training.settings import Training


class TrialShare(NamedTuple):
    """Which trials of a larger stack are played: from number `first` on, by the plan that was settled for all of them."""

    first: int
    plan: Plan


class Prepared(NamedTuple):
    """A training whose public facts are fixed. `plans` are everybody's, one for each trial; `theta` is the start of the hosted agents."""

    first: int
    sizes: tuple[int, ...]
    schedule: Schedule
    absences: Absences
    topologies: Sequence[Topology]
    model: FlatModel
    schema: Schema
    theta: Float[Tensor, "agents params"]
    cost: Cost
    plans: Sequence[Plan]
    one_plan: bool
    """Whether all trials have the same."""

    @property
    def plan(self) -> Plan:
        """Everybody's plan in the first trial."""
        return self.plans[0]


def prepare(
    training: Training,
    hosted: Hosted,
    trials: int = 1,
    privacies: Sequence[Privacy | NoPrivacy] = (),
    share: TrialShare | None = None,
) -> Prepared:
    """Make and check models and records, count what the rule asks, and settle everybody's plan; see `Session` for the arguments."""
    first = 0 if share is None else share.first
    sizes = declared_sizes(training.data, training.sizes, hosted.total, training.unit)
    warn_of_units(training)
    rows = [trial * hosted.total + agent for trial in range(trials) for agent in hosted.agents]
    schedule = only_rows(as_schedule(training.lr), rows, trials * hosted.total)
    absences = Absences(training.absences, hosted.total)
    complete = connect(
        training.graph,
        training.mixing,
        allow_drift=training.allow_drift,
        agents=hosted.total,
        trials=trials,
        rounds=training.total_rounds,
        exchanges=training.exchanges_per_query,
    )
    topologies: Sequence[Topology] = complete
    if absences:
        topologies = [WithAbsences(topology, absences) for topology in complete]
    check_links(training.algorithm, topologies, training.total_rounds)

    data, device = training.data, torch.device(training.device)
    module = make_module(training.model, training.seed)
    schema = settle(data.dataset, module)
    check_records(data, schema)  # before anything is asked, charged or sent
    check_module(module, example(data, schema))
    model = FlatModel(module, training.loss).to(device)
    cost = count_queries(training, hosted, trials, topologies, schedule, width=model.size, dtype=model.dtype)
    theta = starts(
        model,
        training.model,
        seed=training.seed + first,
        trials=trials,
        agents=hosted.agents,
        same_start=training.same_start,
    ).to(device)
    probe(model, theta[0], data, schema)
    # Calibration takes seconds, so it comes after whatever can be wrong with models and records.
    plans = [] if share is None else [share.plan] * trials
    plans = plans or settle_plans(training, privacies, sizes, cost, complete, absences, trials=trials, width=model.size)
    return Prepared(
        first,
        sizes,
        schedule,
        absences,
        topologies,
        model,
        schema,
        theta,
        cost,
        plans,
        one_plan=not privacies,
    )
