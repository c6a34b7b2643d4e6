"""A first problem file for data without a description: what the files tell, and guesses that are marked.

A guess stands as a comment at its line (`marks.py`). Of outputs, of the sample axis and of time it has to be confirmed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from training.data.readers import DataFile, LazyArray
from training.problems.ambiguity import COMPONENTS, doubt_of_samples, doubt_of_time
from training.problems.checks import FEWEST, NUMERIC, Summary, offset_of
from training.problems.marks import mark
from training.problems.problem_file import AXES, is_taken
from training.problems.schema import Axis, Quantity, candidate_symmetries
from training.user_error import UserError

INPUTS = """
x a k nu f g q in input inputs source forcing rhs initial u0 coeff coefficient permeability perm conductivity cond
diffusivity geometry mask material boundary distance
"""
OUTPUTS = """
y u t p out output outputs target solution sol final tensor pressure temperature temp potential displacement
concentration saturation stress
"""
MASKS = frozenset({"mask", "inside", "domain", "indicator"})  # names of arrays that say where the domain is
AXIS_NAMES = {1: ("point",), 2: ("row", "column"), 3: ("depth", "row", "column")}
COORDINATES, AREA = "coordinates", "area"  # what readers of meshes call nodes, and areas of the cells around them
DERIVED = frozenset({"boundary", "distance"})  # what readers of meshes add
LINEAR = "# linear = true  # where the outputs are linear in it; quick and laptop try it"
FADED = 1e-9  # values below this part of the greatest are no positive quantity that is learned by its logarithm
SCANNED = 1 << 30  # bytes of one array that are read to see whether it is positive
UNSEEN = re.compile(r"[\x00-\x1f\x7f]+")  # characters that no comment of TOML holds
KINDS = {
    "c": "complex numbers",
    "O": "objects",
    "S": "text",
    "U": "text",
    "M": "dates",
    "m": "durations",
    "V": "structs",
}
ROLES = {"inputs": "input", "parameters": "parameter", "outputs": "output"}


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
    offset: float = 0.0
    offset_guess: str = ""
    guess: str = ""  # what its role rests on, where the file does not say it
    components_guess: str = ""

    @property
    def quantity(self) -> Quantity:
        """What decides which symmetries a field may have."""
        components = tuple(f"c{index}" for index in range(self.components))
        return Quantity(name=self.name, meaning="", positive=self.positive, components=components)

    def entries(self) -> list[str]:
        """Write the table of the tensor."""
        lines = [f"[{self.role}.{self.name}]{mark(self.guess)}"]
        lines += [f"key = {quoted(self.array.name)}", f"units = {quoted(self.array.units or '1')}"]
        lines += [f"meaning = {quoted(self.array.meaning)}"] if self.array.meaning else []
        lines += ["positive = true"] if self.positive else []
        lines += [f"offset = {self.offset!r}{mark(self.offset_guess)}"] if self.offset else []
        lines += [f"frame = {self.frame}"] if self.frame is not None else []
        if self.components:
            names = ", ".join(quoted(f"c{index}") for index in range(self.components))
            lines.append(f"components = [{names}]{mark(self.components_guess)}")
            lines += [f"component_axis = {quoted(self.component_axis)}"] if self.component_axis == "last" else []
        return lines


@dataclass
class Draft:
    """A problem file in the making, with what was guessed and what was left out."""

    name: str  # of the model
    files: tuple[str, ...]  # the data files
    format: str  # their layout
    tensors: list[Tensor] = field(default_factory=list)  # in the order of the data files
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)  # entries by name
    guesses: dict[str, str] = field(
        default_factory=dict
    )  # by line: `files`, `step`, `mask`, `axes.row`, `axes.row.length`
    left_out: dict[str, str] = field(default_factory=dict)  # reasons by name of the array
    dimensions: int | None = None  # of the points of mesh files; None where there is a grid
    cells: bool = False  # whether mesh files have cells, whose areas weights of points may be
    mask: str = ""  # the entry of the section that says where the domain is, where it is not the whole grid
    domain: str = ""  # the array of it
    moving: bool = False  # whether a field has frames
    step: float = 1.0  # time between two frames
    remarks: list[str] = field(default_factory=list)  # what the reader decided, and what is odd
    candidates: tuple[str, ...] = ()  # symmetries that the axes allow

    def of(self, role: str) -> list[Tensor]:
        return [tensor for tensor in self.tensors if tensor.role == role]

    def role_of(self, array: str) -> str:
        """Say in a word what an array of the file is taken for, or why it is left out."""
        if array in self.left_out:
            return f"left out: {self.left_out[array]}"
        taken = [
            f"{ROLES.get(one.role, 'a field')}{' (guess)' if one.guess else ''}"
            for one in self.tensors
            if one.array.name == array
        ]
        found = [*taken, *(["domain"] if array == self.domain else [])]
        found += ["points"] if array == COORDINATES and self.dimensions is not None else []
        found += ["weights, if you like"] if array == AREA and self.cells else []
        return ", ".join(found)

    def toml(self) -> str:
        """Write the problem file: what was left out in comments at its head, and guesses at their lines."""
        heads = [*self.remarks, *(f"left out: {name}: {reason}" for name, reason in self.left_out.items())]
        lines = [f"# {UNSEEN.sub(' ', each)}" for each in heads]
        lines += [f'name = "{self.name}"', f'title = "{self.name}"', 'equation = ""', "", "[data]"]
        lines += [f"files = [{', '.join(map(quoted, self.files))}]{self.mark('files')}", f'format = "{self.format}"']
        lines += ["validation = 0.1", "test = 0.1"]
        on_grid = self.dimensions is None and not self.mask and not self.moving and len(self.axes) < 3
        for role in ROLES:
            for tensor in self.of(role):
                lines += ["", *tensor.entries()]
                lines += [LINEAR] if role == "inputs" and on_grid and not tensor.positive else []
        for axis, entry in self.axes.items():
            lines += ["", f"[axes.{axis}]{self.mark(f'axes.{axis}')}"]
            lines += [f"{key} = {json.dumps(value)}{self.mark(f'axes.{axis}.{key}')}" for key, value in entry.items()]
        if self.dimensions is not None:
            line = f'# weights = "{AREA}"  # of the cells around each node: what every point counts in loss and errors'
            weights = [line] if self.cells else []
            return "\n".join([*lines, "", "[points]", f"dimensions = {self.dimensions}", *weights, ""])
        mask = ["", "[mask]", f"{self.mask}{self.mark('mask')}"] if self.mask else []
        time = ["", "[time]", f"step = {self.step}{self.mark('step')}", "history = 1"] if self.moving else []
        tried = [f"# quick and laptop try what the axes allow: {', '.join(self.candidates)}"] if self.candidates else []
        return "\n".join([*lines, *mask, "", "[symmetries]", *tried, "exact = []", *time, ""])

    def mark(self, line: str) -> str:
        """Return the mark of a line; nothing where nothing was guessed in it."""
        return mark(UNSEEN.sub(" ", self.guesses.get(line, "")))


def quoted(text: str) -> str:
    """Write a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON allows


