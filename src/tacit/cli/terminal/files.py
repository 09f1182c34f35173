"""Files that commands write: refused early if they cannot be written, and pictures in one way."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import InvalidInput

if TYPE_CHECKING:  # matplotlib is slow to import, and most commands draw nothing
    from matplotlib.figure import Figure

PICTURES = (".png", ".pdf", ".svg")


def check_output(path: Path | None) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if path is None:
        return
    if os.path.isdir(path):
        raise InvalidInput(f"{path}: this is a folder; name a file in it")
    nearest = next(folder for folder in path.parents if os.path.lexists(folder))
    if not os.path.isdir(nearest):
        raise InvalidInput(f"{path}: cannot be written, because {nearest} is not a folder")
    if not os.access(nearest, os.W_OK):
        raise InvalidInput(f"{path}: cannot be written, because {nearest} is read-only")


def check_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be saved, before anything is computed."""
    check_output(path)
    if path is not None and path.suffix.lower() not in PICTURES:
        kind = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise InvalidInput(f"{path}: a picture is saved as {', '.join(PICTURES)}, but this name {kind}")


def save_picture(figure: "Figure", path: Path) -> None:
    """Save a figure in the format that the name of the file ends in, completely or not at all."""
    from tacit.report.figures.style import save_figure

    check_picture(path)
    save_figure(figure, path)
