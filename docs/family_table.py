"""Writes what `tacit reproduce family` found into the pages on algorithms and votes: `python docs/family_table.py`.

The rows are those in `docs/results/family/points.jsonl`, which `docs/collect_results.py` copied. What stands between two marks of a page is replaced.
"""

import json
import re
from pathlib import Path

from tacit.experiments.family_finding import NONSENSE, SCHEDULES, describe_runs, describe_votes, make_table, pick

DOCS = Path(__file__).parent
POINTS = DOCS / "results" / "family" / "points.jsonl"
BEGIN, END = "<!-- by docs/family_table.py -->", "<!-- until here -->"
NOT_YET = "These figures are not here yet: `tacit reproduce family --profile laptop` makes them, in about an hour of an idle core."


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


if __name__ == "__main__":
    for name, block in blocks(read_rows()).items():
        (DOCS / name).write_text(insert((DOCS / name).read_text(), block))
