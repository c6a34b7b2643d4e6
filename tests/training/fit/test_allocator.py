"""Memory that is kept is not asked of the kernel again."""

from __future__ import annotations

import subprocess
import sys

MEBIBYTES, STEPS = 40, 5  # more at a time than malloc ever keeps of its own accord
PROGRAM = f"""
import ctypes, resource, sys
from training.fit.allocator import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p

def step():
    place = ctypes.c_void_p(library.malloc({MEBIBYTES} * 2**20))
    library.memset(place, 1, {MEBIBYTES} * 2**20)
    library.free(place)

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({STEPS}):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word: str) -> int:
    """Give how many pages equal steps had to ask for."""
    command = [sys.executable, "-c", PROGRAM, word]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_step_finds_the_pages_of_the_one_before() -> None:
    pages = STEPS * MEBIBYTES * 2**20 // 4096
    assert faults("kept") < pages / 10
    assert faults("given back") > pages / 2
