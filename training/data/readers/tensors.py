"""Files of `torch.save`, such as neuraloperator's `{"x": …, "y": …}`: read without executing anything in the file.

The one reader that needs torch, which an environment that only describes data does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named, part

NAME = "array"
"""What the one tensor of a file is called."""


@contextmanager
def open_torch(path: Path) -> Iterator[DataFile]:
    """Open a `.pt` file that holds tensors, or one tensor, which is then called `array`."""
    with damage_named(path, "a file of torch.save"):
        arrays = {name: dense(name, tensor) for name, tensor in tensors(path).items()}
    yield DataFile(path, "pt", arrays, outputs=("y",) if {*arrays} == {"x", "y"} else ())  # as neuraloperator's


def tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file.

    Raises:
        ReadError: It holds something else than tensors, or is damaged.
    """
    with damage_named(path, "a file of torch.save"):
        content = load(path)
    found = {NAME: content} if isinstance(content, Tensor) else content
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ReadError(
            f"{path}: expected tensors by name, such as {{'x': …, 'y': …}}, but found {type(content).__name__}"
        )
    return {str(name): value for name, value in found.items()}


def load(path: Path) -> Any:
    """Read a file without running anything that it asks for, mapped from the disk where its version allows it."""
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # the format before torch 1.6 cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise ReadError(
            f"{path}: holds other objects than tensors, which are never unpickled: save the tensors alone, "
            "torch.save({'x': x, 'y': y}, path)"
        ) from error


def dense(name: str, tensor: Tensor) -> LazyArray:
    """Describe a tensor; one of a floating-point type that NumPy does not have, such as bfloat16, as float32.

    Raises:
        ValueError: It is sparse, quantised or of another type that NumPy does not have.
    """
    values = tensor.detach()
    if values.layout != torch.strided or values.is_quantized:
        raise ValueError(f"{name!r} is {values.layout} of {values.dtype}: save a dense tensor")
    values = values.resolve_conj().resolve_neg()
    try:
        values[:0].numpy() if values.ndim else values.numpy()
    except TypeError as error:
        if not values.is_floating_point():
            raise ValueError(f"{name!r} has the type {values.dtype}") from error
        return LazyArray(
            name, tuple(values.shape), np.dtype("f4"), lambda start, stop: part(values, start, stop).float().numpy()
        )
    dtype = values[:0].numpy().dtype if values.ndim else values.numpy().dtype
    return LazyArray(name, tuple(values.shape), dtype, lambda start, stop: part(values, start, stop).numpy())
