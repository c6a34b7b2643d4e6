"""A first problem file for data without a description: what the files tell, and guesses that are marked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers import DataFile, LazyArray
from training.problems.own.columns import NUMERIC
from training.problems.own.problem_file import AXES, is_taken
from training.user_error import UserError

INPUTS = frozenset(
    [
        "x",
        "a",
        "k",
        "nu",
        "f",
        "g",
        "q",
        "in",
        "input",
        "inputs",
        "source",
        "forcing",
        "rhs",
        "initial",
        "u0",
        "coeff",
        "coefficient",
        "permeability",
        "perm",
        "conductivity",
        "cond",
        "diffusivity",
        "geometry",
        "mask",
        "material",
    ]
)
OUTPUTS = frozenset(
    [
        "y",
        "u",
        "t",
        "p",
        "out",
        "output",
        "outputs",
        "target",
        "solution",
        "sol",
        "final",
        "tensor",
        "pressure",
        "temperature",
        "temp",
        "potential",
        "displacement",
    ]
)
AXIS_NAMES = {1: ("point",), 2: ("row", "column"), 3: ("depth", "row", "column")}
COMPONENTS = 4
"""The most components that an unnamed axis is taken for."""
SCANNED = 1 << 30
"""Bytes of one array that are read to see whether it is positive."""


class DraftError(UserError):
    """A problem file cannot be drafted: the message says what was looked for and what there is."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of the draft."""

    name: str
    array: LazyArray
    role: str
    components: int = 0
    component_axis: str = "first"
    frame: int | None = None
    positive: bool = False


@dataclass
class Draft:
    """A problem file in the making, with what was guessed.

    Attributes:
        name: Of the model.
        files: The data files.
        format: Their layout.
        tensors: In the order of the data files.
        axes: Entries by name.
        moving: Whether a field has frames.
        step: Time between two frames.
        remarks: What was decided and guessed.
    """

    name: str
    files: tuple[str, ...]
    format: str
    tensors: list[Tensor] = field(default_factory=list)
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)
    moving: bool = False
    step: float = 1.0
    remarks: list[str] = field(default_factory=list)

    def of(self, role: str) -> list[Tensor]:
        """List the tensors of a role."""
        return [tensor for tensor in self.tensors if tensor.role == role]


def draft(file: DataFile, files: Sequence[Path]) -> Draft:
    """Draft a problem file from the contents of one of its data files.

    Args:
        file: The first data file, open.
        files: All data files.

    Raises:
        DraftError: There are no two fields with a common sample axis and grid.
    """
    made = Draft(own_name(wire_name(file.path.stem)), tuple(path.name for path in files), file.format)
    made.remarks += [f"{file.path.name} was read as {file.format}", *file.remarks]
    numeric = [one for one in file.arrays.values() if one.dtype.kind in NUMERIC and one.shape]
    samples = common_samples(numeric)
    fields = [one for one in numeric if one.samples == samples and len(one.shape) > 1 and one.sample_bytes > 8]
    if not fields:
        raise DraftError(f"{file.path}: expected fields [sample, *grid] but found {listing(file)}")
    axes, sides = grid(fields)
    for one in fields:
        add_field(made, one, sides)
    for one in numeric:
        if one.samples == samples and all(side == 1 for side in one.shape[1:]) and not one.shared:
            made.tensors.append(Tensor(wire_name(one.name), one, "parameters"))
    assign_roles(made)
    keep_apart(made)
    for axis, side in zip(axes, sides, strict=True):
        made.axes[wire_name(axis)] = axis_entry(made, file, axis, side)
    if made.moving:
        made.step = time_step(made, file)
    return made


def keep_apart(made: Draft) -> None:
    """Append numbers to names that several arrays would have on the wire."""
    seen: Counter[str] = Counter()
    for index, tensor in enumerate(made.tensors):
        seen[tensor.name] += 1
        if seen[tensor.name] > 1:
            made.tensors[index] = replace(tensor, name=f"{tensor.name}_{seen[tensor.name]}")


def time_step(made: Draft, file: DataFile) -> float:
    """Return the time between two frames, as the file tells it, or 1."""
    times = np.asarray(file.coordinates.get("time", ()), dtype=np.float64).ravel()
    if len(times) < 2 or not np.isfinite(times).all() or times[-1] <= times[0]:
        made.remarks.append("guessed: the time between two frames is 1")
        return 1.0
    return rounded((times[-1] - times[0]) / (len(times) - 1))