def shown(array: LazyArray) -> str:
    """Name an array with its shape."""
    return f"{array.name} [{' x '.join(map(str, array.shape))}]"


def draft(file: DataFile, files: Sequence[Path], folder: Path | None = None, outputs: Sequence[str] = ()) -> Draft:
    """Draft a problem file from the first of some data files, or of all meshes of a folder.

    Args:
        file: The first file.
        files: All of them.
        folder: The folder, where they are all its meshes.
        outputs: The arrays that are outputs, by their names; the file's layout or a guess decides without.

    Raises:
        DraftError: There are no two fields with a common sample axis and grid, or no such output.
    """
    name, names = wire_name(file.path.stem), tuple(map(str, files))
    if folder is not None:
        name, names = wire_name(folder.resolve().name), (str(folder / f"*{files[0].suffix}"),)
    elif pattern := common_pattern(files):
        name, names = wire_name(pattern.rpartition("*")[0]), (str(Path(escape(str(files[0].parent))) / pattern),)
    made = Draft(f"own_{name}" if is_taken(name) else name, names, file.format, left_out=dict(file.left_out))
    made.remarks += [f"{file.path.name} was read as {file.format}", *file.remarks]
    wanted = named_outputs(file, outputs)
    return mesh(made, file, wanted) if COORDINATES in file.arrays else on_grid(made, file, wanted, len(files))


