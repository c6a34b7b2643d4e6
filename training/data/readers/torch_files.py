"""Tensors saved by `torch.save`, such as neuraloperator's `{"x": …, "y": …}`; nothing in the file is executed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named
from training.data.readers.numpy_files import NAME


@contextmanager
def open_torch(path: Path) -> Iterator[DataFile]:
    """Open a `.pt` file that holds tensors, or one tensor, which is then called `array`."""
    yield DataFile(path, "pt", {name: array(name, tensor) for name, tensor in tensors(path).items()})


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


def array(name: str, tensor: Tensor) -> LazyArray:
    """Describe a tensor."""
    dtype = tensor[:0].numpy().dtype if tensor.ndim else tensor.numpy().dtype
    return LazyArray(name, tuple(tensor.shape), dtype, lambda start, stop: tensor[start:stop].numpy())
