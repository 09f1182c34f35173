"""`tacit budget`: from a wanted ε to σ, or from σ to ε, under every adjacency and accountant."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from tacit.cli.commands.budget_accounting import BudgetRow, PlannedQueries
from tacit.cli.commands.budget_bands import band_facts, choose_bands, print_bands
from tacit.cli.commands.budget_masks import OF_RESPONSE, MaskedBudget, plan_masks, print_masks
from tacit.cli.terminal.command import Json, option
from tacit.cli.terminal.options import MASKS, PLAIN, given_settings, with_settings
from tacit.cli.terminal.output import (
    bar,
    check_picture,
    console,
    digits,
    plain_table,
    print_json,
    round_up,
    save_picture,
    working,
)
from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy import accounting
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.runs.config import RunConfig
from tacit.runs.config_checks import OPTIONS, as_option, idle_without_masks

if TYPE_CHECKING:
    from tacit.privacy.bands import BandChoice

_CURVE_ROWS = 10
_BAR_WIDTH = 48
_PICTURE = "budget.png"


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


@with_settings(
    {
        PLAIN: ("epsilon", "noise_multiplier", "delta", "adjacency", "accountant", "bands"),
        MASKS: ("noise", "agents", "curious", "keys", "mask_ratio", "lost", *OF_RESPONSE, "seed"),
    },
    epsilon="find the noise for this ε",
    noise_multiplier="find the ε of this σ",
    agents="cancelling: number of agents, all with these numbers of records and lots",
    keys="cancelling: who shares masks: complete, graph (neighbours, with --graph), a kind such as ring, or a file \\[complete]",
    algorithm="cancelling: choose masks for this rule; dsgt if only its graph or steps are given",
    graph="cancelling: choose masks for this graph; ring if only the rule or its steps are given",
    mixing="cancelling: how neighbours are weighted on it \\[metropolis]",
    exchanges_per_query="cancelling: rounds of its links in each exchange \\[1]",
    rounds="cancelling: rounds of the rule; as many as queries unless given",
    lr="cancelling: step size of the rule, in the first round if it changes \\[0.5]",
    lr_final="cancelling: step size in the last round, log-spaced from lr",
    averaging="cancelling: decay of each agent's average over rounds, as in a run",
    seed="cancelling: seed of a random graph \\[0]",
)
def command(
    dataset_size: Annotated[int, option("N", "Records of one data owner, |D|.", min=1)],
    lot_size: Annotated[float, option("NUMBER", "Expected number of records in a lot, L; the rate is q = L/|D|.")],
    queries: Annotated[int, option("N", "How many noisy gradients are computed from the data in total.", min=1)],
    json: Json = False,
    plot: Annotated[
        Path | None, option("[FILE]", f"Draw ε over queries: png, pdf or svg; {_PICTURE} if no file is named.")
    ] = None,
    **settings: Any,
) -> None:
    """Find how much noise an ε needs, or how much ε some noise spends.

    Give --epsilon or --noise-multiplier. The answer is for one data owner whose records are used for nothing else. ε holds against
    everybody else together. With --noise cancelling --agents N, it holds against any K curious agents, and ε against more is shown, too; σ is
    then the noise that an agent without masks would need. How large masks are depends on the rule and its graph: with --algorithm, --graph and
    the step sizes of a run, they are those of that run. With --noise discrete, σ is in units of the length that a rounded vector has
    at most, a little more than the clipping norm, and ε is a bound by Rényi divergences of whole orders.

    [bold]Example[/]

    tacit budget --epsilon 1 --dataset-size 6000 --lot-size 256 --queries 2000
    """
    check_picture(plot)
    given = given_settings(settings)
    if ("epsilon" in given) == ("noise_multiplier" in given):
        which = "both are" if "epsilon" in given else "neither is"
        raise PrivacyError(f"give either --epsilon or --noise-multiplier; {which} given")
    config = RunConfig.of({}, {**given, "lot_size": lot_size})
    _check_agents(config, given)
    epsilon, noise_multiplier = (_one(config, key) for key in ("epsilon", "noise_multiplier"))
    terms: dict[str, Any] = {"delta": config.delta, "adjacency": config.adjacency, "accountant": config.accountant}
    accounting.check(**terms)
    if lot_size > dataset_size:
        raise PrivacyError(
            f"--lot-size {lot_size:g} is larger than the data set's {dataset_size} records; a lot is a part of them"
        )
    planned = PlannedQueries(
        sample_rate=lot_size / dataset_size, queries=queries, **terms, discrete=config.noise == "discrete"
    )
    compared: list[BandChoice] = []
    with working("accounting"):
        if config.bands != 1:
            bands, compared = choose_bands(planned, epsilon, None if config.bands == "auto" else config.bands)
            planned = replace(planned, bands=bands)
        sigma = noise_multiplier if epsilon is None else planned.sigma(epsilon)
        assert sigma is not None
        spent = planned.finite_epsilon(sigma)
        rows = planned.rows(epsilon, sigma)
        curve = [(count, planned.epsilon(sigma, count)) for count in _counts(queries)]
        masked, against = None, {EVERYBODY.key: spent}
        if config.noise == "cancelling":
            masked = plan_masks(sigma, config, planned, given)
            against = masked.epsilons(planned)
        if plot is not None:
            _draw(plot, planned, sigma, epsilon, rows, masked)
    if json:
        print_json(
            {
                "noise_multiplier": sigma,
                "epsilon": spent,
                "delta": config.delta,
                "sample_rate": planned.sample_rate,
                "queries": queries,
                "adjacency": config.adjacency,
                "accountant": config.accountant,
                "table": [asdict(row) for row in rows],
                "curve": [{"queries": count, "epsilon": value} for count, value in curve],
                **({"observer": str(EVERYBODY)} if masked is None else masked.facts(against)),
                **({} if config.bands == 1 else band_facts(planned, compared)),
            }
        )
        return
    screen = console()
    observer, by = EVERYBODY if masked is None else masked.planned, f"{config.adjacency}, {config.accountant}"
    lots = f"lots of {lot_size:g} out of {dataset_size:,} records"
    _print_answer(screen, planned, sigma, spent, epsilon, lots, observer)
    if config.bands != 1:
        print_bands(screen, planned, compared)
    if masked is not None:
        print_masks(screen, masked, config, against, f"ε by who is curious ({by})")
    _print_table(screen, rows, sigma, epsilon)
    _print_curve(screen, curve, f"ε over queries at σ = {sigma:g} ({by})")
    if config.delta * dataset_size >= 1:
        screen.print(
            f"Note: δ = {config.delta:g} is not below 1/|D| = {1 / dataset_size:.2g}; such a δ allows a whole record to be published."
        )
    if plot is not None:
        screen.print(f"Picture: {plot}")


def _counts(queries: int) -> list[int]:
    """Return up to ten numbers of queries, evenly spaced up to all of them."""
    rows = min(_CURVE_ROWS, queries)
    return [round(queries * (row + 1) / rows) for row in range(rows)]


def _draw(
    path: Path,
    planned: PlannedQueries,
    sigma: float,
    target: float | None,
    rows: Sequence[BudgetRow],
    masked: MaskedBudget | None,
) -> None:
    """Draw ε over queries: by adjacency and accountant or, with masks, by who is curious."""
    from tacit.cli.terminal.pictures import LINES, draw_spending

    # More numbers of queries where the curve bends, which is near zero.
    counts = sorted({max(1, round(planned.queries * (step / 24) ** 2)) for step in range(1, 25)})
    if masked is None:
        terms, asked = f"σ = {sigma:g}, q = {digits(planned.sample_rate)}", f"{planned.adjacency}, {planned.accountant}"
        drawn = [row for row in rows if row.epsilon_at_asked_noise is not None]
        each_way = [replace(planned, adjacency=row.adjacency, accountant=row.accountant) for row in drawn]
        lines = {f"{each.adjacency}, {each.accountant}": (sigma, each) for each in each_way}
    else:
        terms = f"own σ = {digits(max(masked.own))}, masks of {digits(masked.size)}"
        asked = f"against {masked.planned}"
        first = [observer for observer in masked.observers[:-1] if observer != masked.planned]
        shown = [masked.planned, *first[: len(LINES) - 2], EVERYBODY]
        lines = {f"against {each}": (masked.sigma_against(each), planned) for each in shown}
    curves = {
        name: [0.0, *(queries.epsilon(noise, count) for count in counts)] for name, (noise, queries) in lines.items()
    }
    title = f"ε over queries at {terms}, δ = {planned.delta:g}"
    save_picture(draw_spending(curves, [0, *counts], asked, title=title, budget=target), path)


def _check_agents(config: RunConfig, given: Mapping[str, Any]) -> None:
    """Refuse masks without a number of agents, options of masks without masks, and discrete noise that cannot be accounted."""
    if config.noise == "discrete" and config.accountant != "rdp":
        raise PrivacyError(
            f"--accountant is {config.accountant!r}; discrete noise has a bound by Rényi divergences alone, so use --accountant rdp"
        )
    if config.noise == "discrete" and config.bands != 1:
        raise PrivacyError("noise with bands is not on one grid, so it cannot be discrete; leave out one of them")
    if config.noise == "cancelling" and "agents" not in given:
        raise InvalidInput("--noise cancelling needs --agents: how many share masks")
    for key in ("agents", "seed", *OF_RESPONSE):
        if config.noise != "cancelling" and key in given:
            raise InvalidInput(idle_without_masks(key, OPTIONS))


def _one(config: RunConfig, key: str) -> float | None:
    """Return a setting that may differ between the agents of a run; the one data owner of a budget has one value."""
    value: float | list[float] | None = getattr(config, key)
    if isinstance(value, list):
        raise InvalidInput(f"{as_option(key)} has {len(value)} values; a budget is that of one data owner")
    return value


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
    if planned.discrete:
        screen.print("noise is discrete: σ is in units of the length that a rounded vector has at most")
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
