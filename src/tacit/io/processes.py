"""Work spread over processes that ignore Ctrl-C: the parent process handles it, and ends them.

On Linux they are forked from a server that has imported the library and done nothing else, so that each starts at once.
Elsewhere every process imports it.
"""

import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, resource_tracker
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

import torch

from tacit.errors import ProcessLost
from tacit.io.memory import keep_pages

# What most work imports at some point; the first gradient imports the first of them.
_IMPORTED = ["torch._dynamo", "tacit.audit", "tacit.experiments", "tacit.privacy.losses", "tacit.training.session"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Generator[tuple[Item, Result], None, None]:
    """Yield each item with its result, in the order in which they finish; with one worker, or one item, this process does it all.

    A caller that stops early must close the generator. Queued items are then dropped, and running ones are lost.
    """
    if min(workers, len(items)) <= 1:
        for item in items:
            yield item, work(item)
        return
    others = set(active_children())
    pool = ProcessPoolExecutor(
        min(workers, len(items)), mp_context=_context(), initializer=_prepare, initargs=(work, dict(os.environ))
    )
    try:
        with _deaf():
            futures = {pool.submit(_do, item): item for item in items}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise ProcessLost(
            "a worker process was killed, as happens when memory runs out; finished work is kept. Try fewer "
            "workers (--workers 1)"
        ) from None
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True)


def _context() -> BaseContext:
    """Return how processes are started: never by forking this one, which would copy locks of threads that do not exist there."""
    if sys.platform != "linux":
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


@contextmanager
def _deaf() -> Iterator[None]:
    """Block Ctrl-C. Processes started in the meantime inherit this, so they ignore it while importing."""
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    resource_tracker.ensure_running()  # which unblocks it when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_work: Callable[[Any], Any] | None = None


def _prepare(work: Callable[[Any], Any], environment: dict[str, str]) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)  # a server has that of the moment when it began
    _work = work
    keep_pages()
    torch.set_num_threads(1)


def _do(item: Any) -> Any:
    assert _work is not None
    return _work(item)
