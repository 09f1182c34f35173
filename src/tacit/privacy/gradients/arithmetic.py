"""The oracle's own arithmetic: settings of the rest of the program do not affect it.

Under `torch.autocast`, norms would be computed from numbers with eight bits; with another number of threads, or with denormal
numbers flushed in one thread and not in others, the rounding of a record would depend on its place in a lot. All such settings
are fixed while private records are processed, and restored afterwards.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.errors import PrivacyError

_GRAIN = 2**16  # torch divides longer rows among threads
_ONEDNN: tuple[Any, ...] = (
    torch.backends.mkldnn,
    *(getattr(torch.backends.mkldnn, name) for name in ("conv", "matmul", "rnn")),
)
_DEVICES = ("cpu", "cuda", "xpu", "mps")
# Most of these settings are global: one thread would restore them while another computes.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def own_arithmetic(dtype: torch.dtype, threads: int) -> Iterator[None]:
    """Compute in full precision, with `dtype` as the default type and this number of threads.

    If several threads of a program train, only one of them computes at a time.
    """
    with ExitStack() as after:
        after.enter_context(_ONE_AT_A_TIME)
        after.enter_context(torch.inference_mode(False))
        after.enter_context(warnings.catch_warnings(action="ignore"))  # a warning about a record would reveal it
        after.enter_context(np.errstate(all="ignore"))
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                after.callback(torch.set_autocast_enabled, device, True)
                torch.set_autocast_enabled(device, False)
        if torch.get_default_dtype() != dtype:
            after.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(dtype)
        for part in (torch.backends, *_ONEDNN):
            if getattr(part, "fp32_precision", "none") not in ("none", "ieee"):
                after.callback(setattr, part, "fp32_precision", part.fp32_precision)
                part.fp32_precision = "ieee"
        if torch.get_float32_matmul_precision() != "highest":
            after.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
        if torch.are_deterministic_algorithms_enabled():
            warns = torch.is_deterministic_algorithms_warn_only_enabled()
            after.callback(torch.use_deterministic_algorithms, True, warn_only=warns)
            torch.use_deterministic_algorithms(False)
        if _flushes_denormals():
            after.callback(torch.set_flush_denormal, True)
            torch.set_flush_denormal(False)
        if torch.get_num_threads() != threads:
            after.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(threads)
        # Other forms of attention have no `vmap`, and use products of their own.
        after.enter_context(sdpa_kernel(SDPBackend.MATH))
        if torch.backends.mkldnn.is_available() and not torch.backends.mkldnn.enabled:
            after.callback(torch.backends.mkldnn.set_flags, False)
            torch.backends.mkldnn.set_flags(True)
        if torch.cuda.is_available():
            now = torch.backends.cudnn
            # cuDNN would round factors to TF32, and choose its algorithm by timing.
            after.enter_context(now.flags(enabled=now.enabled, benchmark=False, deterministic=True, allow_tf32=False))
        yield


def refuse_flushing_threads(threads: int) -> None:
    """Raise if one of torch's threads flushes denormal numbers to zero, which cannot be changed once the thread has started.

    Every thread computes part of a long row. That takes a third of a millisecond, so it is done once, when a run starts.
    """
    if threads == 1:  # `own_arithmetic` handles the only one
        return
    if bool((torch.full((threads * _GRAIN,), 2.0**-1074, dtype=torch.float64).mul_(1.0) == 0).any()):
        raise PrivacyError(
            "torch's threads flush denormal numbers to zero, because torch.set_flush_denormal(True) was called before they "
            "started; the rounding of a record would then depend on its place. Remove that call, or use torch.set_num_threads(1)"
        )


def _flushes_denormals() -> bool:
    """Return whether this thread flushes denormal numbers to zero; torch has no function for that."""
    return bool(torch.tensor(2.0**-1074, dtype=torch.float64).mul(1.0) == 0)
