"""Reading of whole pickled models of the reference, for weights that were published in no other form.

`torch.load(weights_only=True)` reads the file. Each class that the file names is replaced by a stand-in that only keeps
what it is passed, so no class or function of the file is imported or called. Modules of `os` and `sys` are refused by
torch itself. The tensors are then found where a `torch.nn.Module` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from research.importing.errors import ReferenceImportError
from research.importing.state_file import State, checked, described, foreign_names, is_plain, load

MODULES = 10_000  # more than any network has; a module may contain itself
SETTING = (str, int, float, bool, tuple, list)
STATISTICS = ("mean", "std", "eps")


class StandIn:
    """An object of a class that is not imported.

    Attributes:
        arguments: What the class was called with.
        state: What `__setstate__` was called with: for most classes the object's attributes.
    """

    arguments: tuple[Any, ...] = ()  # stays where an unpickler makes the object without `__init__`
    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        self.state = state


@dataclass(frozen=True)
class WholeModel:
    """What a pickled model held.

    Attributes:
        state: Its parameters and buffers by name.
        settings: Its attributes that are plain values.
        statistics: `mean`, `std` and `eps` of the output normaliser, or None.
    """

    state: State
    settings: dict[str, Any]
    statistics: dict[str, NDArray[np.float64]] | None


def read_whole_model(path: Path) -> WholeModel:
    """Read a whole pickled model without importing or calling anything that the file names.

    Raises:
        ReferenceImportError: The file is missing, too large, damaged or no pickled model.
    """
    model = load(path, [(type(name, (StandIn,), {}), name) for name in foreign_names(path)])
    found = attributes(model)
    if not found.keys() >= {"_parameters", "_modules"}:
        raise ReferenceImportError(f"{path}: expected a pickled model but found {described(model)}")
    try:
        state, statistics = dict(tensors(model)), output_statistics(found)
    except (ValueError, TypeError) as error:
        raise ReferenceImportError(f"{path}: {error}") from error
    settings = {name: value for name, value in found.items() if isinstance(value, SETTING)}
    return WholeModel(checked(path, state), settings, statistics)


def attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of a stand-in, none for anything else."""
    return mapping(thing.state) if isinstance(thing, StandIn) else {}


def mapping(thing: Any) -> dict[str, Any]:
    """Return the entries of a dict whose keys are text, none for anything else."""
    return {name: value for name, value in thing.items() if isinstance(name, str)} if isinstance(thing, dict) else {}


def tensors(model: StandIn) -> Iterator[tuple[str, Any]]:
    """Yield a module's parameters and buffers by their names in a state dict.

    Raises:
        ValueError: There are more modules than any network has.
    """
    waiting: list[tuple[str, Any]] = [("", model)]
    for prefix, module in waiting:
        found = attributes(module)
        for kind in ("_parameters", "_buffers"):
            yield from ((prefix + name, entry) for name, entry in mapping(found.get(kind)).items() if entry is not None)
        waiting += [(f"{prefix}{name}.", child) for name, child in mapping(found.get("_modules")).items()]
        if len(waiting) > MODULES:
            raise ValueError(f"expected at most {MODULES} modules but found more")


def output_statistics(found: dict[str, Any]) -> dict[str, NDArray[np.float64]] | None:
    """Read the output normaliser among a model's attributes: an object with `mean`, `std` and `eps`.

    Raises:
        ValueError: Its arrays cannot be read.
    """
    for value in map(attributes, found.values()):
        if value.keys() >= set(STATISTICS):
            return {name: array(value[name]) for name in STATISTICS}
    return None


def array(thing: Any) -> NDArray[np.float64]:
    """Read a number, a tensor or the stand-in of a NumPy array.

    Raises:
        ValueError: It is something else, or its numbers do not fill its shape.
    """
    match thing:
        case float() | int():
            return np.array(thing, dtype=np.float64)
        case Tensor() if is_plain("", thing):
            return thing.detach().double().numpy()
        case StandIn(state=(_, tuple(shape), StandIn() as kind, fortran, bytes(data))):
            numbers = np.frombuffer(data, dtype=real_type(kind)).astype(np.float64)
            return numbers.reshape(shape, order="F" if fortran else "C")
        case _:
            raise ValueError(f"expected an array but found {described(thing)}")


def real_type(kind: StandIn) -> str:
    """Return the NumPy name of a type of real numbers from its stand-in.

    Raises:
        ValueError: It is another type, or big-endian.
    """
    match kind:
        case StandIn(arguments=("f4" | "f8" as name, *_), state=(_, "<", *_)):
            return f"<{name}"
        case _:
            raise ValueError("expected an array of little-endian real numbers but found another type")
