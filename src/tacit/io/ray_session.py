"""Starts Ray on this machine, or joins a running cluster, for the two parts that use it: runs on several ranks and searches."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

_PASSED_ON = ("PYTHONPATH", "GLOO_SOCKET_IFNAME", "TACIT_DATA")


@contextmanager
def ray_session(cpus: int, **variables: str) -> Iterator[None]:
    """Have Ray running in the context; a Ray that was running before is left as it was.

    `variables` are set for its workers, besides the variables of this process that matter to them. A Ray that is started here has at least `cpus` CPUs.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    # By default Ray's workers yield to every other process: next to two busy ones, a run does not even begin.
    os.environ.setdefault("RAY_worker_niceness", "0")
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    ray.init(
        num_cpus=None if os.environ.get("RAY_ADDRESS") else max(cpus, os.cpu_count() or 1),
        runtime_env={"env_vars": kept | variables},
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.WARNING,
    )
    try:
        yield
    finally:
        ray.shutdown()
