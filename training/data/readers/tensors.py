"""Files of `torch.save`, such as neuraloperator's `{"x": …, "y": …}`: read without executing anything in the file.

The one reader that needs torch, which an environment that only describes data does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named, part
from training.data.readers.tensor_files import MOST_TENSORS

PER_SAMPLE, UNEVEN = "one dict of tensors per sample", "its tensors have other sizes or types in other samples"
NAME = "array"
"""What the one tensor of a file is called."""


@contextmanager
def open_torch(path: Path) -> Iterator[DataFile]:
    """Open a `.pt` file of tensors by name or in a tuple, of one tensor (`array`), or of a dict of tensors per sample.

    Raises:
        ReadError: It holds no tensors, or is damaged.
    """
    with damage_named(path, "a file of torch.save"):
        content = cut(load(path))
        per_sample = (
            isinstance(content, (list, tuple)) and bool(content) and all(isinstance(one, dict) for one in content)
        )
        samples = [dict(leaves(one)) for one in (content if per_sample else [content])]
        arrays: dict[str, LazyArray] = {}
        left_out: dict[str, str] = {}
        listed = False
        for name in dict.fromkeys(name for one in samples for name in one):
            values = [one.get(name) for one in samples]
            found = [value for value in values if isinstance(value, Tensor)]
            if not per_sample and are_samples(values[0]):
                listed = True
                arrays[name] = stacked(name, values[0])
            elif len(found) < len(values):
                kind = next(type(value).__name__ for value in values if not isinstance(value, Tensor))
                left_out[name] = f"it holds {kind}, and no tensor" + " in every sample" * per_sample
            elif len({(value.shape, value.dtype) for value in found}) > 1:
                left_out[name] = UNEVEN
            else:
                arrays[name] = stacked(name, found) if per_sample else dense(name, found[0])
    uneven = [name for name, reason in left_out.items() if reason == UNEVEN]
    if len(uneven) > 1:  # clouds and graphs, of unequal numbers of points
        yield of_pieces(path, [{name: one[name] for name in (*arrays, *uneven)} for one in samples], left_out)
        return
    if not arrays:
        said = "".join(f"; {name}: {reason}" for name, reason in left_out.items())
        raise ReadError(
            f"{path}: expected tensors by name, such as {{'x': …, 'y': …}}, but found {type(content).__name__}{said}"
        )
    # The layout of neuraloperator's files.
    outputs = ("y",) if {*arrays} == {"x", "y"} else ()
    said = PER_SAMPLE if per_sample else "a list of a tensor per sample" if listed else ""
    yield DataFile(path, "pt", arrays, outputs=outputs, samples=said, left_out=left_out)


def of_pieces(path: Path, samples: Sequence[dict[str, Tensor]], left_out: Mapping[str, str]) -> DataFile:
    """Describe samples whose tensors have unequal sizes, one after the other."""
    each = [{name: stacked(name, [value]) for name, value in one.items()} for one in samples]
    pieces = tuple(DataFile(path, "pt", arrays, samples=PER_SAMPLE) for arrays in each)
    others = {name: reason for name, reason in left_out.items() if name not in each[0]}
    return DataFile(path, "pt", each[0], samples=PER_SAMPLE, left_out=others, pieces=pieces)


def cut(content: Any) -> Any:
    """Return a dict for each sample of a set of PyTorch Geometric: tensors of all samples, and where each begins.

    Other content is returned as it is. Indices have samples on their last axis.
    """
    if not isinstance(content, tuple) or len(content) < 2 or not all(isinstance(one, dict) for one in content[:2]):
        return content
    whole, begins = content[:2]
    axes = {name: -1 if "index" in name or name == "face" else 0 for name in map(str, whole)}
    for name in axes:
        one, at = whole.get(name), begins.get(name)
        if not isinstance(one, Tensor) or not isinstance(at, Tensor) or at.ndim != 1 or not one.ndim:
            return content
        if at[0] != 0 or at[-1] != one.shape[axes[name]] or (at.diff() < 0).any():
            return content
    counts = {len(begins[name]) for name in axes}
    if len(counts) != 1:
        return content
    pieces = {name: whole[name].tensor_split(begins[name][1:-1].cpu(), axis) for name, axis in axes.items()}
    return [{name: each[sample] for name, each in pieces.items()} for sample in range(counts.pop() - 1)]


def leaves(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Return what dicts and a tuple hold, by name; slashes separate the names of dicts in dicts.

    Many tensors of one size are a list of samples.
    """
    if isinstance(content, dict):
        for key, value in content.items():
            yield from leaves(value, f"{name}/{key}" if name else str(key))
    elif are_tensors(content) and not are_samples(content):
        yield from ((f"{name}/{number}" if name else str(number), one) for number, one in enumerate(content))
    else:
        yield name or NAME, content


def are_tensors(content: Any) -> bool:
    """Return whether an object is a list of tensors, or a tuple."""
    return isinstance(content, (list, tuple)) and bool(content) and all(isinstance(one, Tensor) for one in content)


def are_samples(content: Any) -> TypeGuard[Sequence[Tensor]]:
    """Return whether an object is a list of so many tensors of one size that each is that of a sample."""
    return (
        are_tensors(content) and len(content) > MOST_TENSORS and len({(one.shape, one.dtype) for one in content}) == 1
    )


def stacked(name: str, tensors: Sequence[Tensor]) -> LazyArray:
    """Describe the tensors of all samples as one array over them."""
    each = [dense(name, tensor) for tensor in tensors]

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.stack([one.read() if one.shape else np.asarray(one.rows(0, 1)) for one in each[start:stop]])

    return LazyArray(name, (len(each), *each[0].shape), each[0].dtype, rows)


def load(path: Path) -> Any:
    """Read a file without running anything that it asks for, mapped from the disk where its version allows it."""
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # the format before torch 1.6 cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        alone = "[each.to_dict() for each in data]" if "torch_geometric" in str(error) else "{'x': x, 'y': y}"
        raise ReadError(
            f"{path}: holds other objects than tensors, which are never unpickled: save the tensors alone, "
            f"torch.save({alone}, path)"
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
