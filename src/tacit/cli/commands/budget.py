"""`tacit budget`: from a wanted ε to σ, or from σ to ε, under every adjacency and accountant."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from tacit.cli.commands.budget_accounting import BudgetRow, PlannedQueries, Terms
from tacit.cli.terminal.command import Json, option
from tacit.cli.terminal.files import check_picture, save_picture
from tacit.cli.terminal.output import bar, console, digits, plain_table, print_json, round_up, working
from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy import accounting
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.mechanisms import EVERYBODY, Observer

if TYPE_CHECKING:
    from tacit.cli.commands.budget_masks import MaskedBudget

_CURVE_ROWS = 10
_BAR_WIDTH = 48
_PICTURE = "budget.png"
_MASKS = "Noise that cancels"


class BudgetCommand(TyperCommand):
    """Allows `--plot` without a file, which typer does not support."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default file behind a `--plot` that has none."""
        if "--plot" in args:
            after = args.index("--plot") + 1
            if after == len(args) or args[after].startswith("-"):
                args = [*args[:after], _PICTURE, *args[after:]]
        return super().parse_args(ctx, args)


COMMAND_CLASS = BudgetCommand


def command(
    dataset_size: Annotated[int, option("N", "Records of one data owner, |D|.", min=1)],
    lot_size: Annotated[float, option("NUMBER", "Expected number of records in a lot, L; the rate is q = L/|D|.")],
    queries: Annotated[int, option("N", "How many noisy gradients are computed from the data in total.", min=1)],
    epsilon: Annotated[float | None, option("ε", "Find the noise for this ε.")] = None,
    noise_multiplier: Annotated[float | None, option("σ", "Find the ε of this σ.")] = None,
    delta: Annotated[float, option("δ", "Should be well below 1/|D|.")] = 1e-5,
    adjacency: Annotated[
        Adjacency, option("RELATION", "Of neighbouring data sets: add_remove or replace_one.")
    ] = "add_remove",
    accountant: Annotated[Accountant, option("NAME", "pld (tight) or rdp (a looser bound).")] = "pld",
    noise: Annotated[
        Literal["local", "cancelling"],
        option("KIND", "local, or cancelling: pairs of agents share masks that vanish from the average.", panel=_MASKS),
    ] = "local",
    agents: Annotated[
        int | None, option("N", "cancelling: how many agents, all with such records and lots.", panel=_MASKS, min=3)
    ] = None,
    curious: Annotated[
        int, option("K", "cancelling: how many curious agents together ε holds against.", panel=_MASKS, min=0)
    ] = 1,
    keys: Annotated[
        str, option("KIND", "cancelling: who shares masks: complete, a kind such as ring, or a file.", panel=_MASKS)
    ] = "complete",
    mask_ratio: Annotated[
        str, option("RATIO", "cancelling: size of a mask relative to σ without masks, or auto.", panel=_MASKS)
    ] = "auto",
    lost: Annotated[int, option("N", "cancelling: how many agents may leave for good.", panel=_MASKS, min=0)] = 0,
    seed: Annotated[int, option("N", "cancelling: seed of a random graph of keys.", panel=_MASKS, min=0)] = 0,
    json: Json = False,
    plot: Annotated[
        Path | None, option("[FILE]", f"Draw ε over queries: png, pdf or svg; {_PICTURE} if no file is named.")
    ] = None,
) -> None:
    """Find how much noise an ε needs, or how much ε a noise spends.

    Give --epsilon or --noise-multiplier. The answer is for one data owner whose records are used for nothing else. ε holds against
    everybody else together. With --noise cancelling --agents N, it holds against any K curious agents, and ε against more is shown, too; σ is
    then the noise that an agent without masks would need.

    [bold]Example[/]

    tacit budget --epsilon 1 --dataset-size 6000 --lot-size 256 --queries 2000
    """
    _check_masks(
        noise,
        agents,
        {"curious": curious != 1, "keys": keys != "complete", "mask-ratio": mask_ratio != "auto", "lost": lost != 0},
    )
    check_picture(plot)
    asked = (adjacency, accountant)
    accounting.check(accountant, adjacency, delta)
    if (epsilon is None) == (noise_multiplier is None):
        given = "neither is" if epsilon is None else "both are"
        raise PrivacyError(f"give either --epsilon or --noise-multiplier; {given} given")
    planned = PlannedQueries(sample_rate=_rate(lot_size, dataset_size), queries=queries, delta=delta)
    with working("accounting"):
        sigma = noise_multiplier if epsilon is None else planned.sigma(epsilon, asked)
        assert sigma is not None
        spent = planned.finite_epsilon(sigma, asked)
        rows = planned.rows(epsilon, sigma, asked)
        curve = [(count, planned.epsilon(sigma, asked, count)) for count in _counts(queries)]
        masked, against = None, {EVERYBODY.key: spent}
        if agents is not None:
            masked = _plan_masks(
                sigma, planned, agents, keys=keys, curious=curious, lost=lost, ratio=mask_ratio, seed=seed
            )
            against = masked.epsilons(planned, asked)
        if plot is not None and masked is None:
            _draw(plot, planned, sigma, epsilon, rows)
        elif plot is not None and masked is not None:
            _draw_observers(plot, planned, masked, epsilon, asked)
    if json:
        print_json(
            {
                "noise_multiplier": sigma,
                "epsilon": spent,
                "delta": delta,
                "sample_rate": planned.sample_rate,
                "queries": queries,
                "adjacency": adjacency,
                "accountant": accountant,
                "table": [asdict(row) for row in rows],
                "curve": [{"queries": count, "epsilon": value} for count, value in curve],
                **({"observer": str(EVERYBODY)} if masked is None else masked.facts(against)),
            }
        )
        return
    screen = console()
    observer = EVERYBODY if masked is None else masked.promised
    lots = f"lots of {lot_size:g} out of {dataset_size:,} records"
    _print_answer(screen, planned, sigma, spent, epsilon, lots, observer)
    if masked is not None:
        _print_masks(screen, masked, against, f"ε by who is curious ({adjacency}, {accountant})")
    _print_table(screen, rows, sigma, epsilon)
    _print_curve(screen, curve, f"ε over queries at σ = {sigma:g} ({adjacency}, {accountant})")
    if delta * dataset_size >= 1:
        screen.print(
            f"Note: δ = {delta:g} is not below 1/|D| = {1 / dataset_size:.2g}; such a δ allows a whole record to be published."
        )
    if plot is not None:
        screen.print(f"Picture: {plot}", soft_wrap=True)


