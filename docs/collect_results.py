"""Copies what `tacit reproduce` wrote into the pages: `python docs/collect_results.py results`.

Figures, findings and tables are taken as they are. The journals of points are taken too, so that a profile that was played
in part can go on from there; what is large is left out.
"""

import shutil
import sys
from pathlib import Path

PAGES = Path(__file__).parent / "results"
TAKEN = ("finding.md", "figure.png", "results.csv", "points.jsonl")
LARGEST = 500_000  # bytes


def collect(results: Path) -> None:
    for finding in sorted(results.glob("*-laptop/finding.md")):  # others are still being played
        folder = finding.parent
        page = PAGES / folder.name.removesuffix("-laptop")
        page.mkdir(parents=True, exist_ok=True)
        for name in TAKEN:
            (page / name).unlink(missing_ok=True)
            if (folder / name).stat().st_size <= LARGEST:
                shutil.copyfile(folder / name, page / name)
        print(page)


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
