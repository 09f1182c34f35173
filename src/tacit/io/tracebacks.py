"""What a user's own code raised, and on which of its lines."""

import sysconfig
import traceback
from pathlib import Path

_HERE = Path(__file__).parents[1]
_INSTALLED = {
    Path(folder) for name, folder in sysconfig.get_paths().items() if name in ("stdlib", "purelib", "platlib")
}


def failure(error: BaseException) -> str:
    """Say what the user's code raised, and on which of the user's lines; libraries that it calls are passed over."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.line]
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(_HERE)]
    own = [frame for frame in others if not _is_library(frame.filename)] or others
    place = ""
    if isinstance(error, SyntaxError) and error.filename is not None:
        place = f" ({Path(error.filename).name}, line {error.lineno})"
    elif own:
        place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})"
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {said}{place}" if said else f"{type(error).__name__}{place}"


def _is_library(file: str) -> bool:
    """Tell whether a file is installed, or was made by a library on the way, rather than the user's own."""
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in _INSTALLED)
