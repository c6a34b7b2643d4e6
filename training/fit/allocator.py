"""The C library's memory for tensors: takes nothing, makes it keep what is freed.

Every step of a training asks for the same tensors again. The library gives large ones back to the kernel when they are
freed, which then clears and maps each page anew.
"""

from __future__ import annotations

import ctypes

#: glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep freed memory in the process, up to two gigabytes; nothing happens where there is no glibc."""
    try:
        tune = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    tune(_MMAP_THRESHOLD, _MOST)
    tune(_TRIM_THRESHOLD, _MOST)
