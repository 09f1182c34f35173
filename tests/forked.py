"""Processes to kill: forked from a server that imported the library and did nothing else, so that each begins at once."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import TextIO

from tacit.io.processes import _IMPORTED, _deaf

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([*_IMPORTED, "tacit.runs.runner"])  # a run would import them one by one


def start(target: Callable[..., None], *args: object) -> tuple[ForkServerProcess, TextIO]:
    """Start a process with one thread, and return it with what it tells: `target` gets a function that tells a line."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as end:
        process = _CONTEXT.Process(target=_play, args=(multiprocessing.reduction.DupFd(end.fileno()), target, *args))
        with _deaf():  # the server may be the one that others use, whose processes hear no Ctrl-C
            process.start()
    return process, os.fdopen(reader)


def _play(pipe, target, *args):
    import torch

    torch.set_num_threads(1)
    told = pipe.detach()
    target(lambda line: os.write(told, f"{line}\n".encode()), *args)
