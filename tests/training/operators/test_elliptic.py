"""The elliptic operator: its laws hold exactly, and its bound holds for any coefficient and source."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

import physics.darcy
from physics.families import FAMILIES, gaussian
from physics.numerics import volumes
from physics.numerics.grid import WALL, axis, relative_l2
from training import checkpoint
from training.nn.elliptic.certified_gradients import Faces, means
from training.operators.elliptic import EllipticConfig, EllipticOperator

Array = NDArray[np.float64]
GRIDS = (15, 29, 43, 61)
#: Families between others that the suite has, or scaled ones.
BETWEEN = {"contrast 10", "contrast 100", "contrast 1000", "constant 6", "30 / 120"}


def operator(**changes: object) -> EllipticOperator:
    """Return a small operator whose corrections are large and arbitrary."""
    torch.manual_seed(0)
    network = EllipticOperator(EllipticConfig(channels=8, layers=1, **changes))  # type: ignore[arg-type]
    torch.nn.init.normal_(network.correction.head.weight, std=0.3)
    return network.eval()


def two_values(points: int = 43) -> torch.Tensor:
    return torch.from_numpy(np.stack([physics.darcy.example(points, seed) for seed in range(3)])).float()


@dataclass(frozen=True)
class Discrete:
    """An operator's own discrete equation in double precision."""

    matrix: sparse.csc_array
    solution: Array

    @classmethod
    def of(cls, network: EllipticOperator, coefficient: torch.Tensor, source: Array) -> Discrete:
        """Return the equation with the operator's corrections."""
        return cls.with_faces(copy.deepcopy(network).double().faces(coefficient[None].double()), source)

    @classmethod
    def plain(cls, coefficient: torch.Tensor, source: Array) -> Discrete:
        """Return the equation without corrections."""
        return cls.with_faces(means(coefficient[None].double()), source)

    @classmethod
    def with_faces(cls, faces: Faces, source: Array) -> Discrete:
        A = assemble(faces.down[0].detach().numpy(), faces.across[0].detach().numpy())
        load = source * volumes.areas(source.shape, WALL)
        return cls(A, splu(A).solve(load.ravel()))

    def distance(self, found: torch.Tensor) -> float:
        error, exact = self.solution - found.double().numpy().ravel(), self.solution
        return float(np.sqrt((error @ (self.matrix @ error)) / (exact @ (self.matrix @ exact))))


def assemble(down: Array, across: Array) -> sparse.csc_array:
    rows, columns = down.shape[0] - 1, down.shape[1]
    down = down * volumes.widths(columns, WALL) / volumes.distances(rows, WALL)[:, None]
    across = across * volumes.widths(rows, WALL)[:, None] / volumes.distances(columns, WALL)
    diagonal = (down[1:] + down[:-1] + across[:, 1:] + across[:, :-1]).ravel()
    right = np.pad(-across[:, 1:-1], ((0, 0), (0, 1))).ravel()[:-1]
    below = -down[1:-1].ravel()
    diagonals = [below, right, diagonal, right, below]
    return sparse.csc_array(sparse.diags_array(diagonals, offsets=(-columns, -1, 0, 1, columns)))


def drawn(family: str) -> Iterator[tuple[torch.Tensor, Array]]:
    """Yield coefficients on four grids, each with the source 1 and with two other sources."""
    for points in GRIDS:
        for seed in range(3):
            rng = np.random.default_rng((points, seed))
            field = FAMILIES[family](rng, axis(points))
            source = (
                np.ones_like(field) if seed == 0 else 10.0 ** rng.integers(-3, 4) * rng.standard_normal(field.shape)
            )
            yield torch.from_numpy(field).float(), source.astype(np.float32).astype(float)


@torch.no_grad()
def test_the_refinement_drops_the_corrections_and_solves_the_plain_equation() -> None:
    network = operator(refined=20)
    refined = network.refined()
    assert refined is not None
    assert refined.refined() is None
    fields = two_values()
    (solution, bound, solved), (finer, *finer_bounds) = (each.with_quality(fields) for each in (network, refined))
    exact = Discrete.plain(fields[0], np.ones(fields[0].shape))
    for each in finer_bounds:
        assert exact.distance(finer[0]) <= each[0].item() < solved[0].item() / 10
    assert exact.distance(solution[0]) > 1e-2
    assert (bound > 10 * solved).all()
    assert (network.config.steps, network.corrects) == (7, True)
    assert refined.solve_limit < network.solve_limit


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=pytest.mark.deep) if each in BETWEEN else each for each in FAMILIES]
)
@torch.no_grad()
def test_no_bound_is_below_its_distance(family: str) -> None:
    network = operator()
    for coefficient, source in drawn(family):
        solution, *bounds = network.with_quality(coefficient[None], torch.from_numpy(source)[None].float())
        equations = Discrete.plain(coefficient, source), Discrete.of(network, coefficient, source)
        for bound, equation in zip(bounds, equations, strict=True):
            assert np.isfinite(bound.item())
            assert bound.item() >= equation.distance(solution[0])


