"""A network on this machine for real processes: a namespace for every site, and a bridge between them that delays, loses and partitions.

The bridge is a thread that reads Ethernet frames from the veth pair of one site and writes them to that of another, as not every kernel has
netem. The fate of the nth packet from one site to another follows from the seed. Needs root and the program `ip`.
"""

import array
import fcntl
import heapq
import os
import selectors
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from itertools import count
from random import Random

PORT = 7400
_ALL, _IPV4, _ARP, _OUTGOING = 0x0003, b"\x08\x00", b"\x08\x06", 4
_SIOCETHTOOL = 0x8946
_OFFLOADS = (
    0x17,
    0x1F,
    0x24,
)  # checksums, TCP segmentation, generic segmentation: a packet must be whole when it reaches the bridge


def missing_for_namespaces():
    """Return why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip"
    name = f"tacit-try-{os.getpid()}"
    for words in (["netns", "add", name], ["-n", name, "link", "add", "try0", "type", "veth", "peer", "name", "try1"]):
        tried = subprocess.run(["ip", *words], capture_output=True, text=True)
        if tried.returncode:
            break
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return f"namespaces cannot be made here: {tried.stderr.strip()}" if tried.returncode else None


class EmulatedNetwork:
    """So many namespaces on one bridge; use it in a `with` statement.

    loss: the share of packets that are lost. delay, jitter: seconds that every packet takes, and up to how many more.
    """

    def __init__(self, sites, *, seed, loss=0.0, delay=0.0, jitter=0.0):
        self.sites = range(sites)
        token = f"{os.getpid() % 100_000:x}"
        self._namespaces = [f"tacit-{token}-{site}" for site in self.sites]
        self._near = [f"tac{token}-{site}" for site in self.sites]
        self._bridge_options = {"seed": seed, "loss": loss, "delay": delay, "jitter": jitter}

    def address(self, site):
        return f"198.18.0.{site + 1}:{PORT}"  # a range for tests of networks, RFC 2544

    def interface(self, site):
        """Return the name of the interface by which a site reaches the others."""
        return f"{self._near[site]}f"

    def command(self, site):
        """Return the words before a command that is to run at a site."""
        return ["ip", "netns", "exec", self._namespaces[site]]

    def __enter__(self):
        try:
            for site in self.sites:
                self._join(site)
            self.bridge = Bridge(self._near, **self._bridge_options)
        except BaseException:
            self._remove()
            raise
        self.bridge.start()
        return self

    def __exit__(self, *_):
        self.bridge.stop()
        self._remove()

    def partition(self, *groups):
        """Let packets pass within groups of sites only."""
        group = {site: number for number, members in enumerate(groups) for site in members}
        self.bridge.blocked = frozenset((a, b) for a in self.sites for b in self.sites if group[a] != group[b])

    def heal(self):
        self.bridge.blocked = frozenset()

    def _join(self, site):
        namespace, near, far = self._namespaces[site], self._near[site], self.interface(site)
        ip("netns", "add", namespace)
        ip("link", "add", near, "type", "veth", "peer", "name", far)
        switch_off_offloads(far)
        ip("link", "set", far, "address", mac_of(site).hex(":"), "netns", namespace)
        ip("link", "set", near, "up")
        ip("-n", namespace, "address", "add", f"198.18.0.{site + 1}/24", "dev", far)
        ip("-n", namespace, "link", "set", far, "up")
        ip("-n", namespace, "link", "set", "lo", "up")

    def _remove(self):
        for namespace, near in zip(self._namespaces, self._near, strict=True):
            subprocess.run(["ip", "link", "delete", near], capture_output=True)
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)


class Bridge(threading.Thread):
    """Carries frames between interfaces. `blocked` holds the pairs (from, to) that are cut off; `counts` what became of packets."""

    def __init__(self, interfaces, *, seed, loss, delay, jitter):
        super().__init__(daemon=True)
        self._loss, self._delay, self._jitter = loss, delay, jitter
        self._sockets = [listen_to(interface) for interface in interfaces]
        sites = range(len(interfaces))
        self._chances = {(a, b): Random(f"{seed} {a} {b}") for a in sites for b in sites}
        self._due, self._order, self._ended = [], count(), threading.Event()
        self.blocked = frozenset()
        self.counts = Counter()

    def stop(self):
        self._ended.set()
        self.join()
        for each in self._sockets:
            each.close()

    def run(self):
        with selectors.DefaultSelector() as ready:
            for site, each in enumerate(self._sockets):
                ready.register(each, selectors.EVENT_READ, site)
            while not self._ended.is_set():
                wait = self._due[0][0] - time.monotonic() if self._due else 0.05
                for key, _ in ready.select(min(max(wait, 0), 0.05)):
                    self._receive(key.data)
                self._deliver()

    def _receive(self, site):
        for _ in range(64):
            try:
                frame, about = self._sockets[site].recvfrom(65536)
            except BlockingIOError:
                return
            if about[2] == _OUTGOING or frame[12:14] not in (_IPV4, _ARP):
                continue
            everybody = bool(frame[0] & 1)
            for to in range(len(self._sockets)):
                if to != site and (everybody or frame[:6] == mac_of(to)):
                    self._take(site, to, frame)

    def _take(self, site, to, frame):
        chance = self._chances[site, to]
        lost, late = chance.random() < self._loss, self._jitter * chance.random()
        if (site, to) in self.blocked:
            self.counts["blocked"] += 1
        elif lost:
            self.counts["lost"] += 1
        else:
            heapq.heappush(self._due, (time.monotonic() + self._delay + late, next(self._order), to, frame))

    def _deliver(self):
        while self._due and self._due[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(self._due)
            try:
                self._sockets[to].send(frame)
                self.counts["carried"] += 1
            except OSError:  # the queue of the interface is full
                self.counts["lost"] += 1


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def mac_of(site):
    return bytes([2, 0, 0, 0, 0, site])


def listen_to(interface):
    """Return a socket that sends and receives whole Ethernet frames on one interface."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.bind((interface, _ALL))
    made.setblocking(False)
    return made


def switch_off_offloads(interface):
    """Do what `ethtool -K interface tx off tso off gso off` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _OFFLOADS:
            value = array.array("I", [command, 0])
            request = struct.pack("16sP16x", interface.encode(), value.buffer_info()[0])
            fcntl.ioctl(control, _SIOCETHTOOL, request)
