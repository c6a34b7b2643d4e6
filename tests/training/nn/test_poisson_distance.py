"""The bound on a potential is never below its distance in double precision, for any source, potential and grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from physics import poisson
from training.nn.elliptic.poisson_distance import poisson_bound

Array = NDArray[np.float64]
Sides = tuple[int, int, int]

GRIDS: tuple[Sides, ...] = ((8, 8, 8), (9, 14, 11), (17, 17, 17), (33, 20, 8))
SIZES = (1e-12, 1.0, 1e12)


def point(rng: np.random.Generator, sides: Sides) -> Array:
    """Return a source at one point."""
    field = np.zeros(sides)
    field[tuple(int(rng.integers(1, side - 1)) for side in sides)] = 1
    return field


def halves(rng: np.random.Generator, sides: Sides) -> Array:
    """Return two values with a jump between them."""
    del rng
    return np.broadcast_to(np.where(np.arange(sides[0]) < sides[0] // 2, 3.0, -12.0)[:, None, None], sides)


def drawn(rng: np.random.Generator, sides: Sides) -> Array:
    """Return a source of the training distribution, on some of its points."""
    field = poisson.source(max(sides), rng)
    return field[: sides[0], : sides[1], : sides[2]]


FAMILIES: Mapping[str, Callable[[np.random.Generator, Sides], Array]] = {
    "drawn": drawn,
    "rough": lambda rng, sides: rng.standard_normal(sides),
    "constant": lambda rng, sides: np.full(sides, rng.uniform(-5, 5)),
    "point": point,
    "jump": halves,
    "heavy tails": lambda rng, sides: rng.standard_cauchy(sides),
}


def nearly(factor: float, rng: np.random.Generator, exact: Array) -> Array:
    """Return the solution with errors of a size, on the walls, too."""
    return exact + factor * np.abs(exact).max() * rng.standard_normal(exact.shape)


POTENTIALS: Mapping[str, Callable[[np.random.Generator, Array], Array]] = {
    "rounded": partial(nearly, 0.0),
    "close": partial(nearly, 1e-5),
    "far": partial(nearly, 1.0),
    "farther": partial(nearly, 1e3),
}


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_no_bound_is_below_its_distance(family: str) -> None:
    for sides in GRIDS:
        for seed, size in enumerate(SIZES):
            rng = np.random.default_rng((*sides, seed))
            source = (size * FAMILIES[family](rng, sides)).astype(np.float32)
            for change in POTENTIALS.values():
                potential = change(rng, poisson.solve(source)).astype(np.float32)
                bound = poisson_bound(*(torch.from_numpy(np.array(field))[None] for field in (source, potential)))
                distance = poisson.bound(source, potential)
                assert distance <= bound.item() <= 1.001 * distance + 1e-9


def test_a_bound_without_a_source_is_zero_or_infinite() -> None:
    nothing, something = torch.zeros(1, 8, 9, 10), torch.full((1, 8, 9, 10), 0.1)
    assert poisson_bound(nothing, nothing).item() == 0
    assert poisson_bound(something * 0, something).item() == torch.inf