@torch.no_grad()
def test_the_bound_holds_for_what_rounding_leaves_on_the_finest_grid() -> None:
    """Every iteration rounds the solution once more, most of all relatively where both materials are nearly alike."""
    refined, example = operator(refined=20).refined(), physics.darcy.example(421, 9)
    coefficient = torch.from_numpy(np.where(example > example.min(), 1.0, 1 / 1.3)).float()
    assert refined is not None
    solution, bound, _ = refined.with_quality(coefficient[None])
    distance = Discrete.plain(coefficient, np.ones(example.shape)).distance(solution[0])
    assert 0.3 * bound.item() < distance <= bound.item()


@torch.no_grad()
def test_the_bound_is_close_for_trained_fields() -> None:
    network, coefficient = operator(), two_values()
    for field, solution, *bounds in zip(coefficient, *network.with_quality(coefficient), strict=True):
        ones = np.ones(field.shape)
        assert bounds[1].item() < 1.1 * Discrete.of(network, field, ones).distance(solution)
        # This bound is one of the fluxes' change, of which a part has no effect on the solution.
        assert bounds[0].item() < 2 * Discrete.plain(field, ones).distance(solution)


@torch.no_grad()
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_what_has_no_solution_has_no_bound(value: float) -> None:
    fields = two_values()
    fields[1, 3, 4] = value
    solution, *bounds = operator().with_quality(fields)
    assert solution[1].isnan().all()
    for bound in bounds:
        assert bound.isnan().flatten().tolist() == [False, True, False]


@torch.no_grad()
def test_nothing_flows_without_a_source() -> None:
    for output in operator().with_quality(two_values(), torch.zeros(3, 43, 43)):
        assert not output.any()


@pytest.mark.parametrize("value", [1.0, 6.0, 1e-20, 1e20, 3e-38, 3.4e38])
@torch.no_grad()
def test_a_constant_coefficient_is_solved_exactly(value: float) -> None:
    solution, *bounds = operator().with_quality(torch.full((1, 43, 61), value))
    exact = physics.darcy.solve(np.ones((43, 61)))
    smallest = 2 * value * float(np.finfo(np.float32).smallest_subnormal)  # the resolution of small solutions
    np.testing.assert_allclose(solution[0].double().numpy() * value, exact, rtol=1e-5, atol=1e-7 + smallest)
    assert all(bound.item() < 1e-5 for bound in bounds)


@torch.no_grad()
def test_scaling_coefficient_and_source_changes_nothing() -> None:
    network, coefficient = operator(), two_values()
    source = torch.randn(3, 43, 43)
    expected, *bounds = network.with_quality(coefficient, source)
    for factor in (1e-3, 10.0, 7e4):
        found, *others = network.with_quality(factor * coefficient, factor * source)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6 * expected.abs().max().item())
        torch.testing.assert_close(others, bounds, rtol=1e-3, atol=0)


@torch.no_grad()
def test_the_converged_solution_is_linear_in_the_source() -> None:
    network, coefficient = operator(steps=20), two_values()
    first, second = torch.randn(2, 3, 43, 43)
    together = network(coefficient, first - 3 * second)
    apart = network(coefficient, first) - 3 * network(coefficient, second)
    assert (together - apart).norm() < 1e-5 * together.norm()


@pytest.mark.parametrize("family", ["smooth log-normal", "linear ramp", "constant 6", "three materials 3 / 6 / 12"])
@torch.no_grad()
def test_fields_unlike_the_trained_ones_get_the_finite_volumes(family: str) -> None:
    coefficient = FAMILIES[family](np.random.default_rng(1), axis(61))
    found = operator(steps=15)(torch.from_numpy(coefficient)[None].float())[0].double().numpy()
    expected = physics.darcy.solve(coefficient)
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


@torch.no_grad()
def test_corrected_coefficients_stay_between_least_and_greatest() -> None:
    coefficient = two_values()
    faces, plain = operator().faces(coefficient), operator(contrast=1e6, reach=0.1).faces(coefficient)
    for one in (faces.down, faces.across):
        assert one.min() >= 3 * (1 - 1e-6)
        assert one.max() <= 12 * (1 + 1e-6)
    assert (faces.down - plain.down).abs().max() > 0.1  # there is something to bound


@torch.no_grad()
def test_on_the_mesh_itself_there_is_nothing_to_correct() -> None:
    coefficient = two_values(43)
    found = operator(mesh=43, steps=15)(coefficient)[0].double().numpy()
    expected = physics.darcy.solve(coefficient[0].double().numpy(), wall=0.5 / 43)
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


