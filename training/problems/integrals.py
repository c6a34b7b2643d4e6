"""Outputs that are integrals of others: what a problem file may say of them, and their values in the data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from schema.parts import Quantity
from training.data.readers import LazyArray
from training.integrals import IntegralConfig

if TYPE_CHECKING:
    from training.problems.columns import Column
    from training.problems.problem_file import ProblemFile

DOMAIN, BOUNDARY = "domain", "boundary"
ENDS = {"start": 0, "end": -1}


def integral_of(problem: ProblemFile, one: Quantity) -> IntegralConfig:
    """Find what the integral `one` is computed from.

    Raises:
        ValueError: The problem has no such output or part of the domain, or another number of components.
    """
    label, fields = f"outputs.{one.name}", {each.name: each for each in problem.output_fields}
    name, component = located(f"{label}.integral_of", str(one.integral_of), fields, "an output that is a field")
    if problem.time is not None:
        raise ValueError(f"{label}.integral_of: expected no integrals with [time]")
    field = fields[name]
    wanted = field.components if component is None else ()
    if one.components != wanted:
        wanted_components = f"components = {[*wanted]}" if wanted else "no components"
        raise ValueError(f"{label}: expected {wanted_components}, as {one.integral_of} has")
    factors, ends = region(problem, one)
    names = [each.name for each in problem.inputs]
    for each in (field, *(problem.inputs[names.index(name)] for name, _ in factors)):
        if each.offset:
            raise ValueError(f"{label}: expected no offset of {each.name}: its integral would lack it")
    return IntegralConfig(
        output=[*fields].index(name),
        component=component,
        factors=tuple((names.index(each), index) for each, index in factors),
        ends=tuple(ends),
        lengths=() if problem.scattered else tuple(axis.length for axis in problem.axes),
        factor=one.factor,
    )


def region(problem: ProblemFile, one: Quantity) -> tuple[list[tuple[str, int | None]], list[tuple[int, int]]]:
    """Return the inputs that multiply what is integrated, with a component of each, and the ends of axes.

    Raises:
        ValueError: A part of the domain is not known, or may not be meant.
    """
    label, inputs, parts = (
        f"outputs.{one.name}.over",
        {each.name: each for each in problem.inputs},
        parts_of(problem, one),
    )
    factors, ends = [], []
    for part in parts:
        if part in {DOMAIN, BOUNDARY} and part in inputs and not problem.scattered:
            raise ValueError(f"{label}: {part!r} is the grid's and an input's name: rename the input, with `key`")
        if part == DOMAIN:
            continue
        if found := sides(problem, part):
            ends += found
            continue
        name, component = located(label, part, inputs, f"one of {', '.join(regions(problem))} or an input")
        if inputs[name].components and component is None:
            raise ValueError(f"{label}: expected a component, such as {name}.{inputs[name].components[0]}")
        factors.append((name, component))
    if any(len(each) > len({*each}) for each in (parts, factors, ends)):
        raise ValueError(f"{label}: expected every part once but got {', '.join(one.over)}")
    if ends and (problem.mask is not None or DOMAIN in parts):
        expected = "the domain or ends of it" if problem.mask is None else "the domain or inputs with [mask]"
        raise ValueError(f"{label}: expected {expected} but got {', '.join(parts)}")
    if problem.symmetries and {*parts} & {*regions(problem)[2:]}:
        raise ValueError(f"{label}: expected no symmetries, which may move the end that it is taken over")
    return factors, ends


def parts_of(problem: ProblemFile, one: Quantity) -> tuple[str, ...]:
    """Return what an integral is taken over; on points the domain is the input with what every point measures.

    Raises:
        ValueError: It is over nothing, or no input says what points measure.
    """
    if not one.over:
        raise ValueError(f"outputs.{one.name}.over: expected what it is taken over but got nothing")
    if not problem.scattered or DOMAIN not in one.over:
        return one.over
    measure = next((each.name for each in problem.inputs if each.array == problem.weights), None)
    if measure is None:
        raise ValueError(
            f"outputs.{one.name}.over: expected the input that says what every point measures, such as [inputs.area] "
            "of mesh files: a request has to send it, and points alone do not tell"
        )
    return tuple(measure if part == DOMAIN else part for part in one.over)


def located(label: str, name: str, known: dict[str, Quantity], expected: str) -> tuple[str, int | None]:
    """Divide `NAME` or `NAME.COMPONENT` into a field's name and the number of its component.

    Raises:
        ValueError: There is no such field or component.
    """
    name, _, component = name.partition(".")
    if name not in known:
        raise ValueError(f"{label}: expected {expected} ({', '.join(known) or 'none'}) but got {name!r}")
    if component and component not in known[name].components:
        components = ", ".join(known[name].components) or "none"
        raise ValueError(f"{label}: expected a component of {name} ({components}) but got {component!r}")
    return name, known[name].components.index(component) if component else None


def regions(problem: ProblemFile) -> list[str]:
    """Return the names of the grid itself, of its boundary and of the ends of axes; none on points."""
    if problem.scattered:
        return [DOMAIN]
    axes = [axis.name for axis in problem.axes if axis.boundary != "periodic"]
    return [DOMAIN, BOUNDARY, *(f"{axis}.{end}" for axis in axes for end in ENDS)]


def sides(problem: ProblemFile, part: str) -> list[tuple[int, int]]:
    """Return the ends of axes that a part of the boundary is; none where it names no part."""
    if problem.scattered:
        return []
    ends = {
        f"{axis.name}.{end}": (number, index)
        for number, axis in enumerate(problem.axes)
        for end, index in ENDS.items()
        if axis.boundary != "periodic"
    }
    return [*ends.values()] if part == BOUNDARY else [ends[part]] if part in ends else []


# Their values in the data


ALIKE, TINY = 0.02, 1e-300  # deviations between a number of the files and the integral without a remark
BLOCK = 64  # samples whose fields are in memory at once


def with_integrals(problem: ProblemFile, columns: dict[str, Column]) -> dict[str, Column]:
    """Return the columns of a problem with those of integrals that no file has, computed from their fields."""
    made = {one.name: integrated(problem, one, columns) for one in problem.integrals if one.name not in columns}
    every = columns | made
    return {name: every[name] for name in problem.stored}


def unlike_integrals(problem: ProblemFile, columns: dict[str, Column]) -> list[str]:
    """Name the numbers of files that are not the integrals that they are declared as, in sentences."""
    lines = []
    for one in (each for each in problem.integrals if each.name in problem.in_files):
        column, made = columns[one.name], integrated(problem, one, columns)
        said, computed = (np.asarray(each.read(0, column.samples), np.float64) for each in (column, made))
        apart = np.sqrt(np.square(said - computed).mean(axis=0) / np.maximum(said.var(axis=0), TINY)).max()
        if apart > ALIKE:
            lines.append(
                f"{one.name} of the files is not the {one.integral}: they are {apart:.2g} deviations apart; "
                "another factor, over or length of an axis, or another quadrature?"
            )
    return lines


def integrated(problem: ProblemFile, one: Quantity, columns: dict[str, Column]) -> Column:
    """Return the column of an integral."""
    lead = columns[problem.output_fields[integral_of(problem, one).output].name]
    shape = (len(one.components),) if one.components else ()

    def rows(first: int, start: int, stop: int) -> NDArray[Any]:
        blocks = (range(at, min(at + BLOCK, stop)) for at in range(start, stop, BLOCK))
        found = [values(problem, one, columns, first + part.start, first + part.stop) for part in blocks]
        return np.concatenate(found) if found else np.empty((0, *shape))

    def parts() -> Iterator[Any]:
        for first, part in zip(lead.starts, lead.parts, strict=False):
            samples = part.array.samples
            array = LazyArray(one.name, (samples, *shape), np.dtype(np.float64), partial(rows, first))
            yield type(part)(part.path, array, one, shape)

    return type(lead)(one.name, tuple(parts()))


def values(problem: ProblemFile, one: Quantity, columns: dict[str, Column], start: int, stop: int) -> NDArray[Any]:
    """Compute an integral for some samples, by their numbers over all files: `[sample, (component)]`."""
    found, valid = integral_of(problem, one), None
    if problem.scattered:
        counts = columns["counts"].read(start, stop)
        valid = np.arange(columns["coordinates"].shape[0]) < counts[:, np.newaxis]
    elif problem.mask is not None:
        valid = columns[problem.inputs[-1].name].read(start, stop) == 1

    def read(one: Quantity) -> NDArray[np.float64]:
        """Return a field, zero at padding and outside the domain."""
        field = columns[one.name].read(start, stop).astype(np.float64)
        if valid is None:
            return field
        inside = valid if not one.components else valid[..., np.newaxis] if problem.scattered else valid[:, np.newaxis]
        return np.where(inside, field, 0)

    outputs = {found.output: read(problem.output_fields[found.output])}
    inputs = {number: read(problem.inputs[number]) for number, _ in found.factors}
    rules = () if problem.scattered else [axis.points for axis in problem.axes]
    return np.asarray(found.of(outputs, inputs, rules))
