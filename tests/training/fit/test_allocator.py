"""Freed memory is kept in the process and not requested from the kernel again."""

from __future__ import annotations

import subprocess
import sys

MEBIBYTES, STEPS = 40, 5  # more at a time than malloc ever keeps of its own accord
PROGRAM = f"""
import ctypes, resource, sys
from training.fit.run import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p

def step():
    address = ctypes.c_void_p(library.malloc({MEBIBYTES} * 2**20))
    library.memset(address, 1, {MEBIBYTES} * 2**20)
    library.free(address)

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({STEPS}):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(setting: str) -> int:
    """Return how many pages were requested in equal steps."""
    command = [sys.executable, "-c", PROGRAM, setting]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_step_reuses_the_pages_of_the_previous_one() -> None:
    pages = STEPS * MEBIBYTES * 2**20 // 4096
    assert faults("kept") < pages / 10
    assert faults("default") > pages / 2
