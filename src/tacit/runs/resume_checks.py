"""Whether a run that is resumed is still the one that began: settings, records, keys, graph, schema, files and charges. If not, it is refused and nothing is asked."""

from typing import Any

import networkx as nx

from tacit.data import AgentData, Schema
from tacit.errors import BudgetExceeded, InvalidInput, StorageError
from tacit.networks import Topology
from tacit.privacy import Cancelling, DurableAccount
from tacit.privacy.keys import Keys
from tacit.privacy.noise_kinds import Masks
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.describe import edges_of, links_of, weights_of
from tacit.runs.event_types import PlanEvent
from tacit.runs.folder import RunFolder
from tacit.runs.python_config import AnyConfig


def check_same_data(run: str, plan: PlanEvent, data: AgentData, sizes: tuple[int, ...]) -> None:
    """Refuse another data set, other owners or other declared numbers of records than a run began with; all of this is public."""
    facts = {
        "data set": (plan.dataset, data.dataset.name),
        "owners": (plan.owners, data.owners),
        "numbers of records": (plan.sizes, sizes),
    }
    if changed := [name for name, (before, after) in facts.items() if before != after]:
        raise InvalidInput(
            f"the data is not what run {run!r} began with ({', '.join(changed)} differ); put it back, or start a new run"
        )


def check_unfinished(folder: RunFolder) -> None:
    """Refuse to resume a run that has ended."""
    if folder.summary_file.exists():
        raise InvalidInput(f"run {folder.name!r} is finished; there is nothing to resume")


def needs_others(run: str) -> InvalidInput:
    """Return the error for one process that resumes a run of several: it has neither their answers nor their charges."""
    return InvalidInput(
        f"run {run!r} was started by several processes; resume it with `tacit resume {run}`, which starts the same number"
    )


def check_same_settings(folder: RunFolder, config: AnyConfig) -> None:
    """Refuse settings that are not those the run began with."""
    plan = folder.events().plan
    if plan is not None and plan.fingerprint != config.fingerprint:
        raise InvalidInput(
            f"{folder.config_file} was changed since the run began; put it back, or start a new run with it"
        )


def check_same_keys(plan: PlanEvent, noise: Cancelling | None, name: Any) -> None:
    """Refuse a key graph that is not the one the run began with: a file may have changed. `name` is what the settings call it."""
    if noise is None or isinstance(noise.keys, str) or plan.masks is None:
        return
    if Keys.of(noise.keys) != Masks.of_json(plan.masks).keys:
        raise InvalidInput(f"the key graph {name!r} was changed since the run began; put it back")


def check_same_graph(plan: PlanEvent, graph: nx.Graph | Topology | None, rounds: int, name: Any) -> None:
    """Refuse a graph that is not the one the run began with: a file may have changed. `name` is what the settings call it."""
    if links_of(plan.edges, plan.weights) != links_of(edges_of(graph, rounds), weights_of(graph)):
        raise InvalidInput(f"the graph {name!r} was changed since the run began; put it back")


def check_same_schema(plan: PlanEvent, schema: Schema) -> None:
    """Refuse to resume under another declaration of what a record may be."""
    if plan.schema != schema.to_dict():
        raise InvalidInput(
            f"the run began with {Schema.of(plan.schema)}, but its data and model now give {schema}; put back what was "
            "changed, or start a new run"
        )


def check_token(folder: RunFolder, account: DurableAccount) -> str:
    """Return the token that identifies a run in the ledger; the plan must have the same."""
    plan = folder.events().plan
    if plan is None and account.spent:
        raise StorageError(
            f"{folder.events_file} has no plan, but {account.spent} queries of this run are on record; the run "
            "cannot be resumed without it"
        )
    if plan is not None and plan.token != account.token:
        raise StorageError(f"{folder.events_file} belongs to a different run than the one in the ledger")
    return account.token


def check_checkpoint_is_ours(folder: RunFolder, saved: Checkpoint, fingerprint: str, token: str) -> None:
    """Refuse the checkpoint of other settings or of another run."""
    if saved.fingerprint != fingerprint:
        raise InvalidInput(f"{folder.checkpoint_file} belongs to other settings than {folder.config_file}")
    if saved.token != token:
        raise StorageError(f"{folder.checkpoint_file} belongs to another run; it was left alone")


def check_charges(
    folder: RunFolder, on_record: int, lost: int, *, missing: int, charged: int, remaining: int | None
) -> None:
    """Refuse answers that were not charged, and a run whose missing queries no longer fit its budget.

    `remaining` are the queries that the budget has left; None for a run without privacy, which has none.
    """
    if lost < 0 or missing < 0:
        raise StorageError(
            f"{on_record} answers of run {folder.name!r} are on disk, but only {charged} queries on record: the ledger "
            f"{folder.ledger_file} is not the one that the run was charged to, or an older copy of it. No query was made"
        )
    if remaining is not None and remaining < missing:
        raise BudgetExceeded(
            f"{lost} answers of run {folder.name!r} were charged and lost; the {missing} queries still to make do not "
            f"fit the {remaining} that its budget has left. Nothing more was spent"
        )
