"""`tacit peer init`: make the key and the card of a site."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.peer.options import PassphraseFile, need_peer
from tacit.cli.terminal.command import option
from tacit.cli.terminal.output import console


def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the new site.")],
    name: Annotated[str, option("NAME", "Name of the site: small letters, digits and hyphens.")],
    address: Annotated[str, option("HOST:PORT", "Where others reach it; leave out if it only dials.")] = "",
    dataset: Annotated[
        str, option("NAME", "Its records, as file.py:NAME in the folder or a published set.")
    ] = "digits",
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make a site: a key that never leaves it, and a public card to hand out.

    Read the fingerprint or its words to the other sites over the telephone: that is what makes sure that they have your card and not
    somebody else's.

    Example: tacit peer init north --name north --address north.example.org:7400
    """
    need_peer()
    from tacit.peer.cards import CARD_FILE, spoken
    from tacit.peer.identity import KEY_FILE, Identity
    from tacit.peer.secret_files import find_passphrase
    from tacit.peer.settings import SITE_FILE, SiteSettings

    passphrase = find_passphrase(passphrase_file)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # models and ledgers are for the site's own user, too
    card = Identity.create(folder, name, address=address, passphrase=passphrase).card
    kept = None if passphrase_file is None else str(passphrase_file.resolve())
    SiteSettings(dataset=dataset, passphrase_file=kept).save(folder)
    screen = console()
    locked = "encrypted; " if passphrase is not None else ""
    for file, words in (
        (KEY_FILE, f"the key: {locked}keep it secret"),
        (CARD_FILE, "the card: give it to the other sites"),
        (SITE_FILE, "this site's own settings"),
    ):
        screen.print(f"{folder / file}  {words}", soft_wrap=True)
    screen.print(f"fingerprint  {card.fingerprint[:32]}")
    screen.print(f"             {card.fingerprint[32:]}")
    screen.print(f"in words     {spoken(card.fingerprint)}")