def common_pattern(files: Sequence[Path]) -> str:
    """Return a pattern that fits several files and no other in their folder; nothing where there is none."""
    start = "".join(
        letters[0]
        for letters in takewhile(lambda each: len({*each}) == 1, zip(*(path.name for path in files), strict=False))
    )
    ends = {path.suffix for path in files}
    pattern = f"{escape(start.rstrip('0123456789'))}*{ends.pop()}"
    fitting = {path.name for path in files[0].parent.glob(pattern)}
    return pattern if len(files) > 1 and not ends and start and fitting == {path.name for path in files} else ""


def named_outputs(file: DataFile, outputs: Sequence[str]) -> list[str]:
    """Return the arrays that a user calls outputs, by their names in the file or on the wire."""
    on_wire = {wire_name(name): name for name in reversed([*file.arrays])}
    found = []
    for each in outputs:
        name = each if each in file.arrays else on_wire.get(each)
        if name is None:
            there = ", ".join(map(shown, file.arrays.values())) or "no arrays"
            raise DraftError(f"{file.path}: expected an output among the arrays {there} but got {each!r}")
        found.append(name)
    return found


def on_grid(made: Draft, file: DataFile, outputs: Sequence[str], files: int) -> Draft:
    """Complete the draft for fields on a grid."""
    numeric = [one for one in file.arrays.values() if not sort_out(made, one)]
    several = [one for one in numeric if len(one.shape) > 1 and np.prod(one.shape[1:]) > 1]
    sizes = Counter(one.samples for one in several)
    samples = max(sizes, key=lambda size: (sizes[size], size), default=0)
    fields = [one for one in several if one.samples == samples]
    if not fields:
        raise DraftError(nothing(made, file, "fields [sample, *grid]"))
    axes, sides = grid(fields)
    others = [one for one in numeric if one not in fields]
    for one in others:
        add_number(made, one, samples)
    for one in beside_mask(made, numeric, fields, sides):
        add_field(made, one, sides, outputs)
    made.tensors.sort(key=lambda tensor: tensor.role == "parameters")
    if not made.moving and sum(not one.role for one in made.tensors) < 2:
        expected = "two fields, an input and an output (numbers alone cannot be either yet),"
        raise DraftError(nothing(made, file, expected))
    assign_roles(made, file, outputs)
    seen: Counter[str] = Counter()
    for index, tensor in enumerate(made.tensors):  # several arrays may have one name on the wire
        seen[tensor.name] += 1
        if seen[tensor.name] > 1:
            made.tensors[index] = replace(tensor, name=f"{tensor.name}_{seen[tensor.name]}")
    for axis, side in zip(axes, sides, strict=True):
        made.axes[wire_name(axis)] = axis_entry(made, file, axis, side)
    described = [Axis(name=name, **entry) for name, entry in made.axes.items()]
    quantities = [each.quantity for role in ("inputs", "outputs") for each in made.of(role)]
    numbers = [each.array.read(0, each.array.samples) for each in made.of("parameters")]
    directed = any(values.min() < 0 < values.max() for values in numbers)
    made.candidates = candidate_symmetries(described, sides, quantities, directed=directed)
    ask(made, file, fields, others, sides, files)
    times = np.asarray(file.coordinates.get("time", ()), dtype=np.float64).ravel()
    if made.moving and len(times) > 1 and np.isfinite(times).all() and times[-1] > times[0]:
        made.step = rounded((times[-1] - times[0]) / (len(times) - 1))
    elif made.moving:
        made.guesses["step"] = "the file does not say how much time is between two frames"
    return made


