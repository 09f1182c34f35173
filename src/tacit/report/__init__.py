"""Run folders turned into pages and figures. Reads files only, never a live run."""

from tacit.report.comparison import write_comparison
from tacit.report.errata import Erratum, applicable
from tacit.report.events import Plan, Snapshot
from tacit.report.figure_overlays import save_comparison
from tacit.report.figures import save_figures
from tacit.report.page import write_report
from tacit.report.reading import Run, Scores
from tacit.report.spent import Spending, spending

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
