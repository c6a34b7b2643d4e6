"""Every symmetry that training draws commutes with the classical solver."""

from __future__ import annotations

import numpy as np
import torch

import physics.burgers
import physics.darcy
import physics.poisson
from training.problems.symmetries import transform


def test_the_square() -> None:
    rng = np.random.default_rng(0)
    coefficients = np.where(rng.random((8, 21, 21)) < 0.5, 3.0, 12.0)
    solutions = np.stack([physics.darcy.solve(a) for a in coefficients])
    moved, answers = transform("darcy", *map(torch.from_numpy, (coefficients, solutions)), rng)
    assert not torch.equal(moved, torch.from_numpy(coefficients))
    np.testing.assert_allclose(answers, [physics.darcy.solve(a) for a in moved.numpy()], rtol=1e-8)


def test_the_circle() -> None:
    rng, x = np.random.default_rng(1), np.arange(128) / 128
    initial = np.stack([np.sin(2 * np.pi * x + k) + 0.3 * np.cos(4 * np.pi * x) for k in range(6)])
    final = physics.burgers.solve(initial)
    moved, answers = transform("burgers", *map(torch.from_numpy, (initial, final)), rng)
    assert not torch.equal(moved, torch.from_numpy(initial))
    np.testing.assert_allclose(answers, physics.burgers.solve(moved.numpy()), atol=1e-8)


def test_the_cube() -> None:
    rng = np.random.default_rng(2)
    sources = rng.standard_normal((8, 7, 7, 7))
    potentials = np.stack([physics.poisson.solve(f) for f in sources])
    moved, answers = transform("poisson", *map(torch.from_numpy, (sources, potentials)), rng)
    assert not torch.equal(moved, torch.from_numpy(sources))
    np.testing.assert_allclose(answers, [physics.poisson.solve(f) for f in moved.numpy()], atol=1e-14)


def test_a_cube_has_48_symmetries_and_a_box_those_that_keep_its_sides() -> None:
    rng = np.random.default_rng(3)
    for sides, number in {(2, 2, 2): 48, (2, 3, 2): 16, (2, 3, 4): 8}.items():
        field = torch.arange(float(np.prod(sides))).reshape(1, *sides).repeat(600, 1, 1, 1)
        moved, _ = transform("poisson", field, field, rng)
        assert moved.shape == field.shape
        assert len({tuple(one.flatten().tolist()) for one in moved}) == number


def test_a_rectangle_keeps_its_shape() -> None:
    fields = torch.arange(12.0).reshape(1, 3, 4).repeat(20, 1, 1)
    moved, _ = transform("darcy", fields, fields, np.random.default_rng(0))
    assert moved.shape == fields.shape
    assert len({tuple(field.flatten().tolist()) for field in moved}) == 4
