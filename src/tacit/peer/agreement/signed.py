"""Signatures of an agreement, detached: one small file of each member for each version. And the chain of versions.

The first version needs every member's signature. A later one may change addresses, keys, who dials, the day of expiry, and declare members
gone; nothing else. It needs the signatures of all who are left or, where all it does is to declare members gone, of a quorum. Fewer than a
quorum never decide: so many must be left, and so many must keep their keys, as whoever renews a key signs with the new one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.io import chains
from tacit.io.files import write_atomically
from tacit.peer.agreement.document import Agreement, version_file
from tacit.peer.cards import verify
from tacit.peer.identity import Identity

_FORMAT = "tacit-agreement-signature-1"
_DOCUMENT = "tacit-agreement-versions-1"
_MOST_BYTES = 10_000
_HOW_TO_SIGN = "each signs with `tacit peer agreement sign` and hands out the .sig file"
_FREE = ("address", "fingerprint", "words", "public_key", "certificate", "gone_from")


@dataclass(frozen=True, kw_only=True)
class MemberSignature:
    """That one member agrees to one version."""

    agreement: str
    """The hash of the version."""
    name: str
    public_key: str
    time: str
    signature: str

    @property
    def signed_bytes(self) -> bytes:
        """What is signed."""
        facts = {key: value for key, value in vars(self).items() if key != "signature"}
        return chains.canonical({"format": _FORMAT, **facts}).encode()

    def to_json(self) -> bytes:
        """Return the content of its file."""
        return (chains.canonical({"format": _FORMAT, **vars(self)}) + "\n").encode()

    @staticmethod
    def of(content: bytes, where: str) -> "MemberSignature":
        """Read the content of a file, or of a message; a signature that is not valid is refused."""
        fields = ("agreement", "name", "public_key", "time", "signature")
        try:
            if len(content) > _MOST_BYTES:
                raise ValueError("it is too large")
            document: Any = chains.parse(content)
            if not isinstance(document, dict) or set(document) != {"format", *fields} or document["format"] != _FORMAT:
                raise ValueError(f"it is not of the format {_FORMAT!r}")
            if not all(type(value) is str for value in document.values()):
                raise ValueError("its fields are not texts")
            found = MemberSignature(**{name: document[name] for name in fields})
            valid = verify(bytes.fromhex(found.public_key), bytes.fromhex(found.signature), found.signed_bytes)
        except (ValueError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{where} is not a signature of an agreement: {error}") from None
        if not valid:
            raise InvalidInput(f"{where}: the signature is not valid")
        return found


def sign_agreement(agreement: Agreement, identity: Identity) -> MemberSignature:
    """Sign a version as the member that this site is."""
    member = agreement.members[agreement.number_of(identity.name)]
    if member.public_key != identity.card.public_key:
        raise InvalidInput(f"the agreement has another key for {identity.name!r} than this site; it was not signed")
    time = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"agreement": agreement.hash, "name": identity.name, "public_key": member.public_key, "time": time}
    unsigned = MemberSignature(**facts, signature="")
    return MemberSignature(**facts, signature=identity.sign(unsigned.signed_bytes).hex())


def signature_file(agreement_file: Path, name: str) -> Path:
    """Return where the signature of a member lies: beside the agreement."""
    return agreement_file.with_name(f"{agreement_file.name}.{name}.sig")


def save_signature(signature: MemberSignature, agreement_file: Path) -> Path:
    """Write a signature beside the agreement."""
    return write_atomically(signature_file(agreement_file, signature.name), signature.to_json())


def check_not_signed(agreement: Agreement, agreement_file: Path, name: str) -> None:
    """Refuse to sign a second version with one number. As quorums overlap, two such versions then never both count.

    Of the first version this is not asked: two of them are two runs.
    """
    path = signature_file(agreement_file, name)
    if agreement.version == 1 or not path.exists():
        return
    if MemberSignature.of(path.read_bytes(), str(path)).agreement != agreement.hash:
        raise InvalidInput(
            f"{name!r} has signed another version {agreement.version} of the agreement, see {path}. If both counted, some sites would adopt the one and some "
            "the other, and they would not hear each other any more. Sign the one that is signed already; only if nobody keeps it, delete that file first"
        )


def read_signatures(agreement: Agreement, agreement_file: Path) -> dict[str, MemberSignature]:
    """Return the valid signatures of this very version beside its file, by member; others of that name are errors."""
    found: dict[str, MemberSignature] = {}
    for member in agreement.members:
        path = signature_file(agreement_file, member.name)
        if not path.exists():
            continue
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
        signature = MemberSignature.of(content, str(path))
        if signature.name != member.name or signature.public_key != member.public_key:
            raise InvalidInput(f"{path} is by another key than the agreement has for {member.name!r}")
        if signature.agreement != agreement.hash:
            raise InvalidInput(f"{path} is for another version of the agreement than {agreement_file}")
        found[member.name] = signature
    return found


def missing_signatures(
    agreement: Agreement, before: Agreement | None, signed: dict[str, MemberSignature]
) -> tuple[str, ...]:
    """Return the members who still have to sign before this version counts: nobody, where a quorum is enough and has signed."""
    present = [member.name for member in agreement.members if not member.gone]
    missing = tuple(name for name in present if name not in signed)
    if before is not None and _only_declares_gone(before, agreement):
        have = len(present) - len(missing)
        return () if have >= agreement.limits.quorum else missing
    return missing


def check_change(before: Agreement, after: Agreement) -> None:
    """Refuse a version that changes what only a new run may change, or that does not follow the version before it."""
    if (after.version, after.previous, after.run) != (before.version + 1, before.hash, before.run_id):
        raise InvalidInput(
            f"version {after.version} of the agreement does not follow version {before.version}: it names another previous version or run"
        )
    for key in ("title", "software", "settings", "code", "data", "limits"):
        if after.plain[key] != before.plain[key]:
            raise InvalidInput(f"version {after.version} of the agreement changes {key}; that needs a new run")
    if [_fixed(each) for each in before.plain["members"]] != [_fixed(each) for each in after.plain["members"]]:
        raise InvalidInput(
            f"version {after.version} of the agreement changes who takes part, or what they declare; that needs a new run"
        )
    if after.edges != before.edges:
        raise InvalidInput(f"version {after.version} of the agreement changes who is linked; that needs a new run")
    for old, new in zip(before.members, after.members, strict=True):
        if old.gone and new.gone_from != old.gone_from:
            raise InvalidInput(f"{new.name!r} was declared gone and cannot come back in this run")
    _check_who_decides(before, after)


def _check_who_decides(before: Agreement, after: Agreement) -> None:
    """Refuse a version that a few could sign by themselves, as they declare the others gone or put their own keys in the others' places.

    Where two members are left, one vouches for the other's new key: there is nobody else to ask, or to deceive.
    """
    quorum, there = after.limits.quorum, sum(not member.gone for member in before.members)
    left = [(old, new) for old, new in zip(before.members, after.members, strict=True) if not new.gone]
    if len(left) < min(quorum, there):
        raise InvalidInput(
            f"version {after.version} of the agreement leaves {len(left)} of {len(after.members)} members, and the quorum is {quorum}: so few cannot "
            "continue this run; agree on a new one"
        )
    kept, needed = sum(old.public_key == new.public_key for old, new in left), min(quorum, there - 1)
    if kept < needed:
        raise InvalidInput(
            f"version {after.version} of the agreement renews so many keys that only {kept} members keep theirs, and {needed} must, who vouch "
            "for the others; renew one key after another"
        )


@dataclass(frozen=True)
class Chain:
    """All versions of an agreement that a site holds, each signed as it must be."""

    versions: tuple[Agreement, ...]
    signatures: tuple[dict[str, MemberSignature], ...]

    @property
    def current(self) -> Agreement:
        """The version in force."""
        return self.versions[-1]

    @property
    def run_id(self) -> str:
        """The identity of the run."""
        return self.versions[0].hash

    def require_in_force(self) -> None:
        """Refuse an agreement that has expired."""
        if self.current.is_expired(datetime.now(UTC)):
            raise InvalidInput(
                f"the agreement expired on {self.current.expires:%Y-%m-%d}; a new version with a later day is needed, signed by all"
            )

    @property
    def document(self) -> bytes:
        """All later versions with their signatures, for neighbours; empty if there is only the first."""
        later = list(zip(self.versions, self.signatures, strict=True))[1:]
        return versions_document(later) if later else b""

    def extended(self, agreement: Agreement, signatures: Mapping[str, MemberSignature]) -> "Chain":
        """Return the chain with one more version; one that does not follow, or is not signed as it must be, is refused."""
        check_change(self.current, agreement)
        own = _of_members(agreement, signatures)
        if missing := missing_signatures(agreement, self.current, own):
            raise InvalidInput(f"version {agreement.version} of the agreement is not signed by {', '.join(missing)}")
        return Chain((*self.versions, agreement), (*self.signatures, own))

    def learn(self, document: bytes) -> "Chain":
        """Return the chain with whatever versions in a message are new."""
        chain = self
        for agreement, signatures in read_versions(document):
            if agreement.version > chain.current.version:
                chain = chain.extended(agreement, signatures)
            elif agreement.hash != chain.versions[agreement.version - 1].hash:
                raise InvalidInput(f"version {agreement.version} of the agreement is another one than this site has")
        return chain

    def save(self, folder: Path) -> None:
        """Write versions and signatures that a site's folder does not have yet."""
        for agreement, signatures in zip(self.versions, self.signatures, strict=True):
            path = version_file(folder, agreement.version)
            for signature in signatures.values():
                if not signature_file(path, signature.name).exists():
                    save_signature(signature, path)
            if not path.exists():
                agreement.save(path)


