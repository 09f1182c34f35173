"""Whether a site's records are still those with which its run began.

What is kept of them is one hash under a random salt, in a file that only its owner can read and that no archive contains: nobody who sees
the events, the ledger or the summary can test a guess about a record. The order of records makes no difference, as that of a
database may change.
"""

import json
import secrets
from collections.abc import Iterator
from hashlib import sha256

import torch

from tacit.data import AgentData, Records, inputs
from tacit.errors import InvalidInput
from tacit.io.chains import parse
from tacit.peer.secret_files import read_secret, write_secret
from tacit.runs.folder import RunFolder
from tacit.runs.resume_checks import check_same_data

RECORDS_FILE = "records.json"
_SALT = 32


def keep_fingerprint(folder: RunFolder, data: AgentData) -> None:
    """Keep what is needed to recognise these records. Call it before the run is planned; nothing was asked until then."""
    path, salt = folder.path / RECORDS_FILE, secrets.token_bytes(_SALT)
    path.unlink(missing_ok=True)
    write_secret(path, json.dumps({"salt": salt.hex(), **_fingerprint(data, salt)}).encode() + b"\n")


def check_unchanged(folder: RunFolder, data: AgentData, declared: int) -> None:
    """Refuse records that are not those with which the run in this folder began; before it has begun, any will do."""
    plan, path = folder.events().plan, folder.path / RECORDS_FILE
    if plan is None:
        return
    check_same_data(folder.name, plan, data, (declared,))
    if not path.exists():
        raise InvalidInput(
            f"{path} is missing, so nobody can tell whether these are the records with which run {folder.name!r} began; put the file back"
        )
    try:
        kept = dict(parse(read_secret(path)))
        now = _fingerprint(data, bytes.fromhex(kept.pop("salt")))
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} is damaged; put back the file that the run began with") from None
    if changed := [kind for kind in now if kept.get(kind) != now[kind]]:
        raise InvalidInput(
            f"the {' and '.join(changed)} records are not those with which run {folder.name!r} began; put them back, or agree on a new "
            "run. Nothing was asked"
        )


def _fingerprint(data: AgentData, salt: bytes) -> dict[str, str]:
    dataset = data.dataset
    own = dataset.train.take(torch.cat(data.indices))
    tables = {"training": own, "validation": dataset.validation, "test": dataset.test}
    return {kind: _digest(table, salt) for kind, table in tables.items()}


def _digest(table: Records | None, salt: bytes) -> str:
    found = sha256(salt)
    for each in sorted(() if table is None else _hashes(table, salt)):
        found.update(each)
    return found.hexdigest()


def _hashes(table: Records, salt: bytes) -> Iterator[bytes]:
    """Yield the hash of every record, with its target and unit."""
    columns = [*inputs.parts(table.inputs), table.targets, *([] if table.units is None else [table.units])]
    kinds = " ".join(f"{column.dtype} {tuple(column.shape[1:])}" for column in columns).encode()
    flat = [column.detach().cpu().contiguous().reshape(len(table), -1) for column in columns]
    for row in zip(*(column.view(torch.uint8).numpy() for column in flat), strict=True):
        yield sha256(salt + kinds + b"".join(part.tobytes() for part in row)).digest()
