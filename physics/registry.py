"""The registry of problems that have a classical solver, by their names on the wire."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

import physics
from physics.classical import Classical

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnknownProblemError(LookupError):
    """No module of `physics` defines a problem of this name; the message lists the known ones."""


@cache
def problems() -> Mapping[str, Classical]:
    """Return every problem that a module of `physics` defines as `CLASSICAL`, by name.

    Example:
        >>> sorted(problems())
        ['burgers', 'darcy', 'darcy_inverse', 'poisson']
    """
    modules = (import_module(f"physics.{found.name}") for found in pkgutil.iter_modules(physics.__path__))
    defined = (vars(module).get("CLASSICAL") for module in modules)
    return MappingProxyType({problem.name: problem for problem in defined if isinstance(problem, Classical)})


def problem(name: str) -> Classical:
    """Return the problem of a name.

    Raises:
        UnknownProblemError: `physics` has no solver for it.

    Example:
        >>> darcy = problem("darcy")
        >>> pressure = darcy.solve(darcy.example(16, seed=0))
        >>> pressure.shape
        (16, 16)
    """
    if name not in problems():
        raise UnknownProblemError(f'expected one of {", ".join(sorted(problems()))} but got "{name}"')
    return problems()[name]
