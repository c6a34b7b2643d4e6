"""Poisson's equation on a square with round holes, by finite volumes, and heat that leaves it: a mask per sample."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, identity
from scipy.sparse.linalg import factorized, spsolve

Arrays = dict[str, NDArray[Any]]


def samples(count: int, side: int = 20, seed: int = 0) -> Arrays:
    """Draw samples `inside`, `f` and `u` `[sample, row, column]`; u is 0 on all edges, f and u are NaN outside."""
    rng = np.random.default_rng(seed)
    found = [sample(rng, side) for _ in range(count)]
    return {name: np.stack([one[name] for one in found]) for name in ("inside", "f", "u")}


def trajectories(count: int, side: int = 20, frames: int = 6, step: float = 4e-3, seed: int = 0) -> Arrays:
    """Draw `inside` `[sample, row, column]` and temperatures `heat` `[sample, frame, row, column]`, NaN outside.

    The holes and all edges are at 0, by implicit Euler steps from a smooth state.
    """
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        inside, start = drawn(rng, side)
        solve = factorized((identity(int(inside.sum())) + step * side**2 * volumes(inside)).tocsc())
        heat = np.full((frames, side, side), np.nan)
        heat[0, inside] = start[inside]
        for before, after in pairwise(heat):
            after[inside] = solve(before[inside])
        found.append({"inside": inside.astype(np.uint8), "heat": heat})
    return {name: np.stack([one[name] for one in found]) for name in ("inside", "heat")}


def sample(rng: np.random.Generator, side: int) -> Arrays:
    """Draw one or two holes and a smooth source, and solve."""
    inside, f = drawn(rng, side)
    u = np.full_like(f, np.nan)
    u[inside] = spsolve(volumes(inside), f[inside] / side**2)
    return {"inside": inside.astype(np.uint8), "f": np.where(inside, f, np.nan), "u": u}


def drawn(rng: np.random.Generator, side: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Draw a domain with one or two holes, and a smooth field."""
    x, y = np.meshgrid(*[(np.arange(side) + 0.5) / side] * 2, indexing="ij")
    inside = np.ones((side, side), dtype=np.bool_)
    for _ in range(rng.integers(1, 3)):
        (a, b), radius = rng.uniform(0.2, 0.8, 2), rng.uniform(0.1, 0.2)
        inside &= (x - a) ** 2 + (y - b) ** 2 > radius**2
    a, b, c = rng.uniform(0.5, 1.5, 3)
    return inside, a + b * np.cos(np.pi * x) + c * np.cos(np.pi * y)


def volumes(inside: NDArray[np.bool_]) -> Any:
    """Return the matrix of fluxes out of the cells inside: to neighbours, or to an edge half a cell away, at 0."""
    number = np.where(inside, np.cumsum(inside).reshape(inside.shape) - 1, -1)
    wide, diagonal, pairs = np.pad(number, 1, constant_values=-1), np.zeros(inside.sum()), []
    for rows, columns in ((0, 1), (2, 1), (1, 0), (1, 2)):
        beside = wide[rows : rows + len(inside), columns : columns + len(inside)][inside]
        diagonal += np.where(beside < 0, 2, 1)
        pairs.append((number[inside][beside >= 0], beside[beside >= 0]))
    i, j = (np.concatenate(each) for each in zip(*pairs, strict=True))
    every = np.arange(len(diagonal))
    values = np.concatenate([diagonal, -np.ones(len(i))])
    return coo_matrix((values, (np.concatenate([every, i]), np.concatenate([every, j])))).tocsc()
