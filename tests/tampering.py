"""Records as someone would change them who may write all files: the hashes are made anew, so that they follow."""

import json
import sqlite3
from contextlib import closing

from tacit import chains
from tacit.privacy import Mechanism
from tacit.privacy.log import START
from tacit.runs.events import chained


def gaussians(rates, sigmas, *, clip=1.0, lot=5.0):
    """Return a mechanism for each rate and σ."""
    return [
        Mechanism.gaussian(sample_rate=rate, clip=clip, lot=lot, noise_multiplier=sigma)
        for rate, sigma in zip(rates, sigmas, strict=True)
    ]


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
            text = chains.canonical(row)
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
