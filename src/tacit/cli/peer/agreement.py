"""`tacit peer agreement`: write, change, sign and check what all sites hold."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.peer.options import PassphraseFile, Records, SiteFolder, at_site
from tacit.cli.terminal.command import option
from tacit.cli.terminal.errors import Commands
from tacit.cli.terminal.output import console, plain_table, print_apart
from tacit.errors import InvalidInput
from tacit.runs.config import RunConfig

if TYPE_CHECKING:
    from tacit.peer.agreement.document import Agreement

command = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode="rich")
HERE = Path(".")
_OF_PRIVACY = ("epsilon", "noise_multiplier", "delta", "adjacency", "accountant", "unit", "curious")


@command.callback()
def _agreement() -> None:
    """Write, change, sign and check the agreement of a consortium: one TOML file that all sites hold.

    Example: tacit peer agreement check --site north
    """


@command.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file with settings, as tacit train takes it.")],
    records: Records,
    title: Annotated[str, option("NAME", "A short name of the run: small letters, digits, hyphens.")] = "run",
    site: SiteFolder = HERE,
    days: Annotated[float, option("N", "For how many days the agreement holds.", min=0)] = 90.0,
    least_bandwidth: Annotated[
        float, option("BYTES", "Bytes each second that every link carries at least.")
    ] = 125_000.0,
    compute_seconds: Annotated[float, option("SECONDS", "How long a round may take at a site.")] = 60.0,
    fewest_links: Annotated[int, option("N", "Links that a round of a site needs; with fewer it waits.", min=0)] = 1,
) -> None:
    """Write an agreement with this site as its first member.

    The file has the settings of the run: rule, model, rounds, ε, δ, clip, lot size, graph, key graph. Settings that are a site's own, such as
    dataset, are left out of the agreement. The graph may be links: the pairs are then written into the agreement by hand.

    Example: tacit peer agreement new run.toml --title trial --records 600 --site north
    """
    settings = file.resolve()
    with at_site(site) as here:
        from tacit.peer.agreement.document import version_file
        from tacit.peer.agreement.drafting import draft_agreement
        from tacit.peer.cards import CARD_FILE, read_card
        from tacit.peer.public_records import KEY, check_public_records
        from tacit.peer.settings import SiteSettings
        from tacit.runs.building import whole_data

        config = RunConfig.of(RunConfig.read(settings))
        limits = {
            "least_bandwidth": least_bandwidth,
            "compute_seconds": compute_seconds,
            "fewest_links": fewest_links,
        }
        own = SiteSettings.read(here)
        data = whole_data(own.dataset, own.data_dir, config.seed)
        agreement = draft_agreement(
            config,
            data,
            title=title,
            first=read_card(here / CARD_FILE),
            records=records,
            days=days,
            limits=limits,
        )
        check_public_records(own.dataset, data, agreement.data.get(KEY))
        path = version_file(here, 1)
        if path.exists():
            raise InvalidInput(f"{site / path} already exists; move it away to begin another agreement")
        agreement.save(path)
    console().print(f"{site / path}: one member. Add the others with tacit peer agreement add CARD", soft_wrap=True)


@command.command("add")
def add(
    card: Annotated[Path, typer.Argument(metavar="CARD", help="The card that the other site handed out.")],
    records: Records,
    site: SiteFolder = HERE,
) -> None:
    """Add a member by its card, before anybody has signed.

    Compare the words with those that the other site reads to you over the telephone.

    Example: tacit peer agreement add south/card.toml --records 450 --site north
    """
    card = card.resolve()
    with at_site(site) as here:
        from tacit.peer.agreement.document import Agreement, version_file
        from tacit.peer.agreement.drafting import add_member, connect_members
        from tacit.peer.agreement.signed import read_signatures
        from tacit.peer.agreement.terms import LINKS
        from tacit.peer.cards import read_card, spoken

        path = version_file(here, 1)
        agreement = Agreement.read(path)
        if any(read_signatures(agreement, path)):
            raise InvalidInput(f"{path} is signed already; a member that joins now needs a new agreement")
        found = read_card(card)
        agreement = add_member(agreement, found, records)
        if agreement.settings.get("graph", "ring") != LINKS:
            agreement = connect_members(agreement)
        agreement.save(path)
    console().print(f"{found.name} is member {len(agreement.members)}; its words: {spoken(found.fingerprint)}")


@command.command("change")
def change(
    gone: Annotated[list[str] | None, option("NAME", "A member without whom the others continue.")] = None,
    from_round: Annotated[int, option("N", "The round from which masks are shared without it.", min=0)] = 0,
    card: Annotated[list[Path] | None, option("CARD", "A new card: another address, or a renewed key.")] = None,
    days: Annotated[float | None, option("N", "Let the agreement hold for this many days from now.")] = None,
    site: SiteFolder = HERE,
) -> None:
    """Write the next version of the agreement: a member that is gone, an address, a renewed key, another day of expiry.

    It counts once all who are left have signed it or, if it only declares members gone, a quorum. Sites adopt it when it arrives from a
    neighbour, or when it lies in their folder and they are restarted or get SIGHUP.

    Example: tacit peer agreement change --gone east --site north
    """
    cards = [each.resolve() for each in card or ()]
    with at_site(site) as here:
        from tacit.peer.agreement.document import version_file
        from tacit.peer.agreement.drafting import change_agreement
        from tacit.peer.agreement.signed import check_change, read_chain
        from tacit.peer.cards import read_card

        chain = read_chain(here)
        expires = None if days is None else (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
        after = change_agreement(
            chain.current,
            gone=gone or (),
            gone_from=from_round,
            cards=[read_card(each) for each in cards],
            expires=expires,
        )
        check_change(chain.current, after)
        path = version_file(here, after.version)
        after.save(path)
    console().print(f"{site / path}: version {after.version}, to be signed", soft_wrap=True)


@command.command("sign")
def sign(site: SiteFolder = HERE, passphrase_file: PassphraseFile = None) -> None:
    """Sign the newest version of the agreement with this site's key. The signature is a file to hand to all others.

    Of two different versions with one number a site signs only one: otherwise some sites would adopt the one, some the other.

    Example: tacit peer agreement sign --site south
    """
    given = None if passphrase_file is None else passphrase_file.resolve()
    with at_site(site) as here:
        from tacit.peer.agreement.document import Agreement
        from tacit.peer.agreement.signed import check_not_signed, save_signature, sign_agreement
        from tacit.peer.agreement.terms import check_terms
        from tacit.peer.identity import Identity
        from tacit.peer.secret_files import find_passphrase
        from tacit.peer.settings import SiteSettings

        path = _newest(here)
        agreement = Agreement.read(path)
        check_terms(agreement)
        kept = SiteSettings.read(here).passphrase_file
        identity = Identity.load(here, find_passphrase(given or (None if kept is None else Path(kept))))
        check_not_signed(agreement, path, identity.name)
        written = save_signature(sign_agreement(agreement, identity), path)
    console().print(f"{site / written}: give this to all other sites", soft_wrap=True)


@command.command("check")
def check(site: SiteFolder = HERE) -> None:
    """Show what the agreement says and who has signed it. Exit code 2 if it cannot be used as it is.

    Example: tacit peer agreement check --site south
    """
    with at_site(site) as here:
        from tacit.peer.agreement.document import Agreement
        from tacit.peer.agreement.signed import read_chain, read_signatures
        from tacit.peer.agreement.terms import check_terms

        path = _newest(here)
        agreement = Agreement.read(path)
        _show(agreement, set(read_signatures(agreement, path)))
        check_terms(agreement)
        chain = read_chain(here)
    console().print(f"version {agreement.version} is valid; the run is {chain.run_id[:16]}…")


def _newest(site: Path) -> Path:
    """Return the file of the newest version of a site's agreement."""
    from tacit.peer.agreement.document import version_file

    version = 1
    while version_file(site, version + 1).exists():
        version += 1
    return version_file(site, version)


