"""What determines the bits of a run besides its settings: the processor, torch, threads, block shapes and the library's code."""

import hashlib
import platform
from functools import lru_cache
from pathlib import Path

import torch

from tacit.runs.event_types import Machine
from tacit.training.session import Session


def machine_of(session: Session) -> Machine:
    """Return what a session computes on and in which shapes."""
    shape = getattr(getattr(session.chosen.engine, "steps", None), "shape", None)
    return Machine(
        processor=processor(),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        blocks=None if shape is None else (int(shape.size), int(shape.blocks)),
        device=str(session.training.device),
        code=code_sha256(),
    )


@lru_cache(maxsize=1)
def processor() -> str:
    """Return the kind of processor, and which of its instructions torch uses: both decide how sums are rounded."""
    return f"{platform.machine()}, {_model() or 'unknown'}, {torch.backends.cpu.get_cpu_capability()}"


def code_files() -> dict[str, str]:
    """Return SHA-256 of every source file of the library, by its path within it."""
    root = Path(__file__).parents[1]
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*.py"))
    }


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """Return one hash of all source files of the library."""
    return sha256_of(code_files())


def sha256_of(files: dict[str, str]) -> str:
    """Return one hash of many: of the lines `<hash>  <path>` in the order of paths."""
    return hashlib.sha256("".join(f"{files[path]}  {path}\n" for path in sorted(files)).encode()).hexdigest()


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
