"""The live page of a site in a real browser: it draws what the events say, and the console stays silent."""

import asyncio
import shutil
import subprocess
from datetime import UTC, datetime

import pytest

from tacit.peer.status_page import StatusPage
from tacit.peer.views import SiteStatus, WaitView
from tacit.peer.wire.hub import LinkView
from tacit.runs.event_types import LinksEvent, NoticeEvent
from tacit.runs.events import to_line
from tests.peer.wires import free_address

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH to open pages with"),
]


def dump(address, tmp_path):
    """Return the page as the browser has it after some seconds, and what the console got."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += [
        f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr",
        "--virtual-time-budget=4000",
        "--dump-dom",
    ]
    done = subprocess.run([CHROMIUM, *options, f"http://{address}/"], capture_output=True, text=True, timeout=60)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_page_draws_links_and_notices_and_escapes_names(tmp_path):
    now = datetime.now(UTC)
    events = tmp_path / "events.jsonl"
    lines = [LinksEvent(time=now, round=played, used=(1,), skipped=()) for played in (1, 2, 3)]
    notice = NoticeEvent(time=now, round=3, kind="refused", neighbor=1, words="<b>not markup</b>")
    events.write_bytes(b"".join(to_line(event) for event in (*lines, notice)))
    status = SiteStatus(
        name="north",
        run="trial-1",
        agreement="0" * 64,
        version=2,
        rounds=10,
        members=("north", "south"),
        links={1: LinkView(dials=True, up=True)},
        phase="training",
        round=3,
        waits={1: WaitView(12.0, "it has <i>not</i> answered")},
    )
    address = free_address()

    async def play():
        page = StatusPage(address, status, lambda: events)
        await page.start()
        looking = asyncio.create_task(asyncio.to_thread(dump, address, tmp_path))
        await asyncio.sleep(15)
        await page.stop()  # the browser's clock stands still while a stream is open
        return await looking

    content, console = asyncio.run(play())
    assert "3 of 10" in content
    assert "<th>south</th>" in content
    assert "up; waiting for 12 s: it has &lt;i&gt;not&lt;/i&gt; answered" in content
    assert content.count("<polyline") == 1
    assert "&lt;b&gt;not markup&lt;/b&gt;" in content
    assert [line for line in console if "ERR_CONNECTION_REFUSED" not in line] == []  # which is the end of the page
