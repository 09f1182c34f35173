"""The status page of a site, on loopback alone: what its own process knows, live, in the look of a run's report.

A small server of plain HTTP: `/` the page, `/events` the run's `events.jsonl` as server-sent events, `/status` JSON, `/metrics` for
Prometheus, `/livez` and `/readyz` for whoever restarts processes. It answers GET alone, and only under a loopback name, so that no page from
elsewhere can read it through a browser.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from tacit.errors import InvalidInput
from tacit.io.files import finite
from tacit.peer.cards import check_address
from tacit.peer.views import SiteStatus
from tacit.report.html.frame import page_style, text

_MOST_REQUEST = 8192
_SECONDS = 10.0
_EVERY = 0.5
_PATIENCE = 2.0
_MOST_READERS = 16
_LINES_AT_ONCE = 2**20
_NOTHING = "default-src 'none'"
"""The policy of everything but the page itself: nothing may be loaded or run."""


class StatusPage:
    """Serves the page. `events` returns where the run's events are, once there is a folder."""

    def __init__(self, address: str, status: SiteStatus, events: Callable[[], Path | None]) -> None:
        place = check_address(address)
        assert place is not None
        self._host, self._port = place
        self._status, self._events = status, events
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    async def start(self) -> None:
        """Begin to serve."""
        try:
            self._server = await asyncio.start_server(self._accept, self._host, self._port, limit=_MOST_REQUEST)
        except OSError as error:
            raise InvalidInput(
                f"the status page cannot listen on {self._host}:{self._port}: {error.strerror}"
            ) from None

    async def stop(self) -> None:
        """Send what is left of the events, and end all connections."""
        self._ending.set()
        if self._server is not None:
            self._server.close()
        if self._readers:
            await asyncio.wait(self._readers, timeout=_PATIENCE)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._readers) >= _MOST_READERS:
            writer.close()
            return
        self._readers.add(task)
        try:
            async with asyncio.timeout(_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
            await self._answer(request, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # whoever it was hung up, or did not speak HTTP
        finally:
            self._readers.discard(task)
            writer.close()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        lines = request.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        if method != "GET" or host.strip("[]") not in ("127.0.0.1", "localhost", "::1"):
            await _send(writer, 403, "text/plain", b"GET from this machine alone\n")
            return
        status = self._status
        if path == "/":
            await _send(writer, 200, "text/html; charset=utf-8", _page(status).encode(), policy=_policy())
        elif path == "/status":
            await _send(writer, 200, "application/json", json.dumps(finite(status.to_dict())).encode())
        elif path == "/metrics":
            await _send(writer, 200, "text/plain; version=0.0.4; charset=utf-8", status.metrics())
        elif path in ("/livez", "/readyz"):
            good = status.alive if path == "/livez" else status.ready
            await _send(writer, 200 if good else 503, "text/plain", f"{status.phase}\n".encode())
        elif path == "/events":
            await self._stream(writer)
        else:
            await _send(writer, 404, "text/plain", b"/ /events /status /metrics /livez /readyz\n")

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        """Send every line of the run's events, and each new one when it is written."""
        writer.write(_head(200, "text/event-stream", None, None))
        place, rest = 0, b""
        while not writer.is_closing():
            path = self._events()
            if path is not None and path.exists():
                with path.open("rb") as file:
                    file.seek(place)
                    content = file.read(_LINES_AT_ONCE)
                place += len(content)
                *whole, rest = (rest + content).split(b"\n")
                for line in whole:
                    writer.write(b"data: " + line + b"\n\n")
                await writer.drain()
                if len(content) == _LINES_AT_ONCE:
                    continue
            if self._ending.is_set():
                return
            writer.write(b": alive\n\n")
            await writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY):
                    await self._ending.wait()


async def _send(
    writer: asyncio.StreamWriter, code: int, kind: str, content: bytes, *, policy: str | None = None
) -> None:
    writer.write(_head(code, kind, len(content), policy) + content)
    await writer.drain()


def _head(code: int, kind: str, length: int | None, policy: str | None) -> bytes:
    words = {200: "OK", 403: "Forbidden", 404: "Not Found", 503: "Service Unavailable"}[code]
    lines = [f"HTTP/1.1 {code} {words}", f"Content-Type: {kind}", "Cache-Control: no-store", "Connection: close"]
    lines += ["X-Content-Type-Options: nosniff", f"Content-Security-Policy: {policy or _NOTHING}"]
    lines += [] if length is None else [f"Content-Length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"


def _script() -> str:
    return files("tacit.peer").joinpath("assets", "status.js").read_text(encoding="utf-8")


def _page(status: SiteStatus) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(status.name)} · {text(status.run)} · Tacit</title>
<link rel="icon" href="data:,">
<style>{page_style()}
svg {{ width: 100%; height: 220px; }} .up {{ color: var(--good); }} .down {{ color: var(--warn); }}</style>
</head>
<body>
<header><p class="eyebrow">Tacit · one site among peers</p><h1>{text(status.name)}</h1>
<p class="about">run {text(status.run)} · agreement {text(status.agreement[:16])}… version <span id="version">{status.version}</span> · <span id="phase">{text(status.phase)}</span></p></header>
<main><div class="tiles" id="tiles"></div>
<div class="grid">
<figure class="card"><figcaption><h2>Accuracy</h2>Of this site's model, on public validation records.</figcaption><svg id="accuracy" role="img" aria-label="Accuracy by round"></svg></figure>
<figure class="card"><figcaption><h2>Links used</h2>Of this site, in every round.</figcaption><svg id="used" role="img" aria-label="Links used by round"></svg></figure>
<section class="card full"><h2>Neighbours</h2><div class="scroll"><table><thead><tr><th scope="col">neighbour</th><th scope="col">link</th><th scope="col">used</th><th scope="col">skipped</th><th scope="col">sent</th><th scope="col">received</th></tr></thead><tbody id="links"></tbody></table></div></section>
<section class="card full"><h2>What happened</h2><div class="scroll"><table><tbody id="notices"></tbody></table></div></section>
</div></main>
<footer><p>This page shows what this site knows, and nothing of its records. It is served on this machine alone.</p></footer>
<script>{_script()}</script>
</body>
</html>
"""
