"""The sections of a problem file: where the data are, time, points, the mask and symmetries; and marks of guesses.

A guess stands in a comment at its line. A draft says `# guess: …` at every line that the data file did not decide.
Where a wrong guess would train another model than the one that is wanted, the mark begins with a subject of `SUBJECTS`,
and the problem file is refused until a person has removed the mark.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from schema.parts import Frozen, Name
from schema.problem import Time
from training.messages import UserError, typed

SPACE = ("x", "y", "z")  # the components of coordinates
INSIDE = "inside"  # the input that says where the domain is
ROLES = ("inputs", "parameters", "outputs")  # the sections that have a table for each tensor
POINT = "point"  # the axis of samples that have points of their own


class ProblemFileError(UserError):
    """A problem file cannot be used: the message names the file, the key, what was expected and what was found."""


class DataError(UserError):
    """Data do not fit their problem file: the message names file, array and, where there is one, sample and index."""


def checked_share(value: float | int) -> float | int:  # noqa: PYI041 -- annotations are checked at run time
    """Return a share between 0 and 1, or a whole number of samples.

    Raises:
        ValueError: It is neither.
    """
    if 0 < value < 1:
        return value
    if value >= 1 and value == value // 1:
        return int(value)
    raise ValueError("expected a share between 0 and 1 or a whole number of samples")


Share = Annotated[float | int, AfterValidator(checked_share)]


class CoarseSection(Frozen):
    """Samples of the same problem on a coarser grid, all of which are for training."""

    files: tuple[str, ...] = Field(min_length=1)  # as those of `data`
    format: str = "auto"


class DataSection(Frozen):
    """Where the simulations are, and which of them are kept apart."""

    # Relative to the problem file; patterns such as `run-*.h5` are allowed; several files are concatenated.
    files: tuple[str, ...] = Field(min_length=1)
    format: str = "auto"  # the files' layout; `auto` decides by suffix and contents
    # Where samples are counted: on the first or the last axis of the arrays; `file`: every file is one sample; `group`:
    # every group of an HDF5 file is one.
    sample: Literal["first", "last", "file", "group"] = "first"
    # Whether the time axis is the first or the last one behind the samples'.
    time: Literal["first", "last"] = "first"
    # The earlier model that a training may start from: its folder, relative to this file, or its name in runs or
    # checkpoints.
    finetune: str | None = None
    coarse: CoarseSection | None = None  # cheaper samples that a training begins with
    # Share or number of samples for every decision, taken from the end, before the test samples.
    validation: Share = 0.1
    test: Share = 0.1  # share or number of samples that are used once, for the card, taken from the end

    @property
    def all_for_training(self) -> bool:
        """Whether no samples are kept apart, as of coarse ones."""
        return self.validation == self.test == 0

    def counts(self, samples: int) -> tuple[int, int, int]:
        """Return the numbers of training, validation and test samples.

        Raises:
            ProblemFileError: A split would be empty.
        """
        if self.all_for_training:
            return samples, 0, 0
        validation, test = (
            share if isinstance(share, int) else max(1, round(share * samples))
            for share in (self.validation, self.test)
        )
        train = samples - validation - test
        if min(train, validation, test) < 1:
            raise ProblemFileError(
                f"data: expected at least one sample for training, validation and test but {samples} samples give "
                f"{train}, {validation} and {test}"
            )
        return train, validation, test


class SymmetrySection(Frozen):
    """The symmetries that hold exactly for equation, data and boundary; none by default."""

    exact: tuple[str, ...] = ()


class TimeSection(Time):
    """The time axis of trajectories `[sample, time, *grid]`."""

    # Frames of the rollouts that are compared on validation samples; by default a quarter of a trajectory.
    horizon: PositiveInt | None = None
    conserved: tuple[Name, ...] = ()  # outputs whose mean over a periodic grid stays exactly what it is


class PointsSection(Frozen):
    """The points of samples that have their own, of a mesh or a cloud, instead of a grid's axes."""

    # The array `[sample, point, dimension]`, or `[point, dimension]` of one fixed mesh; in mesh files the nodes, and
    # the key is left out.
    coordinates: str = "coordinates"
    # The array `[sample]` of how many points of each sample are valid, where the arrays are padded.
    counts: str | None = None
    dimensions: Literal[2, 3] = 2
    # The array `[sample, point]` of what every point counts in the loss and in errors, such as `area`, the area of the
    # cells around each node of mesh files; left out, all points count alike.
    weights: str | None = None
    # Whether points at one place, as those of discontinuous elements, are one point with the mean of their values.
    merge: bool = False


