"""The ranks of a cluster: how they find each other, agree before anything is asked, and learn that one has failed.

Facts travel as JSON through the store where ranks meet, numbers by torch.distributed; nothing is pickled. A rank that fails leaves a
sentence in the store, which the ranks that wait for it read. A rank that stays silent is given up after the deadline.
"""

import json
import os
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Its functions have the group that exists at this moment as a default. Imported with the first gradient, as torch._dynamo does, they would keep ours
# beyond `close`, with threads of gloo that abort the process if they need the interpreter's lock while it exits.
import torch.distributed.nn.functional
from torch.distributed import PrefixStore, TCPStore

from tacit.errors import InvalidInput, RankFailed, RankLost, TacitError
from tacit.networks.arriving import rank_losses_reported

DEADLINE = 600.0
"""Seconds after which a rank that does not answer is given up, by default."""
LOST = 75
"""The exit code of a rank that lost another one: starting all of them again helps."""
_POLL, _PATIENCE = 0.02, 3.0
_PRINTING = 1.0  # seconds that rank 0 may take from reading a sentence to printing it
_LEAVING = 10.0  # seconds that another rank may take from where all are together to having left


class Group:
    """One rank's view of all ranks. `store` is where they leave facts for each other."""

    playing = False
    """Whether rank 0 has sent a command. From then on, ranks notice by their connections when another ends."""

    def __init__(self, store: Any, rank: int, ranks: int, deadline: float = DEADLINE) -> None:
        self.rank, self.ranks, self.deadline = rank, ranks, deadline
        self._store = store

    @staticmethod
    def join(deadline: float = DEADLINE) -> "Group":
        """Meet the other ranks as torchrun's variables say, or on the group that Ray has made already."""
        wait = timedelta(seconds=deadline)
        if dist.is_initialized():
            return Group(_own_store(wait), dist.get_rank(), dist.get_world_size(), deadline)
        try:
            rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        except (KeyError, ValueError) as error:
            raise InvalidInput(
                f"this is one rank of a cluster, started by torchrun or a scheduler, but {error} is missing or not a number: use "
                "`torchrun --nproc-per-node 2 -m tacit.cluster FILE --name NAME`, or `tacit train FILE --workers 2`"
            ) from None
        serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        with rank_losses_reported():
            meeting = TCPStore(host, port, is_master=serves, timeout=wait, wait_for_workers=False)
            store = PrefixStore(f"tacit/{_name_of_attempt(meeting, rank, ranks, deadline)}", meeting)
            dist.init_process_group(_backend(), store=store, rank=rank, world_size=ranks, timeout=wait)
        return Group(store, rank, ranks, deadline)

    def tell(self, name: str, facts: Mapping[str, Any]) -> None:
        """Leave facts that others wait for."""
        with rank_losses_reported():
            self._store.set(name, json.dumps(facts))

    def hear(self, name: str, within: float | None = None) -> dict[str, Any]:
        """Wait for facts that another rank leaves; raise if a rank has failed, or nothing comes within the deadline."""
        seconds = self.deadline if within is None else within
        until = time.monotonic() + seconds
        while True:
            with rank_losses_reported():
                if self._store.check([name]):
                    found: dict[str, Any] = json.loads(self._store.get(name))
                    return found
            if (why := self.failure()) is not None:
                raise RankFailed(why)
            if time.monotonic() > until:
                raise RankLost(f"waited {seconds:g} s for {name!r}, which no rank has sent")
            time.sleep(_POLL)

    def agree(self, name: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Leave this rank's facts, wait for those of all others, and return all."""
        self.tell(f"{name}/{self.rank}", facts)
        return [self.hear(f"{name}/{rank}") for rank in range(self.ranks)]

    def fail(self, error: BaseException) -> None:
        """Say why this rank stops, unless another has said so before."""
        words = str(error) if isinstance(error, TacitError) else f"{type(error).__name__}: {error}"
        try:
            self._store.compare_set("failed", "", json.dumps({"rank": self.rank, "why": words}))
            if self.rank == 0:
                self._store.set("heard", "")
        except RuntimeError:
            return  # nobody is there to read it

    def failure(self, patience: float = 0.0) -> str | None:
        """Return what a rank said when it failed, with its number; wait a little if it may not have said it yet."""
        until = time.monotonic() + patience
        while True:
            try:
                if self._store.check(["failed"]):
                    found = json.loads(self._store.get("failed"))
                    if self.rank == 0:
                        self._store.set("heard", "")
                    return f"rank {found['rank']}: {found['why']}"
            except RuntimeError:
                return None
            if time.monotonic() >= until:
                return None
            time.sleep(_POLL)

    def let_rank_0_speak(self) -> None:
        """Return once rank 0 has had the time to say what a rank failed with, however long it is busy until it reads that.

        torchrun ends all ranks as soon as one has failed, so one that ended at once would take the sentence along.
        """
        until = time.monotonic() + self.deadline
        try:
            while not self._store.check(["heard"]) and time.monotonic() < until:
                time.sleep(_POLL)
        except RuntimeError:
            return  # rank 0 has ended
        time.sleep(_PRINTING)

    def explain_loss(self) -> str | None:
        """Return why the rank that was lost stopped, if it said so."""
        return self.failure(_PATIENCE)

    def send_command(self, number: int) -> None:
        """Tell all other ranks what to do next; only rank 0 calls this."""
        self.playing = True
        if self.ranks > 1:
            with rank_losses_reported():
                dist.broadcast(torch.tensor([number]), src=0)

    def next_command(self) -> int:
        """Wait for what rank 0 says."""
        told = torch.zeros(1, dtype=torch.int64)
        with rank_losses_reported():
            dist.broadcast(told, src=0)
        self.playing = True
        return int(told)

    def wait_for_all(self) -> None:
        """Return once all ranks are here."""
        with rank_losses_reported():
            dist.all_reduce(torch.zeros(1))  # on processors, whatever agents are computed on

    def leave(self) -> None:
        """Leave the group after the end of a run: once all ranks are here, and rank 0 last, which may serve the store.

        Raises if another rank ends before it has left.
        """
        try:
            self.wait_for_all()
            if self.rank:
                self.close()
                self.tell(f"left/{self.rank}", {})
            for other in range(1, self.ranks) if self.rank == 0 else ():
                self.hear(f"left/{other}", _LEAVING)
        finally:
            self.close()

    def close(self) -> None:
        """Leave the group at once."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _backend() -> str:
    """Return what carries tensors: gloo and, where there are GPUs and NCCL, that between them, with one GPU for each rank of a machine."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return "gloo"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    return "cpu:gloo,cuda:nccl"


def _name_of_attempt(meeting: Any, rank: int, ranks: int, deadline: float) -> str:
    """Return the name of this attempt of all ranks, which rank 0 draws and hands to every rank that asks for it.

    An agent of torchrun keeps its store when ranks start again, with the addresses of those that died, so every attempt needs names of its
    own. They cannot be numbers of restarts: an agent that restarts its ranks because another machine's have failed does not count that.
    """
    until = time.monotonic() + deadline
    own = secrets.token_hex(8)
    if rank:
        meeting.set(f"tacit/asks/{rank}", own)
        while not meeting.check([f"tacit/attempt/{own}"]):
            if time.monotonic() > until:
                raise RankLost(f"rank 0 did not start within {deadline:g} s")
            time.sleep(_POLL)
        name = str(meeting.get(f"tacit/attempt/{own}").decode())
        meeting.set(f"tacit/here/{name}/{rank}", "")
        return name
    missing, told = set(range(1, ranks)), set[str]()
    while missing:
        for other in sorted(missing):
            if meeting.check([f"tacit/here/{own}/{other}"]):
                missing.discard(other)
            elif meeting.check([f"tacit/asks/{other}"]):
                asked = meeting.get(f"tacit/asks/{other}").decode()  # of a rank that died, unless it has asked anew
                if asked not in told:
                    told.add(asked)
                    meeting.set(f"tacit/attempt/{asked}", own)
        if missing and time.monotonic() > until:
            names = ", ".join(map(str, sorted(missing)[:8]))
            raise RankLost(f"{len(missing)} of {ranks} ranks did not start within {deadline:g} s, among them {names}")
        time.sleep(_POLL if missing else 0)
    return own


def _own_store(wait: timedelta) -> Any:
    """Return a store beside a process group that somebody else has made: rank 0 serves it, and says where."""
    with rank_losses_reported():
        host, store = os.environ.get("MASTER_ADDR", "127.0.0.1"), None
        if dist.get_rank() == 0:
            store = TCPStore(host, 0, is_master=True, timeout=wait, wait_for_workers=False)
        port = torch.tensor([0 if store is None else store.port])
        dist.broadcast(port, src=0)
        return store or TCPStore(host, int(port), is_master=False, timeout=wait, wait_for_workers=False)