def _stated_privacy(config: RunConfig) -> str:
    """State ε as the settings do or, where they give σ, as what it is derived for."""
    from tacit.peer.agreement.terms import privacy_terms

    if config.noise_multiplier is None:
        return f"ε = {_listed(config.epsilon)} {privacy_terms(config)}"
    return f"σ = {_listed(config.noise_multiplier)}; tacit peer check derives ε, {privacy_terms(config)}"


def _listed(value: float | list[float] | None) -> str:
    return ", ".join(f"{each:g}" for each in value) if isinstance(value, list) else f"{value or 0:g}"


def _show(agreement: "Agreement", signed: set[str]) -> None:
    screen = console()
    names = ("algorithm", "model", "graph", "noise", "rounds")
    defaults = {name: RunConfig.model_fields[name].default for name in names}
    rows = [(key, str(value)) for key, value in (defaults | agreement.settings).items() if key not in _OF_PRIVACY]
    rows += [
        ("privacy", _stated_privacy(RunConfig.model_construct(**agreement.settings))),
        ("expires", f"{agreement.expires:%Y-%m-%d %H:%M} UTC"),
        ("quorum", f"{agreement.limits.quorum} of {len(agreement.members)}"),
    ]
    facts = plain_table(f"agreement {agreement.title}, version {agreement.version}", "what", "value", rows=rows)
    members = plain_table("members", "name", "address", ">records", "signed", "words")
    for member in agreement.members:
        state = f"gone from round {member.gone_from}" if member.gone else "yes" if member.name in signed else "no"
        members.add_row(member.name, member.address or "dials only", str(member.records), state, member.words)
    links = plain_table("links", "dials", "to", rows=[(link.dials, link.to) for link in agreement.links])
    print_apart(screen, facts, members, links)
