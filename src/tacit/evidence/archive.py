"""The archive of one run for an auditor: a plain zip file of a few named parts, none of which is code.

manifest.json            the name of the run, and SHA-256 of every other part
config.toml              the settings
events.jsonl             plan, snapshots, checkpoints, resumes, the end; hash-chained
ledger.jsonl             the ledger's log, row by row; rows about other records are replaced by their digests ("sealed")
summary.json             the results as the run states them, once it is finished
models.safetensors       all agents' final models, once it is finished
checkpoint.safetensors   the last checkpoint
agreement.json           of one site among peers: what all members agreed on
code.json                SHA-256 of the library's files, and versions of its dependencies

The same run gives the same bytes. Parts are stored without compression, so that reading never needs more memory than the file is
large. Nothing is written to disk, and anything that is not such an archive is refused. `verify` names a part that was changed.
"""

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput, StorageError
from tacit.io import chains
from tacit.privacy import DurableLedger
from tacit.privacy.ledger import EVERYONE
from tacit.privacy.log import LogRow
from tacit.runs import RunFolder
from tacit.runs.environment import code_files

FORMAT = "tacit-audit-2"
MANIFEST = "manifest.json"
REQUIRED = ("config.toml", "events.jsonl", "ledger.jsonl", "code.json")
OPTIONAL = ("summary.json", "models.safetensors", "checkpoint.safetensors")
OF_SITES = ("agreement.json",)
_PARTS = (*REQUIRED, *OPTIONAL, *OF_SITES)
MOST_BYTES = 2 * 2**30
_TIME = (1980, 1, 1, 0, 0, 0)
_DEPENDENCIES = ("torch", "numpy", "scipy", "dp-accounting", "cryptography", "safetensors")


@dataclass(frozen=True)
class Archive:
    """The parts of an archive, as bytes, and the name of its run. Their contents are not verified yet."""

    run: str
    parts: Mapping[str, bytes]
    problems: tuple[str, ...] = ()
    """Which parts differ from the manifest, or are missing."""

    @staticmethod
    def read(path: Path) -> "Archive":
        """Read an archive, or raise an error that says why it is not one."""
        try:
            size = path.stat().st_size
            if size > MOST_BYTES:
                raise InvalidInput(f"{path} has {size:,} bytes; an archive has at most {MOST_BYTES:,}")
            content = path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
        return Archive.of(content, str(path))

    @staticmethod
    def of(content: bytes, where: str) -> "Archive":
        """Read an archive in memory, which came from `where`. Parts that were changed are listed in `problems`."""
        parts, damaged = _unzip(content, where)
        try:
            manifest = chains.parse(parts.pop(MANIFEST))
            run, files = manifest["run"], manifest["files"]
            if set(manifest) != {"format", "run", "files"} or manifest["format"] != FORMAT or type(run) is not str:
                raise ValueError(f"it is not of the format {FORMAT!r}")
            if not isinstance(files, dict) or set(files) - set(_PARTS):
                raise ValueError("it does not list the parts of an archive")
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{where} is not an archive for an audit: {MANIFEST}: {error}") from None
        return Archive(run, parts, tuple(_compare_parts(parts, damaged, files)))

    def to_bytes(self) -> bytes:
        """Return the archive as a file."""
        files = {name: hashlib.sha256(part).hexdigest() for name, part in self.parts.items()}
        manifest = {"format": FORMAT, "run": self.run, "files": files}
        return _zip({MANIFEST: _json(manifest), **self.parts})


