"""The account of a run in the ledger beside it: the only source of the ε that pages and tables show."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tacit.privacy import DurableAccount, DurableLedger
from tacit.privacy.noise_kinds import DiscreteGaussian, Masked, Masks
from tacit.runs.event_types import PlanEvent
from tacit.runs.events import Events
from tacit.runs.folder import LEDGER


@dataclass(frozen=True, kw_only=True, eq=False)
class RunAccount:
    """A run's account in the ledger, compared with the run's events."""

    account: DurableAccount | None
    """None where ε cannot be derived."""
    problem: str | None
    """Why ε cannot be derived, as the end of a sentence."""
    exposed: bool
    """Whether a run without privacy has read the same records."""
    differences: tuple[str, ...] = ()
    """Where the plan in `events.jsonl` differs from the account; ε is derived from the account."""

    @property
    def abandoned(self) -> bool:
        """Whether the run was given up: it never asks again, and cannot be resumed."""
        return self.account is not None and self.account.state == "abandoned"

    @property
    def release(self) -> bool:
        """Whether the ledger says that lots and noise were secret, for all owners."""
        return self.account is not None and all(line.release for line in self.account.lines)


class RunAccounts:
    """The accounts of all runs in one ledger, read once."""

    def __init__(self, path: Path) -> None:
        self._there = path.is_file()
        self._accounts: dict[str, DurableAccount] = {}
        self._exposed: set[str] = set()
        if self._there:
            with closing(DurableLedger(path, read_only=True)) as ledger:
                found = [account for account in ledger.accounts if isinstance(account, DurableAccount)]
                self._accounts = {account.run: account for account in found}
                owners = {line.owner for account in found for line in account.lines}
                readers = ledger.readers_without_privacy(sorted(owners))
                self._exposed = {owner for owner, names in readers.items() if names}

    def of(self, run: str, events: Events) -> RunAccount:
        """Return what the ledger holds of a run with these events."""
        plan, account = events.plan, self._accounts.get(run)
        if not self._there or plan is None:
            why = "the run has no plan" if self._there else "there is no ledger beside the run"
            return RunAccount(account=None, problem=why, exposed=False)
        exposed = not self._exposed.isdisjoint(plan.owners)
        problem = _problem(account, plan, events)
        if account is None or problem is not None:
            return RunAccount(account=None, problem=problem, exposed=exposed)
        return RunAccount(
            account=account, problem=None, exposed=exposed, differences=tuple(_differences(account, plan))
        )


def read_run_account(folder: Path, events: Events) -> RunAccount:
    """Return what the ledger beside a run's folder holds of the run."""
    folder = folder.resolve()
    return RunAccounts(folder.parent / LEDGER).of(folder.name, events)


def _problem(account: DurableAccount | None, plan: PlanEvent, events: Events) -> str | None:
    """Say why ε of a run cannot be derived from an account, if so."""
    if account is None:
        return "the run is not in the ledger beside it"
    if account.token != plan.token:
        return "the ledger beside the run has a different run of this name"
    if tuple(line.owner for line in account.lines) != plan.owners:
        return "the ledger beside the run names other data owners than its plan"
    if plan.private != all(line.private for line in account.lines):
        return "the ledger and the plan of the run disagree on whether there was noise"
    answered = max((snapshot.queries + events.lost_before[snapshot.round] for snapshot in events.snapshots), default=0)
    if plan.private and account.spent < answered:
        return f"the ledger holds {account.spent:,} queries of this run, but its events record {answered:,}"
    return None


def _differences(account: DurableAccount, plan: PlanEvent) -> Iterator[str]:
    mechanisms = [line.mechanism for line in account.lines]
    if tuple(mechanism.sample_rate for mechanism in mechanisms) != plan.sample_rates:
        yield "sampling rates"
    if plan.votes is not None:
        if [mechanism.noise for mechanism in mechanisms] != [mechanism.noise for mechanism in plan.mechanisms]:
            yield "votes"
    elif plan.private and tuple(mechanism.noise_multiplier for mechanism in mechanisms) != plan.noise_multipliers:
        yield "noise"
    noises = [mechanism.noise for mechanism in mechanisms]
    shared = {noise.masks for noise in noises if isinstance(noise, Masked)}
    if shared != ({Masks.of_json(plan.masks)} if plan.masks is not None else set()):
        yield "masks"
    rounded = {noise.rounding if isinstance(noise, DiscreteGaussian) else None for noise in noises}
    if rounded != {plan.discrete}:
        yield "rounding"
    if {mechanism.bands for mechanism in mechanisms} != {plan.bands}:
        yield "bands"
    if plan.private and tuple(mechanism.clip for mechanism in mechanisms) != plan.clips:
        yield "clipping norms"
    if tuple(mechanism.lot for mechanism in mechanisms) != plan.lot_sizes:
        yield "lot sizes"
    if plan.private and account.allowed != plan.queries:
        yield "number of queries"
    if any(line.release != plan.release for line in account.lines):
        yield "whether it is a release"
