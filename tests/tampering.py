"""Records as someone would change them who may write all files: the hashes are made anew, so that they follow."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

from tacit.io import chains
from tacit.privacy import Mechanism
from tacit.privacy.log import START
from tacit.runs import RunFolder, list_runs
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.events import chained
from tacit.runs.python_config import read_config


def gaussians(rates, sigmas, *, clip=1.0, lot=5.0):
    """Return a mechanism for each rate and σ."""
    return [
        Mechanism.gaussian(sample_rate=rate, clip=clip, lot=lot, noise_multiplier=sigma)
        for rate, sigma in zip(rates, sigmas, strict=True)
    ]


SALT = "0" * 32
"""Of rows that a test makes."""


def read_log(path):
    """Return the rows of a ledger, as plain data."""
    with closing(sqlite3.connect(path)) as database:
        return [chains.parse(text) for (text,) in database.execute("SELECT text FROM log ORDER BY number")]


def write_log(path, rows):
    """Put these rows in the place of a ledger's, with hashes that follow."""
    previous = START
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM log")
        for number, row in enumerate(rows, 1):
            text = chains.canonical({"salt": SALT} | row)
            previous = chains.link(previous, chains.digest(text))
            account = row["account"] if row["kind"] == "query" else None
            database.execute("INSERT INTO log VALUES (?, ?, ?, ?)", (number, account, text, previous))


def edit_log(path, change):
    """Let `change` make the rows of a ledger into others; None drops a row."""
    write_log(path, [changed for row in read_log(path) if (changed := change(row)) is not None])


def edit_lines(path, change):
    """Let `change` make the owners' lines of every account into others."""

    def of_account(row):
        if row["kind"] != "open":
            return row
        lines = [changed for place, line in enumerate(row["lines"]) if (changed := change(place, line)) is not None]
        return row | {"lines": lines}

    edit_log(path, of_account)


def read_events(folder):
    """Return a run's events, as plain data without their hashes."""
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "hash"} for line in lines]


def write_events(folder, events):
    """Write a run's events, with hashes that follow."""
    (folder / "events.jsonl").write_bytes(b"".join(chained(events)))


def forge(runs, name, *, settings=None, event=lambda event: event, row=lambda row: row, summary=lambda facts: facts):
    """Change a run in all its files and in the ledger, so that every hash, head and fingerprint follows again.

    settings: what to change in config.toml. event, row, summary: make one event, a row of the ledger that is the run's, or the summary
    into another; an event or a row that becomes None is dropped.
    """
    folder, ledger = RunFolder.find(runs / name), runs / "ledger.sqlite"
    old = list(folder.events().hashes)
    config = read_config(folder.config().model_dump(exclude_none=True) | (settings or {}))
    folder.config_file.write_text(config.to_toml())
    saved = None
    if folder.checkpoint_file.exists():
        checkpoint = Checkpoint.load(folder.checkpoint_file)
        saved = replace(checkpoint, fingerprint=config.fingerprint).save(folder.checkpoint_file)

    def told(each):
        each = each | {"fingerprint": config.fingerprint} if each["event"] == "plan" else each
        return event(each | {"sha256": saved} if each["event"] == "checkpoint" and saved else each)

    changed = [told(each) for each in read_events(folder.path)]
    write_events(folder.path, [each for each in changed if each is not None])
    new, kept = list(folder.events().hashes), 0
    follows = {}
    for hash_, each in zip(old, changed, strict=True):
        kept += each is not None
        follows[hash_] = new[max(0, kept - 1)]

    account = next(each["account"] for each in read_log(ledger) if each["kind"] == "open" and each["run"] == name)

    def of_run(each):
        if each.get("account") != account:
            return each
        return row(each | {"events": follows[each["events"]]} if each["kind"] == "anchor" else each)

    edit_log(ledger, of_run)
    facts = folder.summary()
    if facts is not None:
        folder.summarise(summary(facts))
    state_heads(runs)


def state_heads(runs):
    """Let the summaries of all runs state the heads that the ledger and their events have now."""
    rows, hashes = read_log(runs / "ledger.sqlite"), []
    with closing(sqlite3.connect(runs / "ledger.sqlite")) as database:
        hashes = [kept for (kept,) in database.execute("SELECT hash FROM log ORDER BY number")]
    accounts = {row["run"]: row["account"] for row in rows if row["kind"] == "open"}
    for folder in list_runs(runs):
        facts = folder.summary()
        if facts is not None and folder.name in accounts:
            closed = {"kind": "close", "account": accounts[folder.name]}
            place = next(place for place, row in enumerate(rows) if closed.items() <= row.items())
            heads = {"ledger": hashes[place], "ledger_rows": place + 1, "events": folder.events_head}
            folder.summarise(facts | {"heads": heads})


def relabelled(runs, name="one"):
    """Make a seeded run, whose noise everyone can compute, look like a release."""
    forge(
        runs,
        name,
        settings={"source": "secret"},
        event=lambda event: event | {"release": True} if event["event"] == "plan" else event,
        row=lambda row: (
            row | {"lines": [line | {"release": True} for line in row["lines"]]} if row["kind"] == "open" else row
        ),
        summary=lambda facts: facts | {"release": True},
    )
