"""Reading of files that the reference's training scripts saved with `torch.save`, and the checks of a state dict."""

from __future__ import annotations

import pickle  # for the name of an error that torch raises; nothing is unpickled here
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from research.importing.errors import ReferenceImportError

State = dict[str, Tensor]
Global = tuple[Callable[..., Any], str]
"""A class or function, and the dotted name that a file may use for it."""

LIMIT = 256 * 2**20  # bytes, compressed or not; the largest published file has some 10 MB
LIBRARIES = ("torch.", "numpy.", "collections.")  # their names say least about an object and are listed last
COUNTER = "num_batches_tracked"  # of a batch norm: the only whole number in a state dict


def read_state(path: Path) -> State:
    """Read a state dict with `weights_only=True`, so that nothing in the file runs.

    Raises:
        ReferenceImportError: The file is missing, too large, damaged or no state dict, or a tensor is not finite.
    """
    check_size(path)
    if names := foreign_names(path):
        raise ReferenceImportError(
            f"{path}: expected a state dict but found a pickled object of {shortened(names)}; if it is a whole model "
            "of the reference, --whole-model reads the tensors in it without running anything of it"
        )
    return checked(path, load(path))


def load(path: Path, allowed: Iterable[Global] = ()) -> Any:
    """Load a file of `torch.save` with `weights_only=True`.

    Args:
        path: The file.
        allowed: What the file may use besides tensors, containers and numbers.

    Returns:
        The saved object, its tensors on the CPU.

    Raises:
        ReferenceImportError: The file is missing, too large or damaged, or needs classes that are not allowed.
    """
    check_size(path)
    try:
        with warnings.catch_warnings(), safe_globals(list(allowed)):
            warnings.filterwarnings("ignore", message="Detected pickle protocol")  # what it cannot read is refused
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ReferenceImportError(f"{path}: {refused(path)}") from error
    except Exception as error:
        # A damaged file makes torch raise nearly any error: of its reader, of struct, of a container's look-up.
        raise ReferenceImportError(f"{path}: expected a file of torch.save but it is damaged or cut off") from error


def check_size(path: Path) -> None:
    """Accept only files of a bounded size in memory.

    Raises:
        ReferenceImportError: There is no such file, or it has more than `LIMIT` bytes, packed or unpacked.
    """
    if not path.is_file():
        raise ReferenceImportError(f"expected a file {path} but there is none")
    size = max(path.stat().st_size, unpacked_size(path))
    if size > LIMIT:
        raise ReferenceImportError(f"{path}: expected at most {LIMIT} bytes but found {size}")


def unpacked_size(path: Path) -> int:
    """Return the size of an archive's members together, 0 if the file is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile:
        return 0  # torch's older format, or a damaged file: the reader says which


def refused(path: Path) -> str:
    """Say what torch refuses to load with `weights_only=True`."""
    if names := foreign_names(path):
        return f"expected a pickled model but found an object of {shortened(names)}"
    return "expected a file of torch.save but it is damaged, cut off, or another kind of file"


def shortened(names: list[str]) -> str:
    """List the first names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def foreign_names(path: Path) -> list[str]:
    """Return the names of classes and functions that a file needs and torch does not allow; libraries come last."""
    try:
        names = get_unsafe_globals_in_checkpoint(path)
    except Exception:  # noqa: BLE001 - not of the zip format, or damaged in any way: `load` says so
        return []
    return sorted(names, key=lambda name: (name.startswith(LIBRARIES), name))


def checked(path: Path, found: Any) -> State:
    """Accept only real tensors of finite numbers with names.

    Args:
        path: The file, for the message.
        found: What was read from it.

    Returns:
        The tensors, contiguous, by name.

    Raises:
        ReferenceImportError: It is something else.
    """
    if not isinstance(found, dict) or not found:
        raise ReferenceImportError(f"{path}: expected a state dict, names to tensors, but found {described(found)}")
    if alien := [f"{name!r} ({described(entry)})" for name, entry in found.items() if not is_plain(name, entry)]:
        raise ReferenceImportError(f"{path}: expected a state dict, names to tensors, but found {', '.join(alien[:5])}")
    if broken := [name for name, tensor in found.items() if not tensor.isfinite().all()]:
        raise ReferenceImportError(f"{path}: expected finite numbers but found others in {', '.join(broken)}")
    return {name: tensor.detach().contiguous() for name, tensor in found.items()}


def is_plain(name: object, entry: object) -> bool:
    """Tell whether an entry is what a state dict of the reference may hold."""
    if not isinstance(name, str) or not isinstance(entry, Tensor):
        return False
    stored = entry.layout == torch.strided and entry.device.type == "cpu"
    within = entry.numel() <= LIMIT // 4  # a small storage may pretend to be a large tensor
    return stored and within and (entry.is_floating_point() or is_counter(name, entry))


def is_counter(name: str, entry: Tensor) -> bool:
    """Tell whether an entry is the counter of a batch norm."""
    return name.endswith(COUNTER) and entry.dtype == torch.int64


def described(thing: object) -> str:
    """Name an object's kind in a few words."""
    if isinstance(thing, Tensor):
        return f"a tensor of {thing.dtype}, {tuple(thing.shape)}"
    return "nothing" if isinstance(thing, dict) else type(thing).__name__
