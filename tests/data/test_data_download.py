import hashlib
import io
import os
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest
import requests

from tacit.data import data_folder, load
from tacit.data.download import RemoteFile, fetch, locate
from tacit.errors import DataError

NOWHERE = "http://127.0.0.1:9/"  # the discard port: refused at once


class Mirror:
    """A folder served on this machine, and what was asked of it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.asked: list[str] = []
        mirror = self

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format, *args):
                mirror.asked.append(self.path)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def put(self, path: str, content: bytes) -> str:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    for name in ("TACIT_MIRROR", "TACIT_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "served").mkdir()
    mirror = Mirror(tmp_path / "served")
    thread = threading.Thread(target=partial(mirror.server.serve_forever, poll_interval=0.02), daemon=True)
    thread.start()
    yield mirror
    mirror.server.shutdown()
    mirror.server.server_close()
    thread.join(timeout=5)


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "data"


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def archive_of(members: dict[str, bytes], *special: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in special:
            tar.addfile(info)
    return buffer.getvalue()


def test_a_missing_file_is_fetched_into_its_place(mirror, folder):
    checksum = mirror.put("a.bin", b"content")
    file = RemoteFile(path="set/raw/a.bin", checksum=checksum, mirrors=(mirror.url,))
    assert fetch([file], folder) == {"set/raw/a.bin": folder / "set/raw/a.bin"}
    assert (folder / "set/raw/a.bin").read_bytes() == b"content"
    assert mirror.asked == ["/a.bin"]


def test_a_file_that_is_there_is_never_fetched(mirror, folder):
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"already here")
    file = RemoteFile(path="a.bin", checksum=mirror.put("a.bin", b"other"), mirrors=(mirror.url,))
    assert fetch([file], folder)["a.bin"].read_bytes() == b"already here"
    assert mirror.asked == []


def test_an_unpacked_file_serves_for_the_packed_one(mirror, folder):
    folder.mkdir()
    (folder / "a-ubyte").write_bytes(b"plain")
    file = RemoteFile(path="a-ubyte.gz", checksum="md5:0", mirrors=(mirror.url,))
    assert fetch([file], folder) == {"a-ubyte.gz": folder / "a-ubyte"}
    assert mirror.asked == []


def test_mirrors_are_tried_in_turn(mirror, folder):
    checksum = mirror.put("second/a.bin", b"content")
    mirrors = (NOWHERE, f"{mirror.url}first", f"{mirror.url}second")
    fetch([RemoteFile(path="a.bin", checksum=checksum, mirrors=mirrors)], folder)
    assert (folder / "a.bin").read_bytes() == b"content"


def test_a_mirror_of_ones_own_comes_first_and_keeps_the_whole_path(mirror, folder, monkeypatch):
    checksum = mirror.put("own/set/raw/a.bin", b"content")
    monkeypatch.setenv("TACIT_MIRROR", f"{mirror.url}own")
    fetch([RemoteFile(path="set/raw/a.bin", checksum=checksum, mirrors=(NOWHERE,))], folder)
    assert mirror.asked == ["/own/set/raw/a.bin"]


@pytest.mark.parametrize("checksum", ["sha256:" + "0" * 64, "md5:" + "0" * 32])
def test_a_wrong_checksum_is_refused_and_leaves_nothing(mirror, folder, checksum):
    mirror.put("a.bin", b"tampered")
    with pytest.raises(DataError, match="does not match the known hash"):
        fetch([RemoteFile(path="set/a.bin", checksum=checksum, mirrors=(mirror.url,))], folder)
    assert files_in(folder) == []


def test_a_wrong_checksum_on_one_mirror_is_made_good_by_the_next(mirror, folder):
    mirror.put("bad/a.bin", b"tampered")
    checksum = mirror.put("good/a.bin", b"content")
    mirrors = (f"{mirror.url}bad", f"{mirror.url}good")
    fetch([RemoteFile(path="a.bin", checksum=checksum, mirrors=mirrors)], folder)
    assert (folder / "a.bin").read_bytes() == b"content"


def test_a_file_that_no_mirror_has_is_reported(mirror, folder):
    with pytest.raises(DataError, match=r"a\.bin: 404"):
        fetch([RemoteFile(path="a.bin", checksum="md5:0", mirrors=(mirror.url,))], folder)
    assert files_in(folder) == []


def test_without_a_network_the_error_says_which_files_to_put_where(mirror, folder):
    (folder / "x").mkdir(parents=True)
    (folder / "x/here.gz").write_bytes(b"")
    files = [
        RemoteFile(path="x/here.gz", checksum="md5:0", mirrors=(NOWHERE,)),
        RemoteFile(path="x/images.gz", checksum="md5:0", mirrors=(NOWHERE,)),
        RemoteFile(path="y.tar.gz", checksum="md5:0", mirrors=(NOWHERE,), members=("y/train", "y/test")),
    ]
    with pytest.raises(DataError) as caught:
        fetch(files, folder)
    message = str(caught.value)
    assert message.startswith(f"x/images.gz is not in {folder} and could not be downloaded:\n  {NOWHERE}images.gz: ")
    asked = message[message.index("Put these") :].splitlines()
    assert asked == [
        "Put these files there:",
        f"  {folder}/x/images.gz (or unpacked, without .gz)",
        f"  {folder}/y/train",
        f"  {folder}/y/test",
        f"  or, for all of these, {folder}/y.tar.gz",
        "or set TACIT_DATA (or data_dir) to a folder that has them, or TACIT_MIRROR to a server's URL with:",
        "  x/images.gz",
        "  y.tar.gz",
    ]


def test_a_mirror_that_is_no_url_is_reported(mirror, folder, monkeypatch):
    monkeypatch.setenv("TACIT_MIRROR", "somewhere/else")
    with pytest.raises(DataError, match=r"somewhere/else/a\.bin: .*(Invalid URL|No scheme)"):
        fetch([RemoteFile(path="a.bin", checksum="md5:0", mirrors=())], folder)


def test_only_the_wanted_members_of_an_archive_are_unpacked(mirror, folder):
    content = archive_of({"y/train": b"train", "y/test": b"test", "y/readme.html": b"<script>", "../evil": b"evil"})
    checksum = mirror.put("y.tar.gz", content)
    members = ("y/train", "y/test")
    file = RemoteFile(path="y.tar.gz", checksum=checksum, mirrors=(mirror.url,), members=members)
    assert fetch([file], folder) == {member: folder / member for member in members}
    assert files_in(folder) == ["y.tar.gz", "y/test", "y/train"]
    assert not (folder.parent / "evil").exists()
    fetch([file], folder)
    assert mirror.asked == ["/y.tar.gz"]


def test_unpacking_leaves_members_alone_that_are_there(mirror, folder):
    (folder / "y").mkdir(parents=True)
    (folder / "y/test").write_bytes(b"mine")
    (folder / "y.tar.gz").write_bytes(archive_of({"y/train": b"train", "y/test": b"test"}))
    fetch([RemoteFile(path="y.tar.gz", checksum="md5:0", mirrors=(), members=("y/train", "y/test"))], folder)
    assert (folder / "y/test").read_bytes() == b"mine"
    assert (folder / "y/train").read_bytes() == b"train"


def link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive_of({}, link("y/train", "/etc/passwd")), "y/train in .* is not a plain file"),
        (archive_of({"y/test": b"test"}), "not the official archive: .*y/train"),
        (b"no archive at all", "cannot unpack .*y.tar.gz.*delete it"),
        (archive_of({"y/train": os.urandom(5_000)})[:2_000], "cannot unpack .*y.tar.gz"),
    ],
    ids=["link", "other", "none", "torn"],
)
def test_an_archive_that_is_not_the_official_one_leaves_nothing_behind(folder, content, message):
    folder.mkdir()
    (folder / "y.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match=message):
        fetch([RemoteFile(path="y.tar.gz", checksum="md5:0", mirrors=(), members=("y/train",))], folder)
    assert files_in(folder) == ["y.tar.gz"]


def test_the_folder_is_the_argument_then_the_environment_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    assert data_folder() == Path(pooch.os_cache("tacit")).resolve()
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    assert data_folder() == tmp_path.resolve()
    assert data_folder(tmp_path / "b") == (tmp_path / "b").resolve()


def test_a_folder_by_the_name_of_a_file_is_not_that_file(tmp_path):
    (tmp_path / "y").mkdir()
    assert locate("y", tmp_path) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (requests.ConnectTimeout("x"), "no answer within 30 seconds"),
        (requests.exceptions.ProxyError("x"), "the proxy does not let this machine connect to it"),
        (requests.exceptions.SSLError("x"), "no secure connection to this server"),
        (ValueError("x"), "x"),
    ],
)
def test_a_failed_download_says_why_in_a_few_words(folder, monkeypatch, error, words):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(pooch, "retrieve", fail)
    with pytest.raises(DataError) as caught:
        fetch([RemoteFile(path="a.bin", checksum="md5:0", mirrors=(NOWHERE,))], folder)
    assert str(caught.value).splitlines()[1] == f"  {NOWHERE}a.bin: {words}"


def test_a_server_that_cannot_be_reached_is_reported_without_an_exception_of_the_library(mirror, folder):
    with pytest.raises(DataError) as caught:
        fetch([RemoteFile(path="a.bin", checksum="md5:0", mirrors=(NOWHERE,))], folder)
    assert str(caught.value).splitlines()[1] == f"  {NOWHERE}a.bin: this machine cannot connect to that server"


def test_a_data_folder_that_was_named_and_does_not_exist_is_refused_and_not_created(tmp_path, monkeypatch):
    missing = tmp_path / "missing"
    with pytest.raises(DataError, match=f"^the data folder {missing} does not exist; create it, or name another one"):
        load("mnist", missing)
    monkeypatch.setenv("TACIT_DATA", str(missing))
    with pytest.raises(DataError, match=f"^TACIT_DATA, the data folder, {missing} does not exist; create it"):
        load("mnist")
    assert not missing.exists()
    assert load("digits").classes == 10, "which is part of a package"
    missing.touch()
    with pytest.raises(DataError, match="is not a folder"):
        load("mnist")