@torch.no_grad()
def test_cells_of_any_number_have_their_walls_half_a_cell_outside() -> None:
    coefficient = FAMILIES["smooth log-normal"](np.random.default_rng(0), (np.arange(64) + 0.5) / 64)
    found = operator(points="cells", steps=15)(torch.from_numpy(coefficient)[None].float())[0].double().numpy()
    expected = physics.darcy.solve(coefficient, wall=0.5 / 64)
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


def on_nodes(coefficient: Array, source: Array) -> Array:
    """Solve on points from wall to wall by the five-point scheme, whose faces have the mean of both neighbours."""
    rows, columns = (side - 2 for side in coefficient.shape)
    inside, h = slice(1, -1), [1 / (side - 1) for side in coefficient.shape]
    down = (coefficient[1:] + coefficient[:-1])[:, inside] / 2 / h[0] ** 2
    across = (coefficient[:, 1:] + coefficient[:, :-1])[inside] / 2 / h[1] ** 2
    A = sparse.lil_array((rows * columns, rows * columns))
    for i, j in np.ndindex(rows, columns):
        k = i * columns + j
        A[k, k] = down[i, j] + down[i + 1, j] + across[i, j] + across[i, j + 1]
        if i + 1 < rows:
            A[k, k + columns] = A[k + columns, k] = -down[i + 1, j]
        if j + 1 < columns:
            A[k, k + 1] = A[k + 1, k] = -across[i, j + 1]
    return np.pad(splu(A.tocsc()).solve(source[inside, inside].ravel()).reshape(rows, columns), 1)


def manufactured(x: Array) -> tuple[Array, Array, Array]:
    """Return coefficient, source and solution of an equation at points on both axes."""
    X, Y = np.meshgrid(x, x, indexing="ij")
    a, u = 2 + X + Y**2, np.sin(np.pi * X) * np.sin(2 * np.pi * Y)
    down = np.pi * np.cos(np.pi * X) * np.sin(2 * np.pi * Y)
    across = 2 * np.pi * np.sin(np.pi * X) * np.cos(2 * np.pi * Y)
    return a, 5 * np.pi**2 * a * u - down - 2 * Y * across, u


@torch.no_grad()
def test_the_error_on_nodes_falls_with_the_square_of_the_distance() -> None:
    network, errors = operator(points="nodes", steps=15).double(), []
    for points in (17, 33, 65):
        a, f, exact = manufactured(np.linspace(0, 1, points))
        found = network(torch.from_numpy(a)[None], torch.from_numpy(f)[None])[0].numpy()
        assert not found[[0, -1]].any()
        assert not found[:, [0, -1]].any()
        errors.append(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders == pytest.approx([2, 2], abs=0.1)


@torch.no_grad()
def test_nodes_have_the_solution_and_the_bound_of_their_own_scheme() -> None:
    rng = np.random.default_rng(0)
    coefficient = FAMILIES["smooth log-normal"](rng, np.linspace(0, 1, 41))[:, :31]
    source = rng.standard_normal(coefficient.shape)
    expected = on_nodes(coefficient, source)
    inputs = [torch.from_numpy(field)[None].float() for field in (coefficient, source)]
    for steps in (3, 15):
        found, _, bound = operator(points="nodes", steps=steps).with_quality(*inputs)
        error = np.linalg.norm(found[0].double().numpy() - expected) / np.linalg.norm(expected)
        assert error < (2 * bound.item() if steps == 3 else 1e-4)
    assert bound.item() < 1e-4


@torch.no_grad()
def test_the_released_corrections_hold_on_nodes() -> None:
    network = checkpoint.load_operator(Path(__file__).parents[3] / "checkpoints" / "darcy").operator
    assert isinstance(network, EllipticOperator)
    drawn = [gaussian(np.random.default_rng(seed), np.linspace(0, 1, 169)) for seed in range(4)]
    fine = torch.from_numpy(physics.darcy.permeability(np.stack(drawn))).float()
    truth, found, plain = (
        nodal(network, field, mesh)[:, ::every, ::every]
        for field, mesh, every in ((fine, 169, 4), (fine[:, ::4, ::4], 169, 1), (fine[:, ::4, ::4], 43, 1))
    )
    assert relative_l2(found, truth).mean() < 0.6 * relative_l2(plain, truth).mean()


def nodal(network: EllipticOperator, coefficient: torch.Tensor, mesh: int) -> Array:
    """Return an operator's solution on nodes; with as many points as the mesh it corrects nothing."""
    network.config = network.config.model_copy(update={"points": "nodes", "mesh": mesh, "steps": 14})
    found: Array = network(coefficient).double().numpy()
    return found
