"""Run folders turned into pages and figures. Reads files only, never a live run.

What draws is imported when it is first asked for: plotly and matplotlib take their time, and pages do without the latter.
"""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.report.comparison import write_comparison
    from tacit.report.errata import Erratum, applicable
    from tacit.report.figure_overlays import save_comparison
    from tacit.report.figures import save_figures
    from tacit.report.page import write_report
    from tacit.report.reading import Run, Scores
    from tacit.report.spent import Spending, spending
    from tacit.runs.events import Plan, Snapshot
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.report.comparison": ("write_comparison",),
            "tacit.report.errata": ("Erratum", "applicable"),
            "tacit.report.figure_overlays": ("save_comparison",),
            "tacit.report.figures": ("save_figures",),
            "tacit.report.page": ("write_report",),
            "tacit.report.reading": ("Run", "Scores"),
            "tacit.report.spent": ("Spending", "spending"),
            "tacit.runs.events": ("Plan", "Snapshot"),
        },
    )

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
