"""The command line. Errors are sentences, not tracebacks; exit code 2 means that the input was wrong.

Each command is a module of its own; `Commands` turns their errors into sentences.
"""

import io
import sys
from typing import Annotated

import typer

from tacit.cli.audit.app import app as audit
from tacit.cli.commands import budget, data, evidence, graph, ledger_decisions, report, reproduce, train
from tacit.cli.commands import list as listing
from tacit.cli.terminal.failing import Commands

app = typer.Typer(
    name="tacit",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from tacit import __version__

        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def _tacit(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the Python traceback of an error, too: for code of your own.")
    ] = False,
) -> None:
    """Train one model across parties that do not trust each other."""


app.command("train")(train.make_train())
app.command("resume")(train.resume)
app.command("list")(listing.list_)
app.add_typer(ledger_decisions.app, name="ledger")
app.command("report")(report.report)
app.command("compare")(report.compare)
app.command("budget", cls=budget.Command)(budget.budget)
app.command("graph")(graph.graph)
app.command("data")(data.data)
app.command("export")(evidence.export)
app.command("verify")(evidence.verify)
app.command("sign")(evidence.sign)
app.add_typer(evidence.key, name="key")
app.add_typer(audit, name="audit")
app.command("reproduce")(reproduce.reproduce)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε shows a question mark
    app()
