"""Archives: the same run gives the same bytes, nothing private is in them, and hostile ones are refused in words."""

import io
import json
import stat
import struct
import zipfile

import pytest
from tampering import forge

from tacit.errors import InvalidInput
from tacit.evidence.archive import FORMAT, MANIFEST, OPTIONAL, REQUIRED, Archive, pack
from tacit.evidence.verification import verify
from tacit.io import chains
from tacit.runs import RunFolder


@pytest.fixture
def archive(played):
    return pack(RunFolder.find(played / "one"))


def zipped(parts, **changes):
    """Return a zip file of parts, each with these attributes of its entry."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        for name, content in parts:
            info = zipfile.ZipInfo(name)
            for key, value in changes.items():
                setattr(info, key, value)
            file.writestr(info, content)
    return written.getvalue()


def test_the_same_run_gives_the_same_bytes_and_they_are_read_back(played, archive, tmp_path):
    again = pack(RunFolder.find(played / "one"))
    assert archive.to_bytes() == again.to_bytes()
    path = tmp_path / "one.zip"
    path.write_bytes(archive.to_bytes())
    assert Archive.read(path) == archive
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert file.namelist() == sorted(file.namelist())
        assert {info.date_time[0] for info in file.infolist()} == {1980}


def test_no_records_and_no_diagnostics_are_in_it(archive):
    assert set(archive.parts) == {
        "config.toml",
        "events.jsonl",
        "ledger.jsonl",
        "code.json",
        "summary.json",
        "models.safetensors",
        "checkpoint.safetensors",
    }


def test_a_line_that_a_crash_cut_off_is_left_out(runs):
    folder = RunFolder.find(runs / "one")
    whole = pack(folder)
    with folder.events_file.open("ab") as file:
        file.write(b'{"event": "snap')
    assert pack(folder) == whole


def test_a_run_that_is_being_played_or_that_the_ledger_does_not_know_is_not_packed(runs):
    folder = RunFolder.find(runs / "one")
    with folder.locked(), pytest.raises(InvalidInput, match="a process is working on"):
        pack(folder)
    (runs / "one").rename(runs / "renamed")
    with pytest.raises(InvalidInput, match="run 'renamed' is not in the ledger"):
        pack(RunFolder.find(runs / "renamed"))


def parts_of(archive):
    with zipfile.ZipFile(io.BytesIO(archive.to_bytes())) as file:
        return [(name, file.read(name)) for name in file.namelist()]


HOSTILE = {
    "no zip": (lambda parts: b"this is not an archive", "not an archive for an audit, or is damaged"),
    "cut off": (lambda parts: zipped(parts)[:-30], "not an archive for an audit, or is damaged"),
    "empty": (lambda parts: zipped([]), f"its {MANIFEST} is missing"),
    "a manifest that lists something else": (
        lambda parts: zipped(
            [
                (name, chains.canonical({"format": FORMAT, "run": "one", "files": {"run.py": ""}}))
                if name == MANIFEST
                else (name, part)
                for name, part in parts
            ]
        ),
        "does not list the parts of an archive",
    ),
    "a path that leads out": (lambda parts: zipped([*parts, ("../../x", b"")]), "'../../x', which is not part"),
    "an absolute path": (lambda parts: zipped([*parts, ("/etc/passwd", b"")]), "'/etc/passwd', which is not part"),
    "code": (lambda parts: zipped([*parts, ("run.py", b"1")]), "'run.py', which is not part"),
    "a pickle": (lambda parts: zipped([*parts, ("models.pt", b"1")]), "'models.pt', which is not part"),
    "compressed": (lambda parts: zipped(parts, compress_type=zipfile.ZIP_DEFLATED), "is compressed"),
    "a link": (
        lambda parts: zipped(parts, create_system=3, external_attr=(stat.S_IFLNK | 0o777) << 16),
        "not a plain file, but a link",
    ),
    "a manifest of another kind": (
        lambda parts: zipped([(name, b"[]" if name == MANIFEST else part) for name, part in parts]),
        "manifest.json",
    ),
    "a manifest nested without end": (
        lambda parts: zipped([(name, b"[" * 100_000 if name == MANIFEST else part) for name, part in parts]),
        "manifest.json",
    ),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_archive_is_refused_in_words(archive, how):
    make, words = HOSTILE[how]
    with pytest.raises(InvalidInput, match=words):
        Archive.of(make(parts_of(archive)), "it.zip")


def changed(name):
    return lambda parts: zipped([(each, part + b"#" if each == name else part) for each, part in parts])


def without(name):
    return lambda parts: zipped([(each, part) for each, part in parts if each != name])


def flipped(name):
    """One bit of a part, in the archive's file: the zip file's own checksum is wrong, too."""

    def change(parts):
        content, part = zipped(parts), dict(parts)[name]
        place = content.index(part) + len(part) // 2
        return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]

    return change


def added(parts):
    kept = [(name, part) for name, part in parts if name not in (MANIFEST, "summary.json")]
    of_kept = Archive("one", dict(kept)).to_bytes()
    with zipfile.ZipFile(io.BytesIO(of_kept)) as file:
        return zipped([*kept, (MANIFEST, file.read(MANIFEST)), ("summary.json", dict(parts)["summary.json"])])


CHANGED = {
    **{f"{name} changed": (changed(name), f"{name} was changed") for name in (*REQUIRED, *OPTIONAL)},
    **{f"{name} missing": (without(name), f"{name} is missing") for name in (*REQUIRED, *OPTIONAL)},
    **{f"{name} damaged": (flipped(name), f"{name} is damaged") for name in (*REQUIRED, *OPTIONAL)},
    "a part added": (added, "summary.json was added"),
}


@pytest.mark.parametrize("how", CHANGED)
def test_a_part_that_was_changed_is_a_finding_that_names_it(archive, how):
    make, words = CHANGED[how]
    findings = verify(Archive.of(make(parts_of(archive)), "it.zip"), replay=False)
    (parts,) = [each for each in findings if each.what == "parts"]
    assert parts.outcome == "fails"
    assert parts.words.startswith(words)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_that_is_there_twice_is_refused(archive):
    with pytest.raises(InvalidInput, match=r"holds 'config\.toml' twice"):
        Archive.of(zipped([*parts_of(archive), ("config.toml", b"")]), "it.zip")


def test_parts_that_lie_over_each_other_are_refused(archive):
    """Many entries of one large part would be read many times over."""
    content = archive.to_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        start = file.start_dir
        first = file.infolist()[0]
    entry = content[start : start + 46 + len(first.filename)]
    other = entry[:28] + struct.pack("<H", len("summary.json")) + entry[30:46] + b"summary.json"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(entry) + len(other), start, 0)
    with pytest.raises(InvalidInput):
        Archive.of(content[:start] + entry + other + end, "it.zip")


def with_part(archive, name, content):
    """Return the archive with another part, as its maker would list it."""
    return Archive.of(Archive(archive.run, {**archive.parts, name: content}).to_bytes(), "it.zip")


def lines(archive, name):
    return archive.parts[name].splitlines(keepends=True)


def row_with(archive, old, new):
    return archive.parts["ledger.jsonl"].replace(old, new, 1)


BROKEN = {
    "NaN in the events": ("events.jsonl", lambda a: b'{"event": NaN}\n', "NaN is not a number"),
    "infinity in the events": ("events.jsonl", lambda a: b'{"event": 1e999}\n', "too large a number"),
    "a number of many digits": ("events.jsonl", lambda a: b'{"event": ' + b"9" * 5000 + b"}\n", "too large a number"),
    "a key twice": ("events.jsonl", lambda a: b'{"event": "plan", "event": "plan"}\n', "a key is repeated"),
    "an event changed": (
        "events.jsonl",
        lambda a: a.parts["events.jsonl"].replace(b'"rounds": 6', b'"rounds": 7'),
        "the hash does not follow",
    ),
    "an event cut off": ("events.jsonl", lambda a: a.parts["events.jsonl"][:-5], "the last line is not complete"),
    "no events": ("events.jsonl", lambda a: b"", "no plan"),
    "settings of another kind": ("config.toml", lambda a: b"a = = b", "Invalid value"),
    "settings nested without end": ("config.toml", lambda a: b"a = " + b"[" * 100_000, "recursion"),
    "a summary of other types": (
        "summary.json",
        lambda a: chains.canonical(json.loads(a.parts["summary.json"]) | {"epsilon": [1]}).encode(),
        "states ε = [1]",
    ),
    "an unknown setting": ("config.toml", lambda a: b"nonsense = 1", "unknown setting 'nonsense'"),
    "settings that are no text": ("config.toml", lambda a: b"\xff\xfe", "decode"),
    "not a summary": ("summary.json", lambda a: b"[]", "is not a summary"),
    "NaN in the summary": ("summary.json", lambda a: b'{"epsilon": NaN}', "NaN is not a number"),
    "a row changed in form": (
        "ledger.jsonl",
        lambda a: row_with(a, b'"kind":', b'"kind": '),
        "not in canonical form",
    ),
    "a row of no kind": ("ledger.jsonl", lambda a: b'{"kind":"gift"}\n', "its kind is unknown"),
    "noise of no kind": (
        "ledger.jsonl",
        lambda a: row_with(a, b'"kind":"gaussian"', b'"kind":"imagined"'),
        "noise of kind 'imagined' is not known",
    ),
    "more queries than can be": (
        "ledger.jsonl",
        lambda a: row_with(a, b'"allowed":8', b'"allowed":8000000000000'),
        "was allowed 8000000000000 queries",
    ),
    "a query less": (
        "ledger.jsonl",
        lambda a: b"".join(row for row in lines(a, "ledger.jsonl") if b'"kind":"query","number":3' not in row),
        "query 4 after 2: some are missing",
    ),
    "a seal that is none": ("ledger.jsonl", lambda a: b'{"sealed":"x"}\n', "is not a digest"),
    "models that are none": ("models.safetensors", lambda a: b"\xff" * 40, "not a safetensors file"),
    "a header larger than the file": (
        "models.safetensors",
        lambda a: struct.pack("<Q", 2**62) + b"{}",
        "not a safetensors file",
    ),
    "a checkpoint that is none": ("checkpoint.safetensors", lambda a: b"\x80\x04K.", "broken or not a checkpoint"),
    "code that is none": ("code.json", lambda a: b"[1]", "code.json"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_part_fails_in_words(archive, how):
    name, make, words = BROKEN[how]
    findings = verify(with_part(archive, name, make(archive)), replay=False)
    failed = {each.what: each.words for each in findings if each.outcome == "fails"}
    assert len(failed) == (2 if how == "a summary of other types" else 1)  # its ε fails where it is derived, too
    assert all(words in found for found in failed.values())


def test_a_million_agents_in_the_settings_are_not_made(archive):
    text = archive.parts["config.toml"].replace(b"agents = 4", b"agents = 1000000000")
    findings = {each.what: each for each in verify(with_part(archive, "config.toml", text))}
    assert findings["settings"].outcome == "fails"
    assert findings["replay"].outcome == "not checked"


def test_noise_that_protects_nothing_is_not_added_up(runs):
    """Its privacy losses would not fit into memory."""
    noise = {"kind": "gaussian", "multiplier": 1e-6}

    def row(row):
        if row["kind"] != "open":
            return row
        return row | {"lines": [line | {"mechanism": line["mechanism"] | {"noise": noise}} for line in row["lines"]]}

    forge(
        runs,
        "one",
        settings={"noise_multiplier": 1e-6},
        event=lambda event: event | {"noise_multipliers": [1e-6] * 4} if event["event"] == "plan" else event,
        row=row,
    )
    findings = verify(pack(RunFolder.find(runs / "one")), replay=False)
    failed = {each.what: each.words for each in findings if each.outcome == "fails"}
    assert failed.keys() == {"ε", "plan"}
    assert "a run has σ = 1e-06" in failed["ε"]
    assert "the noise multiplier is 1e-06" in failed["plan"]


def test_code_is_listed_by_hash(archive):
    code = json.loads(archive.parts["code.json"])
    assert {"privacy/oracle.py", "io/chains.py", "evidence/archive.py"} <= set(code["files"])
    assert all(map(chains.is_hash, code["files"].values()))
    assert set(code["versions"]) >= {"torch", "dp-accounting"}
