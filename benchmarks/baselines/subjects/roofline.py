"""The speed of one core: its rate of matrix products, and its rate of copies."""

from __future__ import annotations

import torch

SIDE = 1024
FLOPS = 2 * SIDE**3
BYTES = 2 * 4 * 2**26  # a copy of 256 MiB reads and writes


class Product:
    """Multiply float32 matrices by torch."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.a, self.b = torch.rand(2, SIDE, SIDE)
        self.found = torch.empty(SIDE, SIDE)
        self.facts = {"work": FLOPS}

    def step(self) -> None:
        """Multiply once."""
        torch.mm(self.a, self.b, out=self.found)

    def write_output(self, file: str) -> None:
        """Write nothing: the product is not compared."""


class Copy:
    """Copy more memory than a cache holds."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.a, self.b = torch.ones(2, 2**26)
        self.facts = {"work": BYTES}

    def step(self) -> None:
        """Copy once."""
        self.b.copy_(self.a)

    def write_output(self, file: str) -> None:
        """Write nothing: the product is not compared."""
