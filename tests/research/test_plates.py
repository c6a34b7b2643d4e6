"""The solver of plates: Kirsch's solution, the observed order, balance of forces, and files that a seed fixes."""

from __future__ import annotations

from pathlib import Path

import meshio
import numpy as np
import pytest
from typer.testing import CliRunner

from research import plates
from research.commands import app
from research.plates import Array, Hole, corners_of, displacement_of, load_of, mesh_of, stress_of

NONE = np.zeros(1)


def circle(radius: float) -> Hole:
    return Hole(radius, NONE, NONE)


def kirsch(points: Array, radius: float) -> Array:
    """Return the stress around a circular hole in an infinite plate under tension along x (Kirsch 1898)."""
    x, y = points
    angle, part = np.arctan2(y, x), radius**2 / (x**2 + y**2)
    radial = (1 - part) / 2 + (1 - 4 * part + 3 * part**2) / 2 * np.cos(2 * angle)
    hoop = (1 + part) / 2 - (1 + 3 * part**2) / 2 * np.cos(2 * angle)
    shear = -(1 + 2 * part - 3 * part**2) / 2 * np.sin(2 * angle)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    polar = np.array([[radial, shear], [shear, hoop]])
    return np.asarray(np.einsum("ia...,ab...,jb...->ij...", turn, polar, turn))


def error(around: int, rings: int) -> float:
    """Return the largest error at the nodes under the tractions of Kirsch's solution."""
    mesh = mesh_of(circle(0.2), around, rings)
    expected = kirsch(corners_of(mesh).T, 0.2)
    found = stress_of(mesh, lambda points: kirsch(points, 0.2))
    return float(np.abs(found - np.stack([expected[0, 0], expected[1, 1], expected[0, 1]], axis=1)).max())


def test_the_stress_converges_to_the_solution_of_kirsch() -> None:
    errors = [error(16 * factor, 4 * factor) for factor in (1, 2, 4)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders[0] > 1.6
    assert orders[1] > 1.8
    assert errors[-1] < 5e-3


def test_a_small_hole_triples_the_stress() -> None:
    stress = stress_of(mesh_of(circle(0.02), 48, 30))
    assert stress[12, 0] == pytest.approx(3, rel=0.02)  # on the y axis
    assert stress[0, 1] == pytest.approx(-1, rel=0.02)  # on the x axis


def test_a_uniform_stress_is_exact_in_a_plate_with_an_edge_that_carries_it() -> None:
    """Elements with curved edges hold linear displacements, so the forces of a uniform stress are in balance inside."""
    mesh = mesh_of(plates.draw(np.random.default_rng(0)), 24, 4)
    basis = displacement_of(mesh)[1]
    x, y = basis.doflocs
    across = np.arange(basis.N) % 2 == 0  # degrees of freedom alternate between x and y
    linear = np.where(across, x, -plates.POISSON * y) / plates.YOUNG
    force = plates.stiffness_of(basis) @ linear - load_of(mesh, basis)
    at_hole = np.hypot(x, y) <= np.hypot(*mesh.p[:, :24]).max() + 1e-9
    assert np.abs(force[~at_hole]).max() < 1e-12


def test_forces_are_in_balance() -> None:
    mesh = mesh_of(plates.draw(np.random.default_rng(1)), 32, 8)
    displacement, basis = displacement_of(mesh)
    load = load_of(mesh, basis)
    right = np.isclose(basis.doflocs[0], plates.SIDE / 2)
    assert load[right].sum() == pytest.approx(plates.SIDE)
    assert load.sum() == pytest.approx(0, abs=1e-12)
    # Also where displacements are held: nothing has to be carried there.
    assert np.abs(plates.stiffness_of(basis) @ displacement - load).max() < 1e-10


@pytest.mark.parametrize("number", range(3))
def test_the_edge_of_the_hole_is_free_and_a_section_carries_the_load(number: int) -> None:
    hole = plates.draw(np.random.default_rng(number))
    around, rings = 64, 16
    mesh = mesh_of(hole, around, rings)
    points, stress = corners_of(mesh), stress_of(mesh)
    edge = points[:around]
    along = np.roll(edge, -1, axis=0) - np.roll(edge, 1, axis=0)
    n = np.stack([along[:, 1], -along[:, 0]], axis=1) / np.linalg.norm(along, axis=1)[:, None]
    xx, yy, xy = stress[:around].T
    traction = np.stack([xx * n[:, 0] + xy * n[:, 1], xy * n[:, 0] + yy * n[:, 1]])
    assert np.sqrt((traction**2).mean()) < 0.03 * np.sqrt((stress[:around] ** 2).sum(axis=1).mean())
    carried = 0.0
    for ray in (around // 4, 3 * around // 4):  # the y axis on both sides of the hole
        nodes = np.arange(rings + 1) * around + ray
        carried += np.trapezoid(stress[nodes, 0], np.abs(points[nodes, 1]))
    assert carried == pytest.approx(plates.SIDE, rel=0.01)


def test_the_stress_is_that_of_every_material(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = mesh_of(plates.draw(np.random.default_rng(2)), 48, 12)
    one = stress_of(mesh)
    monkeypatch.setattr(plates, "POISSON", 0.0)
    monkeypatch.setattr(plates, "YOUNG", 7.0)
    assert np.abs(stress_of(mesh) - one).max() < 0.02 * np.abs(one).max()


def test_meshes_need_rays_to_the_corners() -> None:
    with pytest.raises(ValueError, match="expected a multiple of 8"):
        mesh_of(circle(0.1), 20, 4)


def test_the_command_writes_what_the_seed_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plates, "AROUND", (16,))
    monkeypatch.setattr(plates, "RINGS", (4, 6))
    for folder, count in (("some", "2"), ("more", "3")):
        arguments = ["plates", str(tmp_path / folder), "--samples", count, "--seed", "7"]
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert sorted(path.name for path in (tmp_path / "more").iterdir()) == ["0000.vtu", "0001.vtu", "0002.vtu"]
    one, same, other = (meshio.read(tmp_path / name) for name in ("some/0001.vtu", "more/0001.vtu", "more/0002.vtu"))
    assert (one.points == same.points).all()
    assert (one.point_data["stress"] == same.point_data["stress"]).all()
    assert one.point_data["stress"].shape == (len(one.points), 3)
    assert {cells.type for cells in one.cells} == {"quad"}
    assert len(one.points) != len(other.points) or (one.points != other.points).any()
