"""`tacit audit noise`: is the noise as large, as independent and as normal as stated, and are lots drawn as stated?"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.audit.once import NewFolder, Single, see_once
from tacit.cli.audit.shared import (
    PLAYING,
    SYSTEM,
    Agents,
    AsJson,
    Delta,
    Epsilon,
    Graph,
    LotSize,
    Records,
    Rounds,
    Rule,
)


def noise(
    algorithm: Rule = "dsgd",
    agents: Agents = None,
    graph: Graph = "complete",
    observer: Annotated[
        list[int] | None,
        typer.Option(
            metavar="AGENT",
            rich_help_panel=SYSTEM,
            help="Who watches; may be repeated. Agent 0's neighbours if unsaid.",
        ),
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-2,
    lot_size: LotSize = 10.0,
    records: Records = 100,
    rounds: Rounds = 20,
    seed: Annotated[int, typer.Option(min=0, metavar="N", rich_help_panel=SYSTEM, help="Of random graphs.")] = 0,
    runs: Annotated[int, typer.Option(metavar="N", rich_help_panel=PLAYING, help="More show smaller faults.")] = 50,
    false_alarm: Annotated[
        float,
        typer.Option(metavar="SHARE", rich_help_panel=PLAYING, help="Of audits that call a sound system otherwise."),
    ] = 1e-3,
    folder: NewFolder = None,
    json: AsJson = False,
) -> None:
    """Is the noise as stated, and are lots? The cheapest audit, and the first to run.

    Noise is taken out of what neighbours see. Its size, shape and independence are tested, and how lots are drawn.

    What is not about noise and lots stays unseen.

    Exit code 1 means that something is not as stated.

    Example: tacit audit noise --algorithm dsgt --runs 200
    """

    def make() -> Single:
        from tacit.cli.audit.noise_case import noise_case

        return noise_case(
            algorithm=algorithm,
            agents=agents,
            graph=graph,
            observers=observer or (),
            epsilon=epsilon,
            delta=delta,
            lot_size=lot_size,
            records=records,
            rounds=rounds,
            runs=runs,
            false_alarm=false_alarm,
            seed=seed,
        )

    see_once(make, _show, folder=folder, json=json)


def _show() -> Callable[[dict[str, Any], Path], None]:
    from tacit.cli.audit.once_output import print_noise

    return print_noise