def ask(
    made: Draft,
    file: DataFile,
    fields: Sequence[LazyArray],
    others: Sequence[LazyArray],
    sides: tuple[int, ...],
    files: int,
) -> None:
    """Mark the sample axis and the axis that may be time where neither the file nor its values tell them."""
    taken = [one for one in fields if one.name not in made.left_out]
    named = [one.dimensions for one in taken if one.dimensions is not None]
    if file.samples:
        doubt = ""
    elif named:
        doubt = f"the first dimension ({taken[0].samples}), since none has a name such as sample, member or run"
    else:
        doubt = doubt_of_samples(taken, others, files)
    if doubt:
        made.guesses["files"] = f"samples are counted by {doubt}"
    if not named:
        axis, doubt = doubt_of_time(sides, others)
        if doubt:
            made.guesses[f"axes.{[*made.axes][axis]}"] = f"time is not this axis, though {doubt}"


def sort_out(made: Draft, one: LazyArray) -> bool:
    """Leave out an array that holds no real numbers, and return whether it was left out."""
    parts = {*(one.dtype.names or ())}
    if one.dtype.kind not in NUMERIC:
        kind = KINDS["c"] if parts in ({"real", "imag"}, {"r", "i"}) else KINDS.get(one.dtype.kind, "no real numbers")
        advice = ": save the real and the imaginary part as two arrays" if kind == KINDS["c"] else ""
        made.left_out[one.name] = f"it holds {kind} ({'struct' if parts else one.dtype}){advice}"
    elif not one.shape:
        made.left_out[one.name] = "it is one number for all samples"
    return one.name in made.left_out


def add_number(made: Draft, one: LazyArray, samples: int) -> None:
    """Add an array that is no field as a parameter, or leave it out with the reason."""
    if one.samples == samples and all(side == 1 for side in one.shape[1:]):
        if one.shared:
            made.left_out[one.name] = "it is the same number for all samples"
        else:
            made.tensors.append(Tensor(wire_name(one.name), one, "parameters"))
    elif one.shape == (1, samples):
        made.left_out[one.name] = f"it is one row of {samples} numbers: transposed, it is a parameter, one per sample"
    else:
        count = f"it has {one.samples} on its first axis, and the fields have {samples} samples"
        made.left_out[one.name] = f"{count} (shape {' x '.join(map(str, one.shape))})"


def nothing(made: Draft, file: DataFile, expected: str) -> str:
    """Say that a file does not hold what is expected, and what every array was taken for."""
    found = [f"{shown(one)} {made.role_of(one.name)}".rstrip() for one in file.arrays.values()]
    found += [f"{name} left out: {reason}" for name, reason in file.left_out.items()]
    return f"{file.path}: expected {expected} but found {'; '.join(found) or 'no arrays'}"


def mesh(made: Draft, file: DataFile, outputs: Sequence[str]) -> Draft:
    """Complete the draft for mesh files, one sample each, by the fields of the first one."""
    made.dimensions, made.cells = file.arrays[COORDINATES].shape[-1], AREA in file.arrays
    for one in file.arrays.values():
        if one.name not in {COORDINATES, AREA}:
            vector, role = len(one.shape) > 2, "inputs" if one.name in DERIVED and one.name not in outputs else ""
            made.tensors.append(Tensor(wire_name(one.name), one, role, one.shape[-1] if vector else 0))
    assign_roles(made, file, outputs)
    made.remarks.append(f"every file is one sample; {file.path.name} has {file.arrays[COORDINATES].shape[1]} points")
    return made


