"""A problem file in the making: its tensors, axes and sections, its guesses, and what is left out, as TOML.

A guess stands as a comment at its line (`sections.mark`). Of outputs, of the sample axis, of time, of points and of
what is known in advance it has to be confirmed.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.card import AREA, COORDINATES
from schema.parts import Quantity
from training.data.readers import LazyArray
from training.messages import UserError
from training.problems.sections import mark

DRAFTED = "# drafted by describe, which replaces this file unless it is edited: "
LINEAR = "# linear = true  # where the outputs are linear in it; quick and laptop try it"
UNSEEN = re.compile(r"[\x00-\x1f\x7f]+")  # characters that no comment of TOML holds
NORMALS = """\
# [inputs.boundary_normal]  # out of the domain, as long as the part of the boundary that a node stands for; 0 inside
# components = [{}]"""
ABOVE_ZERO = "every value is above 0; remove it where a value may be 0 or less, which is refused"
SPACED = {2: '"x", "y"', 3: '"x", "y", "z"'}
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
    static: bool = False
    per_frame: bool = False
    complex: bool = False
    column: int | None = None
    scalar: bool = False
    positive: bool = False
    offset: float = 0.0
    offset_guess: str = ""
    guess: str = ""  # what its role rests on, where the file does not say it
    components_guess: str = ""

    @property
    def quantity(self) -> Quantity:
        """What decides which symmetries a field may have."""
        components = tuple(f"c{index}" for index in range(2 if self.complex else self.components))
        return Quantity(name=self.name, meaning="", positive=self.positive, components=components, scalar=self.scalar)

    def values(self) -> NDArray[Any]:
        """Return the numbers of a parameter."""
        found = self.array.read().reshape(self.array.samples, -1)
        return np.asarray(found[:, self.column or 0])

    def entries(self, key: str, files: tuple[str, ...] = ()) -> list[str]:
        """Write the table of the tensor, which has a key in the data files, or in files of its own."""
        lines = [f"[{self.role}.{self.name}]{mark(self.guess)}"]
        lines += [f"files = [{', '.join(map(quoted, files))}]"] if files else []
        lines += [f"key = {quoted(key)}", *([] if self.column is None else [f"column = {self.column}"])]
        lines += ["scalar = true  # a number per sample"] if self.scalar else []
        lines += ["static = true"] if self.static else []
        lines += ["per_frame = true"] if self.per_frame else []
        lines += ['complex = "components"  # real and imaginary part'] if self.complex else []
        lines += [f"units = {quoted(self.array.units or '1')}"]
        lines += [f"meaning = {quoted(self.array.meaning)}"] if self.array.meaning else []
        lines += [f"positive = true{mark(ABOVE_ZERO)}"] if self.positive else []
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
    complex: set[str] = field(default_factory=set)  # the arrays of complex numbers
    sample: str = "first"  # how samples are counted
    time: str = "first"  # which axis behind the samples' counts frames
    validation: int = 0  # numbers of samples, where the files say them
    test: int = 0
    keys: dict[str, str] = field(default_factory=dict)  # names in their files of arrays that have another name here
    # Files of arrays that have their own, and keys.
    sources: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)  # in the order of the data files
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)  # entries by name
    guesses: dict[str, str] = field(
        default_factory=dict
    )  # by line: `files`, `step`, `mask`, `axes.row`, `axes.row.length`
    left_out: dict[str, str] = field(default_factory=dict)  # reasons by name of the array
    constants: dict[str, float] = field(default_factory=dict)  # numbers that are the same for all samples
    points: dict[str, Any] = field(default_factory=dict)  # entries of the section; none where there is a grid
    cells: bool = False  # whether mesh files have cells, whose areas weights of points may be
    mask: str = ""  # the entry of the section that says where the domain is, where it is not the whole grid
    domain: str = ""  # the array of it
    moving: bool = False  # whether a field has frames
    step: float = 1.0  # time between two frames
    remarks: list[str] = field(default_factory=list)  # what the reader decided, and what is odd
    doubts: tuple[str, ...] = ()  # how rows of tables are matched with files, where nothing tells it
    candidates: tuple[str, ...] = ()  # symmetries that the axes allow

    @property
    def of_several(self) -> bool:
        """Whether there are several data files, between which what is one value in each may differ."""
        return len(self.files) > 1 or "*" in self.files[0]

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
        found = [*dict.fromkeys(taken), *(["domain"] if array == self.domain else [])]
        if self.points:
            found += ["points"] if array == self.points.get("coordinates", COORDINATES) else []
            found += ["numbers of points"] if array == self.points.get("counts") else []
        found += ["weights, if you like"] if array == AREA and self.cells else []
        return ", ".join(found)

    def toml(self) -> str:
        """Write the problem file: what was left out in comments at its head, and guesses at their lines."""
        body = self.body()
        return f"{DRAFTED}{digest(body)}\n{body}"

    def body(self) -> str:
        """Write all but the first line, which tells whether the file has been edited."""
        heads = [*self.remarks, *(f"left out: {name}: {reason}" for name, reason in self.left_out.items())]
        lines = [f"# {UNSEEN.sub(' ', each)}" for each in heads]
        lines += [f'name = "{self.name}"', f'title = "{self.name}"', 'equation = ""', "", "[data]"]
        lines += [f"files = [{', '.join(map(quoted, self.files))}]{self.mark('files')}", f'format = "{self.format}"']
        lines += [f'sample = "{self.sample}"{self.mark("sample")}'] if self.sample != "first" else []
        lines += ['time = "last"'] if self.time == "last" else []
        lines += [f"validation = {self.validation or 0.1}", f"test = {self.test or 0.1}"]
        on_grid = not self.points and not self.mask and not self.moving and len(self.axes) < 3
        on_grid = on_grid and not any(one.scalar for one in self.tensors)
        for role in ROLES:
            for tensor in self.of(role):
                name = tensor.array.name
                lines += ["", *tensor.entries(self.keys.get(name, name), self.sources.get(name, ((),))[0])]
                lines += [LINEAR] if role == "inputs" and on_grid and not tensor.positive else []
        for axis, entry in self.axes.items():
            lines += ["", f"[axes.{axis}]{self.mark(f'axes.{axis}')}"]
            lines += [f"{key} = {json.dumps(value)}{self.mark(f'axes.{axis}.{key}')}" for key, value in entry.items()]
        if self.points:
            line = f'# weights = "{AREA}"  # of the cells around each node: what every point counts in loss and errors'
            weights = [line, NORMALS.format(SPACED[self.points["dimensions"]])] if self.cells else []
            named = {key: self.keys.get(str(value), value) for key, value in self.points.items()}
            entries = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in named.items()]
            return "\n".join([*lines, "", "[points]", *entries, *weights, *self.of_time(), ""])
        mask = ["", "[mask]", f"{self.mask}{self.mark('mask')}"] if self.mask else []
        tried = [f"# quick and laptop try what the axes allow: {', '.join(self.candidates)}"] if self.candidates else []
        return "\n".join([*lines, *mask, "", "[symmetries]", *tried, "exact = []", *self.of_time(), ""])

    def of_time(self) -> list[str]:
        """Write the section of trajectories, where there are any."""
        if not self.moving:
            return []
        return ["", f"[time]{self.mark('time')}", f"step = {self.step}{self.mark('step')}", "history = 1"]

    def mark(self, line: str) -> str:
        """Return the mark of a line; nothing where nothing was guessed in it."""
        said = [self.guesses.get(line, ""), *(f"samples: {each}" for each in self.doubts if line == "files")]
        return mark(UNSEEN.sub(" ", "; ".join(filter(None, said))))


