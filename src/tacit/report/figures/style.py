"""The one matplotlib style of reports, experiments and `--plot`, and how a figure is saved."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

from tacit.io.files import write_atomically
from tacit.report.figures.palette import GRID, INK, SERIES, SOFT

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, has ε, δ and σ, and looks the same everywhere
    "axes.prop_cycle": cycler(color=SERIES),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "errorbar.capsize": 2.5,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # names of runs and files are plain text, whatever they hold
    "pdf.fonttype": 42,  # fonts that journals can embed and edit
    "svg.hashsalt": "tacit",
}
# Without dates, the same figure makes the same file.
_METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


@contextmanager
def style(points: float = 9) -> Iterator[None]:
    """Draw with text of this many points, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        sizes = {"font.size": points, "axes.titlesize": points + 0.5, "legend.fontsize": points - 0.5}
        mpl.rcParams.update(_STYLE | sizes)
        yield


def save_figure(figure: Figure, path: Path, dpi: int = 200) -> Path:
    """Save a figure in the format that the file's name ends in, completely or not at all, and return the path."""
    content, ending = io.BytesIO(), path.suffix.lower().removeprefix(".")
    with style():
        figure.savefig(content, format=ending, dpi=dpi, metadata=_METADATA[ending])
    return write_atomically(path, content.getvalue())
