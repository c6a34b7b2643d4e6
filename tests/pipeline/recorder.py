"""Run a module of the project, and write which of its functions are passed: `python recorder.py FILE MODULE ARGS…`.

A function is a line `path function`, in the order of first calls. SIGUSR1 writes the record to FILE and empties it; the
end of the module writes it, too. Child processes are left out.
"""

from __future__ import annotations

import runpy
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = f"{Path(__file__).parents[2]}/"
FILE, MODULE, *ARGUMENTS = sys.argv[1:]
passed: dict[str, None] = {}


def look(frame: FrameType, event: str, _: Any) -> None:
    """Add a function of the project that is called."""
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(ROOT) and not name.startswith(f"{ROOT}."):
        passed.setdefault(f"{name[len(ROOT) :]} {frame.f_code.co_qualname}")


def write(*_: Any) -> None:
    """Write the record, and empty it."""
    Path(FILE).write_text("\n".join([*passed]))
    passed.clear()


signal.signal(signal.SIGUSR1, write)
sys.path.insert(0, ROOT)
sys.argv = [MODULE, *ARGUMENTS]
threading.settrace(look)
sys.settrace(look)
try:
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
finally:
    sys.settrace(None)
    if passed and MODULE != "serving":
        write()
