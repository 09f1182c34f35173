"""Writes what `tacit reproduce family` found into the pages on algorithms and votes: `python docs/family_table.py`.

The rows are those in `docs/results/family/points.jsonl`, which `docs/collect_results.py` copied. What stands between two marks of a page is replaced, and so is the last
cell of every rule's line in the table of rules.
"""

import json
import re
from pathlib import Path

from tacit.experiments.family_finding import (
    NONSENSE,
    SCHEDULES,
    describe_accuracy,
    describe_runs,
    describe_votes,
    make_table,
    pick,
)

DOCS = Path(__file__).parent
POINTS = DOCS / "results" / "family" / "points.jsonl"
BEGIN, END = "<!-- by docs/family_table.py -->", "<!-- until here -->"
HEADER = "| trust | accuracy |"
NOT_YET = "These figures are not here yet: `tacit reproduce family --profile laptop` makes them."


def read_rows(file: Path = POINTS) -> list[dict]:
    """Return all rows that were collected; none if the experiment was not."""
    if not file.exists():
        return []
    lines = map(json.loads, file.read_text().splitlines())
    return [{**line["point"], **row} for line in lines if "point" in line for row in line["rows"]]


def blocks(rows: list[dict]) -> dict[str, str]:
    """Return what each page says of these rows."""
    if not rows:
        return dict.fromkeys(("algorithms.md", "votes.md"), NOT_YET)
    parts = {row["part"] for row in rows}
    more = [
        words
        for part, words in ((SCHEDULES, "graphs that change"), (NONSENSE, "agents that send nonsense"))
        if part in parts
    ]
    where = f"[The whole finding](results/family/finding.md){' also has ' if more else ' has the figure'}{' and '.join(more)}."
    votes = "\n".join(f"- {line}" for line in describe_votes(rows))
    return {
        "algorithms.md": f"{pick(rows)}\n\n{make_table(rows)}\n\n{describe_runs(rows)} {where}",
        "votes.md": votes or NOT_YET,
    }


def insert(page: str, block: str) -> str:
    """Return a page with another block between its marks."""
    return re.sub(
        rf"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n\n{block}\n\n{END}", page, flags=re.DOTALL
    )


def fill(page: str, rows: list[dict]) -> str:
    """Return a page whose table of rules ends with their measured accuracies."""
    begin, header, rest = page.partition(HEADER)
    table, blank, after = rest.partition("\n\n")
    lines = [_fill_line(line, rows) for line in table.split("\n")]
    return begin + header + "\n".join(lines) + blank + after


def _fill_line(line: str, rows: list[dict]) -> str:
    if not line.startswith("| `"):
        return line
    cells = line.split(" | ")
    return " | ".join([*cells[:-1], f"{describe_accuracy(rows, cells[0].strip('| `'))} |"])


def write(page: str, name: str, rows: list[dict]) -> str:
    """Return a page with everything that follows from the rows."""
    return fill(insert(page, blocks(rows)[name]), rows)


if __name__ == "__main__":
    collected = read_rows()
    for name in blocks(collected):
        (DOCS / name).write_text(write((DOCS / name).read_text(), name, collected))
