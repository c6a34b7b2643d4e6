"""Safe reading of the reference's own files: a state dict or a pickled model, its YAML, and a normaliser's arrays.

`torch.load(weights_only=True)` reads what `torch.save` wrote, so that nothing in a file runs. Of a whole pickled model,
each class that the file names is replaced by a stand-in that only keeps what it is passed; modules of `os` and `sys`
are refused by torch itself. The tensors are then found where a `torch.nn.Module` keeps them.
"""

from __future__ import annotations

import pickle  # for the name of an error that torch raises; nothing is unpickled here
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from training.messages import UserError

State = dict[str, Tensor]
Array = NDArray[np.float64]

LIMIT = 256 * 2**20  # bytes, compressed or not; the largest published file has some 10 MB
MODULES = 10_000  # more than any network has; a module may contain itself
LIBRARIES = ("torch.", "numpy.", "collections.")  # their names say least about an object and are listed last
COUNTER = "num_batches_tracked"  # of a batch norm: the only whole number in a state dict
STATISTICS = ("mean", "std", "eps")


class ReferenceImportError(UserError):
    """A file cannot be imported: the message names the file or key, what was expected and what was found."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of a normaliser at every point of a square grid, in physical units.

    Attributes:
        mean: The mean [row, column].
        deviation: The standard deviation plus eps [row, column].
    """

    mean: Array
    deviation: Array


@dataclass(frozen=True)
class WholeModel:
    """What a pickled model held.

    Attributes:
        state: Its parameters and buffers by name.
        settings: Its attributes that are plain values.
        statistics: Those of the output normaliser, or None.
    """

    state: State
    settings: dict[str, Any]
    statistics: Statistics | None


def read_state(path: Path) -> State:
    """Read a state dict.

    Raises:
        ReferenceImportError: The file is missing, too large, damaged or no state dict, or a tensor is not finite.
    """
    _check_size(path)
    if names := _foreign_names(path):
        raise ReferenceImportError(
            f"{path}: expected a state dict but found a pickled object of {_shortened(names)}; if it is a whole model "
            "of the reference, --whole-model reads the tensors in it without running anything of it"
        )
    return _checked(path, _load(path))


def read_whole_model(path: Path) -> WholeModel:
    """Read a whole pickled model without importing or calling anything that the file names.

    Raises:
        ReferenceImportError: The file is missing, too large, damaged or no pickled model.
    """
    _check_size(path)
    model = _load(path, [(type(name, (_StandIn,), {}), name) for name in _foreign_names(path)])
    found = _attributes(model)
    if not found.keys() >= {"_parameters", "_modules"}:
        raise ReferenceImportError(f"{path}: expected a pickled model but found {_described(model)}")
    try:
        state = dict(_tensors(model))
        normaliser = next((one for one in map(_attributes, found.values()) if one.keys() >= set(STATISTICS)), {})
        arrays = {name: _array(normaliser[name]) for name in STATISTICS if normaliser}
    except (ValueError, TypeError) as error:
        raise ReferenceImportError(f"{path}: {error}") from error
    settings = {name: value for name, value in found.items() if isinstance(value, str | int | float | tuple | list)}
    return WholeModel(_checked(path, state), settings, statistics(arrays, str(path)))