def grid(fields: Sequence[LazyArray]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return names and sides of the grid's axes: named in the file, or what most fields' shapes have in common.

    Of grids that as many fields have, one that begins or ends another is preferred, whose further axis may be time or
    components; else the one with more points.
    """
    named = next((one for one in fields if one.dimensions), None)
    if named is not None and named.dimensions is not None:
        own = [(name, side) for name, side in named_grid(named) if name not in {"time", "component"}][-AXES:]
        return tuple(name for name, _ in own), tuple(side for _, side in own)
    shapes = [{one.shape[1:], without_components(one.shape[1:])[0]} for one in fields]
    found = Counter(sides for each in shapes for sides in each)
    many = {sides: count for sides, count in found.items() if len(sides) <= AXES and min(sides) >= FEWEST}
    most = [sides for sides, count in many.items() if count == max(many.values())]
    if not most:
        most = [min((without_components(one.shape[1:])[0] for one in fields), key=len)[-AXES:]]
    part = [
        one for one in most if any(one != other and one in (other[: len(one)], other[-len(one) :]) for other in most)
    ]
    sides = min(part, key=len) if part else max(most, key=np.prod)
    return AXIS_NAMES[len(sides)], sides


def named_grid(one: LazyArray) -> list[tuple[str, int]]:
    """Return the axes of an array that names them, and their sides."""
    return [*zip(one.dimensions or (), one.shape[1:], strict=True)]


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
                made.mask, made.domain = f"key = {quoted(one.name)}", one.name
                made.guesses["mask"] = f"{one.name} is 1 inside the domain and 0 outside"
                made.left_out.pop(one.name, None)  # one for all samples is no field
                return [each for each in fields if each is not one]
    for one in fields:
        _, values = next(iter(one.blocks()))
        if values.dtype.kind == "f" and np.isnan(values.reshape(len(values), -1)).any(axis=1).all():
            made.mask = f"nan = {quoted(one.name)}"
            made.guesses["mask"] = f"what lies outside the domain is NaN in {one.name}"
            break
    return fields


def add_field(made: Draft, one: LazyArray, sides: tuple[int, ...], outputs: Sequence[str]) -> None:
    """Add one field; of a trajectory the state it starts from, and itself."""
    name, moving, doubt = wire_name(one.name), one.dimensions is not None and "time" in one.dimensions, ""
    if one.dimensions is not None:
        axes = named_grid(one)
        end, components = "", dict(axes).get("component", 0)
        own = tuple(side for axis, side in axes if axis not in {"time", "component"})
        if own != sides:
            made.left_out[one.name] = (
                f"its axes {', '.join(axis for axis, _ in axes)} are not those of the grid {sides}"
            )
            return
    else:
        rest, end = without_components(one.shape[1:])
        if sides not in (one.shape[1:], rest):
            made.left_out[one.name] = reason_of(one, sides)
            return
        components = 0 if not end or rest != sides else one.shape[1 if end == "first" else -1]
        doubt = f"the axis of {components} in {shown(one)} holds components" if components > 1 else ""
    found = Tensor(name, one, "", 0 if components == 1 else components, end or "first", components_guess=doubt)
    if moving and one.shape[1] > 1:
        if outputs and one.name not in outputs:
            made.left_out[one.name] = "it changes in time and is no output: such inputs are not supported"
            return
        made.tensors += [replace(found, name=f"{name}_first", role="inputs"), replace(found, role="outputs")]
        made.remarks.append(f"{one.name} has a time axis: the draft learns the step from one frame to the next")
        made.moving = True
    else:
        made.tensors.append(replace(found, frame=0 if moving else None, positive=is_positive(one)))


def reason_of(one: LazyArray, sides: tuple[int, ...]) -> str:
    """Say why an array without named axes is not on the grid."""
    own, grid_ = one.shape[1:], " x ".join(map(str, sides))
    if len(own) == 1 and len(sides) > 1:
        return f"it has {own[0]} numbers per sample, on no grid of {grid_}: save parameters as an array [sample] each"
    if len(own) == len(sides) + 1 and sides in (own[:-1], own[1:]):
        where, count = ("last", own[-1]) if own[:-1] == sides else ("second", own[0])
        return f"its {where} axis, of {count}, is not one of the grid {grid_}: is it time?"
    return f"its shape {' x '.join(map(str, one.shape))} is not that of the grid {grid_}"


def is_positive(array: LazyArray) -> bool:
    """Return whether every value but NaN is above zero, and none has faded to nothing beside the greatest.

    Of very large arrays the first gigabyte is read. The logarithm of values that fade, such as the tails of a source,
    says nothing.
    """
    read, least, most = 0, np.inf, 0.0
    for _, values in array.blocks():
        read += values.nbytes
        if not np.isnan(values).all():
            least, most = min(least, float(np.nanmin(values))), max(most, float(np.nanmax(values)))
        if least <= 0 or read > SCANNED:
            break
    return least > FADED * most


def assign_roles(made: Draft, file: DataFile, outputs: Sequence[str]) -> None:
    """Decide which fields are inputs and which are outputs: as the user or the layout says, or by a marked guess."""
    chosen, doubt = outputs or [name for name in file.outputs if name in file.arrays], ""
    for name in chosen:
        if not any(one.array.name == name and one.role != "parameters" for one in made.tensors):
            raise DraftError(f"{file.path}: expected an output that is a field, but {name} is {taken_for(made, name)}")
    unknown = [one for one in made.tensors if not one.role]
    moving = {one.array.name for one in made.tensors if one.role == "outputs"}
    if made.moving:
        if still := [name for name in outputs if name not in moving]:
            raise DraftError(
                f"{file.path}: expected outputs that change in time, as {', '.join(sorted(moving))} do, "
                f"but {still[0]} does not"
            )
        if len(moving) > 1 and not chosen and file.format not in {"well", "pdebench"}:
            doubt = "outputs: all fields that change in time"
    elif not chosen and unknown:
        chosen = [one.array.name for one in likely(unknown)]
        doubt = "outputs: the file does not say which arrays are outputs" if len(unknown) > 1 else ""
    made.tensors = [
        replace(one, role=one.role or ("outputs" if one.array.name in chosen else "inputs")) for one in made.tensors
    ]
    made.tensors = [replace(one, guess=doubt) if one.role == "outputs" else one for one in made.tensors]
    made.tensors = [without_offset(one) for one in made.tensors]
    if not (made.of("inputs") or made.dimensions is not None) or not made.of("outputs"):
        raise DraftError(nothing(made, file, "at least one input field and one output field"))


def without_offset(one: Tensor) -> Tensor:
    """Return a tensor with the offset that has to be subtracted for float32 to hold what varies, where there is one.

    The first numbers of the file decide.
    """
    if one.components or np.can_cast(one.array.dtype, np.float32) or not one.array.samples:
        return one
    _, values = next(iter(one.array.blocks()))
    finite = values[np.isfinite(values) & (np.abs(values) < np.finfo(np.float32).max)][np.newaxis]
    summary = Summary(one.name)
    if finite.size:
        summary.add(finite.astype(np.float32), stored=finite)
    if not summary.unresolved:
        return one
    guess = f"{summary.unresolved}, so the model has the difference from this number"
    return replace(one, offset=offset_of(summary.mean, summary.deviation), offset_guess=guess, positive=False)


def taken_for(made: Draft, name: str) -> str:
    """Say what an array is that cannot be an output."""
    role = made.role_of(name)
    return "a number per sample, which cannot be one yet" if role == "parameter" else role or "no field"


def likely(unknown: Sequence[Tensor]) -> list[Tensor]:
    """Order a guess of outputs by the names of arrays: those that sound like outputs, or the last that may be one."""
    words = {one.name: one.array.name.rpartition("/")[2].lower() for one in unknown}
    sounding = [one for one in unknown if words[one.name] in OUTPUTS.split()]
    if sounding and len(sounding) < len(unknown):
        return sounding
    return [one for one in unknown if words[one.name] not in INPUTS.split()][-1:] or [*unknown[-1:]]


def axis_entry(made: Draft, file: DataFile, axis: str, side: int) -> dict[str, Any]:
    """Describe one axis by its coordinates and its boundary where the file tells them."""
    boundary = file.boundaries.get(axis, "open")
    entry = {"length": 1.0, "boundary": boundary, "points": "cells"}
    line = f"axes.{wire_name(axis)}"
    if axis not in file.boundaries:
        made.guesses[f"{line}.boundary"] = 'say "wall" or "periodic" if you know it'
    positions = np.asarray(file.coordinates.get(axis, ()), dtype=np.float64)
    if len(positions) != side or not np.isfinite(positions).all() or not np.ptp(positions):
        made.guesses[f"{line}.length"] = made.guesses[f"{line}.points"] = "the file has no coordinates"
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
