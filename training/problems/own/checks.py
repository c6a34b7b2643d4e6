"""What is checked of all values before any training, in one pass over the files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.problems.own.columns import Column, DataError, Part, sections
from training.problems.own.problem_file import FieldSection, ParameterSection, ProblemFile

Sink = Callable[[str, int, NDArray[np.float32]], None]
SPLITS = ("training", "validation", "test")


@dataclass
class Summary:
    """What one pass over a tensor found: its range, mean and deviation over all values, and constant samples."""

    name: str
    minimum: float = np.inf
    maximum: float = -np.inf
    total: float = 0.0
    squares: float = 0.0
    values: int = 0
    constant: int = 0
    digests: list[bytes] = field(default_factory=list)

    def add(self, values: NDArray[np.float32]) -> None:
        """Take in some samples."""
        flat = values.reshape(len(values), -1).astype(np.float64)
        self.minimum, self.maximum = min(self.minimum, float(flat.min())), max(self.maximum, float(flat.max()))
        self.total, self.squares = self.total + float(flat.sum()), self.squares + float(np.square(flat).sum())
        self.values += flat.size
        self.constant += int((flat.min(axis=1) == flat.max(axis=1)).sum()) if flat.shape[1] > 1 else 0
        self.digests += [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in values]

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return self.total / self.values

    @property
    def deviation(self) -> float:
        """The standard deviation of all values."""
        return float(np.sqrt(max(0.0, self.squares / self.values - self.mean**2)))


def check(problem: ProblemFile, columns: dict[str, Column], sink: Sink | None = None) -> dict[str, Summary]:
    """Read every value once, refuse what training could not use, and pass the rest on.

    Args:
        problem: The problem file.
        columns: Its tensors.
        sink: Receives `(name, first sample, samples)` in float32, as they were checked.

    Returns:
        A summary per tensor.

    Raises:
        DataError: A value is not finite or not positive where it has to be, an output is constant or zero in a sample,
            or one sample is in two splits.
    """
    found = {name: scan(column, sink, output=name in problem.outputs) for name, column in columns.items()}
    for name in problem.outputs:
        if found[name].minimum == found[name].maximum:
            raise DataError(f"{columns[name].parts[0].label} is {found[name].minimum:g} everywhere: nothing to learn")
    check_duplicates(problem, columns, found)
    return found


def scan(column: Column, sink: Sink | None, *, output: bool) -> Summary:
    """Read one tensor's values, check them one by one, and summarise them.

    Args:
        column: The tensor.
        sink: Receives the samples; see `check`.
        output: Whether it is an output.

    Raises:
        DataError: A value cannot be used.
    """
    summary = Summary(column.name)
    for start, part, values in column.blocks():
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = np.ascontiguousarray(values, dtype=np.float32)
        check_values(part, start, values, narrow)
        if output:
            check_sizes(part, start, narrow)
        summary.add(narrow)
        if sink is not None:
            sink(column.name, start, narrow)
    return summary


def check_values(part: Part, start: int, values: NDArray[Any], narrow: NDArray[np.float32]) -> None:
    """Refuse values that are not finite in float32, or not positive or out of bounds where the problem file says so.

    Raises:
        DataError: One is; the message says which.
    """
    refuse(part, start, values, ~np.isfinite(narrow), "a finite number within the range of float32")
    if isinstance(part.section, FieldSection) and part.section.positive:
        refuse(part, start, values, narrow <= 0, "a positive number")
    if isinstance(part.section, ParameterSection):
        low, high = part.section.minimum, part.section.maximum
        refuse(part, start, values, narrow < (-np.inf if low is None else low), f"at least {low}")
        refuse(part, start, values, narrow > (np.inf if high is None else high), f"at most {high}")


def check_sizes(part: Part, start: int, narrow: NDArray[np.float32]) -> None:
    """Refuse outputs that are zero everywhere, whose relative error is not defined.

    Raises:
        DataError: One is; the message says which.
    """
    zero = ~narrow.reshape(len(narrow), -1).any(axis=1)
    if zero.any():
        raise DataError(
            f"{part.label} is zero everywhere in sample {start + int(zero.argmax())}: its relative error is not "
            "defined; leave the sample out"
        )


def refuse(part: Part, start: int, values: NDArray[Any], bad: NDArray[np.bool_], expected: str) -> None:
    """Name the first bad value."""
    if not bad.any():
        return
    sample, *index = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
    where = f"sample {start + sample}" + (f", index {tuple(index)}" if index else "")
    raise DataError(
        f"{part.label} is {values[(sample, *index)]} at {where}; expected {expected} "
        f"({int(bad.sum())} such values among these {len(bad)} samples)"
    )


def check_duplicates(problem: ProblemFile, columns: dict[str, Column], found: dict[str, Summary]) -> None:
    """Refuse a sample whose inputs and parameters, or whole trajectory, are those of a sample in another split.

    Raises:
        DataError: There is one; the message names both.
    """
    names = [name for name in columns if problem.time is not None or name not in problem.outputs]
    lead = columns[names[0]]
    train, validation, _ = problem.data.counts(lead.samples)
    seen: dict[bytes, int] = {}
    for sample, digests in enumerate(zip(*(found[name].digests for name in names), strict=True)):
        first = seen.setdefault(b"".join(digests), sample)
        splits = [SPLITS[(one >= train) + (one >= train + validation)] for one in (first, sample)]
        if splits[0] != splits[1]:
            raise DataError(
                f"{lead.parts[0].path}: samples {first} ({splits[0]}) and {sample} ({splits[1]}) have equal inputs: "
                "leave one out, or the figures on unseen samples would be too good"
            )


def remarks(problem: ProblemFile, columns: dict[str, Column], found: dict[str, Summary]) -> list[str]:
    """Return what is allowed and yet worth a look, in sentences."""
    lines = []
    for name, section in sections(problem).items():
        summary, column = found[name], columns[name]
        if summary.minimum == summary.maximum:
            lines.append(f"{name} is {summary.minimum:g} everywhere: the model cannot learn what it changes")
        elif summary.constant:
            lines.append(f"{name} is constant in {summary.constant} of {column.samples} samples")
        said = {part.array.units for part in column.parts} - {"", section.units}
        if said and section.units != "1":
            lines.append(f"{name} has units {section.units!r} here and {', '.join(sorted(said))!r} in the data file")
    return lines
