"""Samples that calibrate, with the errors of a network on them: in memory, or on the disk where they are too large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Inputs = Sequence[Tensor]
"""An operator's arguments, `[sample, (component,) *grid]` or `[sample]` each."""


@dataclass(frozen=True)
class Measured:
    """Samples on one grid, with the errors of the network's predictions."""

    inputs: Inputs  # of all samples
    errors: Tensor | None = None  # relative L2 errors of fields `[sample]`; none where only the inputs are known
    # What tells the samples from others on the same grid, such as their noise, for the card.
    kind: Mapping[str, Any] = field(default_factory=dict)
    noise: Tensor | None = None  # the level of noise of each `[sample]`, where they have several
    scalars: Tensor | None = None  # sizes of the errors of all numbers, in deviations of each: `[sample, number]`

    def __len__(self) -> int:
        return len(self.inputs[0])

    def points(self, axes: int) -> int:
        return self.inputs[0].shape[-axes:].numel() if self.inputs[0].ndim > axes else 1

    def of(self, function: Callable[[Inputs], Any]) -> Any:
        """Return what a function of inputs returns for all samples: a tensor `[sample, ...]`, or a tuple of them."""
        return function(self.inputs)

    def mapped(self, function: Callable[..., Inputs]) -> Measured:
        """Return samples whose inputs are what a function makes of the arguments."""
        return replace(self, inputs=function(*self.inputs))

    def first(self, count: int) -> Measured:
        """Return copies of the first samples."""
        return Measured.select(self, torch.arange(min(count, len(self.inputs[0]))))

    def select(self, mask: Tensor) -> Measured:
        """Return the samples of a mask, or of some numbers."""
        return Measured([tensor[mask] for tensor in self.inputs], **self.known_of(mask))

    def known_of(self, mask: Tensor) -> dict[str, Any]:
        """Return what is known about the samples of a mask, or of some numbers."""
        known = {"errors": self.errors, "noise": self.noise, "scalars": self.scalars}
        return {"kind": self.kind} | {name: None if each is None else each[mask] for name, each in known.items()}


@dataclass(frozen=True, kw_only=True)
class Stored(Measured):
    """Samples that are read anew whenever something is computed of them; `inputs` are those of the first ones."""

    rows: NDArray[np.int64]  # their numbers
    read: Callable[[NDArray[np.int64]], Inputs]
    at_once: int  # how many are in memory

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, function: Callable[[Inputs], Any]) -> Any:
        starts = range(0, len(self.rows), self.at_once)
        parts = [function(self.read(self.rows[start : start + self.at_once])) for start in starts]
        if not parts:
            return function([each[:0] for each in self.inputs])
        return torch.cat(parts) if isinstance(parts[0], Tensor) else tuple(map(torch.cat, zip(*parts, strict=True)))

    def mapped(self, function: Callable[..., Inputs]) -> Measured:
        return replace(self, inputs=function(*self.inputs), read=lambda rows: function(*self.read(rows)))

    def select(self, mask: Tensor) -> Measured:
        rows = self.rows[mask.numpy()]
        found = self.read(rows[: self.at_once]) if len(rows) else [each[:0] for each in self.inputs]
        return Stored(found, rows=rows, read=self.read, at_once=self.at_once, **self.known_of(mask))


@dataclass(frozen=True)
class CalibrationSamples:
    """Samples with the errors of a network's predictions, one element per grid; read once, as they take memory."""

    fitted: Iterable[Measured]  # they give the units of the statistics and the expected size of the error
    calibration: Iterable[Measured]  # they serve nothing else; some may be without errors
    test: Iterable[Measured]  # they check the result
    # The deviations of outputs that are numbers over the training samples, by name: the units of their errors.
    deviations: Mapping[str, Tensor] = field(default_factory=dict)


def joined(*parts: Measured) -> Measured:
    """Return samples of several kinds on one grid, all with errors, as one set."""
    errors = [part.errors for part in parts if part.errors is not None]
    noise = [part.noise for part in parts if part.noise is not None]
    return Measured(
        [torch.cat(tensors) for tensors in zip(*(part.inputs for part in parts), strict=True)],
        torch.cat(errors),
        noise=torch.cat(noise) if len(noise) == len(parts) else None,
    )