def _compare_parts(parts: Mapping[str, bytes], damaged: Collection[str], files: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the parts differ from those that a manifest lists."""
    for name in _PARTS:
        if name in damaged:
            yield f"{name} is damaged: its checksum in the archive is wrong"
        elif name not in parts:
            if name in files or name in REQUIRED:
                yield f"{name} is missing"
        elif name not in files:
            yield f"{name} was added: the manifest does not list it"
        elif files[name] != hashlib.sha256(parts[name]).hexdigest():
            yield f"{name} was changed: the manifest lists a different hash"


def pack(folder: RunFolder, *, whole_ledger: bool = False) -> Archive:
    """Return everything that an auditor needs of a run.

    Rows of the ledger that are about other records are replaced by their digests, unless `whole_ledger`.
    """
    if folder.is_running:
        raise InvalidInput(f"a process is working on {folder.path}; stop it, or let it finish")
    if folder.events().plan is None:
        raise InvalidInput(f"run {folder.name!r} has no plan yet; there is nothing to give to an auditor")
    with closing(DurableLedger(folder.ledger_file, read_only=True)) as ledger:
        if ledger.account(folder.name) is None:
            raise InvalidInput(f"run {folder.name!r} is not in the ledger {folder.ledger_file}")
        rows = [text for text, _ in ledger.log]
    if not whole_ledger:
        rows = sealed(rows, folder.name)
    parts = {
        "config.toml": _content(folder.config_file),
        "events.jsonl": _complete(_content(folder.events_file)),
        "ledger.jsonl": "".join(f"{row}\n" for row in rows).encode(),
        "code.json": _json({"files": code_files(), "versions": {name: version(name) for name in _DEPENDENCIES}}),
    }
    for path in (folder.summary_file, folder.models_file, folder.checkpoint_file, folder.agreement_file):
        if path.exists():
            parts[path.name] = _content(path)
    return Archive(folder.name, parts)


def sealed(rows: list[str], run: str) -> list[str]:
    """Return the log with each row that does not concern the run replaced by its digest.

    A run is concerned by all accounts of its owners, or on records that these ever held, and by decisions about these accounts and the
    budgets of their owners. Every ε of its owners follows from these, also over all runs.
    """
    read: list[LogRow] = [json.loads(row) for row in rows]
    opened = [row for row in read if row["kind"] == "open"]
    own = {line["owner"] for row in opened if row["run"] == run for line in row["lines"]}
    records = {line["records"] for row in opened for line in row["lines"] if line["owner"] in own} - {""}
    related = [
        row for row in opened if any(line["owner"] in own or line["records"] in records for line in row["lines"])
    ]
    accounts, runs = {row["account"] for row in related}, {row["run"] for row in related}
    owners = {EVERYONE, *(line["owner"] for row in related for line in row["lines"])}

    def is_shown(row: LogRow) -> bool:
        if row["kind"] == "budget":
            return row["owner"] in owners
        if row["kind"] == "decision":
            return row["decision"]["subject"] in (runs if row["decision"]["kind"] == "abandon" else owners)
        return row["account"] in accounts

    return [
        text if is_shown(row) else chains.canonical({"sealed": chains.digest(text)})
        for text, row in zip(rows, read, strict=True)
    ]


def _complete(content: bytes) -> bytes:
    """Return the complete lines of a file, without one that a crash cut off."""
    return content[: content.rfind(b"\n") + 1]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error


def _json(document: Any) -> bytes:
    return chains.canonical(document).encode() + b"\n"


def _zip(parts: Mapping[str, bytes]) -> bytes:
    """Return a zip file that depends only on its parts: no dates, no compression, ordered by name."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as file:
        for name in sorted(parts):
            info = zipfile.ZipInfo(name, _TIME)
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            file.writestr(info, parts[name])
    return written.getvalue()


def _unzip(content: bytes, where: str) -> tuple[dict[str, bytes], list[str]]:
    """Return the parts of a zip file and the names of damaged ones; refuse names, kinds or sizes that no archive has."""
    parts: dict[str, bytes] = {}
    damaged: list[str] = []
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            for info in file.infolist():
                if info.filename not in (MANIFEST, *_PARTS):
                    raise InvalidInput(
                        f"{where} holds {info.filename[:80]!r}, which is not part of an archive for an audit"
                    )
                if info.filename in parts or info.filename in damaged:
                    raise InvalidInput(f"{where} holds {info.filename!r} twice")
                kind = stat.S_IFMT(info.external_attr >> 16)
                if info.is_dir() or kind not in (0, stat.S_IFREG):
                    raise InvalidInput(f"{info.filename} in {where} is not a plain file, but a link or something else")
                if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                    raise InvalidInput(
                        f"{info.filename} in {where} is compressed; an archive for an audit is not, so that it cannot be larger "
                        "than it looks"
                    )
                if info.file_size + sum(map(len, parts.values())) > len(content):
                    raise InvalidInput(f"the parts of {where} are larger than the file")
                try:
                    parts[info.filename] = file.read(info)
                except zipfile.BadZipFile as error:
                    if not str(error).startswith("Bad CRC-32"):
                        raise
                    damaged.append(info.filename)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{where} is not an archive for an audit, or is damaged: {error}") from None
    if MANIFEST not in parts:
        state = "is damaged" if MANIFEST in damaged else "is missing"
        raise InvalidInput(f"{where} is not an archive for an audit, or is damaged: its {MANIFEST} {state}")
    return parts, damaged
