"""Takes one subject and requests as lines of JSON, gives its times and memory as lines of JSON.

Run by the interpreter of a rival's environment: `python -m benchmarks.baselines.worker MODULE:CLASS`. Standard library
only. A request is one of

.. code-block:: text

    {"do": "prepare", "arguments": {...}}   -> {"facts": {...}}
    {"do": "run", "times": n}               -> {"wall": [seconds, ...], "processor": [seconds, ...]}
    {"do": "answer", "file": "x.npy"}       -> {}
    {"do": "report"}                        -> {"peak": bytes, "before": bytes}

and anything that fails gives {"error": "..."}. What a library prints goes to the standard error, not between the lines.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Subject(Protocol):
    """What can be measured: built from its arguments, then asked for one piece of work again and again."""

    facts: dict[str, Any]

    def step(self) -> None:
        """Do the work once."""

    def answer(self, file: str) -> None:
        """Write what the work gives into an .npy file."""


class Worker:
    """Answers requests about one subject."""

    def __init__(self, make: Callable[..., Subject]) -> None:
        self.make = make
        self.subject: Subject | None = None
        self.before = resident("VmRSS")

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Build the subject; from here on, memory counts."""
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
        self.before = resident("VmRSS")
        self.subject = self.make(**arguments)
        return {"facts": self.subject.facts}

    def run(self, times: int) -> dict[str, Any]:
        """Time the work."""
        taken = [seconds(self.subject.step) for _ in range(times)]
        return {"wall": [wall for wall, _ in taken], "processor": [own for _, own in taken]}

    def answer(self, file: str) -> dict[str, Any]:
        """Let the subject write its answer."""
        self.subject.answer(file)
        return {}

    def report(self) -> dict[str, Any]:
        """Tell the most memory that was resident since the preparation, and what was before it."""
        return {"peak": resident("VmHWM"), "before": self.before}

    def reply(self, line: str) -> dict[str, Any]:
        """Answer one line; a fault is an answer, too."""
        try:
            request = json.loads(line)
            work = {"prepare": self.prepare, "run": self.run, "answer": self.answer, "report": self.report}
            return work[request.pop("do")](**request)
        except Exception as error:  # noqa: BLE001 -- whatever a rival does wrong is told to the other side
            return {"error": f"{type(error).__name__}: {error}"}


def seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Give wall clock and processor time of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def resident(key: str) -> int:
    """Give the process's resident bytes: now (VmRSS) or at the peak (VmHWM)."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{key}:")]
    return 1024 * int(line.split()[1])


def serve(worker: Worker, requests: Iterable[str], replies: TextIO) -> None:
    """Answer line by line until there are no more."""
    for line in requests:
        print(json.dumps(worker.reply(line)), file=replies, flush=True)


def main(subject: str) -> None:
    """Import the subject, say so, and serve it."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = subject.partition(":")
    worker = Worker(getattr(importlib.import_module(module), name))
    print(json.dumps({"ready": subject}), file=replies, flush=True)
    serve(worker, sys.stdin, replies)


if __name__ == "__main__":
    main(sys.argv[1])
