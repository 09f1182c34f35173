"""torchrun on two machines: two network namespaces, each with an agent of torchrun and one rank, with and without a folder that both see."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from playing import SETTINGS

from tacit.privacy import DurableLedger
from tacit.runs.folder import LEDGER
from tests.peer.emulated_network import EmulatedNetwork, missing_for_namespaces

LIMIT = 900  # seconds until a run counts as hung, beside other tests, too

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_for_namespaces() is not None, reason=str(missing_for_namespaces())),
]


@contextmanager
def two_machines(folder, *, rounds, shared, restarts=3):
    """Start torchrun on both and yield its two agents. Without `shared`, each machine has a folder `runs` of its own."""
    settings = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (SETTINGS | {"rounds": rounds}).items())
    (folder / "run.toml").write_text(settings)
    (folder / "runs").mkdir()
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "198.18.0.1:29400", "--rdzv-id", "two"]
    words += ["--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    rank = ["-m", "tacit.cluster", "run.toml", "--name", "one", "--quiet", "--deadline", "300"]
    own = [] if shared else ["sh", "-c", 'mount -t tmpfs tacit runs && exec "$@"', "sh"]
    with EmulatedNetwork(2, seed=0) as network, ExitStack() as ending:
        agents = []
        for site in network.sites:
            log = ending.enter_context((folder / f"machine-{site}.txt").open("w"))
            # Agents go by the name of their machine, which both namespaces share.
            where = ["--rdzv-conf", f"is_host={1 - site}", "--local-addr", f"198.18.0.{site + 1}"]
            command = [*network.command(site), *own, *words, *where, *rank]
            variables = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": network.interface(site)}
            agents.append(
                subprocess.Popen(
                    command, cwd=folder, env=variables, stdout=log, stderr=subprocess.STDOUT, process_group=0
                )
            )
            ending.callback(_end, agents[-1])
        yield agents


def _end(agent):
    for number in (signal.SIGTERM, signal.SIGKILL):
        if agent.poll() is None:
            os.killpg(agent.pid, number)
            try:
                agent.wait(30)
            except subprocess.TimeoutExpired:
                continue


def said_by(folder):
    return "\n".join((folder / f"machine-{site}.txt").read_text() for site in range(2))


def rank_of(agent):
    """Return the process of the rank that an agent of torchrun has started, once it is there; all of its processes have its group."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        for process in Path("/proc").iterdir():
            try:
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == agent.pid and b"tacit.cluster" in (process / "cmdline").read_bytes():
                    return int(process.name)
            except (OSError, ValueError, IndexError):
                continue
        time.sleep(0.1)
    raise AssertionError("no rank has started")


def wait_for_checkpoint(folder):
    until, events = time.monotonic() + LIMIT, folder / "runs" / "one" / "events.jsonl"
    while time.monotonic() < until:
        if events.exists() and '"event": "checkpoint"' in events.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"no checkpoint within {LIMIT} s: {said_by(folder)[-3000:]}")


def test_a_run_on_two_machines_survives_a_kill_of_a_rank_and_is_that_of_one_process(tmp_path):
    with two_machines(tmp_path, rounds=150, shared=True) as agents:
        wait_for_checkpoint(tmp_path)
        os.kill(rank_of(agents[1]), signal.SIGKILL)
        codes = [agent.wait(LIMIT) for agent in agents]
    assert codes == [0, 0], said_by(tmp_path)[-3000:]
    again = [sys.executable, "-m", "tacit", "train", "run.toml", "--workers", "1", "--name", "alone", "--quiet"]
    subprocess.run([*again, "--runs", "unharmed"], cwd=tmp_path, check=True, capture_output=True, timeout=LIMIT)
    hashes = {
        json.loads((tmp_path / name / "summary.json").read_text())["models_sha256"]
        for name in ("runs/one", "unharmed/alone")
    }
    assert len(hashes) == 1
    with closing(DurableLedger(tmp_path / "runs" / LEDGER, read_only=True)) as ledger:
        assert ledger.verify() == []
        account = ledger.account("one")
    assert account is not None
    assert 150 <= account.spent <= 151
    assert '"event": "resume"' in (tmp_path / "runs" / "one" / "events.jsonl").read_text()


def test_machines_that_do_not_share_the_folder_end_with_one_sentence(tmp_path):
    with two_machines(tmp_path, rounds=8, shared=False, restarts=0) as agents:
        codes = [agent.wait(LIMIT) for agent in agents]
    assert 0 not in codes
    said = said_by(tmp_path)
    assert len(re.findall(r"rank 1: this rank does not see the run's folder \S+runs/one", said)) == 1, said[-3000:]
