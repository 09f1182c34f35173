"""Who gets through: members with their own valid certificates, by TLS 1.3, and nobody else, whichever end dials."""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading
from datetime import timedelta

import grpc
import pytest

from tacit.peer.identity import Identity
from tacit.peer.protocol.interface import PROTOCOL
from tacit.peer.wire import tls
from tacit.peer.wire.framing import encode_opening
from tacit.peer.wire.hub import GrpcWire
from tacit.peer.wire.listening import METHOD, OPTIONS
from tests.peer.consortia import draft, make_sites
from tests.peer.wires import MOST_BYTES, Recorder, free_address


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """Three members in a ring; south and east dial north."""
    sites = make_sites(tmp_path_factory.mktemp("trio"), 3, [free_address(), free_address(), free_address()])
    return sites, draft(sites)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Identity.create(tmp_path_factory.mktemp("stranger"), "south")


def opening(agreement, name="south", run=None):
    run = agreement.run_id if run is None else run
    return encode_opening(name, bytes.fromhex(run), bytes.fromhex(agreement.hash), check=False)


def claim_to_be(other, identity):
    """Return a TLS key by this identity with a certificate that has the other one's name."""
    return tls.issue_tls_key(_Posing(identity, other))


class _Posing:
    def __init__(self, identity, other):
        self.card, self.issue = other.card, identity.issue


async def try_to_dial(sites, agreement, credentials, first, name_of=None):
    """Dial north as somebody does, and return what north's core was told of it and how the call ended."""
    north, recorder = GrpcWire(sites[0], agreement, most_bytes=MOST_BYTES), Recorder()
    north.core = recorder
    await north.start()
    options = [*OPTIONS, ("grpc.ssl_target_name_override", tls.tls_name((name_of or sites[0]).card))]
    address = sites[0].card.address
    channel = (
        grpc.aio.insecure_channel(address, options=OPTIONS)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=options)
    )
    try:
        call = channel.stream_stream(METHOD)()
        async with asyncio.timeout(10):
            await call.write(first)
            answer = await call.read()
        ended = "answered" if isinstance(answer, bytes) else str(await call.details())
    except grpc.aio.AioRpcError as error:
        ended = f"{error.code().name}: {error.details()}"
    finally:
        await channel.close()
        await north.stop()
    return recorder.calls, ended


def roots(site):
    return site.card.certificate.encode()


def test_a_member_with_its_own_certificate_gets_through(trio):
    """The check of the checks: the same dialling as below works when nothing is wrong."""
    sites, agreement = trio
    key = tls.issue_tls_key(sites[1])
    credentials = grpc.ssl_channel_credentials(roots(sites[0]), key.private, key.certificate)
    calls, ended = asyncio.run(try_to_dial(sites, agreement, credentials, opening(agreement)))
    assert ("connected", 1) in calls
    assert ended == "answered"


def test_nobody_else_gets_through(trio, stranger):
    sites, agreement = trio
    south, east = sites[1], sites[2]

    def by(key):
        return grpc.ssl_channel_credentials(roots(sites[0]), key.private, key.certificate)

    attempts = {
        "plaintext": (None, opening(agreement)),
        "no certificate": (grpc.ssl_channel_credentials(roots(sites[0])), opening(agreement)),
        "foreign": (by(tls.issue_tls_key(stranger)), opening(agreement)),
        "foreign with a member's name": (by(claim_to_be(south, stranger)), opening(agreement)),
        "expired": (by(tls.issue_tls_key(south, lifetime=timedelta(hours=-1))), opening(agreement)),
        "another member's": (by(tls.issue_tls_key(east)), opening(agreement, "south")),
        "another member's with this one's name": (by(claim_to_be(south, east)), opening(agreement, "south")),
        "its own": (by(tls.issue_tls_key(sites[0])), opening(agreement, "north")),
        "another run": (by(tls.issue_tls_key(south)), opening(agreement, run="0" * 64)),
        "not an opening": (by(tls.issue_tls_key(south)), b"GET / HTTP/1.1\r\n"),
        "nothing": (by(tls.issue_tls_key(south)), b""),
    }
    accepted = {}
    for name, (credentials, first) in attempts.items():
        calls, ended = asyncio.run(try_to_dial(sites, agreement, credentials, first))
        if calls or ended == "answered":
            accepted[name] = (calls, ended)
    assert accepted == {}


