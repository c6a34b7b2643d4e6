"""Freed memory is kept in the process and not requested from the kernel again."""

from __future__ import annotations

import inspect
import subprocess
import sys

from training.fit.run import keep_freed_memory

MEBIBYTES, STEPS = 40, 5  # more at a time than malloc ever keeps of its own accord
# A process of its own that imports nothing large.
PROGRAM = f"""
import ctypes, resource
{inspect.getsource(keep_freed_memory)}
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p

def step():
    address = ctypes.c_void_p(library.malloc({MEBIBYTES} * 2**20))
    library.memset(address, 1, {MEBIBYTES} * 2**20)
    library.free(address)

def faults():  # the pages that are requested in equal steps
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({STEPS}):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
keep_freed_memory()
print(faults())
"""


def test_a_step_reuses_the_pages_of_the_previous_one() -> None:
    pages = STEPS * MEBIBYTES * 2**20 // 4096
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    default, kept = map(int, done.stdout.split())
    assert default > pages / 2
    assert kept < pages / 10
