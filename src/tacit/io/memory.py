"""Keeping freed memory: returning it to the system and requesting it again takes more time than using it."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's mallopt


def keep_pages() -> bool:
    """Let this process keep freed memory for its next large tensors; return whether that is possible here.

    By default glibc returns every tensor above 32 MB to the system, and each new one is mapped and zeroed page by page:
    a fifth of the time of a hundred stacked systems. It affects the whole process, so use it only in a process of Tacit's own.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        tune = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(tune(_MMAP_MAX, 0)) and bool(tune(_TRIM_THRESHOLD, 2**31 - 1))
