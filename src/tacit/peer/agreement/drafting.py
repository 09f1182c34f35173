"""Writes a new agreement from the settings of a run, adds members to it, and writes later versions."""

import hashlib
import inspect
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tacit import __version__
from tacit.data import DataSet
from tacit.data.drafting import settle
from tacit.errors import InvalidInput
from tacit.peer.agreement.document import Agreement, DialledLink, Limits, Member
from tacit.peer.agreement.terms import SITES_OWN, check_settings, edges_of_settings, records_to_label
from tacit.peer.cards import Card
from tacit.peer.public_records import KEY, PublicRecords
from tacit.registry import LOSSES, MODELS, RULES, rule_line
from tacit.runs.building import model_for
from tacit.runs.config import RunConfig
from tacit.runs.user_code import find, is_user_code
from tacit.training.preparation import make_module


def draft_agreement(
    config: RunConfig,
    data: DataSet,
    *,
    title: str,
    first: Card,
    records: int,
    days: float,
    limits: Mapping[str, Any],
) -> Agreement:
    """Return the first version, not yet complete, with one member. Settings that are a site's own are left out."""
    given = config.model_dump(exclude_none=True, exclude_unset=True)
    settings = {key: value for key, value in given.items() if key not in SITES_OWN}
    check_settings(settings)
    asked = records_to_label(config.algorithm)
    schema = settle(data, make_module(model_for(config, data), config.seed))
    return Agreement.of(
        {
            "title": title,
            "expires": (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0),
            "software": __version__,
            "settings": settings,
            "code": source_hashes(config),
            "data": {
                "name": data.name,
                "input_shape": list(data.input_shape),
                "schema": schema.to_dict(),
                **({} if data.classes is None else {"classes": data.classes}),
                **({} if asked is None else {KEY: PublicRecords.of(data, asked).model_dump()}),
            },
            "limits": {"quorum": 1, **limits},
            "members": [Member.of_card(first, records).model_dump()],
            "links": [],
        },
        "the new agreement",
    )


def add_member(agreement: Agreement, card: Card, records: int) -> Agreement:
    """Return the agreement with one more member, and links and quorum for all of them."""
    if agreement.version != 1:
        raise InvalidInput("members join before the run begins; a later version cannot add one")
    if any(member.name == card.name for member in agreement.members):
        raise InvalidInput(f"{card.name!r} is already a member")
    members = [*agreement.members, Member.of_card(card, records)]
    return _with(agreement, members=members, limits=_grown(agreement.limits, len(members)))


def connect_members(agreement: Agreement, pairs: Iterable[tuple[int, int]] | None = None) -> Agreement:
    """Return the agreement with links: those that its graph needs or, where the graph is `links`, the pairs given.

    Of each two, the one without an address dials. Where both have one, the later member dials.
    """
    if pairs is None:
        pairs = edges_of_settings(agreement)
    links = [_dialled(agreement.members, low, high) for low, high in sorted(pairs)]
    return _with(agreement, links=links)


def change_agreement(
    agreement: Agreement,
    *,
    gone: Iterable[str] = (),
    gone_from: int = 0,
    cards: Iterable[Card] = (),
    expires: datetime | None = None,
) -> Agreement:
    """Return the next version, with members declared gone from a round on, and with new keys or addresses by their cards."""
    members = list(agreement.members)
    for name in gone:
        number = agreement.number_of(name)
        members[number] = members[number].model_copy(update={"gone_from": gone_from})
    for card in cards:
        number = agreement.number_of(card.name)
        members[number] = Member.of_card(card, members[number].records)
    links = [_dialled(members, *edge) for edge in agreement.edges]
    before = {(link.dials, link.to) for link in agreement.links}
    kept = [
        link if (link.to, link.dials) not in before else DialledLink(dials=link.to, to=link.dials) for link in links
    ]
    reachable = {member.name for member in members if member.address}
    links = [old if old.to in reachable else new for old, new in zip(kept, links, strict=True)]
    after = _with(
        agreement,
        version=agreement.version + 1,
        run=agreement.run_id,
        previous=agreement.hash,
        members=members,
        links=links,
        **({} if expires is None else {"expires": expires}),
    )
    if after.plain["members"] == agreement.plain["members"] and after.expires == agreement.expires:
        raise InvalidInput("nothing was changed; name a member that is gone, or give a new card or day of expiry")
    return after


def source_hashes(config: RunConfig) -> dict[str, str]:
    """Return SHA-256 of the files that define the model, the loss and the rule."""
    return {key: _source_hash(key, getattr(config, key)) for key in ("model", "loss", "algorithm")}


def _source_hash(key: str, text: str) -> str:
    registries: dict[str, Mapping[str, Any]] = {"model": MODELS, "loss": LOSSES, "algorithm": RULES}
    shipped = registries[key]
    name = text.strip().partition(":")[0] if key == "algorithm" else text
    if name not in shipped and is_user_code(text) and not (key == "algorithm" and rule_line(text)):
        return find(key, text).sha256
    path = inspect.getsourcefile(shipped[name])
    if path is None:
        raise InvalidInput(f"the source of {key} {text!r} cannot be found")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _dialled(members: list[Member], low: int, high: int) -> DialledLink:
    dials, to = (high, low) if members[low].address or not members[high].address else (low, high)
    return DialledLink(dials=members[dials].name, to=members[to].name)


def _grown(limits: Limits, members: int) -> Limits:
    return limits.model_copy(update={"quorum": max(limits.quorum, members // 2 + 1)})


def _with(agreement: Agreement, **changes: Any) -> Agreement:
    after = agreement.model_copy(update=changes)
    return Agreement.of(after.model_dump(exclude_none=True), "the agreement")
