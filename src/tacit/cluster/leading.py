"""Rank 0 of a cluster: it keeps the run as a single process would, and leads the others."""

import json
import secrets
from typing import Any

import numpy as np
from torch import Tensor

from tacit.cluster.agreeing import check_facts, facts_of, plan_facts
from tacit.cluster.commands import Command
from tacit.cluster.dividing import ClusterRuntime, take_part
from tacit.cluster.group import Group
from tacit.cluster.placement import Placement, place
from tacit.errors import StorageError
from tacit.io.files import write_atomically
from tacit.privacy import Account, Plan
from tacit.privacy.charges import PartAccount
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder
from tacit.training.preparation import connect
from tacit.training.settings import Training


class Lead:
    """The team of a run on several ranks; see `tacit.runs.team.Team`."""

    def __init__(self, group: Group, config: RunConfig) -> None:
        self._group, self._config = group, config
        self.runtime: ClusterRuntime | None = None
        self.description: str | None = None
        self.most_sent = self.sent_elsewhere = 0
        self.ended = False

    def divide(self, training: Training, folder: RunFolder, *, fresh: bool) -> Training:
        """Compare all ranks' settings and files, place the agents or read where they are, and return rank 0's part."""
        group = self._group
        check_facts(group.agree("ready", facts_of(self._config, training)))
        placement = self._place(training, folder) if fresh else _read_placement(folder)
        meeting = secrets.token_hex(16)
        write_atomically(folder.meeting_file, meeting.encode())
        group.tell("begin", {"folder": str(folder.path.resolve()), "meeting": meeting, "shards": placement.shards})
        part, self.runtime = take_part(training, group, placement.shards)
        return part

    def check_plan(self, plan: Plan) -> None:
        """Compare all ranks' plans: the ledger holds rank 0's, so noise of another size elsewhere would be charged wrongly."""
        check_facts(self._group.agree("planned", plan_facts(plan)))

    def charged_account(self, whole: Account, token: str) -> Account:
        """Return the lines of rank 0's agents in the run's account; the others may open theirs now."""
        assert self.runtime is not None
        self._group.tell("account", {"token": token})
        own = self.runtime.shards[self._group.rank]
        return PartAccount(whole, tuple(whole.lines[agent] for agent in own))

    def restore(self, round: int | None) -> int:
        """Let the others continue from their checkpoints of this round; return the largest number of answers that one of them has lost."""
        self._group.tell("restore", {"round": round})
        each = self._group.agree("restored", {"lost": 0, "sent": 0, "all_sent": 0})
        self.most_sent = max(facts["sent"] for facts in each)
        self.sent_elsewhere = sum(facts["all_sent"] for facts in each)
        return max(facts["lost"] for facts in each)

    def advance(self) -> None:
        """Let the others play the next round, too."""
        self._group.send_command(Command.ADVANCE)

    def save(self) -> None:
        """Return once the others' states are on disk; what they replace is kept."""
        self._group.send_command(Command.SAVE)
        self._group.wait_for_all()

    def commit(self) -> None:
        """Let the others drop what their states replace."""
        self._group.send_command(Command.COMMIT)

    def take_snapshot(self) -> None:
        """Let the others take a snapshot, too."""
        self._group.send_command(Command.SNAPSHOT)

    def collect(self, theta: Tensor) -> Tensor:
        """Return all agents' models."""
        assert self.runtime is not None
        self._group.send_command(Command.COLLECT)
        everyone = self.runtime.gather(theta)
        assert everyone is not None
        return everyone

    def end(self, *, finished: bool) -> None:
        """Let the others end."""
        self._group.send_command(Command.FINISH if finished else Command.STOP)
        self.ended = True

    def _place(self, training: Training, folder: RunFolder) -> Placement:
        agents, lots = training.data.agents, training.privacy.lot_size
        topology = None
        if training.graph is not None:
            (topology,) = connect(
                training.graph,
                training.mixing,
                allow_drift=training.allow_drift,
                agents=agents,
                trials=1,
                rounds=training.total_rounds,
                exchanges=training.exchanges_per_query,
            )
        weights = np.broadcast_to(np.asarray(lots, dtype=np.float64), (agents,))
        best, *others = place(topology, self._group.ranks, weights, self._config.placement)
        self.description = describe_placement(best, others)
        write_atomically(
            folder.shards_file, json.dumps({"kind": best.kind, "halo": best.halo, "shards": best.shards}).encode()
        )
        return best


def describe_placement(best: Placement, others: list[Placement]) -> str:
    """Say in the plan of a run how many agents each process hosts, and what crosses between processes."""
    sizes = sorted({len(own) for own in best.shards})
    hosted = (
        f"{sizes[0]:,} {'agent' if sizes[0] == 1 else 'agents'}"
        if len(sizes) == 1
        else f"{sizes[0]:,} to {sizes[-1]:,} agents"
    )
    rows = f"{best.halo_per_agent:.3g}"
    cross = "1 row crosses" if rows == "1" else f"{rows} rows cross"
    words = f"{len(best.shards)}, each with {hosted}; {best.kind} placement: {cross} for each agent"
    return words + "".join(f" ({each.kind}: {each.halo_per_agent:.3g})" for each in others)


def _read_placement(folder: RunFolder) -> Placement:
    try:
        found: dict[str, Any] = json.loads(folder.shards_file.read_text(encoding="utf-8"))
        shards = tuple(tuple(int(agent) for agent in own) for own in found["shards"])
        return Placement(str(found["kind"]), shards, float(found["halo"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{folder.shards_file}, which says where agents are hosted, cannot be read: {error}; the run cannot be resumed without it"
        ) from error
