"""Pages are opened in a real browser, offline: they draw, fit a phone, follow the theme and say nothing to the console."""

import json
import re
import shutil
import subprocess

import pytest
from made_runs import copy_with_record

from tacit.report import RecordedRun, write_comparison, write_report

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH to open pages with")

# Waits until every chart of every frame is drawn, then writes down what it sees.
WATCH = """
const frames = [...document.querySelectorAll("iframe")];
const seen = (frame) => {
  const page = frame.contentDocument;
  const plots = [...page.querySelectorAll(".plot")];
  return {
    drawn: Object.fromEntries(plots.map((plot) => [plot.id, plot.querySelectorAll("svg.main-svg .scatterlayer .trace, svg.main-svg .heatmaplayer image, svg.main-svg .barlayer .trace").length])),
    width: page.documentElement.scrollWidth,
    room: page.documentElement.clientWidth,
    title: page.title,
    images: page.images.length,
    cut: [...page.querySelectorAll(".scroll")].filter((table) => table.scrollHeight > table.clientHeight).length,
    ink: plots.length ? frame.contentWindow.getComputedStyle(plots[0].querySelector(".xtitle, .g-xtitle text") ?? plots[0]).fill : "",
  };
};
const ready = () => frames.every((frame) => {
  const page = frame.contentDocument;
  return page && page.readyState === "complete" && [...page.querySelectorAll(".plot")].every((p) => p.querySelector("svg.main-svg"));
});
const started = Date.now();
const wait = () => {
  if (!ready() && Date.now() - started < 20000) return setTimeout(wait, 50);
  document.getElementById("seen").textContent = JSON.stringify(frames.map(seen));
};
addEventListener("load", wait);
"""


def look(tmp_path, pages, *, width, dark=False):
    """Open pages side by side in frames of a width, and return what each shows and what the console got."""
    frames = "".join(f'<iframe src="{page.as_uri()}" style="width:{width}px;height:900px"></iframe>' for page in pages)
    watcher = tmp_path / "watch.html"
    watcher.write_text(f'<!doctype html><pre id="seen"></pre>{frames}<script>{WATCH}</script>')
    profile = tmp_path / "profile"
    done = subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"),
            *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=30000", "--window-size=1300,1000"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *("--dump-dom", watcher.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=180,
    )
    shutil.rmtree(profile, ignore_errors=True)
    found = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-2000:]
    shown = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return shown, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def pages(runs, folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("pages")
    owners = [f"<img src=x onerror='document.title={i}'>" for i in range(6)]
    hostile = copy_with_record(folders["dsgt"], root / '<img src=x onerror="document.title=1">', owners)
    return {
        "report": write_report(runs["dsgt"], root / "report.html"),
        "open": write_report(runs["open"], root / "open.html"),
        "hostile": write_report(RecordedRun.load(hostile), root / "hostile.html"),
        "comparison": write_comparison(list(runs.values()), root / "comparison.html"),
    }


@pytest.mark.slow
def test_pages_draw_on_a_phone_without_an_error(pages, tmp_path):
    shown, console = look(tmp_path, pages.values(), width=390)
    assert console == []
    report, unprotected, hostile, comparison = shown
    assert set(report["drawn"]) == set(hostile["drawn"]) == {"accuracy", "graph", "consensus", "epsilon", "partition"}
    assert set(unprotected["drawn"]) == {"accuracy", "graph", "consensus", "partition"}
    assert set(comparison["drawn"]) == {"accuracy", "spread", "tradeoff", "consensus", "epsilon"}
    for page in shown:
        assert all(count > 0 for count in page["drawn"].values()), page
        assert page["width"] <= page["room"] <= 390, "the page scrolls sideways"
        assert page["images"] == 0
        assert page["cut"] == 0, "a table is cut off by a scroll bar"
    assert hostile["title"] == '<img src=x onerror="document.title=1"> · Tacit'


@pytest.mark.slow
def test_charts_follow_the_theme(pages, tmp_path):
    (light,), console = look(tmp_path, [pages["report"]], width=1200)
    (dark,), more = look(tmp_path, [pages["report"]], width=1200, dark=True)
    assert console == more == []
    assert light["ink"] == "rgb(77, 90, 105)"
    assert dark["ink"] == "rgb(165, 177, 191)"


@pytest.mark.slow
def test_a_script_that_got_in_would_not_run(pages, tmp_path):
    """The policy is a second lock; this also shows that errors in the console would be noticed."""
    page = tmp_path / "page.html"
    page.write_text(pages["open"].read_text().replace("<main>", "<main><script>document.title = 1</script>"))
    (shown,), console = look(tmp_path, [page], width=1200)
    assert shown["title"] == "open · Tacit"
    assert any("Content Security Policy" in line for line in console)
