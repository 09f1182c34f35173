"""Pages and figures made from run folders. Reads files only, never a live run.

plotly and matplotlib are slow to import, so what needs them is imported on first use; pages do not need matplotlib.
"""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.report.errata import Erratum, list_errata
    from tacit.report.figures.axes import save_comparison, save_figures
    from tacit.report.figures.style import save_figure, style
    from tacit.report.html.comparison import write_comparison
    from tacit.report.html.page import write_report
    from tacit.report.recorded import RecordedRun, RecordedScores
    from tacit.report.spending import Spending, derive_spending
    from tacit.runs.event_types import PlanEvent, SnapshotEvent
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.report.html.comparison": ("write_comparison",),
            "tacit.report.errata": ("Erratum", "list_errata"),
            "tacit.report.figures.axes": ("save_comparison", "save_figures"),
            "tacit.report.figures.style": ("save_figure", "style"),
            "tacit.report.html.page": ("write_report",),
            "tacit.report.recorded": ("RecordedRun", "RecordedScores"),
            "tacit.report.spending": ("Spending", "derive_spending"),
            "tacit.runs.event_types": ("PlanEvent", "SnapshotEvent"),
        },
    )

__all__ = [
    "Erratum",
    "PlanEvent",
    "RecordedRun",
    "RecordedScores",
    "SnapshotEvent",
    "Spending",
    "derive_spending",
    "list_errata",
    "save_comparison",
    "save_figure",
    "save_figures",
    "style",
    "write_comparison",
    "write_report",
]
