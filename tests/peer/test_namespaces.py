"""Real sites, one process and one network namespace each, over a network that delays, loses and partitions (`emulated_network.py`)."""

import os
import re
import signal
import subprocess
import sys
import time

import networkx as nx
import pytest
import torch
from emulated_network import EmulatedNetwork, missing_for_namespaces

from benchmarks.peer_count import FAULTS, count_releases
from tacit.peer.agreement.drafting import change_agreement
from tacit.peer.agreement.signed import read_chain
from tacit.runs.event_types import LinksEvent
from tests.peer.sites import LIMITS, Consortium

pytestmark = pytest.mark.slow

RING = [(0, 1), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)]
RANDOM = sorted(nx.gnp_random_graph(6, 0.5, seed=1).edges)
IMPATIENT = {**LIMITS, "compute_seconds": 4.0, "linger_seconds": 60.0}


@pytest.fixture(autouse=True)
def _skip_without_namespaces():
    if (missing := missing_for_namespaces()) is not None:
        pytest.skip(missing)


class Sites:
    """A consortium on an emulated network, with a process for each site."""

    def __init__(self, folder, network, **options):
        addresses = [network.address(site) for site in network.sites]
        self.consortium = Consortium(folder, len(addresses), addresses=addresses, **options)
        self.folder, self.network = folder, network
        self.names = [identity.name for identity in self.consortium.identities]
        self.processes = [self._start(site) for site in network.sites]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    def _start(self, site):
        folder = self.folder / self.names[site]
        words = [*self.network.command(site), sys.executable, "-m", "tacit", "peer", "run", "--site", str(folder)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def played(self, site):
        """Return the last round that a site has completed."""
        file = self.consortium.run_folder(site).events_file
        rounds = re.findall(rb'"event": "links".*?"round": (\d+)', file.read_bytes()) if file.exists() else []
        return int(rounds[-1]) if rounds else 0

    def links(self, site):
        """Return what each round that a site took part in used and skipped."""
        return [event for event in self.consortium.run_folder(site).events() if isinstance(event, LinksEvent)]

    def until(self, condition, seconds=900):
        """Wait, and fail if a process fails or the time is over."""
        end = time.monotonic() + seconds
        while not condition():
            for site, process in enumerate(self.processes):
                assert process.poll() in (None, 0, -signal.SIGKILL), f"{self.names[site]}: {self.log(site)}"
            assert time.monotonic() < end, f"nothing more happened: {[self.log(site) for site in self.network.sites]}"
            time.sleep(0.3)

    def until_ended(self, sites):
        self.until(lambda: all(self.processes[site].poll() == 0 for site in sites))

    def until_round(self, round, sites):
        self.until(lambda: all(self.played(site) >= round for site in sites))

    def log(self, site):
        return (self.folder / self.names[site] / "log").read_text()[-1000:]

    def check(self, *, gone=()):
        """Look at all disks from outside: nothing uncounted, no disagreement; return how many exchanges over links each site used."""
        names = {name: self.folder / name for name in self.names}
        found = count_releases(self.consortium.agreement, names, gone=gone)
        assert {fault: found[fault] for fault in FAULTS} == dict.fromkeys(FAULTS, 0)
        for site in found["sites"]:
            assert 0 < site["released_rounds"] <= site["charged"]
        return [site["links_used"] for site in found["sites"]]

    def check_summaries(self, sites, used):
        """The number of links that was used is in the result of every site."""
        for site in sites:
            summary = self.consortium.run_folder(site).summary()
            degree = sum(site in pair for pair in self.consortium.agreement.edges)
            assert (summary["links_used"], summary["rounds"]) == (used[site], self.consortium.config.rounds)
            assert used[site] <= summary["links_planned"] <= degree * summary["rounds"]


@pytest.mark.parametrize("pairs", [RING, RANDOM], ids=["ring", "random"])
def test_under_loss_and_delay_the_models_are_those_of_one_process(tmp_path, pairs):
    with (
        EmulatedNetwork(6, seed=1, loss=0.03, delay=0.01, jitter=0.02) as network,
        Sites(tmp_path, network, pairs=pairs, rounds=25) as sites,
    ):
        sites.until_ended(network.sites)
        assert network.bridge.counts["lost"] > 20
    used = sites.check()
    sites.check_summaries(network.sites, used)
    assert sum(used) == 2 * 25 * len(pairs)
    assert torch.equal(sites.consortium.theta(), sites.consortium.theta_in_one_process())


@pytest.mark.parametrize("seconds", [6, 30], ids=["short", "long enough to end connections"])
def test_a_partition_heals(tmp_path, seconds):
    """One half of a ring plays on; in the other, voters wait for deciders beyond the cut, and so does who has no other neighbours.

    When it has healed, the links between the halves are used again. Nobody plays alone meanwhile.
    """
    halves, between = ((0, 1, 2), (3, 4, 5)), [(2, 3), (0, 5)]
    delay = 0.1
    rounds = 40 + int(
        seconds / (2 * delay)
    )  # a round takes a message there and one back, so some are left when it heals
    with (
        EmulatedNetwork(6, seed=2, loss=0.01, delay=delay, jitter=0.02) as network,
        Sites(tmp_path, network, pairs=RING, limits=IMPATIENT, rounds=rounds) as sites,
    ):
        sites.until_round(5, network.sites)
        network.partition(*halves)
        parted = [sites.played(site) for site in network.sites]
        time.sleep(seconds)
        healed = [sites.played(site) for site in network.sites]
        network.heal()
        assert network.bridge.counts["blocked"] > 0
        sites.until_ended(network.sites)
    used = sites.check()
    sites.check_summaries(network.sites, used)
    for low, high in between:
        skipped = [event.round for event in sites.links(low) if high in event.skipped]
        assert any(parted[low] < round <= healed[low] + 1 for round in skipped)
        assert any(high in event.used for event in sites.links(low) if event.round > healed[low] + 1)
    inside = [event for event in sites.links(1) if parted[1] < event.round <= healed[1] and 2 in event.used]
    assert inside, "nobody played on"
    for site in network.sites:
        alone = [event.round for event in sites.links(site) if not event.used]
        assert len(alone) <= 2, f"{sites.names[site]} played rounds {alone} alone"


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_a_site_that_is_gone_is_declared_gone_and_the_others_end(tmp_path, how):
    left, lost = (0, 1, 2, 3, 5), 4
    with (
        EmulatedNetwork(6, seed=3, loss=0.01, delay=0.03, jitter=0.01) as network,
        Sites(tmp_path, network, pairs=RANDOM, limits=IMPATIENT, rounds=100) as sites,
    ):
        sites.until_round(5, network.sites)
        if how == "killed":
            sites.processes[lost].kill()
        else:
            network.partition(left, (lost,))
        sites.until_round(20, set(left) - neighbors_of(lost))  # nobody waits for it but those that may have voted
        consortium, name = sites.consortium, sites.names[lost]
        after = change_agreement(consortium.agreement, gone=[name])
        present = [consortium.identities[site] for site in left]
        consortium.sign(after, present, present[:1])
        sites.processes[0].send_signal(signal.SIGHUP)
        sites.until_ended(left)
    used = sites.check(gone=[name])
    sites.check_summaries(left, used)
    for site in left:
        assert read_chain(tmp_path / sites.names[site]).current == after
    for site in neighbors_of(lost):
        assert any(lost in event.skipped for event in sites.links(site))


def neighbors_of(lost):
    return {site for pair in RANDOM if lost in pair for site in pair} - {lost}