def _rate(lot_size: float, dataset_size: int) -> float:
    if not lot_size > 0:
        raise PrivacyError(f"--lot-size is {lot_size:g}; it must be positive")
    if lot_size > dataset_size:
        raise PrivacyError(
            f"--lot-size {lot_size:g} is larger than the data set's {dataset_size} records; a lot is a part of them"
        )
    return lot_size / dataset_size


def _counts(queries: int) -> list[int]:
    """Return up to ten numbers of queries, evenly spaced up to all of them."""
    rows = min(_CURVE_ROWS, queries)
    return [round(queries * (row + 1) / rows) for row in range(rows)]


def _draw(path: Path, planned: PlannedQueries, sigma: float, target: float | None, rows: Sequence[BudgetRow]) -> None:
    from tacit.cli.terminal.pictures import Curve, draw_spending

    counts = _drawn_counts(planned)
    curves = []
    for row in rows:
        if row.epsilon_at_asked_noise is not None:
            values = [planned.epsilon(sigma, (row.adjacency, row.accountant), count) for count in counts]
            name = f"{row.adjacency}, {row.accountant}"
            curves.append(Curve(name=name, queries=[0, *counts], epsilons=[0.0, *values], asked=row.asked))
    terms = f"σ = {sigma:g}, q = {digits(planned.sample_rate)}, δ = {planned.delta:g}"
    save_picture(draw_spending(curves, title=f"ε over queries at {terms}", budget=target), path)


def _draw_observers(
    path: Path, planned: PlannedQueries, masked: "MaskedBudget", target: float | None, asked: Terms
) -> None:
    from tacit.cli.terminal.pictures import LINES, Curve, draw_spending

    counts = _drawn_counts(planned)
    first = [observer for observer in masked.observers[:-1] if observer != masked.promised]
    shown = [masked.promised, *first[: len(LINES) - 2], EVERYBODY]
    curves = []
    for observer in shown:
        values = [planned.epsilon(masked.sigma_against(observer), asked, count) for count in counts]
        name, asked_for = f"against {observer}", observer == masked.promised
        curves.append(Curve(name=name, queries=[0, *counts], epsilons=[0.0, *values], asked=asked_for))
    title = f"ε over queries at own σ = {digits(max(masked.own))}, masks of {digits(masked.masks.size)}, δ = {planned.delta:g}"
    save_picture(draw_spending(curves, title=title, budget=target), path)


