"""Takes a file that holds a whole pickled model of the reference, gives its tensors, settings and output statistics.

No pickle is read from disk anywhere else in this project, and here none is run either: `--whole-model` is the one
explicit exception to "no pickle", and it is contained. Some published weights exist in no other form (`torch.save` of
the module itself). Their pickle is only recorded (`pickle_record`), never followed; the record is then searched for
what a network keeps in `_parameters`, `_buffers` and `_modules`, and each tensor is rebuilt by us from its storage's
bytes, its shape and its strides, all checked. A file that would run a program when it is unpickled is a record with a
strange name in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.importing.archive import LIMIT, Archive
from training.importing.pickle_record import Call, Global, Outside, PickleError, record
from training.importing.refusal import ReferenceImportError
from training.importing.state_file import State, checked

DEPTH, TENSORS = 32, 10_000  # of a network; a record may be a knot
STORAGES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
}
TENSOR = Global("torch._utils", "_rebuild_tensor_v2")
PARAMETER = Global("torch._utils", "_rebuild_parameter")
ORDERED = Global("collections", "OrderedDict")
NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")
STATISTICS = ("mean", "std", "eps")


@dataclass(frozen=True)
class WholeModel:
    """What a pickled model held.

    `settings` are its attributes that are plain values, `statistics` the normaliser's `mean`, `std` and `eps`, or None.
    """

    state: State
    settings: dict[str, Any]
    statistics: dict[str, NDArray[np.float64]] | None


def read_whole_model(path: Path) -> WholeModel:
    """Read a whole pickled model without unpickling it.

    Raises:
        ReferenceImportError: the file is no such archive, holds no network, or a tensor does not fit its storage.
    """
    archive = Archive(path)
    try:
        root = record(archive.pickle)
        attributes = module_of(root)
        tensors = dict(walk(root, archive, "", DEPTH))
        statistics = find_statistics(attributes, archive)
    except PickleError as error:
        raise ReferenceImportError(f"{path}: {error}") from error
    settings = {name: value for name, value in attributes.items() if isinstance(value, SETTING)}
    return WholeModel(checked(path, tensors), settings, statistics)


SETTING = (str, int, float, bool, tuple, list)


def walk(module: Any, archive: Archive, prefix: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    """Give a module's tensors by their names in a state dict, as torch does: its own first, then its children's.

    Raises:
        PickleError: the modules are nested more deeply or hold more tensors than any network.
    """
    if depth == 0:
        raise PickleError("its modules are nested too deeply")
    attributes, count = state_of(module), 0
    for kind in ("_parameters", "_buffers"):
        for name, entry in mapping(attributes.get(kind)).items():
            if entry is not None:
                yield prefix + name, tensor(entry, archive)
    for name, child in mapping(attributes.get("_modules")).items():
        for pair in walk(child, archive, f"{prefix}{name}.", depth - 1) if child is not None else ():
            count += 1
            if count > TENSORS:
                raise PickleError("it has too many tensors")
            yield pair


def module_of(root: Any) -> dict[str, Any]:
    """Give the attributes of a pickled module.

    Raises:
        PickleError: it is something else.
    """
    if not (attributes := state_of(root)).keys() >= {"_parameters", "_modules"}:
        raise PickleError(f"expected a pickled model but found {named(root)}")
    return attributes


def state_of(thing: Any) -> dict[str, Any]:
    """Give the attributes that an object would get, none if it is no object."""
    state = thing.state if isinstance(thing, Call) else None
    return {str(name): value for name, value in state.items()} if isinstance(state, dict) else {}


def mapping(thing: Any) -> dict[str, Any]:
    """Read a dict, ordered or not."""
    if isinstance(thing, Call) and thing.function == ORDERED:
        return {name: value for name, value in thing.items if isinstance(name, str)}
    return {name: value for name, value in thing.items() if isinstance(name, str)} if isinstance(thing, dict) else {}


def named(thing: Any) -> str:
    """Name what a record's root is."""
    if isinstance(thing, Call):
        return f"a call of {thing.function}" if isinstance(thing.function, Global) else "a call"
    return str(thing) if isinstance(thing, Global) else type(thing).__name__


