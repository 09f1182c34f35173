"""A consortium on one machine: real processes with their own keys, ports and folders, started by one command.

Each process is `tacit peer run`, as it would be at a site of its own. Nothing here takes part in the protocol.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from tacit.errors import InvalidInput, ProcessLost
from tacit.io.stopping import signals_delayed
from tacit.peer.agreement.document import Agreement, version_file
from tacit.peer.agreement.drafting import add_member, connect_members, draft_agreement
from tacit.peer.agreement.signed import save_signature, sign_agreement
from tacit.peer.agreement.terms import SITES_OWN, check_terms
from tacit.peer.identity import Identity
from tacit.peer.settings import SiteSettings
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder

_STOP_SECONDS = 3.0
_PATIENCE = 20.0


@dataclass
class DemoSite:
    """One site of the demonstration, and its process while there is one."""

    name: str
    folder: Path
    page: str
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def log_file(self) -> Path:
        """Where the process writes its logs."""
        return self.folder / "peer.log"

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How its last process ended."""
        return None if self.process is None else self.process.poll()

    def start(self) -> None:
        """Start the process of this site."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        with self.log_file.open("ab") as log, signals_delayed():  # interrupted in between, nobody would end it
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tacit", "peer", "run", "--site", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.starts += 1

    def kill(self) -> None:
        """End the process as a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> None:
        """Ask the process to end at the end of a round."""
        if self.process is not None and self.running:
            self.process.send_signal(signal.SIGTERM)

    def ask(self) -> dict[str, Any]:
        """Return what the site's page says now, or what it said last."""
        try:
            with build_opener(ProxyHandler({})).open(f"http://{self.page}/status", timeout=2) as answer:
                self.last = json.loads(answer.read())
        except (URLError, OSError, ValueError):
            pass
        return self.last


class Demo:
    """All sites of a demonstration. `prepare` makes their folders, `start` their processes."""

    def __init__(self, sites: list[DemoSite], agreement: Agreement, config: RunConfig) -> None:
        self.sites, self.agreement, self.config = sites, agreement, config

    @staticmethod
    def prepare(
        folder: Path, config: RunConfig, *, limits: Mapping[str, Any] | None = None, evaluate_every: int | None = None
    ) -> "Demo":
        """Make keys, cards, the agreement and all signatures of as many sites as the settings have agents."""
        count = config.agents
        if count < 2:
            raise InvalidInput(f"there are {count} sites; a consortium has at least two")
        if folder.exists() and any(folder.iterdir()):
            raise InvalidInput(f"{folder} is not empty; give a new folder")
        names = [f"site-{number:0{len(str(count - 1))}d}" for number in range(count)]
        ports = list(_free_ports(2 * count))
        identities = [
            Identity.create(folder / name, name, address=f"127.0.0.1:{port}")
            for name, port in zip(names, ports, strict=False)
        ]
        data = config.load_data()
        agreement = draft_agreement(
            config,
            data.dataset,
            title="demo",
            first=identities[0].card,
            records=data.sizes[0],
            days=1,
            limits={"compute_seconds": 120.0, **(limits or {})},
        )
        for identity, records in zip(identities[1:], data.sizes[1:], strict=True):
            agreement = add_member(agreement, identity.card, records)
        agreement = connect_members(agreement)
        check_terms(agreement)
        signatures = [sign_agreement(agreement, identity) for identity in identities]
        sites = []
        for number, name in enumerate(names):
            site = DemoSite(name, folder / name, f"127.0.0.1:{ports[count + number]}")
            agreement.save(version_file(site.folder, 1))
            for signature in signatures:
                save_signature(signature, version_file(site.folder, 1))
            SiteSettings(
                dataset=config.dataset,
                data_dir=config.data_dir,
                split=config.split,
                part=number,
                status=site.page,
                evaluate_every=evaluate_every,
                stop_seconds=_STOP_SECONDS,
            ).save(site.folder)
            sites.append(site)
        return Demo(sites, agreement, config)

    def __enter__(self) -> "Demo":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all processes."""
        for site in self.sites:
            site.start()

    def stop(self) -> None:
        """Ask all processes to end, and end those that do not: none is left, even if this is interrupted."""
        until = time.monotonic() + _PATIENCE
        try:
            for site in self.sites:
                site.terminate()
            while any(site.running for site in self.sites) and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            for site in self.sites:
                if site.running:
                    site.kill()

    @property
    def finished(self) -> bool:
        """Whether all processes have ended by themselves."""
        return all(site.exit_code == 0 for site in self.sites)

    def check(self) -> None:
        """Raise if a process has failed."""
        for site in self.sites:
            if site.exit_code not in (None, 0):
                lines = site.log_file.read_text(errors="replace").strip().splitlines()
                raise ProcessLost(
                    f"{site.name} ended with code {site.exit_code}: {lines[-1][:300] if lines else 'it said nothing'}"
                )

    def run_folder(self, site: DemoSite) -> Path:
        """Return the folder of the run at a site."""
        return site.folder / "runs" / self.agreement.run_name

    def summary(self, site: DemoSite) -> dict[str, Any] | None:
        """Return what came of the run at a site, once it is finished there."""
        return RunFolder(self.run_folder(site)).summary()

    def train_command(self) -> str:
        """Return the command that trains the same agents in one process."""
        given = self.config.model_dump(exclude_none=True, exclude_unset=True)
        words = ["tacit", "train", "--step-agents", "1", "--compile", "false"]
        for key, value in given.items():
            if key in SITES_OWN and key not in ("dataset", "split", "agents"):
                continue
            words += [f"--{key.replace('_', '-')}", str(value)]
        return " ".join(words)


def _free_ports(count: int) -> Iterator[int]:
    """Yield ports that nobody uses at the moment."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        yield from [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
