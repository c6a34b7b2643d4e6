"""A first problem file for data without a description: what the files tell, and guesses that are marked."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from training.data.readers import DataFile, LazyArray
from training.problems.checks import NUMERIC
from training.problems.problem_file import AXES, is_taken
from training.problems.schema import Axis, Quantity, candidate_symmetries
from training.user_error import UserError

INPUTS = """
x a k nu f g q in input inputs source forcing rhs initial u0 coeff coefficient permeability perm conductivity cond
diffusivity geometry mask material boundary distance
"""
OUTPUTS = """
y u t p out output outputs target solution sol final tensor pressure temperature temp potential displacement
"""
MASKS = frozenset({"mask", "inside", "domain", "indicator"})  # names of arrays that say where the domain is
AXIS_NAMES = {1: ("point",), 2: ("row", "column"), 3: ("depth", "row", "column")}
COORDINATES, AREA = "coordinates", "area"  # what readers of meshes call nodes, and areas of the cells around them
COMPONENTS = 4  # the most components that an unnamed axis is taken for
LINEAR = "# linear = true  # where the outputs are linear in it; quick and laptop try it"
SCANNED = 1 << 30  # bytes of one array that are read to see whether it is positive
UNSEEN = re.compile(r"[\x00-\x1f\x7f]+")  # characters that no comment of TOML holds


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

    @property
    def quantity(self) -> Quantity:
        """What decides which symmetries a field may have."""
        components = tuple(f"c{index}" for index in range(self.components))
        return Quantity(name=self.name, meaning="", positive=self.positive, components=components)

    def entries(self) -> list[str]:
        """Write the keys of the tensor's table."""
        lines = [f"key = {quoted(self.array.name)}", f"units = {quoted(self.array.units or '1')}"]
        lines += [f"meaning = {quoted(self.array.meaning)}"] if self.array.meaning else []
        lines += ["positive = true"] if self.positive else []
        lines += [f"frame = {self.frame}"] if self.frame is not None else []
        if self.components:
            lines.append(f"components = [{', '.join(quoted(f'c{index}') for index in range(self.components))}]")
            lines += [f"component_axis = {quoted(self.component_axis)}"] if self.component_axis == "last" else []
        return lines


