"""Files that only a site may read: keys and passphrases. Their permissions are checked whenever they are read."""

import os
import stat
from pathlib import Path

from tacit.errors import InvalidInput, StorageError
from tacit.io.files import sync_folder

CREDENTIAL = "tacit-passphrase"
"""The name of the systemd credential that holds a site's passphrase."""
_MOST_BYTES = 10**5


def find_passphrase(file: Path | None) -> bytes | None:
    """Return the passphrase in a file or, where none is given, in the systemd credential `tacit-passphrase`, if there is one."""
    by_systemd = file is None
    if file is None:
        file = Path(os.environ.get("CREDENTIALS_DIRECTORY", os.devnull)) / CREDENTIAL
        if not file.exists():
            return None
    phrase = read_secret(file, by_systemd=by_systemd).rstrip(b"\r\n")
    if not phrase:
        raise InvalidInput(f"{file} holds no passphrase")
    return phrase


def read_secret(path: Path, *, by_systemd: bool = False) -> bytes:
    """Read a file that only its owner, or root, may read or change; refuse one with other permissions.

    by_systemd: it may be a credential: one of root, which a service's user can read by an access control list. Its mode then shows what the list
    allows where a group's rights would stand.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise InvalidInput(f"{path} is not a file")
            of_root = by_systemd and (facts.st_uid, facts.st_gid) == (0, 0)
            if facts.st_mode & (0o037 if of_root else 0o077):
                raise InvalidInput(
                    f"{path} has mode {stat.S_IMODE(facts.st_mode):04o}, so others on this machine can read or change it; run chmod 600 {path}"
                )
            if facts.st_uid not in (os.getuid(), 0):
                raise InvalidInput(f"{path} belongs to another user, who can read it")
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise InvalidInput(f"{path} is too large for a secret")
    return content


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read. An existing file is never overwritten."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except FileExistsError:
        raise InvalidInput(f"{path} already exists; a key is never overwritten") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
