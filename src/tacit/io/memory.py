"""Memory that is given back only to be asked for again costs more than what is done with it."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's mallopt


def keep_pages() -> bool:
    """Let this process keep freed memory for its next large tensors; return whether that is possible here.

    By default glibc hands every tensor above 32 MB back to the system, and each new one is mapped and zeroed page by page:
    a fifth of the time of a hundred stacked systems. Only for a process of one's own: all of it is affected.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        tune = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(tune(_MMAP_MAX, 0)) and bool(tune(_TRIM_THRESHOLD, 2**31 - 1))
