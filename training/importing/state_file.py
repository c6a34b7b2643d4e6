"""Takes a file that the reference's training scripts saved, gives the state dict in it: names to tensors, checked.

Read by torch with `weights_only=True`, so nothing of the file runs; whatever is no plain state dict is refused, and the
error says what was found instead.
"""

from __future__ import annotations

import pickle  # for the name of the error that torch raises; nothing is unpickled here
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint

from training.importing import archive
from training.importing.refusal import ReferenceImportError

State = dict[str, Tensor]

LIBRARIES = ("torch.", "numpy.", "collections.")  # what tells least about an object is named last
COUNTER = "num_batches_tracked"  # of a batch norm: the only whole number in a state dict


def read_state(path: Path) -> State:
    """Read a state dict.

    Raises:
        ReferenceImportError: the file is missing, too large, damaged, no state dict, or a tensor is not finite.
    """
    archive.check(path)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected pickle protocol")  # what it cannot read is refused
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ReferenceImportError(f"{path}: {pickled(path)}") from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise ReferenceImportError(f"{path}: expected a file of torch.save but it is damaged or cut off") from error
    return checked(path, found)


def pickled(path: Path) -> str:
    """Say what a file holds that is no state dict."""
    try:
        classes = sorted(get_unsafe_globals_in_checkpoint(path), key=lambda name: (name.startswith(LIBRARIES), name))
    except (RuntimeError, ValueError, pickle.UnpicklingError):  # not of the zip format
        classes = []
    if not classes:
        return "expected a file of torch.save but it is damaged, cut off, or another kind of file"
    named = ", ".join(classes[:3]) + (f" and {len(classes) - 3} more" if len(classes) > 3 else "")
    return (
        f"expected a state dict but found a pickled object of {named}; if it is a whole model of the reference, "
        "--whole-model takes the tensors out of it without running anything of it"
    )


def checked(path: Path, found: Any) -> State:
    """Let only real tensors of finite numbers under text names pass.

    Raises:
        ReferenceImportError: see `read_state`.
    """
    if not isinstance(found, dict) or not found:
        raise ReferenceImportError(f"{path}: expected a state dict, names to tensors, but found {described(found)}")
    if alien := [f"{name!r} ({described(entry)})" for name, entry in found.items() if not plain(name, entry)]:
        raise ReferenceImportError(f"{path}: expected a state dict, names to tensors, but found {', '.join(alien[:5])}")
    if broken := [name for name, tensor in found.items() if not tensor.isfinite().all()]:
        raise ReferenceImportError(f"{path}: expected finite numbers but found others in {', '.join(broken)}")
    return {name: tensor.contiguous() for name, tensor in found.items()}


def plain(name: object, entry: object) -> bool:
    """Tell whether an entry is what a state dict of the reference may hold."""
    if not isinstance(name, str) or not isinstance(entry, Tensor) or entry.layout != torch.strided:
        return False
    within = entry.numel() <= archive.LIMIT // 4  # a small storage may pretend to be a large tensor
    return within and (entry.is_floating_point() or (name.endswith(COUNTER) and entry.dtype == torch.int64))


def described(thing: object) -> str:
    """Name a thing's kind in a few words."""
    if isinstance(thing, Tensor):
        return f"a tensor of {thing.dtype}, {tuple(thing.shape)}"
    return "nothing" if isinstance(thing, dict) else type(thing).__name__
