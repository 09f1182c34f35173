"""Run folders turned into pages and figures. Reads files only, never a live run.

What draws is imported when it is first asked for: plotly and matplotlib take their time, and pages do without the latter.
"""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.report.errata import Erratum, applicable
    from tacit.report.figures.comparison import save_comparison
    from tacit.report.figures.run import save_figures
    from tacit.report.html.comparison import write_comparison
    from tacit.report.html.page import write_report
    from tacit.report.reading import Run, Scores
    from tacit.report.spent import Spending, spending
    from tacit.runs.event_types import PlanEvent, SnapshotEvent
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.report.html.comparison": ("write_comparison",),
            "tacit.report.errata": ("Erratum", "applicable"),
            "tacit.report.figures.comparison": ("save_comparison",),
            "tacit.report.figures.run": ("save_figures",),
            "tacit.report.html.page": ("write_report",),
            "tacit.report.reading": ("Run", "Scores"),
            "tacit.report.spent": ("Spending", "spending"),
            "tacit.runs.event_types": ("PlanEvent", "SnapshotEvent"),
        },
    )

__all__ = [
    "Erratum",
    "PlanEvent",
    "Run",
    "Scores",
    "SnapshotEvent",
    "Spending",
    "applicable",
    "save_comparison",
    "save_figures",
    "spending",
    "write_comparison",
    "write_report",
]