def versions_document(versions: Sequence[tuple[Agreement, Mapping[str, MemberSignature]]]) -> bytes:
    """Return later versions with their signatures as one message for neighbours that do not have them yet."""
    content = [
        {
            "agreement": agreement.plain,
            "signatures": [signature.to_json().decode() for signature in signatures.values()],
        }
        for agreement, signatures in versions
    ]
    return chains.canonical({"format": _DOCUMENT, "versions": content}).encode()


def read_versions(document: bytes) -> list[tuple[Agreement, dict[str, MemberSignature]]]:
    """Read what `versions_document` wrote; whether the versions follow on and are signed is not checked here."""
    try:
        found: Any = chains.parse(document)
        if not isinstance(found, dict) or found.get("format") != _DOCUMENT or not isinstance(found["versions"], list):
            raise ValueError(f"it is not of the format {_DOCUMENT!r}")
        versions = []
        for each in found["versions"]:
            plain = {**each["agreement"], "expires": datetime.fromisoformat(each["agreement"]["expires"])}
            agreement = Agreement.of(plain, "a version of the agreement")
            texts = [str(text).encode() for text in each["signatures"][: len(agreement.members)]]
            signatures = [MemberSignature.of(text, "a signature in a message") for text in texts]
            versions.append((agreement, {signature.name: signature for signature in signatures}))
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidInput(f"a message is not a version of the agreement: {error}") from None
    return versions


