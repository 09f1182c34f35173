"""Copies what `tacit reproduce` wrote into the pages: `python docs/collect_results.py results`.

Of each experiment the `laptop` profile is taken, or else `paper`. Figures, findings and tables are taken as they are. The
journals of points are taken too, so that a profile that was played in part can go on from there. Large tables and journals are
left out. The scores of `attack`, which are, stay in a shorter form, from which `results/attack/recompute.py` finds everything
again.

What is to be said by hand of the runs behind a page is in its `note.txt`, in Markdown. It comes below the finding; it is never
written here, and no page that is copied anew loses it.
"""

import json
import shutil
import sys
from pathlib import Path

PAGES = Path(__file__).parent / "results"
FINDING, NOTE, SCORES = "finding.md", "note.txt", "scores.json"
FIGURE = "figure.png"
TAKEN = (FIGURE, "results.csv", "points.jsonl")
LARGEST = 500_000  # bytes, of a table or a journal
DIGITS = 6  # of a score, behind the point


def collect(results: Path, pages: Path = PAGES) -> None:
    written = {path.parent.name: path.parent for path in sorted(results.glob(f"*/{FINDING}"))}
    names = dict.fromkeys(name.rpartition("-")[0] for name in written if name.endswith(("-laptop", "-paper")))
    for name in names:
        page = pages / name
        page.mkdir(parents=True, exist_ok=True)
        copy(written.get(f"{name}-laptop") or written[f"{name}-paper"], page)
        print(page)


def copy(folder: Path, page: Path) -> None:
    note = page / NOTE
    below = f"\n{note.read_text()}" if note.exists() else ""
    (page / FINDING).write_text((folder / FINDING).read_text() + below)
    for name in TAKEN:
        (page / name).unlink(missing_ok=True)
        if name == FIGURE or (folder / name).stat().st_size <= LARGEST:
            shutil.copyfile(folder / name, page / name)
    if page.name == "attack":
        rows = json.loads((folder / "results.json").read_text())["rows"]
        (page / SCORES).write_text(shortened(rows))


def shortened(rows: list[dict]) -> str:
    """Return the scores of each algorithm as two lists, in the order in which they are judged, and its settings once."""
    kept: dict[str, dict] = {}
    for row in rows:
        settings = {
            key: row[key] for key in row if key not in ("algorithm", "batch", "run", "runs", "present", "score")
        }
        one = kept.setdefault(row["algorithm"], {"settings": settings, "absent": [], "present": []})
        one["present" if row["present"] else "absent"].append(round(row["score"], DIGITS))
    return json.dumps(kept, separators=(",", ":")).replace("],", "],\n").replace("},", "},\n") + "\n"


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
