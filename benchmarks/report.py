"""What a benchmark found, as a table for people and as JSON for programs."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """One measured value."""

    name: str
    value: float
    unit: str


@dataclass
class _Part:
    threads: int
    rows: list[Row]
    ratios: dict[str, float]


class Report:
    """Values and ratios, for every number of threads that was tried."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._parts: list[_Part] = []
        self._notes: list[str] = []

    def add(self, threads: int, rows: list[Row], ratios: dict[str, float]) -> None:
        """Add what was measured with so many threads."""
        self._parts.append(_Part(threads, rows, ratios))

    def note(self, words: str) -> None:
        """Add a sentence."""
        self._notes.append(words)

    def to_json(self) -> dict[str, Any]:
        """Return everything; `ratios` are those with one thread."""
        return {
            "benchmark": self.name,
            "about": self.about,
            "ratios": self._parts[0].ratios,
            "threads": {
                str(part.threads): {
                    "values": {row.name: {"value": row.value, "unit": row.unit} for row in part.rows},
                    "ratios": part.ratios,
                }
                for part in self._parts
            },
            "notes": self._notes,
        }

    def show(self) -> None:
        """Print the tables."""
        screen = Console(highlight=False, markup=False)
        screen.print(f"{self.name}: {self.about}")
        for part in self._parts:
            table = Table(title=f"threads: {part.threads}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
            for column in ("what", "value", "", "divided by ours"):
                table.add_column(column, justify="right" if column in ("value", "divided by ours") else "left")
            for row in part.rows:
                ratio = part.ratios.get(row.name)
                table.add_row(row.name, f"{row.value:,.4g}", row.unit, "" if ratio is None else f"{ratio:.2f}")
            screen.print(table)
        for words in self._notes:
            screen.print(words, soft_wrap=True)
