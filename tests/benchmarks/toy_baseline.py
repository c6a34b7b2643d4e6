"""A rival that only sleeps and remembers: what the protocol is tested with."""

from __future__ import annotations

import sys
from pathlib import Path


class Toy:
    """Holds some memory; fails if it is told to."""

    def __init__(self, megabytes: int = 0, fault: str = "") -> None:
        sys.stdout.write("libraries chatter\n")
        self.ballast, self.fault, self.steps = bytes(range(256)) * (4096 * megabytes), fault, 0
        self.facts = {"megabytes": megabytes}

    def step(self) -> None:
        if self.fault == "raise":
            raise ValueError("no such grid")
        if self.fault == "die":
            sys.stderr.write("out of luck")
            sys.exit(3)
        self.steps += 1

    def answer(self, file: str) -> None:
        Path(file).write_text(f"{self.steps}")
