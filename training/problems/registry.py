"""The registry of problems: the files of this folder, and the entry points `petrov.problems` of other packages."""

from __future__ import annotations

from dataclasses import replace

from training.problems.problem import Problem, Trajectories
from training.problems.schema import Description
from training.registry import Registry

WHERE = ("training.problems", "PROBLEM", "petrov.problems")
PROBLEMS = Registry("problem", Problem, *WHERE, others=(Trajectories,))
TRAJECTORIES = Registry("problem of trajectories", Trajectories, *WHERE, others=(Problem,))


def with_code(description: Description) -> Problem:
    """Return the problem of a stored description, with the code of the known problem of its name where there is one."""
    if description.name in PROBLEMS:
        return replace(PROBLEMS[description.name], description=description)
    return Problem(description=description)