@dataclass
class Draft:
    """A problem file in the making, with what was guessed."""

    name: str  # of the model
    files: tuple[str, ...]  # the data files
    format: str  # their layout
    tensors: list[Tensor] = field(default_factory=list)  # in the order of the data files
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)  # entries by name
    dimensions: int | None = None  # of the points of mesh files; None where there is a grid
    cells: bool = False  # whether mesh files have cells, whose areas weights of points may be
    mask: str = ""  # the entry of the section that says where the domain is, where it is not the whole grid
    moving: bool = False  # whether a field has frames
    step: float = 1.0  # time between two frames
    remarks: list[str] = field(default_factory=list)  # what was decided and guessed
    candidates: tuple[str, ...] = ()  # symmetries that the axes allow

    def of(self, role: str) -> list[Tensor]:
        return [tensor for tensor in self.tensors if tensor.role == role]

    def toml(self) -> str:
        """Write the problem file, with what was guessed in comments at its head."""
        lines = [f"# {UNSEEN.sub(' ', remark)}" for remark in self.remarks]
        lines += [f'name = "{self.name}"', f'title = "{self.name}"', 'equation = ""', "", "[data]"]
        lines += [f"files = [{', '.join(map(quoted, self.files))}]", f'format = "{self.format}"']
        lines += ["validation = 0.1", "test = 0.1"]
        on_grid = self.dimensions is None and not self.mask and not self.moving and len(self.axes) < 3
        for role in ("inputs", "parameters", "outputs"):
            for tensor in self.of(role):
                lines += ["", f"[{role}.{tensor.name}]", *tensor.entries()]
                lines += [LINEAR] if role == "inputs" and on_grid and not tensor.positive else []
        for axis, entry in self.axes.items():
            lines += ["", f"[axes.{axis}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
        if self.dimensions is not None:
            line = f'# weights = "{AREA}"  # of the cells around each node: what every point counts in loss and errors'
            weights = [line] if self.cells else []
            return "\n".join([*lines, "", "[points]", f"dimensions = {self.dimensions}", *weights, ""])
        mask = ["", "[mask]", self.mask] if self.mask else []
        time = ["", "[time]", f"step = {self.step}", "history = 1"] if self.moving else []
        tried = [f"# quick and laptop try what the axes allow: {', '.join(self.candidates)}"] if self.candidates else []
        return "\n".join([*lines, *mask, "", "[symmetries]", *tried, "exact = []", *time, ""])


def quoted(text: str) -> str:
    """Write a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON allows


def draft(file: DataFile, files: Sequence[Path], folder: Path | None = None) -> Draft:
    """Draft a problem file from the first of some data files, or of all meshes of a folder.

    Raises:
        DraftError: There are no two fields with a common sample axis and grid.
    """
    name = wire_name(file.path.stem)
    names = tuple(map(str, files))
    if folder is not None:
        name, names = wire_name(folder.resolve().name), (str(folder / f"*{files[0].suffix}"),)
    made = Draft(f"own_{name}" if is_taken(name) else name, names, file.format)
    made.remarks += [f"{file.path.name} was read as {file.format}", *file.remarks]
    return mesh(made, file) if COORDINATES in file.arrays else on_grid(made, file)


def on_grid(made: Draft, file: DataFile) -> Draft:
    """Complete the draft for fields on a grid."""
    numeric = [one for one in file.arrays.values() if one.dtype.kind in NUMERIC and one.shape]
    sizes = Counter(one.samples for one in numeric if len(one.shape) > 1)
    samples = max(sizes, key=lambda size: (sizes[size], size), default=0)
    fields = [one for one in numeric if one.samples == samples and len(one.shape) > 1 and one.sample_bytes > 8]
    if not fields:
        found = ", ".join(f"{one.name} {one.shape}" for one in file.arrays.values()) or "no arrays"
        raise DraftError(f"{file.path}: expected fields [sample, *grid] but found {found}")
    axes, sides = grid(fields)
    for one in beside_mask(made, numeric, fields, sides):
        add_field(made, one, sides)
    for one in numeric:
        if one.samples == samples and all(side == 1 for side in one.shape[1:]) and not one.shared:
            made.tensors.append(Tensor(wire_name(one.name), one, "parameters"))
    assign_roles(made)
    seen: Counter[str] = Counter()
    for index, tensor in enumerate(made.tensors):  # several arrays may have one name on the wire
        seen[tensor.name] += 1
        if seen[tensor.name] > 1:
            made.tensors[index] = replace(tensor, name=f"{tensor.name}_{seen[tensor.name]}")
    for axis, side in zip(axes, sides, strict=True):
        made.axes[wire_name(axis)] = axis_entry(made, file, axis, side)
    described = [Axis(name=name, **entry) for name, entry in made.axes.items()]
    made.candidates = candidate_symmetries(
        described, sides, [each.quantity for role in ("inputs", "outputs") for each in made.of(role)]
    )
    times = np.asarray(file.coordinates.get("time", ()), dtype=np.float64).ravel()
    if made.moving and len(times) > 1 and np.isfinite(times).all() and times[-1] > times[0]:
        made.step = rounded((times[-1] - times[0]) / (len(times) - 1))
    elif made.moving:
        made.remarks.append("guessed: the time between two frames is 1")
    return made


def mesh(made: Draft, file: DataFile) -> Draft:
    """Complete the draft for mesh files, one sample each, by the fields of the first one."""
    made.dimensions, made.cells = file.arrays[COORDINATES].shape[-1], AREA in file.arrays
    for one in file.arrays.values():
        if one.name not in {COORDINATES, AREA}:
            vector = len(one.shape) > 2
            made.tensors.append(Tensor(wire_name(one.name), one, "", one.shape[-1] if vector else 0))
    assign_roles(made)
    made.remarks.append(f"every file is one sample; {file.path.name} has {file.arrays[COORDINATES].shape[1]} points")
    return made


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


def beside_mask(
    made: Draft, arrays: Sequence[LazyArray], fields: Sequence[LazyArray], sides: tuple[int, ...]
) -> Sequence[LazyArray]:
    """Declare the domain, if an array of 0 and 1 or NaN say where it is, and return the fields but such an array."""
    samples = fields[0].samples
    if any(one.dimensions is not None and "time" in one.dimensions for one in fields):
        return fields  # trajectories have no mask
    for one in arrays:
        if one.name.rpartition("/")[2].lower() in MASKS and one.shape in (sides, (samples, *sides)):
            values = one.read(0, samples if one.shape == sides else 1)
            if np.isin(values, (0, 1)).all():
                made.mask = f"key = {quoted(one.name)}"
                made.remarks.append(f"guessed: {one.name} is 1 inside the domain and 0 outside")
                return [each for each in fields if each is not one]
    for one in fields:
        _, values = next(iter(one.blocks()))
        if values.dtype.kind == "f" and np.isnan(values.reshape(len(values), -1)).any(axis=1).all():
            made.mask = f"nan = {quoted(one.name)}"
            made.remarks.append(f"guessed: what lies outside the domain is NaN in {one.name}")
            break
    return fields


def add_field(made: Draft, one: LazyArray, sides: tuple[int, ...]) -> None:
    """Add one field; of a trajectory the state it starts from, and itself."""
    name, moving = wire_name(one.name), one.dimensions is not None and "time" in one.dimensions
    if one.dimensions is not None:
        end, components = "", one.shape[1 + one.dimensions.index("component")] if "component" in one.dimensions else 0
    else:
        rest, end = without_components(one.shape[1:])
        if sides not in (one.shape[1:], rest):
            made.remarks.append(f"{one.name} with shape {one.shape} is left out: it is not on the grid {sides}")
            return
        components = 0 if not end or rest != sides else one.shape[1 if end == "first" else -1]
        if components > 1:
            made.remarks.append(f"guessed: the axis of {components} in {one.name} {one.shape} holds components")
    found = Tensor(name, one, "", 0 if components == 1 else components, end or "first")
    if moving and one.shape[1] > 1:
        made.tensors += [replace(found, name=f"{name}_first", role="inputs"), replace(found, role="outputs")]
        made.remarks.append(f"{one.name} has a time axis: the draft learns the step from one frame to the next")
        made.moving = True
    else:
        made.tensors.append(replace(found, frame=0 if moving else None, positive=is_positive(one)))


def is_positive(array: LazyArray) -> bool:
    """Return whether every value but NaN is above zero; of very large arrays the first gigabyte is read."""
    read = 0
    for _, values in array.blocks():
        read += values.nbytes
        if (values <= 0).any() or read > SCANNED:
            return not (values <= 0).any()
    return True


def assign_roles(made: Draft) -> None:
    """Decide which fields are inputs and which are outputs: by their names, or the last one is the output."""
    unknown = [tensor.name for tensor in made.tensors if not tensor.role]
    roles = {
        name: "inputs" if name in INPUTS.split() else "outputs" if name in OUTPUTS.split() else "" for name in unknown
    }
    if unknown and ("" in roles.values() or len({*roles.values()}) < 2):
        last = unknown[-1] if not made.of("outputs") else None
        roles = {name: "outputs" if name == last else "inputs" for name in unknown}
        made.remarks.append("guessed: which fields are inputs and which are outputs")
    made.tensors = [tensor if tensor.role else replace(tensor, role=roles[tensor.name]) for tensor in made.tensors]
    if not (made.of("inputs") or made.dimensions is not None) or not made.of("outputs"):
        found = ", ".join(tensor.array.name for tensor in made.tensors)
        raise DraftError(f"expected at least one input field and one output field but found {found}")


def axis_entry(made: Draft, file: DataFile, axis: str, side: int) -> dict[str, Any]:
    """Describe one axis by its coordinates and its boundary where the file tells them."""
    boundary = file.boundaries.get(axis, "open")
    entry = {"length": 1.0, "boundary": boundary, "points": "cells"}
    if axis not in file.boundaries:
        made.remarks.append(f'guessed: axis {axis} is "open"; say "wall" or "periodic" if you know it')
    positions = np.asarray(file.coordinates.get(axis, ()), dtype=np.float64)
    if len(positions) != side or not np.isfinite(positions).all() or not np.ptp(positions):
        made.remarks.append(f"guessed: axis {axis} has length 1 and its points are the centres of cells")
        return entry
    if not np.allclose(np.diff(positions), np.diff(positions).mean(), rtol=1e-2):
        made.remarks.append(
            f"axis {axis} is not equally spaced, and the model takes its points as the centres of equal cells: "
            "interpolate the data to equal spacing if it has to serve other grids"
        )
        return entry | {"length": rounded(float(np.ptp(positions)))}
    step = float(positions[-1] - positions[0]) / max(1, len(positions) - 1)
    centred = np.isclose(positions[0], step / 2, rtol=1e-3)
    if boundary == "periodic" or centred:
        return entry | {"length": rounded(step * len(positions)), "points": "cells" if centred else "left"}
    return entry | {"length": rounded(float(np.ptp(positions))), "points": "nodes"}


def rounded(length: float) -> float:
    """Return a length without the digits that rounding left."""
    return float(f"{abs(length):.6g}")


def wire_name(name: str) -> str:
    """Return a name in the form that the wire allows: lower case letters, digits and underscores."""
    made = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return made if made[:1].isalpha() else f"field_{made}".rstrip("_")
