"""A subject for the tests of the worker protocol: it counts its steps and holds some memory."""

from __future__ import annotations

import sys
from pathlib import Path


class Toy:
    """A subject that holds some memory, and fails on demand."""

    def __init__(self, megabytes: int = 0, fault: str = "") -> None:
        sys.stdout.write("output of a library\n")
        self.ballast, self.fault, self.steps = bytes(range(256)) * (4096 * megabytes), fault, 0
        self.facts = {"megabytes": megabytes}

    def step(self) -> None:
        if self.fault == "raise":
            raise ValueError("no such grid")
        if self.fault == "die":
            sys.stderr.write("a last message")
            sys.exit(3)
        self.steps += 1

    def write_output(self, file: str) -> None:
        Path(file).write_text(f"{self.steps}")