def read_config(path: Path, section: str) -> dict[str, Any]:
    """Read constructor arguments from YAML or JSON: the section of that name, or else the whole file.

    Raises:
        ReferenceImportError: The file cannot be read, or does not hold names and values.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ReferenceImportError(f"{path}: expected YAML or JSON of constructor arguments but {reason}") from error
    found = document.get(section, document) if isinstance(document, dict) else document
    if not isinstance(found, dict):
        raise ReferenceImportError(f"{path}: expected names and values but found {type(found).__name__}")
    return {str(name): value for name, value in found.items()}


def read_statistics(path: Path) -> tuple[Statistics | None, Statistics | None]:
    """Read the statistics of input and output from an .npz file; those that it lacks are None.

    Raises:
        ReferenceImportError: The file cannot be read, has other arrays, or statistics that do not fit each other.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {
                name: file[name].astype(np.float64, casting="same_kind") for name in file.files
            }  # no complex ones
    except (OSError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ReferenceImportError(f"{path}: expected an .npz file of numbers but {error}") from error
    known = {f"{prefix}{name}" for prefix in ("", "input_") for name in STATISTICS}
    if not arrays or not arrays.keys() <= known:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise ReferenceImportError(f"{path}: expected arrays of {', '.join(sorted(known))} but found {found}")
    return statistics(arrays, str(path), "input_"), statistics(arrays, str(path))


def statistics(arrays: Mapping[str, Array], source: str, prefix: str = "") -> Statistics | None:
    """Return the statistics among named arrays, None if there are none.

    Args:
        arrays: The arrays by name, `[row, column]` or the reference's `[row, column, 1]`.
        source: Their file, for the message.
        prefix: The first part of the three names.

    Raises:
        ReferenceImportError: One of the three is missing, misshapen, not finite or not positive.
    """
    where = f"{source}: {prefix}"
    found = {name: arrays[prefix + name] for name in STATISTICS if prefix + name in arrays}
    if not found:
        return None
    if missing := [name for name in STATISTICS if name not in found]:
        raise ReferenceImportError(f"{where}{', '.join(missing)}: expected beside {', '.join(found)} but there is none")
    if found["eps"].size != 1:
        raise ReferenceImportError(f"{where}eps: expected one number but found the shape {found['eps'].shape}")
    planes = []
    for array in (found["mean"], found["std"] + found["eps"].item()):
        plane = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
        if plane.ndim != 2 or plane.shape[0] != plane.shape[1]:
            raise ReferenceImportError(
                f"{where}mean, std: expected the shape (n, n) or (n, n, 1) but found {array.shape}"
            )
        planes.append(plane)
    mean, deviation = planes
    if mean.shape != deviation.shape:
        raise ReferenceImportError(f"{where}std: expected the mean's shape {mean.shape} but found {deviation.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()):
        raise ReferenceImportError(f"{where}mean, std, eps: expected finite numbers and std + eps above 0 everywhere")
    return Statistics(mean, deviation)


def _check_size(path: Path) -> None:
    """Accept only files of a bounded size, packed and unpacked."""
    if not path.is_file():
        raise ReferenceImportError(f"expected a file {path} but there is none")
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            size = max(size, sum(member.file_size for member in archive.infolist()))
    except zipfile.BadZipFile:
        pass  # torch's older format, or a damaged file: the reader says which
    if size > LIMIT:
        raise ReferenceImportError(f"{path}: expected at most {LIMIT} bytes but found {size}")


def _load(path: Path, allowed: Iterable[tuple[Callable[..., Any], str]] = ()) -> Any:
    """Load a file of `torch.save`; `allowed` are stand-ins with the names that the file may use for them."""
    try:
        with warnings.catch_warnings(), safe_globals(list(allowed)):
            warnings.filterwarnings("ignore", message="Detected pickle protocol")  # what it cannot read is refused
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        names = _foreign_names(path)
        message = f"expected a pickled model but found an object of {_shortened(names)}"
        damaged = "expected a file of torch.save but it is damaged, cut off, or another kind of file"
        raise ReferenceImportError(f"{path}: {message if names else damaged}") from error
    except Exception as error:
        # A damaged file makes torch raise nearly any error: of its reader, of struct, of a container's look-up.
        raise ReferenceImportError(f"{path}: expected a file of torch.save but it is damaged or cut off") from error


def _foreign_names(path: Path) -> list[str]:
    """Return the names of classes and functions that a file needs and torch does not allow; libraries come last."""
    try:
        names = get_unsafe_globals_in_checkpoint(path)
    except Exception:  # noqa: BLE001 - not of the zip format, or damaged in any way: `_load` says so
        return []
    return sorted(names, key=lambda name: (name.startswith(LIBRARIES), name))


def _shortened(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _checked(path: Path, found: Any) -> State:
    """Accept only real tensors of finite numbers with names, and return them contiguous."""
    if not isinstance(found, dict) or not found:
        raise ReferenceImportError(f"{path}: expected a state dict, names to tensors, but found {_described(found)}")
    if alien := [f"{name!r} ({_described(entry)})" for name, entry in found.items() if not _is_plain(name, entry)]:
        raise ReferenceImportError(f"{path}: expected a state dict, names to tensors, but found {', '.join(alien[:5])}")
    if broken := [name for name, tensor in found.items() if not tensor.isfinite().all()]:
        raise ReferenceImportError(f"{path}: expected finite numbers but found others in {', '.join(broken)}")
    return {name: tensor.detach().contiguous() for name, tensor in found.items()}


def _is_plain(name: object, entry: object) -> bool:
    """Tell whether an entry is what a state dict of the reference may hold."""
    if not isinstance(name, str) or not isinstance(entry, Tensor):
        return False
    stored = entry.layout == torch.strided and entry.device.type == "cpu"
    within = entry.numel() <= LIMIT // 4  # a small storage may pretend to be a large tensor
    counter = name.endswith(COUNTER) and entry.dtype == torch.int64
    return stored and within and (entry.is_floating_point() or counter)


def _described(thing: object) -> str:
    if isinstance(thing, Tensor):
        return f"a tensor of {thing.dtype}, {tuple(thing.shape)}"
    return "nothing" if isinstance(thing, dict) else type(thing).__name__


class _StandIn:
    """An object of a class that is not imported: what the class and its `__setstate__` were called with."""

    arguments: tuple[Any, ...] = ()  # stays where an unpickler makes the object without `__init__`
    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of a stand-in, none for anything else."""
    return _mapping(thing.state) if isinstance(thing, _StandIn) else {}


def _mapping(thing: Any) -> dict[str, Any]:
    """Return the entries of a dict whose keys are text, none for anything else."""
    return {name: value for name, value in thing.items() if isinstance(name, str)} if isinstance(thing, dict) else {}


def _tensors(model: _StandIn) -> Iterator[tuple[str, Any]]:
    """Yield a module's parameters and buffers by their names in a state dict."""
    waiting: list[tuple[str, Any]] = [("", model)]
    for prefix, module in waiting:
        found = _attributes(module)
        for kind in ("_parameters", "_buffers"):
            entries = _mapping(found.get(kind)).items()
            yield from ((prefix + name, entry) for name, entry in entries if entry is not None)
        waiting += [(f"{prefix}{name}.", child) for name, child in _mapping(found.get("_modules")).items()]
        if len(waiting) > MODULES:
            raise ValueError(f"expected at most {MODULES} modules but found more")


def _array(thing: Any) -> Array:
    """Read a number, a tensor, or the stand-in of a NumPy array of little-endian real numbers."""
    match thing:
        case float() | int():
            return np.array(thing, dtype=np.float64)
        case Tensor() if _is_plain("", thing):
            return thing.detach().double().numpy()
        case _StandIn(
            state=(
                _,
                tuple(shape),
                _StandIn(arguments=("f4" | "f8" as kind, *_), state=(_, "<", *_)),
                fortran,
                bytes(data),
            )
        ):
            numbers = np.frombuffer(data, dtype=f"<{kind}").astype(np.float64)
            return numbers.reshape(shape, order="F" if fortran else "C")
        case _:
            raise ValueError(f"expected an array of little-endian real numbers but found {_described(thing)}")
