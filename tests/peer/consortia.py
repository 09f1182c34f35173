"""Small consortia for tests: sites with keys, and an agreement that all have signed."""

from pathlib import Path

from tacit.peer.agreement.document import Agreement, version_file
from tacit.peer.agreement.drafting import add_member, connect_members, draft_agreement
from tacit.peer.agreement.signed import save_signature, sign_agreement
from tacit.peer.identity import Identity
from tacit.runs.config import RunConfig

NAMES = ("north", "south", "east", "west", "centre", "hill", "lake", "shore")
SETTINGS = {
    "algorithm": "dsgt",
    "dataset": "digits",
    "noise_multiplier": 3.0,
    "lot_size": 24.0,
    "rounds": 4,
    "lr": 1.0,
    "graph": "ring",
}


def make_sites(folder: Path, count: int, addresses=None) -> list[Identity]:
    addresses = addresses or [f"127.0.0.1:{7400 + number}" for number in range(count)]
    return [Identity.create(folder / name, name, address=addresses[i]) for i, name in enumerate(NAMES[:count])]


def draft(sites: list[Identity], records=100, limits=None, **settings) -> Agreement:
    given = {**SETTINGS, **settings}
    config = RunConfig.of({key: value for key, value in given.items() if value is not None})
    data = config.load_data().dataset
    agreement = draft_agreement(
        config, data, title="trial", first=sites[0].card, records=records, days=1, limits=limits or {}
    )
    for site in sites[1:]:
        agreement = add_member(agreement, site.card, records)
    return connect_members(agreement)


def sign_everywhere(folder: Path, agreement: Agreement, signers: list[Identity], holders=None) -> None:
    """Write the agreement and the signatures into every site's folder."""
    for holder in holders or signers:
        path = version_file(folder / holder.name, agreement.version)
        agreement.save(path)
        for site in signers:
            save_signature(sign_agreement(agreement, site), path)