def common_samples(arrays: Sequence[LazyArray]) -> int:
    """Return the most frequent size of the first axis among arrays of more than one axis."""
    sizes = Counter(one.samples for one in arrays if len(one.shape) > 1)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def grid(fields: Sequence[LazyArray]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return names and sides of the grid's axes: named in the file, or what the fields' shapes have in common."""
    named = next((one for one in fields if one.dimensions), None)
    if named is not None and named.dimensions is not None:
        pairs = zip(named.dimensions, named.shape[1:], strict=True)
        own = [(name, side) for name, side in pairs if name not in {"time", "component"}][-AXES:]
        return tuple(name for name, _ in own), tuple(side for _, side in own)
    sides = min((without_components(one.shape[1:])[0] for one in fields), key=len)[-AXES:]
    return AXIS_NAMES[len(sides)], sides


def without_components(sides: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """Separate a short first or last axis, which is taken for components: the other axes, and where it was."""
    if len(sides) > 1 and sides[0] <= COMPONENTS < 2 * sides[1] / 3:
        return sides[1:], "first"
    if len(sides) > 1 and sides[-1] <= COMPONENTS < 2 * sides[0] / 3:
        return sides[:-1], "last"
    return sides, ""


def add_field(made: Draft, one: LazyArray, sides: tuple[int, ...]) -> None:
    """Add one field; of a trajectory the state it starts from, and itself."""
    name = wire_name(one.name)
    if one.dimensions is not None:
        components = one.shape[1 + one.dimensions.index("component")] if "component" in one.dimensions else 0
        moving = "time" in one.dimensions
        end = "first"
    else:
        rest, end = without_components(one.shape[1:])
        components = 0 if not end or rest != sides else (one.shape[1] if end == "first" else one.shape[-1])
        moving = False
        if one.shape[1:] != sides and rest != sides:
            made.remarks.append(f"{one.name} with shape {one.shape} is left out: it is not on the grid {sides}")
            return
    components = 0 if components == 1 else components
    made.remarks += [f"guessed: the axis of {components} in {one.name} {one.shape} holds components"] * (
        components > 1 and one.dimensions is None
    )
    if moving and one.shape[1] > 1:
        made.tensors.append(Tensor(f"{name}_first", one, "inputs", components, end))
        made.tensors.append(Tensor(name, one, "outputs", components, end))
        made.remarks.append(f"{one.name} has a time axis: the draft learns the step from one frame to the next")
        made.moving = True
        return
    frame = 0 if moving else None
    made.tensors.append(Tensor(name, one, "", components, end or "first", frame, is_positive(one)))


def assign_roles(made: Draft) -> None:
    """Decide which fields are inputs and which are outputs: by their names, or the last one is the output."""
    open_ = [tensor for tensor in made.tensors if not tensor.role]
    known = {tensor.name: role_of(tensor.name) for tensor in open_}
    decided = {*known.values()} >= {"inputs", "outputs"} and "" not in known.values()
    if not decided and open_:
        have_output = bool(made.of("outputs"))
        last = open_[-1].name
        known = {tensor.name: "inputs" if have_output or tensor.name != last else "outputs" for tensor in open_}
        made.remarks.append("guessed: which fields are inputs and which are outputs")
    made.tensors = [tensor if tensor.role else replace(tensor, role=known[tensor.name]) for tensor in made.tensors]
    if not made.of("inputs") or not made.of("outputs"):
        found = ", ".join(tensor.array.name for tensor in made.tensors)
        raise DraftError(f"expected at least one input field and one output field but found {found}")


def role_of(name: str) -> str:
    """Return the role that a field's name suggests, or nothing."""
    lower = name.lower()
    return "inputs" if lower in INPUTS else "outputs" if lower in OUTPUTS else ""


def axis_entry(made: Draft, file: DataFile, axis: str, side: int) -> dict[str, Any]:
    """Describe one axis by its coordinates and its boundary where the file tells them."""
    entry: dict[str, Any] = {"length": 1.0, "boundary": "open", "points": "cells"}
    boundary = file.boundaries.get(axis)
    if boundary is None:
        made.remarks.append(f'guessed: axis {axis} is "open"; say "wall" or "periodic" if you know it')
    else:
        entry["boundary"] = boundary
    coordinates = file.coordinates.get(axis)
    if coordinates is None or len(coordinates) != side:
        made.remarks.append(f"guessed: axis {axis} has length 1 and its points are the centres of cells")
        return entry
    positions = np.asarray(coordinates, dtype=np.float64)
    if not np.allclose(np.diff(positions), np.diff(positions).mean(), rtol=1e-2):
        entry["length"] = rounded(float(np.ptp(positions))) or 1.0
        made.remarks.append(
            f"axis {axis} is not equally spaced, and the model takes its points as the centres of equal cells: "
            "interpolate the data to equal spacing if it has to serve other grids"
        )
        return entry
    return entry | spacing(positions, periodic=entry["boundary"] == "periodic")


def spacing(coordinates: NDArray[np.float64], *, periodic: bool) -> dict[str, Any]:
    """Return length and point rule of equally spaced coordinates."""
    step = float(coordinates[-1] - coordinates[0]) / max(1, len(coordinates) - 1)
    centred = np.isclose(coordinates[0], step / 2, rtol=1e-3)
    if periodic:
        return {"length": rounded(step * len(coordinates)), "points": "cells" if centred else "left"}
    if centred:
        return {"length": rounded(step * len(coordinates)), "points": "cells"}
    return {"length": rounded(abs(float(coordinates[-1] - coordinates[0]))), "points": "nodes"}


def rounded(length: float) -> float:
    """Return a length without the digits that rounding left."""
    return float(f"{abs(length):.6g}")


def is_positive(array: LazyArray) -> bool:
    """Return whether every value is above zero; of very large arrays the first gigabyte is read."""
    read = 0
    for _, values in array.blocks():
        if not (values > 0).all():
            return False
        read += values.nbytes
        if read > SCANNED:
            break
    return True


def own_name(name: str) -> str:
    """Return the name of a model that no built-in problem has."""
    return f"own_{name}" if is_taken(name) else name


def wire_name(name: str) -> str:
    """Return a name in the form that the wire allows: lower case letters, digits and underscores."""
    made = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return made if made[:1].isalpha() else f"field_{made}".rstrip("_")


def listing(file: DataFile) -> str:
    """List the arrays of a file with their shapes."""
    return ", ".join(f"{one.name} {one.shape}" for one in file.arrays.values()) or "no arrays"
