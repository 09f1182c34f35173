"""`tacit peer card`: another address, or a new key, for a site that is there already."""

from pathlib import Path
from typing import Annotated

from tacit.cli.peer.agreement import HERE
from tacit.cli.peer.options import PassphraseFile, SiteFolder, at_site
from tacit.cli.terminal.command import option
from tacit.cli.terminal.output import console
from tacit.errors import InvalidInput


def command(
    site: SiteFolder = HERE,
    address: Annotated[str | None, option("HOST:PORT", "Where others reach it from now on.")] = None,
    renew_key: Annotated[bool, option("", "Make a new key; the old one stays beside it.", "--renew-key")] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Write the card of this site again, with another address or a new key.

    Hand it to the others: tacit peer agreement change --card makes a new version of the agreement of it, which all who are left sign.

    Example: tacit peer card --address north.example.org:7500 --site north
    """
    if address is None and not renew_key:
        raise InvalidInput("the card stays as it is; give --address, --renew-key or both")
    given = None if passphrase_file is None else passphrase_file.resolve()
    with at_site(site) as here:
        from tacit.peer.cards import CARD_FILE, spoken
        from tacit.peer.identity import Identity
        from tacit.peer.secret_files import find_passphrase
        from tacit.peer.settings import SiteSettings

        kept = SiteSettings.read(here).passphrase_file
        passphrase = find_passphrase(given or (None if kept is None else Path(kept)))
        identity = Identity.load(here, passphrase)
        if renew_key:
            identity = identity.renew(here, passphrase)
        if address is not None:
            identity = identity.move(here, address)
    screen = console()
    screen.print(f"{site / CARD_FILE}  the card: give it to the other sites", soft_wrap=True)
    screen.print(f"address      {identity.card.address or 'none: it only dials'}")
    screen.print(f"in words     {spoken(identity.card.fingerprint)}")
