"""Finite elements on star-shaped domains."""

from __future__ import annotations

import numpy as np
import pytest

from physics.stars import sample, solve


def test_linear_elements_converge_in_second_order() -> None:
    errors = []
    for rings in (8, 16):
        star = sample(np.random.default_rng(3), rings=(rings, rings))
        disc = star.points / np.linalg.norm(star.points, axis=1).max()
        radius = np.concatenate([[0.0], *(np.full(6 * ring, ring / rings) for ring in range(1, rings + 1))])
        angle = np.arctan2(disc[:, 1], disc[:, 0])
        points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        found = solve(points, star.triangles, 4 * np.ones(len(points)), radius > 1 - 1e-9)
        errors.append(np.abs(found - (1 - radius**2)).max())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.25)


def test_samples_differ_in_size_and_points() -> None:
    stars = [sample(np.random.default_rng(seed), rings=(3, 6)) for seed in range(6)]
    assert len({len(star.points) for star in stars}) > 1
    assert len({float(np.ptp(star.points)) for star in stars}) == 6
    assert all(np.isfinite(star.solution).all() and star.solution.any() for star in stars)
