"""Run folders turned into pages and figures. Reads files only, never a live run.

What draws figures is imported when it is first asked for: matplotlib takes its time, and pages do without it.
"""

from typing import TYPE_CHECKING, Any

from tacit.report.comparison import write_comparison
from tacit.report.errata import Erratum, applicable
from tacit.report.events import Plan, Snapshot
from tacit.report.page import write_report
from tacit.report.reading import Run, Scores
from tacit.report.spent import Spending, spending

if TYPE_CHECKING:
    from tacit.report.figure_overlays import save_comparison
    from tacit.report.figures import save_figures

__all__ = [
    "Erratum",
    "Plan",
    "Run",
    "Scores",
    "Snapshot",
    "Spending",
    "applicable",
    "save_comparison",
    "save_figures",
    "spending",
    "write_comparison",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "save_figures":
        from tacit.report.figures import save_figures

        return save_figures
    if name == "save_comparison":
        from tacit.report.figure_overlays import save_comparison

        return save_comparison
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
