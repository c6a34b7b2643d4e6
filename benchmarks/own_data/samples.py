"""The samples of one problem as tensors, read from a file that the training of own data has prepared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h5py
import torch

from benchmarks.own_data.loop import Samples

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Prepared:
    """Where the samples of a problem are and what they mean, as one document that crosses processes.

    Attributes:
        file: The prepared samples.
        problem: The problem file's path.
        inputs: The names of the input fields.
        parameters: The names of the parameters.
        output: The name of the output field.
        counts: Training, validation and test samples.
        sides: Points per axis.
        periodic: Per axis whether its ends meet.
    """

    file: str
    problem: str
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    output: str
    counts: tuple[int, int, int]
    sides: tuple[int, ...]
    periodic: tuple[bool, ...]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Prepared:
        """Return what a document of JSON says."""
        arguments: dict[str, Any] = {
            key: tuple(each) if isinstance(each, list) else each for key, each in document.items()
        }
        return cls(**arguments)

    def read(self) -> tuple[Samples, Samples, Samples]:
        """Return the training, validation and test samples."""
        with h5py.File(self.file, "r") as file:
            inputs = [torch.from_numpy(file[name][:]) for name in (*self.inputs, *self.parameters)]
            whole = Samples(inputs, torch.from_numpy(file[self.output][:]))
        train, validation, _ = self.counts
        return whole[:train], whole[train : train + validation], whole[train + validation :]
