"""Error measures against manufactured fields: exact norms, orders in the spacing, one formula for both libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from physics import darcy
from physics.numerics import volumes
from physics.numerics.grid import relative_l2
from schema.parts import Axis
from training.metrics import METRICS, ErrorMeasure, Grid, measured
from training.metrics.fields import spectrum
from training.recipe import Fit

Fields = NDArray[np.float64]
NODES, CELLS = Axis(name="x", points="nodes"), Axis(name="x")
PERIODIC = Axis(name="x", boundary="periodic", points="left")
l2, h1, maximum, vrmse, correlation, of_spectrum = (
    METRICS[name]
    for name in ("relative_l2", "relative_h1", "relative_maximum", "vrmse", "correlation", "relative_spectrum")
)


def locations(axis: Axis, points: int) -> Fields:
    """Return where the points of an axis lie."""
    shift = 0.5 if axis.points == "cells" else 0
    return (np.arange(points) + shift) * axis.spacing(points)


def order(error: Callable[[int], float], points: tuple[int, int] = (80, 640)) -> float:
    """Return the observed order of convergence in the spacing."""
    coarse, fine = (error(n) for n in points)
    return float(np.log(coarse / fine) / np.log(points[1] / points[0]))


@pytest.mark.parametrize(
    ("axis", "least"), [(NODES, 1.9), (CELLS, 0.9), (PERIODIC, 1.9)], ids=["nodes", "cells", "periodic"]
)
def test_the_gradient_s_error_converges_to_that_of_the_integrals(axis: Axis, least: float) -> None:
    """With u = sin(2 pi x) and e = 0.1 sin(4 pi x): |e'| / |u'| is 0.2, and a half cell at a wall costs first order."""

    def error(points: int) -> float:
        x = locations(axis, points)
        u = np.sin(2 * np.pi * x) + 3 * x * (axis is not PERIODIC)
        e = 0.1 * np.sin(4 * np.pi * x)
        exact = 0.2 * np.pi * np.sqrt(2) / np.sqrt(2 * np.pi**2 + 9 * (axis is not PERIODIC))
        return abs(float(h1((u + e)[None], u[None], Grid.of([axis], [points]))[0]) / exact - 1)

    assert order(error) > least
    assert error(640) < 0.003


@pytest.mark.parametrize("sides", [(9, 33), (33, 9), (17, 17)])
def test_axes_count_by_their_own_spacing(sides: tuple[int, int]) -> None:
    """Truth x + 2y and an error in x alone of a tenth of its slope: 0.1 / sqrt(5) on any grid of a 1 x 1 square.

    On a rectangle of height 4 the same values have slopes of 2/4 and 1: the error is 0.1 / sqrt(1.25).
    """
    y, x = np.meshgrid(*(np.linspace(0, 1, side) for side in sides), indexing="ij")
    truth, found = (x + 2 * y)[None], (1.1 * x + 2 * y)[None]
    assert h1(found, truth) == pytest.approx(0.1 / np.sqrt(5))
    high = Grid.of([Axis(name="y", length=4, points="nodes"), NODES], sides)
    assert h1(found, truth, high) == pytest.approx(0.1 / np.sqrt(1.25))


def test_errors_do_not_depend_on_the_number_of_points() -> None:
    """Every measure of the same two functions agrees on 40 and on 160 points per axis, up to the second order."""

    def errors(points: int) -> dict[str, float]:
        x = locations(PERIODIC, points)
        x, y = x[:, None], x[None]
        u = 1 + np.sin(2 * np.pi * x) * np.cos(2 * np.pi * y)
        p = u + 0.1 * np.cos(6 * np.pi * (x + y))
        pair = [torch.from_numpy(each)[None] for each in (p, u)]
        grid = replace(Grid.of([PERIODIC] * 2, [points] * 2), frames=True)
        return {name: float(each) for name, each in measured(METRICS.items, *([one] for one in pair), grid).items()}

    coarse, fine = errors(40), errors(160)
    assert coarse.keys() == METRICS.items.keys() - {"relative_energy"}
    assert coarse == pytest.approx(fine, rel=0.03)
    assert fine["relative_l2"] == pytest.approx(0.1 / np.sqrt(2) / np.sqrt(1.25), rel=1e-6)
    assert fine["vrmse"] == pytest.approx(0.1 / np.sqrt(2) / 0.5, rel=1e-6)
    assert fine["relative_h1"] == pytest.approx(0.6 * np.pi / (np.sqrt(2) * np.pi), rel=0.01)
    assert fine["relative_maximum"] == pytest.approx(0.1 / 2, rel=0.01)


def test_a_periodic_axis_has_the_pair_across_its_end() -> None:
    """A jump at the end alone is seen on a periodic axis, and is none on an axis with walls."""
    truth, found = np.sin(2 * np.pi * np.arange(8) / 8)[None], np.sin(2 * np.pi * np.arange(8) / 8)[None]
    found = found + np.arange(8) * 0  # the same
    shifted = truth + 1.0
    assert h1(shifted, truth, Grid.of([PERIODIC], [8])) == pytest.approx(0, abs=1e-12)
    ramp = np.linspace(0, 1, 8)[None]
    assert h1(found + 0.1 * ramp, truth, Grid.of([PERIODIC], [8])) > 1.5 * h1(
        found + 0.1 * ramp, truth, Grid.of([NODES], [8])
    )


@pytest.mark.parametrize("name", [name for name in METRICS if name != "relative_energy"])
@pytest.mark.parametrize("components", [(), (2,)], ids=["scalar", "vector"])
def test_tensors_and_arrays_have_the_same_errors(name: str, components: tuple[int, ...]) -> None:
    found, truth = np.random.default_rng(0).standard_normal((2, 3, *components, 8, 6))
    grid = replace(Grid.of([PERIODIC] * 2, [8, 6]), frames=True)
    tensors = METRICS[name](torch.from_numpy(found), torch.from_numpy(truth), grid)
    np.testing.assert_array_equal(METRICS[name](found, truth, grid), tensors.numpy())
    single = METRICS[name](torch.from_numpy(found).float(), torch.from_numpy(truth).float(), grid)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single.numpy(), tensors.numpy(), rtol=1e-4)


def test_the_relative_l2_error_is_that_of_the_stages_without_torch() -> None:
    found, truth = np.random.default_rng(0).standard_normal((2, 5, 16, 12))
    np.testing.assert_allclose(l2(found, truth), relative_l2(found, truth), rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-21, 1e20])
def test_the_scale_of_a_unit_decides_nothing(scale: float) -> None:
    found, truth = np.random.default_rng(0).standard_normal((2, 2, 8, 8))
    grid = replace(Grid.of([PERIODIC] * 2, [8, 8]), frames=True)
    for measure in (l2, h1, maximum, vrmse, correlation, of_spectrum):
        np.testing.assert_allclose(measure(scale * found, scale * truth, grid), measure(found, truth, grid), rtol=1e-10)
        single = [(scale * torch.from_numpy(each)).float() for each in (found, truth)]
        np.testing.assert_allclose(measure(*single, grid), measure(found, truth, grid), rtol=1e-4, err_msg=measure.name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["relative_l2", "relative_h1", "vrmse", "relative_spectrum", "correlation"])
def test_half_precision_is_compared_in_single(name: str, dtype: torch.dtype) -> None:
    """A sum of the points of this grid overflows in float16, and one of more than 256 stops growing in bfloat16."""
    x = torch.arange(300) * (2 * torch.pi / 300)
    truth = (1 + torch.sin(x)[:, None] * torch.cos(x))[None].to(dtype)
    found, grid = (1.1 * truth.float() + 0.1 * torch.cos(3 * x)).to(dtype), Grid.of([PERIODIC] * 2, truth.shape[1:])
    error = METRICS[name](found, truth, grid)
    assert error.item() == pytest.approx(METRICS[name](found.double(), truth.double(), grid).item(), rel=1e-3)


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_a_prediction_that_is_no_number_is_never_right(lost: float) -> None:
    found, truth = np.random.default_rng(0).standard_normal((2, 2, 8, 8))
    found[0, 3, 3] = lost
    grid = replace(Grid.of([PERIODIC] * 2, [8, 8]), frames=True)
    for measure in (l2, h1, maximum, vrmse, correlation, of_spectrum):
        errors = measure(found, truth, grid)
        assert not np.isfinite(errors[0]), measure.name
        assert np.isfinite(errors[1]), measure.name


def test_a_constant_has_no_correlation_whatever_its_mean_is_rounded_to() -> None:
    """That of a constant prediction is 0; with a constant truth no prediction has any."""
    constant, varying = np.full((1, 11), 0.1), np.random.default_rng(0).standard_normal((1, 11))
    assert correlation(constant, varying).tolist() == [0.0]
    assert np.isnan([correlation(each, constant) for each in (constant, varying)]).all()


@pytest.mark.parametrize("measure", [h1, vrmse], ids=lambda one: one.name)
def test_a_constant_truth_has_no_error_relative_to_what_it_varies(measure: ErrorMeasure) -> None:
    truth = np.full((2, 9), 0.1, np.float32).astype(float)
    truth[1] += np.linspace(0, 1, 9)
    assert np.isnan(measure(truth + 0.1, truth)).tolist() == [True, False]
    assert np.isnan(measure(truth.reshape(2, 3, 3), truth.reshape(2, 3, 3))).tolist() == [True, False]


def test_values_outside_a_domain_do_not_count() -> None:
    """A plate with a hole: whatever lies in it, errors are those of the rest."""
    y, x = np.meshgrid(np.linspace(0, 1, 21), np.linspace(0, 1, 21), indexing="ij")
    inside = ((x - 0.5) ** 2 + (y - 0.5) ** 2 > 0.06).astype(float)
    truth, found = x + 2 * y, 1.1 * x + 2 * y
    grid = replace(Grid.unit((21, 21)), inside=torch.from_numpy(inside)[None])
    for measure in (l2, h1, maximum, vrmse, correlation):
        clean = measure((found * inside)[None], (truth * inside)[None], grid)
        spoiled = measure((found * inside + 9 * (1 - inside))[None], (truth * inside)[None], grid)
        assert spoiled == pytest.approx(clean)
        holed = measure(np.where(inside, found, np.nan)[None], np.where(inside, truth, 1e30)[None], grid)
        assert holed == pytest.approx(clean), measure.name
    assert h1((found * inside)[None], (truth * inside)[None], grid) == pytest.approx(0.1 / np.sqrt(5))


def scattered(points: int, dimension: int, padding: int = 3) -> tuple[Fields, Grid]:
    """Draw points of the unit cube, with padding that is like the first one."""
    places = np.random.default_rng(points).random((points, dimension))
    padded = np.concatenate([places, np.repeat(places[:1], padding, axis=0)])
    inside = np.arange(points + padding) < points
    grid = Grid(scattered=True, coordinates=torch.from_numpy(padded)[None], inside=torch.from_numpy(inside)[None])
    return padded, grid


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_gradients_on_points_are_exact_for_linear_fields_and_of_first_order(dimension: int) -> None:
    slopes = np.array([1.0, -2.0, 0.5])[:dimension]
    places, grid = scattered(60, dimension)
    valid = grid.inside.numpy() if grid.inside is not None else np.ones(1)
    truth = (3 + places @ slopes)[None] * valid
    assert h1((truth + 0.1 * places[:, 0]) * valid, truth, grid) == pytest.approx(0.1 / np.linalg.norm(slopes))

    def error(points: int) -> float:
        places, grid = scattered(points, dimension, padding=0)
        truth = np.sin(2 * np.pi * places[:, 0])[None]
        return abs(float(h1(truth + 0.1 * np.sin(4 * np.pi * places[:, 0]), truth, grid)[0]) / 0.2 - 1)

    assert error(4000) < 0.5 * error(250) + 0.01
    assert error(4000) < {1: 0.01, 2: 0.05, 3: 0.15}[dimension]


def test_one_point_has_no_gradient() -> None:
    grid = Grid(scattered=True, coordinates=torch.rand(3, 2, 2), inside=torch.tensor([[1, 0], [1, 1], [0, 0]]))
    assert h1(torch.ones(3, 2), torch.tensor([[1.0, 2.0]]).expand(3, 2), grid).isnan().tolist() == [True, False, True]


def test_weights_of_points_count_in_every_mean() -> None:
    """Two points of three coincide with a third of the weight each: as one point with two thirds."""
    found, truth = (np.array([[[1.0], [2.0], [2.0]]]), np.array([[[1.0], [3.0], [3.0]]]))
    three = Grid(scattered=True, weights=torch.tensor([[1.0, 0.5, 0.5]]))
    two = Grid(scattered=True, weights=torch.tensor([[1.0, 1.0]]))
    for measure in (l2, vrmse, correlation):
        np.testing.assert_allclose(measure(found, truth, three), measure(found[:, :2], truth[:, :2], two))


def test_padding_does_not_count_whatever_a_prediction_holds_there() -> None:
    """Vectors on five points of eight, beside the five alone."""
    rng = np.random.default_rng(0)
    found, truth, places = rng.standard_normal((3, 1, 8, 2))
    weights = torch.from_numpy(rng.random((1, 8)))
    first = Grid(scattered=True, coordinates=torch.from_numpy(places[:, :5]), weights=weights[:, :5])
    inside = torch.arange(8)[None] < 5
    padded = replace(first, coordinates=torch.from_numpy(places), weights=weights, inside=inside)
    for measure in (l2, h1, maximum, vrmse, correlation):
        np.testing.assert_allclose(
            measure(found, truth, padded), measure(found[:, :5], truth[:, :5], first), err_msg=measure.name
        )


def test_the_spectrum_sees_amplitudes_and_no_phases() -> None:
    x = np.arange(32) / 32
    truth = np.cos(2 * np.pi * 3 * x)[None]
    grid = Grid.of([PERIODIC], [32])
    assert of_spectrum(np.roll(truth, 5, axis=1), truth, grid) == pytest.approx(0, abs=1e-7)
    assert of_spectrum(1.2 * truth, truth, grid) == pytest.approx(0.2)
    noise = np.random.default_rng(0).standard_normal((20, 32))
    assert (of_spectrum(truth + noise, truth + 0 * noise, grid) <= l2(truth + noise, truth + 0 * noise) + 1e-12).all()
    energy = spectrum(torch.from_numpy(noise), 1).sum(dim=1).numpy()
    np.testing.assert_allclose(energy, np.square(noise).mean(axis=1))  # Parseval


def test_the_energy_of_a_pressure_is_the_work_of_its_source() -> None:
    """For a solution u of -div(a grad u) = 1, the integral of a |grad u|^2 is that of u."""
    a, wall = darcy.example(29, seed=1), 0.5 / 421
    u = darcy.solve(a)
    energy = u.ravel() @ volumes.matrix(a, wall) @ u.ravel()
    assert energy == pytest.approx((u * volumes.areas(u.shape, wall)).sum(), rel=1e-8)
    inputs = {"a": torch.from_numpy(a)[None]}
    grid = replace(Grid.unit(u.shape), inputs=inputs, energy_weight="a", wall=wall)
    measure = METRICS["relative_energy"]
    np.testing.assert_allclose(measure(1.5 * u[None], u[None], grid), [0.5], rtol=1e-6)
    uneven = (u + 0.01 * u.max() * (a > 5))[None]
    assert measure(uneven, u[None], grid) > l2(uneven, u[None])  # a jump is mostly gradient
    assert not measure.applies(replace(grid, energy_weight=None))


def test_gradients_flow_through_every_measure_but_the_energy() -> None:
    truth = torch.randn(2, 8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grid = replace(Grid.of([PERIODIC] * 2, [8, 6]), frames=True)
    for name in METRICS.items.keys() - {"relative_energy"}:
        guess = (0.9 * truth + 0.01).requires_grad_()
        METRICS.items[name](guess, truth, grid).sum().backward()
        assert guess.grad is not None
        assert torch.isfinite(guess.grad).all(), name


def test_what_is_no_error_of_every_sample_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fields of one shape but got \(2, 4\) and \(2, 5\)"):
        l2(np.zeros((2, 4)), np.zeros((2, 5)))
    with pytest.raises(
        ValueError, match=r"expected two tensors of floats or two arrays .* but got ndarray of complex128"
    ):
        l2(np.ones((2, 4)) + 1j, np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"but got Tensor of torch.float32 and ndarray of float64"):
        l2(torch.zeros(2, 4), np.zeros((2, 4)))  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"but got Tensor of torch.int64 and Tensor of torch.int64"):
        l2(torch.ones(2, 4).long(), torch.ones(2, 4).long())
    with pytest.raises(ValueError, match=r"on 2 axes but got \(2, 4\)"):
        vrmse(np.ones((2, 4)), np.ones((2, 4)), Grid.unit((2, 4)))
    for shape in ((2, 4, 1), (3, 4, 5), (2, 5, 4)):
        with pytest.raises(ValueError, match=r"expected inside of shape \(2, 4, 5\) but got"):
            l2(np.ones((2, 4, 5)), np.ones((2, 4, 5)), replace(Grid.unit((4, 5)), inside=torch.ones(shape)))
    mean = ErrorMeasure("mean", "a mean over everything", lambda p, u, grid: (p - u).abs().mean())  # noqa: ARG005
    with pytest.raises(ValueError, match=r"mean: expected errors of shape \(2,\) but got \(\)"):
        mean(np.zeros((2, 4)), np.zeros((2, 4)))


def test_recipes_that_weigh_differences_mean_those_without_the_spacing() -> None:
    """The loss of released recipes and the H1 error are equal on square grids with walls, and nowhere else."""
    from training.losses import LOSSES, Batch, relative_differences  # noqa: PLC0415 -- what this test is about

    found, truth = torch.randn(2, 2, 9, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    square = found[..., :9], truth[..., :9]
    torch.testing.assert_close(relative_differences(*square), h1(*square))
    y, x = torch.meshgrid(*(torch.linspace(0, 1, n, dtype=torch.float64) for n in (9, 33)), indexing="ij")
    found, truth = (1.1 * x + 2 * y)[None], (x + 2 * y)[None]
    assert h1(found, truth) == pytest.approx(0.1 / 5**0.5)
    assert relative_differences(found, truth) < 0.4 * h1(found, truth)  # differences along the finer axis are smaller
    fit = Fit(epochs=1, batch=1, learning_rate=1e-3, h1=0.5)
    loss = LOSSES["relative"].compute([found], Batch([], [truth]), fit)
    assert loss == (l2(found, truth) + 0.5 * relative_differences(found, truth)).mean()