def digest(body: str) -> str:
    """Return what tells a text from others."""
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def is_unedited(text: str) -> bool:
    """Return whether a problem file is a draft as it was written."""
    first, _, body = text.partition("\n")
    return first == f"{DRAFTED}{digest(body)}"


def quoted(text: str) -> str:
    """Write a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON allows


def shown(array: LazyArray) -> str:
    """Name an array with its shape."""
    return f"{array.name} [{' x '.join(map(str, array.shape))}]"


def plain_name(name: str) -> str:
    """Return the name of an array without those of its groups, in small letters with underscores.

    Example:
        >>> plain_name("run/wallTime (attribute)")
        'wall_time'
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.split(r"[/.]", name)[-1].removesuffix(" (attribute)"))
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def are_centres(first: float, last: float, step: float) -> bool:
    """Return whether points are the centres of cells, whose outermost ends are rounder numbers than the points.

    Example:
        >>> are_centres(-0.95, 0.95, 0.1), are_centres(-1.0, 1.0, 0.1)
        (True, False)
    """

    def digits(value: float) -> int:
        return len(f"{abs(value):.5e}".partition("e")[0].replace(".", "").rstrip("0")) or 1

    return digits(first - step / 2) + digits(last + step / 2) < digits(first) + digits(last)


def rounded(length: float) -> float:
    """Return a length without the digits that rounding left."""
    return float(f"{abs(length):.6g}")
