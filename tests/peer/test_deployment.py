"""What keeps a site running: the systemd unit, the container file, the words to systemd, and health by gRPC."""

import asyncio
import errno
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tacit.peer.systemd import notify_systemd
from tacit.peer.wire import tls
from tests.peer import unit_limits
from tests.peer.consortia import NAMES
from tests.peer.sites import Consortium
from tests.peer.wires import linked, make_pair

ROOT = Path(__file__).parents[2]
PEER = ROOT / "examples" / "peer"
UNIT = PEER / "tacit-peer@.service"
INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENV", "ENTRYPOINT", "CMD"}


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze to check the unit with"
)
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "tacit-peer@.service"
    text = (PEER / unit.name).read_text()
    unit.write_text(text.replace("/opt/tacit/bin/tacit", "/bin/true"))  # the program must be there
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    about = [line for line in done.stderr.splitlines() if "tacit-peer" in line]  # it also reads other units
    assert (done.returncode, about) == (0, [])
    assert "Type=notify" in text
    for hardening in ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=\n", "UMask=0077"):
        assert hardening in text


@pytest.mark.skipif(bool(unit_limits.why_not()), reason=unit_limits.why_not())
def test_the_unit_allows_what_torch_and_numpy_do_and_hides_no_processor_from_them():
    """MKL asks for processors when it is loaded, OpenBLAS places its memory, and without /proc/cpuinfo torch computes without vector instructions."""
    code = "import numpy, torch, grpc; print(torch.backends.cpu.get_cpu_capability())"
    done = subprocess.run(unit_limits.command_under(UNIT, sys.executable, "-c", code), capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, torch.backends.cpu.get_cpu_capability()), done.stderr


@pytest.mark.skipif(bool(unit_limits.why_not()), reason=unit_limits.why_not())
def test_a_call_that_the_unit_does_not_allow_fails_and_does_not_end_the_site():
    code = "import ctypes; c = ctypes.CDLL(None, use_errno=True); print(c.ptrace(0, 0, 0, 0), ctypes.get_errno())"
    done = subprocess.run(unit_limits.command_under(UNIT, sys.executable, "-c", code), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"-1 {errno.EPERM}\n")


@pytest.mark.slow
@pytest.mark.skipif(bool(unit_limits.why_not()), reason=unit_limits.why_not())
def test_sites_run_to_their_end_under_the_limits_of_the_unit(tmp_path):
    trial = Consortium(tmp_path, 2, noise="cancelling", curious=0, source="secret")
    run = [sys.executable, "-m", "tacit", "peer", "run", "--site"]
    sites = [
        subprocess.Popen(unit_limits.command_under(UNIT, *run, str(tmp_path / name)), stderr=subprocess.PIPE, text=True)
        for name in NAMES[:2]
    ]
    ended = [site.communicate(timeout=400) for site in sites]
    assert [site.returncode for site in sites] == [0, 0], ended
    assert all(trial.run_folder(number).summary_file.exists() for number in range(2))


def test_the_container_file_copies_what_there_is_and_drops_root():
    """No engine built it here: this is all that is known about it."""
    joined = (PEER / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    assert {name for name, _ in lines} == INSTRUCTIONS
    assert lines[0][0] == "FROM"
    sources = [word for name, rest in lines if name == "COPY" for word in shlex.split(rest)[:-1]]
    assert all((ROOT / source).exists() for source in sources)
    names = [name for name, _ in lines]
    assert dict(lines)["USER"] == "10001"
    assert max(place for place, name in enumerate(names) if name == "RUN") < names.index("USER")
    assert all(re.fullmatch(r'\[".+"\]', rest) for name, rest in lines if name in ("ENTRYPOINT", "CMD"))


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_where_it_asks_for_it(tmp_path, monkeypatch, abstract):
    name = f"tacit-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}" if abstract else name)
        systemd.settimeout(5)
        notify_systemd("READY=1")
        assert systemd.recv(100) == b"READY=1"
    notify_systemd("STOPPING=1")  # nobody listens any more, which must not end a site
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_systemd("STOPPING=1")


def test_members_can_ask_for_health_and_strangers_cannot(tmp_path):
    sites, agreement = make_pair(tmp_path)
    key = tls.issue_tls_key(sites[1])
    stranger = grpc.ssl_channel_credentials(sites[0].card.certificate.encode())

    async def ask(credentials):
        options = [("grpc.ssl_target_name_override", tls.tls_name(sites[0].card))]
        async with grpc.aio.secure_channel(sites[0].card.address, credentials, options=options) as channel:
            return await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)

    async def main():
        async with linked(sites, agreement):
            answer = await ask(tls.dialling_credentials(key, sites[0].card))
            with pytest.raises(grpc.aio.AioRpcError):
                await ask(stranger)
        return answer.status

    assert asyncio.run(main()) == health_pb2.HealthCheckResponse.SERVING
