"""Potential flow past closed surfaces: exact solutions of spheres and ellipsoids, and the orders of convergence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from physics import bodies


def relative(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def test_the_flow_past_a_sphere_converges_to_the_exact_one() -> None:
    """The potential of a sphere of radius 1 is -x/2 on it, its added mass half of its volume."""
    errors = []
    for frequency in (4, 8):
        points, triangles = bodies.sphere(frequency)
        assert len(points) == 10 * frequency**2 + 2
        assert len(triangles) == 20 * frequency**2
        found, x = bodies.solve(points, triangles), points[:, 0]
        exact = 1 - 9 / 4 * (1 - x**2)
        mass = abs(found.added_mass / (2 * math.pi / 3) - 1)
        errors.append((mass, relative(found.potential, -x / 2), relative(found.pressure, exact)))
    orders = np.log2(np.divide(*errors))
    assert orders[0] == pytest.approx(2, abs=0.1)
    assert orders[1] > 1.5
    assert orders[2] > 1.2
    assert np.less(errors[1], (0.006, 0.01, 0.04)).all()


@pytest.mark.parametrize("axes", [(2.0, 1.0, 1.0), (0.5, 1.0, 1.5)])
def test_an_ellipsoid_has_the_added_mass_of_lamb(axes: tuple[float, float, float]) -> None:
    points, triangles = bodies.sphere(6)
    a, b, c = axes
    # H. Lamb, Hydrodynamics, section 114
    alpha = quad(lambda s: a * b * c / ((a**2 + s) * math.sqrt((a**2 + s) * (b**2 + s) * (c**2 + s))), 0, math.inf)[0]
    exact = alpha / (2 - alpha) * 4 / 3 * math.pi * a * b * c
    found = bodies.solve(points * axes, triangles)
    assert found.added_mass == pytest.approx(exact, rel=0.03)
    assert bodies.solve(points * axes + 5, triangles).added_mass == pytest.approx(found.added_mass, rel=1e-9)
    assert bodies.solve(2 * points * axes, triangles).added_mass == pytest.approx(8 * found.added_mass, rel=1e-9)


def test_random_bodies_are_closed_and_have_no_drag() -> None:
    for seed in range(3):
        points, triangles = bodies.body(np.random.default_rng(seed), 5)
        normals, areas = bodies.faces(points, triangles)
        assert np.abs(normals.T @ areas).max() < 1e-9 * areas.sum()
        assert ((points[triangles].mean(axis=1) * normals).sum(axis=1) > 0).all()  # outwards
        pressure = bodies.solve(points, triangles).pressure
        assert pressure.max() == pytest.approx(1, abs=0.1)  # where the flow is divided
        drag = (pressure[triangles].mean(axis=1) * normals[:, 0] * areas).sum()
        assert abs(drag) < 0.03 * areas.sum()
