"""Starts the same worker on Ray: its TorchTrainer places the ranks, makes their group and starts them again after a failure."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

from tacit.cluster.group import LOST
from tacit.errors import InvalidInput, RankFailed, TacitError
from tacit.io.ray_session import ray_session

PlayRank = Callable[..., int]
_POLL = 0.2  # seconds


def check_ray() -> None:
    """Refuse a run on Ray where that is not installed."""
    try:
        import ray.train.torch  # noqa: F401
    except ImportError:
        raise InvalidInput(
            "--on ray needs Ray Train: install tacit with the extra 'ray' (pip install 'tacit[ray]')"
        ) from None


def train_on_ray(
    play_rank: PlayRank, arguments: Mapping[str, Any], ranks: int, *, restarts: int, storage: Path, threads: int = 1
) -> None:
    """Call `play_rank(**arguments)` on `ranks` of Ray's workers; raise the error of a rank that fails.

    `storage` is where Ray keeps its own notes. The run's folder must be on a file system that all workers see, and so must
    `storage`: what rank 0 prints goes to files beside it, and is printed here.
    """
    check_ray()
    from ray import train
    from ray.train.torch import TorchConfig, TorchTrainer

    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    here, mistake = os.getcwd(), storage.with_name("mistake.txt")
    printed = storage.with_name("results.txt"), storage.with_name("messages.txt")

    def work(given: dict[str, Any]) -> None:
        os.chdir(here)
        rank = os.environ["RANK"] = str(train.get_context().get_world_rank())
        try:
            with ExitStack() as printing:
                if rank == "0":
                    for path, redirected in zip(printed, (redirect_stdout, redirect_stderr), strict=True):
                        file = printing.enter_context(path.open("a", encoding="utf-8", buffering=1))
                        printing.enter_context(redirected(file))
                code = play_rank(**given)
        except TacitError as error:
            # Ray starts ranks again whatever they fail with, and this would fail again.
            mistake.write_text(str(error), encoding="utf-8")
            return
        if code == LOST:
            raise RankFailed(f"rank {rank} lost another rank")

    with ray_session(ranks, OMP_NUM_THREADS=str(threads), TACIT_ON_RAY="1"):
        trainer = TorchTrainer(
            work,
            train_loop_config=dict(arguments),
            torch_config=TorchConfig(backend="gloo", timeout_s=int(arguments["deadline"])),
            scaling_config=train.ScalingConfig(num_workers=ranks, resources_per_worker={"CPU": 1}),
            run_config=train.RunConfig(
                name=f"{arguments['name']}",
                storage_path=str(storage),
                failure_config=train.FailureConfig(max_failures=restarts),
            ),
        )
        try:
            with copied(dict(zip(printed, (sys.stdout, sys.stderr), strict=True))):
                trainer.fit()
        except Exception as error:
            raise RankFailed(_last_line(error)) from error
        if mistake.exists():
            raise RankFailed(mistake.read_text(encoding="utf-8"))


@contextmanager
def copied(files: Mapping[Path, TextIO]) -> Iterator[None]:
    """Copy all lines that are written to these files, as soon as they are there, to streams."""
    ended, places = threading.Event(), dict.fromkeys(files, 0)

    def copy_lines() -> None:
        for path, stream in files.items():
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(places[path])
                whole = file.read().rpartition(b"\n")
                places[path] += len(whole[0]) + len(whole[1])
                stream.write((whole[0] + whole[1]).decode())
                stream.flush()

    def watch() -> None:
        while not ended.wait(_POLL):
            copy_lines()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        copy_lines()


def _last_line(error: BaseException) -> str:
    """Return the sentence at the end of what Ray raised, which is that of a rank."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