def read_chain(folder: Path) -> Chain:
    """Read all versions in a site's folder; a version that is not signed by all who must sign it is an error."""
    path = version_file(folder, 1)
    first = Agreement.read(path)
    signatures = read_signatures(first, path)
    if missing := missing_signatures(first, None, signatures):
        raise InvalidInput(f"{path} is not signed by {', '.join(missing)}; {_HOW_TO_SIGN}")
    chain = Chain((first,), (signatures,))
    while (path := version_file(folder, len(chain.versions) + 1)).exists():
        agreement = Agreement.read(path)
        try:
            chain = chain.extended(agreement, read_signatures(agreement, path))
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}; {_HOW_TO_SIGN}") from None
    return chain


def _of_members(agreement: Agreement, signatures: Mapping[str, MemberSignature]) -> dict[str, MemberSignature]:
    """Return the signatures by members, of this version, with their keys; others do not count."""
    keys = {member.name: member.public_key for member in agreement.members}
    return {
        name: each
        for name, each in signatures.items()
        if each.agreement == agreement.hash and keys.get(name) == each.public_key and name == each.name
    }


def _only_declares_gone(before: Agreement, after: Agreement) -> bool:
    aside = ("version", "run", "previous", "members")
    same = all(after.plain.get(key) == value for key, value in before.plain.items() if key not in aside)
    return same and [_present(each) for each in before.plain["members"]] == [
        _present(each) for each in after.plain["members"]
    ]


def _present(member: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in member.items() if key != "gone_from"}


def _fixed(member: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in member.items() if key not in _FREE}