def tensor(thing: Any, archive: Archive) -> Tensor:
    """Rebuild a parameter or a tensor from its storage.

    Raises:
        PickleError: it is neither, or its shape and strides reach beyond the storage.
    """
    match thing:
        case Call(function=function, arguments=(inner, *_)) if function == PARAMETER:
            return tensor_of(inner, archive)
        case _:
            return tensor_of(thing, archive)


def tensor_of(thing: Any, archive: Archive) -> Tensor:
    """Rebuild a tensor."""
    match thing:
        case Call(function=function, arguments=(Outside(key=("storage", Global() as kind, str(key), *_)), *place)) if (
            function == TENSOR and len(place) >= 3
        ):
            offset, size, stride = place[:3]
        case _:
            raise PickleError(f"expected a tensor but found {named(thing)}")
    if kind.name not in STORAGES or kind.module not in {"torch", "torch.cuda"}:
        raise PickleError(f"expected a storage of {', '.join(STORAGES)} but found {kind}")
    numbers = bytearray(archive.storage(key))
    flat = torch.frombuffer(numbers, dtype=STORAGES[kind.name]) if numbers else torch.empty(0)
    if not fits(offset, size, stride, len(flat)):
        raise PickleError(f"expected a tensor within its storage of {len(flat)} numbers but it reaches beyond")
    return flat.as_strided(size, stride, offset).clone()


def fits(offset: Any, size: Any, stride: Any, length: int) -> bool:
    """Tell whether shape and strides are whole numbers that stay within a storage and within reason."""
    if not (isinstance(size, tuple) and isinstance(stride, tuple) and len(size) == len(stride)):
        return False
    if not all(type(n) is int and 0 <= n <= LIMIT for n in (offset, *size, *stride)):
        return False
    reach = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1
    return math.prod(size) <= LIMIT // 4 and (0 in size or reach <= length)


def find_statistics(attributes: dict[str, Any], archive: Archive) -> dict[str, NDArray[np.float64]] | None:
    """Find the output normaliser among a model's attributes: an object with `mean`, `std` and `eps`."""
    for value in attributes.values():
        held = state_of(value)
        if held.keys() >= set(STATISTICS):
            return {name: array(held[name], archive) for name in STATISTICS}
    return None


def array(thing: Any, archive: Archive) -> NDArray[np.float64]:
    """Read a number, a tensor or a NumPy array.

    Raises:
        PickleError: it is none of them.
    """
    match thing:
        case float() | int():
            return np.array(thing, dtype=np.float64)
        case Call(function=Global(module=module, name="_reconstruct"), state=(_, shape, kind, fortran, data)) if (
            module in NUMPY
        ):
            return numpy_array(shape, kind, bool(fortran), data)
        case _:
            return tensor(thing, archive).double().numpy()


def numpy_array(shape: Any, kind: Any, fortran: bool, data: Any) -> NDArray[np.float64]:
    """Read a NumPy array of real numbers."""
    match kind, data:
        case Call(function=Global("numpy", "dtype"), arguments=("f4" | "f8" as word, *_), state=(_, "<", *_)), _:
            content = packed(data)
        case _:
            raise PickleError("expected an array of little-endian real numbers")
    flat = np.frombuffer(content, dtype=f"<{word}").astype(np.float64)
    if not (isinstance(shape, tuple) and fits(0, shape, (0,) * len(shape), 1) and math.prod(shape) == len(flat)):
        raise PickleError("expected an array of as many numbers as its shape says")
    return flat.reshape(shape, order="F" if fortran else "C")


def packed(data: Any) -> bytes:
    """Read bytes; the older protocol writes them as text that would be encoded."""
    match data:
        case bytes():
            return data
        case Call(function=Global("_codecs", "encode"), arguments=(str(text), "latin1")):
            return text.encode("latin1")
        case _:
            raise PickleError("expected the bytes of an array")
