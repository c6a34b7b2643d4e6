"""A subject for the tests of the worker protocol, which fails on demand."""

from __future__ import annotations

import sys

import numpy as np


class Toy:
    """Return the inputs times a factor."""

    def __init__(self, factor: float = 1.0, fault: str = "") -> None:
        sys.stdout.write("output of a library\n")
        self.factor, self.fault = factor, fault

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        if self.fault == "raise":
            raise ValueError("no such grid")
        if self.fault == "die":
            sys.stderr.write("a last message")
            sys.exit(3)
        return self.factor * np.stack(inputs)