def test_an_ed25519_certificate_fails_in_the_handshake(trio):
    """Why there is a P-256 key: when grpc can do without, this test says so."""
    from datetime import UTC, datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.x509.oid import NameOID

    sites, agreement = trio
    key, name = Ed25519PrivateKey.generate(), tls.tls_name(sites[1].card)
    certificate = sites[1].issue(
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    credentials = grpc.ssl_channel_credentials(
        roots(sites[0]), private, certificate.public_bytes(serialization.Encoding.PEM)
    )
    calls, ended = asyncio.run(try_to_dial(sites, agreement, credentials, opening(agreement)))
    assert calls == []
    assert "UNAVAILABLE" in ended or "INTERNAL" in ended


def handshake(address, version, key, tmp_path):
    """Return the version that a handshake with these credentials ends with, by Python's own TLS; None if it fails."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    context.set_ciphers("ALL:@SECLEVEL=0")
    path = tmp_path / "pair.pem"
    path.write_bytes(key.private + key.certificate)
    context.load_cert_chain(path)
    try:
        with socket.create_connection((host, int(port)), timeout=5) as plain, context.wrap_socket(plain) as wrapped:
            return wrapped.version()
    except (ssl.SSLError, OSError):
        return None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_handshake_that_is_downgraded_fails(trio, tmp_path):
    sites, agreement = trio
    key = tls.issue_tls_key(sites[1])
    found = {}

    async def play():
        north = GrpcWire(sites[0], agreement, most_bytes=MOST_BYTES)
        north.core = Recorder()
        await north.start()
        versions = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
        for version in versions:
            found[version.name] = await asyncio.to_thread(handshake, sites[0].card.address, version, key, tmp_path)
        await north.stop()

    asyncio.run(play())
    assert found == {"TLSv1": None, "TLSv1_1": None, "TLSv1_2": None, "TLSv1_3": "TLSv1.3"}


def test_a_process_that_imported_grpc_too_early_is_refused():
    code = "import grpc, tacit.peer.wire.tls as tls; tls.require_tls_1_3()"
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_SSL_CIPHER_SUITES"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "grpc was imported before Tacit's wire and would accept TLS 1.2" in ended.stderr


def test_a_connection_whose_version_is_not_known_to_be_1_3_is_refused(trio):
    sites, _ = trio
    cards = {1: sites[1].card}
    facts = {"x509_pem_cert": [tls.issue_tls_key(sites[1]).certificate], "ssl_tls_version": [b"TLSv1.3"]}
    assert tls.member_of(facts, cards) == 1
    for version in ([b"TLSv1.2"], [], [b""]):
        with pytest.raises(tls.NetworkError, match=r"instead of TLS 1\.3"):
            tls.member_of({**facts, "ssl_tls_version": version}, cards)


def test_a_certificate_that_the_library_cannot_read_is_refused(trio):
    """A member can sign whatever it likes: another version of X.509, or two extensions where there may be one."""
    sites, _ = trio
    made = tls.issue_tls_key(sites[1]).certificate
    der, name = ssl.PEM_cert_to_DER_cert(made.decode()), bytes.fromhex("0603551d11")  # subjectAltName
    assert der.count(name) == 1
    for what, instead in (
        (bytes.fromhex("a003020102"), bytes.fromhex("a00302011c")),
        (name, bytes.fromhex("0603551d25")),
    ):
        changed = ssl.DER_cert_to_PEM_cert(der.replace(what, instead)).encode()
        with pytest.raises(tls.NetworkError, match="no readable certificate"):
            tls.member_of({"x509_pem_cert": [changed], "ssl_tls_version": [b"TLSv1.3"]}, {1: sites[1].card})


class _OldServer:
    """Listens with Python's own TLS, or without any, and says hello to whoever completes a handshake."""

    def __init__(self, key, version, tmp_path):
        self.completed = 0
        self._context = None
        if version is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.minimum_version = self._context.maximum_version = version
            self._context.set_alpn_protocols(["h2"])
            path = tmp_path / "server.pem"
            path.write_bytes(key.private + key.certificate)
            self._context.load_cert_chain(path)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            try:
                with plain:
                    end = plain if self._context is None else self._context.wrap_socket(plain, server_side=True)
                    self.completed += self._context is not None
                    end.sendall(b"\0\0\0\4\0\0\0\0\0")  # the settings of HTTP/2
                    end.recv(1000)
            except (ssl.SSLError, OSError):
                continue

    def close(self):
        self._socket.close()


def dial_out(sites, agreement, address, seconds=1.5):
    """Let south dial north at another address, and return what its core was told and why the link is down."""
    members = [member.model_dump() for member in agreement.members]
    members[0]["address"] = address
    moved = type(agreement).of({**agreement.model_dump(exclude_none=True), "members": members}, "it")

    async def play():
        south, recorder = GrpcWire(sites[1], moved, most_bytes=MOST_BYTES), Recorder()
        south.core = recorder
        dialler = asyncio.create_task(south._dial(0))
        done, _ = await asyncio.wait([dialler], timeout=seconds)
        why = dialler.result() if done else "still waiting"
        dialler.cancel()
        await asyncio.gather(dialler, return_exceptions=True)
        return recorder.calls, why

    return asyncio.run(play())


@pytest.mark.parametrize("kind", ["TLS 1.2", "plaintext"])
def test_who_dials_does_not_accept_an_old_server(trio, tmp_path, kind):
    sites, agreement = trio
    version = ssl.TLSVersion.TLSv1_2 if kind == "TLS 1.2" else None
    server = _OldServer(tls.issue_tls_key(sites[0]), version, tmp_path)
    calls, _ = dial_out(sites, agreement, server.address)
    server.close()
    assert calls == []
    assert server.completed == 0


def test_who_dials_accepts_only_the_member_that_it_dials(trio, stranger):
    sites, agreement = trio
    keys = {
        "foreign": tls.issue_tls_key(stranger),
        "foreign with its name": claim_to_be(sites[0], stranger),
        "expired": tls.issue_tls_key(sites[0], lifetime=timedelta(hours=-1)),
        "another member's": tls.issue_tls_key(sites[2]),
        "another member's with its name": claim_to_be(sites[0], sites[2]),
    }
    served, accepted = [], {}

    async def serve(_, context):
        served.append(await context.read())

    def listen(key):
        handler = grpc.stream_stream_rpc_method_handler(serve)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tacit.peer.Peer", {"Link": handler}),))
        credentials = grpc.ssl_server_credentials(
            [(key.private, key.certificate)], root_certificates=roots(sites[1]), require_client_auth=True
        )
        return server, server.add_secure_port("127.0.0.1:0", credentials)

    for name, key in keys.items():

        async def play(key=key):
            server, port = listen(key)
            await server.start()
            members = [member.model_dump() for member in agreement.members]
            members[0]["address"] = f"127.0.0.1:{port}"
            moved = type(agreement).of({**agreement.model_dump(exclude_none=True), "members": members}, "it")
            south, recorder = GrpcWire(sites[1], moved, most_bytes=MOST_BYTES), Recorder()
            south.core = recorder
            why = await south._dial(0)
            await server.stop(0)
            return recorder.calls, why

        calls, why = asyncio.run(play())
        if calls or served or "certificate is not that of the member" not in why:
            accepted[name] = (calls, why)
    assert accepted == {}


def test_an_opening_by_another_protocol_or_software_is_refused(trio, monkeypatch):
    sites, agreement = trio
    key = tls.issue_tls_key(sites[1])
    credentials = grpc.ssl_channel_credentials(roots(sites[0]), key.private, key.certificate)
    from tacit.peer.wire import framing

    for name, value, said in (
        ("PROTOCOL", PROTOCOL + 1, f"version {PROTOCOL + 1} of the protocol"),
        ("__version__", "9.9.9", "another version of Tacit"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(framing, name, value)
            first = opening(agreement)
        calls, ended = asyncio.run(try_to_dial(sites, agreement, credentials, first))
        assert calls == []
        assert said in ended
