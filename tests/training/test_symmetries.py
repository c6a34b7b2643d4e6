"""Every symmetry that training draws commutes with the classical solver."""

from __future__ import annotations

import numpy as np
import torch

import physics.burgers
import physics.darcy
from training.symmetries import transform


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


def test_a_rectangle_keeps_its_shape() -> None:
    fields = torch.arange(12.0).reshape(1, 3, 4).repeat(20, 1, 1)
    moved, _ = transform("darcy", fields, fields, np.random.default_rng(0))
    assert moved.shape == fields.shape
    assert len({tuple(field.flatten().tolist()) for field in moved}) == 4
