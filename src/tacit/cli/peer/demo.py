"""`tacit peer demo`: a whole consortium on this machine."""

import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.live import Live
from rich.table import Table

from tacit.cli.peer.options import need_peer
from tacit.cli.terminal.command import option
from tacit.cli.terminal.output import break_command, console, messages, plain_table, round_up
from tacit.errors import ProcessLost
from tacit.io.stopping import Stopping
from tacit.privacy.observers import EVERYBODY
from tacit.runs.config import RunConfig

if TYPE_CHECKING:
    from tacit.peer.demo import Demo

_EVERY = 0.5


def command(
    sites: Annotated[int, option("N", "How many sites, each a process of its own.", min=2, max=100)] = 10,
    rounds: Annotated[int, option("N", "Rounds of the run.", min=1)] = 60,
    algorithm: Annotated[str, option("NAME", "Update rule, as in tacit train.")] = "dsgt",
    graph: Annotated[str, option("NAME", "Who talks to whom, as in tacit train.")] = "ring",
    noise: Annotated[Literal["local", "cancelling"], option("KIND", "local or cancelling.")] = "local",
    epsilon: Annotated[float, option("ε", "Highest ε of any record.", min=0)] = 8.0,
    seeded: Annotated[bool, option("", "Repeatable lots and noise: not a release.", "--seeded")] = False,
    folder: Annotated[Path | None, option("FOLDER", "Where to put the sites; default: a new one.")] = None,
    seconds: Annotated[float, option("SECONDS", "Give up after this long.", min=1)] = 600.0,
) -> None:
    """Run a consortium on this machine: real processes with their own keys, ports and folders, by one command.

    Each process is tacit peer run. Every site ends with its own model, report and ledger. The table shows what each site's status page
    says; open one of them in a browser. Ctrl-C stops all sites; their folders stay.

    Example: tacit peer demo --sites 4 --rounds 20
    """
    need_peer()
    from tacit.peer.agreement.terms import check_rule, records_to_label
    from tacit.peer.demo import Demo

    check_rule(algorithm)
    given: dict[str, Any] = {
        "algorithm": algorithm,
        "dataset": "digits",
        "split": "iid",
        "agents": sites,
        "graph": graph,
        "noise": noise,
        "epsilon": epsilon,
        "delta": 1e-3,
        **({} if records_to_label(algorithm) else {"lot_size": 24.0}),  # votes have no lots
        "rounds": rounds,
        "lr": 2.0,
        "lr_final": 0.4,
        "source": "seeded" if seeded else "secret",
    }
    where = folder or Path(tempfile.mkdtemp(prefix="tacit-peers-"))
    screen, started = messages(), time.monotonic()
    with Stopping(screen.print) as stopping:
        try:
            with Demo.prepare(where, RunConfig.of({}, given)) as demo:
                screen.print(f"{sites} sites in {where}", soft_wrap=True)
                demo.start()
                first = _watch(demo, seconds, started)
        except KeyboardInterrupt:
            again = f"tacit peer run --site {where}/site-…"
            screen.print(f"\nstopped; no process is left. The sites are in {where}; continue each with {again}")
            raise typer.Exit(stopping.exit_code) from None
    _print_end(demo, first)


def _watch(demo: "Demo", seconds: float, started: float) -> float | None:
    """Show the sites until all have ended; return after how long the first round was played.

    A terminal shows them live. In a file or a pipe there is only the last table.
    """
    first, screen = None, messages()
    with Live(_table(demo), console=screen, auto_refresh=False) if screen.is_terminal else nullcontext() as live:
        while not demo.finished:
            demo.check()
            if time.monotonic() - started > seconds:
                raise ProcessLost(
                    f"not finished after {seconds:g} s; the logs are in {demo.sites[0].log_file.parent.parent}"
                )
            table = _table(demo)
            if first is None and all(site.last.get("round", 0) > 0 for site in demo.sites):
                first = time.monotonic() - started
            if live is not None:
                live.update(table, refresh=True)
            time.sleep(_EVERY)
        if live is not None:
            live.update(_table(demo), refresh=True)
    if live is None:
        screen.print(_table(demo))
    return first


def _table(demo: "Demo") -> Table:
    from tacit.peer.agreement.terms import privacy_terms

    heading = f"ε of the queries made so far, or of an eighth more, {privacy_terms(demo.config)}"
    pages = [] if demo.finished else ["page"]  # of sites that still run
    table = plain_table(heading, "site", "state", ">round", "links", ">accuracy", ">ε", *pages)
    for site in demo.sites:
        if (summary := demo.summary(site)) is not None and site.exit_code == 0:  # its page is gone
            used = f"{summary['links_used']} of {summary['links_planned']} used"
            state, played, links = "finished", summary["rounds"], used
            accuracy, epsilon = summary["accuracy_mean"], summary["epsilon"]
        else:
            now = site.ask()
            up = f"{sum(link['up'] for link in now.get('links', []))} of {len(now.get('links', []))} up"
            state, played, links = str(now.get("phase", "starting")), now.get("round", 0), up if now else ""
            accuracy, epsilon = now.get("accuracy"), now.get("epsilon_made")
        right = "" if accuracy is None else f"{100 * accuracy:.1f} %"
        spent = "" if epsilon is None else round_up(epsilon)
        page = "" if state == "finished" else f"http://{site.page}/"
        table.add_row(site.name, state, str(played), links, right, spent, *[page] * len(pages))
    return table


def _print_end(demo: "Demo", first: float | None) -> None:
    from tacit.peer.agreement.terms import privacy_terms

    summaries = [demo.summary(site) or {} for site in demo.sites]
    accuracies = [float(summary["accuracy_mean"]) for summary in summaries]
    used, planned = (sum(int(summary[key]) for summary in summaries) for key in ("links_used", "links_planned"))
    table = plain_table("finished", "what", "value")
    table.add_row("mean accuracy", f"{100 * sum(accuracies) / len(accuracies):.1f} %")
    table.add_row("worst and best", f"{100 * min(accuracies):.1f} % and {100 * max(accuracies):.1f} %")
    highest = max(float(summary["epsilon"]) for summary in summaries)
    table.add_row("highest ε", f"{round_up(highest)} {privacy_terms(demo.config)}")
    everybody = max(float((summary["epsilon_against"] or {}).get(EVERYBODY.key, 0)) for summary in summaries)
    if everybody > highest:
        table.add_row("", f"{round_up(everybody)} against {EVERYBODY}")
    table.add_row("links used", f"{used:,} of {planned:,}" + ("" if used == planned else ": this run ran short"))
    if first is not None:
        table.add_row("all had played a round after", f"{first:.0f} s")
    table.add_row("folders", str(demo.sites[0].folder.parent))
    screen = console()
    screen.print()
    screen.print(table)
    screen.print("the same in one process:")
    screen.print(break_command(demo.train_command(), screen.width), soft_wrap=True)
