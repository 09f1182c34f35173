"""Times messages over a link that loses packets, under every congestion control that the kernel has: which one should sites with radio links use?

    python -m tests.peer.measure_radio --loss 0.05 --milliseconds 20

Two network namespaces are joined by the bridge of `tests/peer/emulated_network.py`, which delays and loses packets by a seed. Messages go over
one TCP connection that stays open, as a link between sites does; each is answered by a byte before the next is sent. Needs root, Linux and `ip`.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.peer.emulated_network import EmulatedNetwork, missing_for_namespaces

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_PORT = 7401


def receive(size, count):
    """Read messages and answer each by a byte."""
    with socket.create_server(("", _PORT)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        with connection:
            for _ in range(count):
                left = size
                while left:
                    read = len(connection.recv(min(left, 2**20)))
                    if not read:
                        raise ConnectionError("the other end is gone")
                    left -= read
                connection.sendall(b"+")


def send(host, size, count, control):
    """Return how many seconds each message took until it was answered."""
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        connection.connect((host, _PORT))
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            connection.sendall(bytes(size))
            connection.recv(1)
            seconds.append(time.perf_counter() - started)
        return seconds


def measure(control, *, size, count, loss, seconds, seed):
    """Send messages from one namespace to the other, each of whose packets takes half of `seconds`."""
    words = [sys.executable, "-m", "tests.peer.measure_radio", "--size", str(size), "--count", str(count)]
    with EmulatedNetwork(2, seed=seed, loss=loss, delay=seconds / 2) as network:
        host = network.address(1).rpartition(":")[0]
        reader = subprocess.Popen([*network.command(1), *words, "--receive"], stdout=subprocess.PIPE)
        try:
            reader.stdout.readline()
            sender = [*network.command(0), *words, "--send", host, "--control", control]
            done = subprocess.run(sender, capture_output=True, text=True, check=True, timeout=300)
            return json.loads(done.stdout)
        finally:
            reader.kill()
            reader.wait()


def main():
    """Measure, and print the median for each congestion control as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.peer.measure_radio", description=__doc__)
    parser.add_argument("--loss", type=float, default=0.05, help="share of packets that are lost, each way")
    parser.add_argument("--milliseconds", type=float, default=20.0, help="of a packet there and back")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes of a message")
    parser.add_argument("--count", type=int, default=10, help="messages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--receive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--send", help=argparse.SUPPRESS)
    parser.add_argument("--control", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.receive:
        receive(given.size, given.count)
    elif given.send:
        print(json.dumps(send(given.send, given.size, given.count, given.control)))
    elif why := missing_for_namespaces():
        sys.exit(why)
    else:
        shared = {"size": given.size, "count": given.count, "loss": given.loss, "seconds": given.milliseconds / 1000}
        for control in AVAILABLE.read_text().split():
            seconds = measure(control, **shared, seed=given.seed)
            facts = {"control": control, "median": statistics.median(seconds), "longest": max(seconds)}
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