class MaskSection(Frozen):
    """The domain of fields on a grid, where it is not the whole grid: one of both."""

    key: str | None = None  # the array `[sample, *grid]`, or `[*grid]` of one domain for all: 1 inside, 0 outside
    nan: str | None = None  # the array whose NaN mark what lies outside

    @model_validator(mode="after")
    def check_one(self) -> MaskSection:
        """Require one source of the mask."""
        if (self.key is None) == (self.nan is None):
            raise ValueError("expected either key (an array of 1 inside, 0 outside) or nan (an array with NaN outside)")
        return self


# The tensors that sections make


def with_points(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a problem file with `[points]`, and with the axis, input and parameter that it makes.

    Raises:
        ValueError: The sections contradict one another.
    """
    found = dict(values)
    section = PointsSection.model_validate(found["points"])
    if section.merge and section.counts is not None:
        raise ValueError("points.merge: expected no counts, since padding repeats points, too")
    if {*(found.get("axes") or {})} - {POINT}:
        raise ValueError("expected [points] or [axes], but found both")
    found["axes"] = {POINT: {"points": "scattered"}}
    coordinates: dict[str, Any] = {
        "key": section.coordinates,
        "components": SPACE[: section.dimensions],
        "meaning": "coordinates of the points",
    }
    counts = {
        "key": section.counts or "counts",
        "default": 0,
        "minimum": 0,
        "meaning": "number of valid points of a sample, the first ones; 0 for all",
    }
    for part, name, made in (("inputs", "coordinates", coordinates), ("parameters", "counts", counts)):
        tables = dict(found.get(part) or {})
        found[part] = {name: made | dict(tables.pop(name, {})), **tables}
    for part in ("inputs", "outputs"):  # as mesh files and coordinates have them
        found[part] = {
            name: {**table, "component_axis": "last"} if isinstance(table, Mapping) else table
            for name, table in dict(found.get(part) or {}).items()
        }
    return found


def with_mask(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a problem file with `[mask]`, and with the input that it makes, the last one.

    Raises:
        ValueError: The sections contradict one another.
    """
    section, inputs = MaskSection.model_validate(values["mask"]), dict(values.get("inputs") or {})
    if values.get("points") is not None:
        raise ValueError("mask: expected none with [points]")
    made = {
        "key": section.key or f"{INSIDE}, where {section.nan} is not NaN",
        "meaning": "domain: 1 inside, 0 outside",
    }
    known = inputs.pop(INSIDE, made)
    if not isinstance(known, Mapping) or known.get("key") != made["key"]:
        raise ValueError(f"inputs.{INSIDE}: the name is that of the mask (`key` names data)")
    return {**values, "inputs": {**inputs, INSIDE: known}}


def extent(box: Sequence[Sequence[float]]) -> str:
    """Say where the points of training samples lie."""
    sides = (f"{axis} from {low:.6g} to {high:.6g}" for axis, (low, high) in zip(SPACE, box, strict=False))
    return f"anywhere, in any order; those of the training samples have {', '.join(sides)}"


# Marks of guesses


SUBJECTS = {
    "outputs": "which arrays are outputs",
    "inputs": "which inputs are known in advance for every frame",
    "samples": "which axis counts samples, or in which order a table has them",
    "time": "which axis counts time, if one does",
    "points": "whether every sample has points of its own",
}
"""What has to be confirmed, by the word that a mark begins with."""
QUOTED = r""""(?:\\.|[^"\\])*"|'[^']*'"""
MARK = re.compile(rf"^(?:[^\"'#]|{QUOTED})*#\s*guess:\s*({'|'.join(SUBJECTS)})\b")

HEADER = re.compile(r"^\s*\[([^\[\]]+)\]")  # of a table
ENTRY = re.compile(rf"^\s*(length|boundary|points)\s*=(?:[^\"'#]|{QUOTED})*#\s*guess:")


def mark(text: str) -> str:
    """Return the comment that marks a guess at the end of its line; nothing for an empty text."""
    return f"  # guess: {text}" if text else ""


def unconfirmed(text: str) -> dict[int, str]:
    """Return the subjects of the marks in a problem file that have to be confirmed, by the number of their line."""
    found = ((number, MARK.match(line)) for number, line in enumerate(text.splitlines(), 1))
    return {number: match[1] for number, match in found if match}


def guessed_of_axes(text: str) -> dict[str, list[str]]:
    """Return which entries of a problem file's axes are marked as guesses, by the name of the axis."""
    found: dict[str, list[str]] = {}
    axis = ""
    for line in text.splitlines():
        if header := HEADER.match(line):
            axis = header[1].strip().removeprefix("axes.") if header[1].strip().startswith("axes.") else ""
        elif axis and (entry := ENTRY.match(line)):
            found.setdefault(axis, []).append(entry[1])
    return found


def refusal(path: Path, document: Mapping[str, Any], found: Mapping[int, str]) -> str:
    """Say which guesses of a problem file are not confirmed, and how that is done.

    Args:
        path: The problem file.
        document: Its contents.
        found: What `unconfirmed` found in its text, at least one mark.
    """
    said = []
    for subject, question in SUBJECTS.items():
        if lines := [str(number) for number, each in found.items() if each == subject]:
            said.append(f"{question} (line{'s' * (len(lines) > 1)} {', '.join(lines)})")
    words = " or ".join(f"`# guess: {subject}`" for subject in SUBJECTS if subject in found.values())
    sentence = f"{path}: not confirmed: {' and '.join(said)}. If it is right, remove the comment {words} from the line"
    if {"inputs", "outputs"}.isdisjoint(found.values()):
        return f"{sentence}."
    names = [*dict.fromkeys(arrays(document))]
    files, one = data_of(path, document), names[-1] if len(names) == 1 else "NAME"
    # The target takes one file or folder.
    commands = [f"`make describe FILE={shlex.quote(files[0])} OUTPUTS={shlex.quote(one)}`"] if len(files) == 1 else []
    commands.append(f"`{typed('describe', *files, '--outputs', one, '--write')}`")
    return f"{sentence}; or draft the file anew with the outputs named, {' or '.join(commands)}, of {', '.join(names)}."


def tables(document: Mapping[str, Any], *roles: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and tables of some roles; of one that is no table, an empty one."""
    return [
        (name, table if isinstance(table, dict) else {})
        for role in roles
        for name, table in dict(document.get(role, {})).items()
    ]


def named_files(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the data files that a section or a table names, whether they are a list, as they should be, or not."""
    files = table.get("files", ())
    return tuple(map(str, files)) if isinstance(files, list) else (str(files),) if files else ()


def arrays(document: Mapping[str, Any]) -> list[str]:
    """Return by what names `describe` knows the tensors: those in the data, or those of their tables.

    Arrays of several files may have one name, as those of `.npy` do.
    """
    found = [(name, str(table.get("key", name)), named_files(table)) for name, table in tables(document, *ROLES)]
    several = Counter(key for key, _ in {(key, files) for _, key, files in found})
    return [key if several[key] == 1 else name for name, key, _ in found]


def data_of(path: Path, document: Mapping[str, Any]) -> list[str]:
    """Return what `describe` is called with for all data of a problem file: files, patterns, or a folder of them."""
    sections = [document.get("data", {}), *(table for _, table in tables(document, *ROLES))]
    files = [file for section in sections for file in named_files(section)] or ["FILE"]
    found = [*dict.fromkeys(called(path.parent / file) for file in files)]
    return [file for file in found if str(Path(file).parent) not in found or file == "."]


def called(pattern: Path) -> str:
    """Return the folder of which a pattern names all files, or some in each of its folders; any other as it is.

    Example:
        >>> called(Path("runs/*/result.npz")), called(Path("plates/*.vtu")), called(Path("run-*.npz"))
        ('runs', 'plates', 'run-*.npz')
    """
    if wild := [folder for folder in pattern.parents if "*" in folder.name]:
        return str(wild[-1].parent)
    return str(pattern.parent if pattern.stem == "*" else pattern)
