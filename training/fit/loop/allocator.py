"""Settings of the C library's allocator for training.

Every step of a training allocates the same tensors again. By default the library returns large ones to the kernel when
they are freed, and the kernel clears and maps each page anew.
"""

from __future__ import annotations

import ctypes

#: glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep freed memory in the process, up to two gigabytes; without glibc nothing happens."""
    try:
        tune = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    tune(_MMAP_THRESHOLD, _MOST)
    tune(_TRIM_THRESHOLD, _MOST)
