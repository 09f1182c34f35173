"""What an agreement says, and its canonical bytes.

It is one TOML file. Its hash is SHA-256 of its content as canonical JSON, so that spaces, comments and the order of keys make no
difference. The hash of the first version is the identity of the run; every later version names the one before it.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from tacit.errors import InvalidInput, choose
from tacit.io import chains
from tacit.io.files import write_atomically
from tacit.io.toml import read_toml
from tacit.io.validation import mistake
from tacit.peer.cards import Card, check_card, fingerprint_of, spoken

FORMAT: Literal["tacit-agreement-1"] = "tacit-agreement-1"
AGREEMENT_FILE = "agreement.toml"
MOST_MEMBERS = 1000
_MOST_BYTES = 10**7
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)


class Member(BaseModel):
    """One site, with the number of its agent: its place in the list."""

    model_config = _STRICT

    name: str
    fingerprint: _Hash
    words: str
    """The fingerprint, as it is read over the telephone."""
    address: str = ""
    """host:port where others can reach it; empty where it only dials out."""
    records: int = Field(ge=1)
    """How many records, or units, it declares to hold. Public; sampling rates and noise follow from it."""
    gone_from: int | None = Field(default=None, ge=0)
    """The round from which the others continue without it, and masks are shared without it; missing while it takes part."""
    public_key: _Hash
    certificate: str = Field(max_length=4000)

    @staticmethod
    def of_card(card: Card, records: int) -> "Member":
        """Return a member by its card."""
        return Member(
            name=card.name,
            fingerprint=card.fingerprint,
            words=spoken(card.fingerprint),
            address=card.address,
            records=records,
            public_key=card.public_key,
            certificate=card.certificate,
        )

    @property
    def gone(self) -> bool:
        """Whether it was declared gone."""
        return self.gone_from is not None

    @property
    def card(self) -> Card:
        """What the member handed out."""
        return Card(name=self.name, public_key=self.public_key, certificate=self.certificate, address=self.address)


class DialledLink(BaseModel):
    """Two members who exchange messages in some round, and which of them dials the other."""

    model_config = _STRICT

    dials: str
    to: str


class Limits(BaseModel):
    """Deadlines, and how many members may be missing."""

    model_config = _STRICT

    least_bandwidth: float = Field(125_000.0, gt=0)
    """Bytes each second that every link carries at least."""
    compute_seconds: float = Field(60.0, gt=0)
    """How long a round may take at a site, beside its messages."""
    fewest_links: int = Field(1, ge=0)
    """How many links a round of a site needs: with fewer up or used it waits, unless a neighbour has gone ahead."""
    quorum: int = Field(ge=1)
    """How many members must sign a version that only declares others gone."""
    grace_seconds: float = Field(10.0, ge=0)
    """How long a link that is down is waited for, once, before rounds continue without it."""
    resend_seconds: float = Field(5.0, gt=0)
    """After how long a question without an answer is repeated; longer than the largest message takes."""
    linger_seconds: float = Field(60.0, ge=0)
    """How long a site that has finished stays for neighbours that have not."""
    most_norm: float = Field(1e6, gt=0)
    """The largest Euclidean norm of a message that is used."""


class Agreement(BaseModel):
    """All that a consortium agrees on. See `docs/peers.md` for each key."""

    model_config = _STRICT

    format: Literal["tacit-agreement-1"] = FORMAT
    title: str = Field(pattern="^[a-z0-9][a-z0-9-]{0,40}$")
    version: int = Field(1, ge=1)
    run: _Hash | None = None
    """The hash of the first version; missing in the first version itself."""
    previous: _Hash | None = None
    """The hash of the version before; missing in the first version."""
    expires: AwareDatetime
    software: str
    """The version of Tacit that all members use."""
    settings: dict[str, Any]
    """Settings of the run, as `tacit train` takes them, without those that are a site's own."""
    code: dict[str, _Hash]
    """SHA-256 of the source file of the model, the loss and the update rule."""
    data: dict[str, Any]
    """What a record may be, as `Schema.to_dict` writes it, with the input's shape, the number of classes and, where teachers vote, the public records."""
    limits: Limits
    members: list[Member] = Field(max_length=MOST_MEMBERS)
    links: list[DialledLink]

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical bytes, in hexadecimal."""
        return chains.digest(self.canonical)

    @property
    def canonical(self) -> str:
        """The content as canonical JSON."""
        return chains.canonical(self.plain)

    @property
    def plain(self) -> dict[str, Any]:
        """The content as plain data. Times are texts in UTC."""
        found = self.model_dump(mode="json", exclude_none=True)
        return found | {"expires": self.expires.astimezone(UTC).isoformat()}

    @property
    def run_id(self) -> str:
        """The identity of the run: the hash of its first version."""
        return self.run or self.hash

    @property
    def run_name(self) -> str:
        """The name of the run's folder at every site."""
        return f"{self.title}-{self.run_id[:8]}"

    def number_of(self, name: str) -> int:
        """Return the number of a member's agent."""
        names = [member.name for member in self.members]
        return names.index(choose("member", name, names))

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Both ends of each link by number, the smaller first."""
        pairs = [(self.number_of(link.dials), self.number_of(link.to)) for link in self.links]
        return sorted((min(pair), max(pair)) for pair in pairs)

    def links_of(self, agent: int) -> dict[int, bool]:
        """Return the neighbours of an agent, and whether it dials each of them."""
        found: dict[int, bool] = {}
        for link in self.links:
            one, other = self.number_of(link.dials), self.number_of(link.to)
            if agent in (one, other):
                found[other if agent == one else one] = agent == one
        return dict(sorted(found.items()))

    def is_expired(self, now: datetime) -> bool:
        """Return whether the agreement has ended."""
        return now >= self.expires

    def to_toml(self) -> str:
        """Return the file."""
        return tomli_w.dumps(self.plain | {"expires": self.expires}, multiline_strings=True)

    def save(self, path: Path) -> None:
        """Write the file."""
        write_atomically(path, self.to_toml().encode())

    @staticmethod
    def of(document: dict[str, Any], where: str) -> "Agreement":
        """Check plain data; every mistake is named with its value."""
        for key in document:
            choose(f"key of {where}", key, Agreement.model_fields)
        try:
            found = Agreement(**document)
        except ValidationError as error:
            lines = [mistake(".".join(map(str, each["loc"])), each) for each in error.errors()]
            raise InvalidInput(f"{where}: {'; '.join(lines[:3])}") from None
        try:
            chains.canonical(found.model_dump() | {"expires": found.plain["expires"]})
        except (
            ValueError,
            TypeError,
            OverflowError,
        ) as error:  # not finite, not a plain value, beyond the calendar in UTC
            raise InvalidInput(f"{where} has a value that cannot be signed: {error}") from None
        _check_members(found, where)
        return found

    @staticmethod
    def read(path: Path) -> "Agreement":
        """Read a file."""
        document = read_toml(path, what="an agreement", most_bytes=_MOST_BYTES)
        if document.get("format") != FORMAT:
            raise InvalidInput(f"{path} is not an agreement of the format {FORMAT!r}")
        return Agreement.of(document, str(path))


def version_file(folder: Path, version: int) -> Path:
    """Return where a site keeps a version of its agreement."""
    return folder / (AGREEMENT_FILE if version == 1 else f"agreement-{version}.toml")


def _check_members(agreement: Agreement, where: str) -> None:
    members = agreement.members
    for kind in ("name", "public_key"):
        each = [getattr(member, kind) for member in members]
        if twice := sorted({value for value in each if each.count(value) > 1}):
            raise InvalidInput(f"{where}: two members have the {kind.replace('_', ' ')} {twice[0][:40]!r}")
    for member in members:
        check_card(member.card, where)
        if member.fingerprint != fingerprint_of(bytes.fromhex(member.public_key)):
            raise InvalidInput(f"{where}: the fingerprint of {member.name!r} is not that of its key")
        if member.words != spoken(member.fingerprint):
            raise InvalidInput(f"{where}: the words of {member.name!r} are not those of its fingerprint")
    pairs = set()
    for link in agreement.links:
        ends = (agreement.number_of(link.dials), agreement.number_of(link.to))
        pair = (min(ends), max(ends))
        if ends[0] == ends[1]:
            raise InvalidInput(f"{where}: {link.dials!r} is linked to itself")
        if pair in pairs:
            raise InvalidInput(f"{where}: two links join {link.dials!r} and {link.to!r}; give one")
        pairs.add(pair)
    if (agreement.version == 1) != (agreement.previous is None) or (agreement.version == 1) != (agreement.run is None):
        raise InvalidInput(f"{where}: a first version names neither run nor previous, and every later one names both")
