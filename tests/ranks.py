"""Runs a function on several ranks, each a process of its own, with deadlines so that nothing hangs."""

import multiprocessing
import os
import time
import traceback
from datetime import timedelta

import torch.distributed as dist

from tacit.io.processes import _IMPORTED, _deaf

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([*_IMPORTED, "tacit.runs.runner", "torch.distributed"])


def on_ranks(ranks, work, *args, timeout=90.0, deadline=30.0, may_fail=False, joined=True):
    """Return what `work(rank, *args)` returns on every rank of a gloo group; raise if one fails or the time is up.

    may_fail: return what was raised of a rank that failed, and None of one that was killed.
    joined: make the group; otherwise ranks have torchrun's variables, and `work` joins.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes, processes = [], []
    for rank in range(ranks):
        reader, writer = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(
            target=_play, args=(writer, store.port, rank, ranks, deadline, joined, work, args), daemon=True
        )
        with _deaf():
            process.start()
        writer.close()
        pipes.append(reader)
        processes.append(process)
    until, found = time.monotonic() + timeout, []
    try:
        for rank, pipe in enumerate(pipes):
            if not pipe.poll(max(0.0, until - time.monotonic())):
                raise AssertionError(f"rank {rank} said nothing within {timeout:g} s")
            try:
                fine, value = pipe.recv()
            except EOFError:
                fine, value = False, None
            if not fine and not may_fail:
                raise AssertionError(f"rank {rank} failed:\n{value}")
            found.append(value)
    finally:
        for process in processes:
            process.join(5.0 if len(found) == ranks else 0.0)
            if process.is_alive():
                process.kill()
                process.join()
    return found


def _play(pipe, port, rank, ranks, deadline, joined, work, args):
    import torch

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        if not joined:
            os.environ |= {
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            pipe.send((True, work(rank, *args)))
            return
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=30))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=deadline))
        pipe.send((True, work(rank, *args)))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException as error:
        pipe.send((False, f"{traceback.format_exc()}\n{type(error).__name__}: {error}"))
