"""Fetching official files: into which folder, from which mirror, and what to do without a network.

A file that is already in the folder is used as it is. A download is moved there only if its checksum is
right, so a broken download leaves nothing behind.
"""

import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pooch

from tacit.errors import DataError

_TIMEOUT_SECONDS = 30
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """An official file and where to download it."""

    path: str
    """Its path in the data folder."""
    checksum: str
    """As pooch writes it: "sha256:…" or "md5:…"."""
    mirrors: tuple[str, ...]
    """Base URLs, tried in turn; the file's name is appended."""
    members: tuple[str, ...] = ()
    """For an archive, the files to unpack: their paths in the archive and in the data folder."""

    @property
    def layout(self) -> tuple[str, ...]:
        """The files that are read in the end, relative to the data folder."""
        return self.members or (self.path,)


def data_folder(data_dir: str | Path | None = None) -> Path:
    """Return the folder for data: `data_dir`, else the environment's TACIT_DATA, else the user's cache."""
    chosen = data_dir or os.environ.get("TACIT_DATA") or pooch.os_cache("tacit")
    return Path(chosen).expanduser().resolve()


def refuse_missing_folder(data_dir: str | Path | None = None) -> None:
    """Refuse a data folder that was named and does not exist, before anything is created; the cache is made where it is needed."""
    named = data_dir or os.environ.get("TACIT_DATA")
    if named and not (folder := Path(named).expanduser()).is_dir():
        what = "the data folder" if data_dir else "TACIT_DATA, the data folder,"
        why = "is not a folder" if folder.exists() else "does not exist"
        raise DataError(f"{what} {named} {why}; create it, or name another one")


def locate(relative: str, folder: Path) -> Path | None:
    """Return the path of a file of the layout, packed or not, or None if it is missing."""
    packed = folder / relative
    plain = packed.with_suffix("") if packed.suffix == ".gz" else packed
    return next((path for path in (packed, plain) if path.is_file()), None)


def fetch(files: Sequence[RemoteFile], folder: Path) -> dict[str, Path]:
    """Return the path of each file of the layout, after downloading and unpacking missing ones."""
    for file in files:
        if _missing(file, folder):
            _obtain(file, files, folder)
    layout = (relative for file in files for relative in file.layout)
    return {relative: path for relative in layout if (path := locate(relative, folder))}


def _missing(file: RemoteFile, folder: Path) -> list[str]:
    return [relative for relative in file.layout if locate(relative, folder) is None]


def _obtain(file: RemoteFile, files: Sequence[RemoteFile], folder: Path) -> None:
    local = folder / file.path
    if not local.is_file():
        failures: list[str] = []
        if not any(_download(url, file, local, failures) for url in _urls(file)):
            raise DataError(_how_to_help(file, files, folder, failures))
    if file.members:
        _unpack(local, _missing(file, folder), folder)


def _urls(file: RemoteFile) -> list[str]:
    # A user's own mirror serves a whole data folder, where bare names would clash: the files of MNIST and
    # Fashion-MNIST have the same names.
    own = os.environ.get("TACIT_MIRROR")
    first = [f"{own.rstrip('/')}/{file.path}"] if own else []
    return first + [f"{mirror.rstrip('/')}/{PurePosixPath(file.path).name}" for mirror in file.mirrors]


def _download(url: str, file: RemoteFile, local: Path, failures: list[str]) -> bool:
    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(), chunk_size=_CHUNK_BYTES, timeout=_TIMEOUT_SECONDS
    )
    try:
        pooch.retrieve(url, known_hash=file.checksum, fname=local.name, path=local.parent, downloader=downloader)
    except (OSError, ValueError) as error:
        # requests raises OSErrors; pooch raises a ValueError for a wrong checksum.
        failures.append(f"{url}: {_why(error)}")
        return False
    return True


def _why(error: Exception) -> str:
    """Say in a few words why a download failed."""
    import requests  # slow to import, and most runs download nothing

    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT_SECONDS} seconds"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy does not let this machine connect to it"
    if isinstance(error, requests.exceptions.SSLError):
        return "no secure connection to this server"
    if isinstance(error, requests.ConnectionError):
        return "this machine cannot connect to that server"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    return str(error)


def _unpack(archive: Path, members: Sequence[str], folder: Path) -> None:
    # Unpacked next to its destination and then moved, so that no partial file is ever in place.
    try:
        with tarfile.open(archive, "r:gz") as tar, tempfile.TemporaryDirectory(dir=folder) as staging:
            for member in members:
                info = tar.getmember(member)
                if not info.isfile():
                    raise DataError(f"{member} in {archive} is not a plain file; this is not the official archive")
                tar.extract(info, staging, filter="data")
            for member in members:
                (folder / member).parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(staging) / member, folder / member)
    except KeyError as error:
        raise DataError(f"{archive} is not the official archive: {error.args[0]}") from None
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot unpack {archive}: {error}; delete it, and it will be downloaded again") from None


def _how_to_help(file: RemoteFile, files: Sequence[RemoteFile], folder: Path, failures: list[str]) -> str:
    lines = [
        f"{file.path} is not in {folder} and could not be downloaded:",
        *(f"  {failure}" for failure in failures),
        "Put these files there:",
    ]
    needed = [file for file in files if _missing(file, folder)]
    for file in needed:
        lines += [f"  {folder / relative}" for relative in _missing(file, folder)]
        if file.members:
            lines.append(f"  or, for all of these, {folder / file.path}")
        elif file.path.endswith(".gz"):
            lines[-1] += " (or unpacked, without .gz)"
    lines += [
        "or set TACIT_DATA (or data_dir) to a folder that has them, or TACIT_MIRROR to a server's URL with:",
        *(f"  {file.path}" for file in needed),
    ]
    return "\n".join(lines)
