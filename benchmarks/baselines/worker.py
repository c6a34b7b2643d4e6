"""The program of a worker: it measures one subject, with requests and replies as lines of JSON.

The interpreter of a baseline's environment runs it: `python -m benchmarks.baselines.worker MODULE:CLASS`. It imports
only the standard library. A request is one of

.. code-block:: text

    {"do": "prepare", "arguments": {...}}   -> {"facts": {...}}
    {"do": "run", "times": n}               -> {"wall": [seconds, ...], "processor": [seconds, ...]}
    {"do": "write_output", "file": "x.npy"} -> {}
    {"do": "report"}                        -> {"peak": bytes, "before": bytes}

and a failure gives {"error": "..."}. What a library prints goes to the standard error.
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
    """What can be measured: it is built from its arguments, and repeats one piece of work."""

    facts: dict[str, Any]

    def step(self) -> None:
        """Do the work once."""

    def write_output(self, file: str) -> None:
        """Write the output of the work to an .npy file."""


class Worker:
    """The requests about one subject."""

    def __init__(self, make: Callable[..., Subject]) -> None:
        self.make = make
        self.prepared: Subject | None = None
        self.before = resident("VmRSS")

    @property
    def subject(self) -> Subject:
        """The subject, after its preparation."""
        if self.prepared is None:
            raise RuntimeError("expected `prepare` before any other request")
        return self.prepared

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Build the subject; memory counts from here on."""
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak of the imports
        self.before = resident("VmRSS")
        self.prepared = self.make(**arguments)
        return {"facts": self.prepared.facts}

    def run(self, times: int) -> dict[str, Any]:
        """Run the work, and return the times."""
        taken = [seconds(self.subject.step) for _ in range(times)]
        return {"wall": [wall for wall, _ in taken], "processor": [own for _, own in taken]}

    def write_output(self, file: str) -> dict[str, Any]:
        """Write the subject's output."""
        self.subject.write_output(file)
        return {}

    def report(self) -> dict[str, Any]:
        """Return the peak of the resident memory since the preparation, and the value before it."""
        return {"peak": resident("VmHWM"), "before": self.before}

    def reply(self, line: str) -> dict[str, Any]:
        """Return the reply to one line; a fault is a reply too."""
        try:
            request = json.loads(line)
            methods: dict[str, Callable[..., dict[str, Any]]] = {
                "prepare": self.prepare,
                "run": self.run,
                "write_output": self.write_output,
                "report": self.report,
            }
            return methods[request.pop("do")](**request)
        except Exception as error:  # noqa: BLE001 -- any fault of a baseline is reported to the other process
            return {"error": f"{type(error).__name__}: {error}"}


def seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Return wall clock and processor time of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def resident(key: str) -> int:
    """Return the process's resident bytes: now (VmRSS) or at the peak (VmHWM)."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{key}:")]
    return 1024 * int(line.split()[1])


def serve(worker: Worker, requests: Iterable[str], replies: TextIO) -> None:
    """Reply line by line until the input ends."""
    for line in requests:
        print(json.dumps(worker.reply(line)), file=replies, flush=True)


def main(subject: str) -> None:
    """Import the subject, report that it is ready, and serve it."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = subject.partition(":")
    worker = Worker(getattr(importlib.import_module(module), name))
    print(json.dumps({"ready": subject}), file=replies, flush=True)
    serve(worker, sys.stdin, replies)


if __name__ == "__main__":
    main(sys.argv[1])
