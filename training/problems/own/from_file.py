"""The description of a problem from a user's file: what checkpoint and card say, so that a model needs no file."""

from __future__ import annotations

from training.problems.description import Axis, Description, Frames, GridLimits, Parameter, Quantity
from training.problems.own.problem_file import AxisSection, FieldSection, ProblemFile, TimeSection

FINEST = {1: 8192, 2: 1024, 3: 128}
"""The most points per axis that a model accepts, by the number of axes."""
ENDS = {"wall": "walls", "periodic": "periodic", "open": "open ends"}
LOCATIONS = {
    "cells": "x_i = (i + 1/2) {length:g}/n",
    "nodes": "x_i = i {length:g}/(n - 1)",
    "left": "x_i = i {length:g}/n",
}


LONGEST = 1000
"""The most frames of one rollout, or ten times those of a training trajectory where that is more."""


def describe(problem: ProblemFile, sides: tuple[int, ...], samples: int, frames: int | None = None) -> Description:
    """Describe the problem of a problem file.

    Args:
        problem: The problem file.
        sides: Points per axis of the data.
        samples: Number of training samples.
        frames: Frames of a trajectory; None where the samples are none.
    """
    return Description(
        name=problem.name,
        title=problem.title or problem.name,
        equation=problem.equation,
        boundary="; ".join(f"{name}: {ENDS[axis.boundary]}" for name, axis in problem.axes.items()),
        inputs=tuple(quantity(name, section) for name, section in problem.inputs.items()),
        parameters=tuple(
            Parameter(
                name=name,
                meaning=section.meaning or name,
                units=section.units,
                default=section.default,
                minimum=section.minimum,
                maximum=section.maximum,
            )
            for name, section in problem.parameters.items()
        ),
        outputs=tuple(quantity(name, section) for name, section in problem.outputs.items()),
        axes=tuple(
            Axis(name=name, length=axis.length, boundary=axis.boundary, points=axis.points)
            for name, axis in problem.axes.items()
        ),
        points="; ".join(f"{name}: {location(axis)}" for name, axis in problem.axes.items()),
        grid=limits(sides),
        distribution=f"the {samples} training samples of the problem file {problem.name!r}",
        symmetries=problem.symmetries.exact,
        untested="inputs unlike the training samples, and other grids than theirs",
        frames=None if problem.time is None or frames is None else time(problem, problem.time, frames),
    )


def time(problem: ProblemFile, section: TimeSection, frames: int) -> Frames:
    """Describe the time axis.

    Args:
        problem: The problem file.
        section: Its time.
        frames: Frames of a trajectory.
    """
    inputs, following = {output: name for name, output in problem.states.items()}, frames - section.history
    return Frames(
        step=section.step,
        history=section.history,
        states=tuple(inputs[name] for name in problem.outputs),
        trained=following,
        maximum=max(LONGEST, 10 * following),
    )


def quantity(name: str, section: FieldSection) -> Quantity:
    """Describe one field."""
    return Quantity(
        name=name,
        meaning=section.meaning or name.replace("_", " "),
        units=section.units,
        positive=section.positive,
        components=section.components,
        default=section.default,
    )


def location(axis: AxisSection) -> str:
    """Say where the points of an axis lie."""
    return LOCATIONS[axis.points].format(length=axis.length)


def limits(sides: tuple[int, ...]) -> GridLimits:
    """Return the accepted grids: from a quarter of the least side of the data to four times the greatest."""
    finest = max(*sides, FINEST[len(sides)])
    least, most = max(4, min(sides) // 4), min(finest, 4 * max(sides))
    equal = len(set(sides)) == 1
    return GridLimits(
        minimum=least, maximum=most, declared=sides[:1] if equal else (), unequal=() if equal else (sides,)
    )