def _drawn_counts(planned: PlannedQueries) -> list[int]:
    """Return numbers of queries, with more of them where the curve bends, which is near zero."""
    return sorted({max(1, round(planned.queries * (step / 24) ** 2)) for step in range(1, 25)})


def _check_masks(noise: str, agents: int | None, given: Mapping[str, bool]) -> None:
    """Refuse options that only masks need if there are none, and masks without a number of agents."""
    if noise == "cancelling":
        if agents is None:
            raise InvalidInput("--noise cancelling needs --agents: how many share masks")
        return
    for name, used in {"agents": agents is not None, **given}.items():
        if used:
            raise InvalidInput(f"--{name} has no effect without --noise cancelling; leave it out, or add that")


def _plan_masks(sigma: float, planned: PlannedQueries, agents: int, **settings: Any) -> "MaskedBudget":
    # Imported here: most budgets need no linear algebra.
    from tacit.cli.commands.budget_masks import plan_masks

    return plan_masks(sigma, rate=planned.sample_rate, agents=agents, **settings)


def _print_masks(screen: Console, masked: "MaskedBudget", against: dict[str, float], title: str) -> None:
    from tacit.cli.commands.budget_masks import print_masks

    print_masks(screen, masked, against, title)


def _print_answer(
    screen: Console,
    planned: PlannedQueries,
    sigma: float,
    spent: float,
    target: float | None,
    lots: str,
    observer: Observer,
) -> None:
    count = "1 query" if planned.queries == 1 else f"{planned.queries:,} queries"
    delta = f"δ = {planned.delta:g}"
    if target is None:
        answer = f"σ = {sigma:g} spends ε = {round_up(spent)} on {count}, at {delta}"
    else:
        answer = f"σ = {sigma:g} keeps {count} within ε = {target:g}, at {delta}"
    screen.print(Text(answer, style="bold"))
    passes = planned.queries * planned.sample_rate
    screen.print(f"{lots}, q = {digits(planned.sample_rate)}, {digits(passes, 3)} passes over the data")
    screen.print(f"ε holds against {observer}")
    if observer == EVERYBODY:
        screen.print()


def _print_table(screen: Console, rows: Sequence[BudgetRow], sigma: float, target: float | None) -> None:
    title = f"What σ = {sigma:g} spends" if target is None else f"The noise that ε = {target:g} needs"
    table = plain_table(title, "", "adjacency", "accountant", no_wrap=True)
    for name in ("q", "σ", "ε", "δ", *([] if target is None else [f"ε at\nσ = {sigma:g}"])):
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        note = row.note or ""  # shown instead of the first missing number
        cells = [
            "▸" if row.asked else "",
            row.adjacency,
            row.accountant,
            digits(row.sample_rate),
            note if row.noise_multiplier is None else f"{row.noise_multiplier:g}",
            note * (row.noise_multiplier is not None) if row.epsilon is None else round_up(row.epsilon),
            f"{row.delta:g}",
        ]
        if target is not None:
            at_asked = row.epsilon_at_asked_noise
            cells.append("" if at_asked is None else round_up(at_asked))
        table.add_row(*cells, style="bold" if row.asked else "" if row.supported else "dim")
    screen.print(table)
    screen.print()


def _print_curve(screen: Console, curve: Sequence[tuple[int, float]], title: str) -> None:
    screen.print(Text(title, style="bold"))
    largest = max(value for _, value in curve)
    counts = [f"{count:,}" for count, _ in curve]
    values = [round_up(value) for _, value in curve]
    for count, value, (_, number) in zip(counts, values, curve, strict=True):
        filled = bar(number / largest if largest else 0.0, _BAR_WIDTH)
        screen.print(
            Text.assemble(f"  {count:>{max(map(len, counts))}}  {value:>{max(map(len, values))}}  ", (filled, "cyan"))
        )
