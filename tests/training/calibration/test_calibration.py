"""Calibrations: coverage of the estimate, the share of inputs that are outside, foreign families, and the file."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from physics import darcy
from physics.numerics.fields import neumann_field, periodic_field
from schema.problem import Description
from training import calibration
from training.calibration import Calibration, Measured
from training.calibration.calibration import CalibrationError, account, grid_points
from training.fit.operator_workload import OperatorWorkload
from training.fit.run import workload
from training.messages import typed
from training.operators import Operator, build
from training.operators.operator import certified
from training.problems.problem import PROBLEMS
from training.recipes import find, read, read_fields

GRIDS = (21, 29)


@pytest.fixture(scope="module")
def problem() -> Description:
    return PROBLEMS["darcy"].description


def fields(points: int, first: int, count: int) -> Tensor:
    """Return coefficients of the Darcy benchmark's kind."""
    draws = [neumann_field(points, np.random.default_rng(seed)) for seed in range(first, first + count)]
    return torch.tensor(darcy.permeability(np.stack(draws)), dtype=torch.float32)


def smooth(points: int, first: int, count: int) -> Tensor:
    """Return smooth fields of deviation about 1."""
    axis = torch.arange(points) / points
    phases = torch.rand(count, 2, generator=torch.Generator().manual_seed(first)) * 6
    rows, columns = (torch.sin(3 * axis + phase[:, None]) for phase in phases.T)
    return rows[:, :, None] + columns[:, None]


def errors(inputs: Tensor) -> Tensor:
    """Return errors that depend on the input and on chance, as a network's do."""
    roughness = inputs.diff(dim=1).abs().mean((1, 2))
    generator = torch.Generator().manual_seed(len(inputs))
    return roughness * torch.rand(len(inputs), generator=generator).add(0.2) * 1e-2


def measured(points: int, first: int, count: int) -> Measured:
    inputs = fields(points, first, count)
    return Measured([inputs], errors(inputs))


@pytest.fixture(scope="module")
def found(problem: Description) -> Calibration:
    fitted = [measured(points, 0, 200) for points in GRIDS]
    made = calibration.calibrate(problem, fitted, [measured(points, 200, 400) for points in GRIDS])
    assert made is not None
    return made


def test_estimates_cover_and_inputs_of_the_distribution_are_inside(found: Calibration) -> None:
    for points in GRIDS:
        new = measured(points, 600, 400)
        estimate, novelty = found(*new.inputs)
        assert new.errors is not None
        covered = (new.errors <= estimate[:, 0]).double().mean().item()
        assert covered == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / 400 + 0.09 / 400))
        assert (novelty < 0.01).double().mean().item() <= 0.03


def test_a_calibrated_network_reports_the_bound_of_its_equation_first(found: Calibration) -> None:
    operator = cast("Operator", build(read_fields(find("darcy_galerkin-paper85")).operator)).eval()
    bounded = certified(operator, lambda *tensors: tensors[0].new_zeros(len(tensors[0]), 1))
    network = calibration.CalibratedOperator(bounded, found)
    inputs = fields(GRIDS[1], 0, 2)
    assert network.quality == ("error_bound", *found.names)
    with torch.inference_mode():
        _, bound, *judged = network.with_quality(inputs)
        torch.testing.assert_close(judged, [*found(inputs)])
    assert bound.tolist() == [[0.0]] * 2


LEVELS = torch.tensor([0.0, 0.01, 0.1], dtype=torch.float64)


def noisy(points: int, first: int, count: int) -> Measured:
    """Return samples at every level of noise, whose errors grow and spread with the noise and shrink with the grid."""
    generator, noise = torch.Generator().manual_seed(first), LEVELS.repeat_interleave(count)
    inputs = smooth(points, first, count).repeat(len(LEVELS), 1, 1)
    inputs = inputs + noise.float()[:, None, None] * torch.randn(inputs.shape, generator=generator)
    spread = (1 + 20 * noise) * torch.randn(len(noise), generator=generator)
    errors = (0.01 + noise * (20 / points) ** 2) * torch.exp(spread)
    return Measured([inputs], errors.float(), noise=noise)


@pytest.mark.parametrize("points", GRIDS)
def test_every_level_of_noise_is_covered_on_every_grid(problem: Description, points: int) -> None:
    """The noise decides size and spread of the error, by a factor that depends on the grid; only roughness tells it."""
    fitted, held, new = ([noisy(n, first, count) for n in GRIDS] for first, count in ((0, 100), (200, 400), (600, 400)))
    made = calibration.calibrate(problem, fitted, held)
    assert made is not None
    assert made.layout.noise == tuple(LEVELS.tolist())
    tested = new[GRIDS.index(points)]
    assert tested.errors is not None
    covered = (tested.errors <= made(*tested.inputs)[0][:, 0]).double().reshape(len(LEVELS), -1).mean(dim=1)
    assert covered.tolist() == pytest.approx([0.9] * 3, abs=3 * np.sqrt(0.09 / 400 + 0.09 / 400))


def test_one_quantile_serves_levels_of_noise_with_too_few_samples(problem: Description) -> None:
    fitted = [noisy(21, 0, 20)]
    few = noisy(21, 200, 8)
    made, plain = (calibration.calibrate(problem, fitted, [each]) for each in (few, Measured(few.inputs, few.errors)))
    assert made is not None
    assert plain is not None
    assert made.layout.noise == ()
    assert all(map(torch.equal, made(*few.inputs), plain(*few.inputs)))


def grouped(points: int, first: int, count: int, *, varied: bool) -> Measured:
    """Return samples with a source, whose errors are larger and spread more where it varies."""
    coefficients = fields(points, first, count)
    source = smooth(points, first, count) if varied else torch.ones_like(coefficients)
    spread = torch.rand(count, generator=torch.Generator().manual_seed(first + varied))
    return Measured([coefficients, source], 1e-2 * torch.exp((2 if varied else 0.1) * spread))


def test_each_of_two_groups_that_an_input_tells_apart_is_covered() -> None:
    problem = PROBLEMS["darcy"].description_for(optional=True)

    def both(first: int, count: int) -> list[Measured]:
        return [
            calibration.joined(*(grouped(n, first, count, varied=varied) for varied in (False, True))) for n in GRIDS
        ]

    made = calibration.calibrate(problem, both(0, 60), both(100, 300))
    assert made is not None
    assert (made.layout.apart, made.layout.inputs, made.layout.second) == ((1,), 600, 600)
    for varied in (False, True):
        new = grouped(GRIDS[1], 500, 300, varied=varied)
        estimate, novelty = made(*new.inputs)
        assert new.errors is not None
        covered = (new.errors <= estimate[:, 0]).double().mean().item()
        assert covered == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / 300 + 0.09 / 300))
        assert (novelty < 0.01).double().mean().item() <= 0.04
    alone = calibration.calibrate(problem, both(0, 60), [grouped(n, 100, 300, varied=True) for n in GRIDS])
    assert alone is not None
    assert alone.layout.apart == ()


def at(points: int, first: int, count: int, *, default: bool) -> Measured:
    """Return initial velocities, viscosities and times, whose errors spread more where these are no defaults."""
    rng = np.random.default_rng(first)
    initial = torch.tensor(np.stack([periodic_field(points, rng) for _ in range(count)]), dtype=torch.float32)
    others = [torch.full((count,), 0.01), torch.ones(count)]
    if not default:
        others = [torch.tensor(rng.uniform(*ends, count), dtype=torch.float32) for ends in ((0.003, 0.03), (0.1, 2))]
    spread = torch.tensor(rng.random(count), dtype=torch.float32)
    return Measured([initial, *others], 1e-3 * torch.exp((0.1 if default else 3) * spread))


def test_requests_with_the_defaults_of_all_numbers_are_covered_by_themselves() -> None:
    """Beside samples of all conditions they would be covered by nearly all estimates."""
    problem = PROBLEMS["burgers_flow"].description

    def both(first: int, count: int) -> list[Measured]:
        return [calibration.joined(*(at(n, first, count, default=default) for default in (True, False))) for n in GRIDS]

    made = calibration.calibrate(problem, both(0, 60), both(100, 300))
    assert made is not None
    assert (made.layout.apart, [index for index, _ in made.layout.defaults], made.layout.cases) == ((), [1, 2], 2)
    assert (made.layout.inputs, made.layout.second) == (600, 600)
    for default in (True, False):
        new = at(GRIDS[1], 500, 300, default=default)
        estimate, novelty = made(*new.inputs)
        assert new.errors is not None
        covered = (new.errors <= estimate[:, 0]).double().mean().item()
        assert covered == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / 300 + 0.09 / 300))
        assert (novelty < 0.01).double().mean().item() <= 0.04
    few = calibration.calibrate(problem, both(0, 60), [at(n, 100, 300, default=False) for n in GRIDS])
    assert few is not None
    assert few.layout.defaults == ()


@pytest.mark.parametrize("of_the_defaults", [12, 200, 800])
def test_few_requests_at_the_defaults_leave_what_is_unusual_to_all_inputs(of_the_defaults: int) -> None:
    """A dozen inputs tell nothing unusual; the quantile of their errors is theirs, and the guarantee is that of it."""
    problem, counts = PROBLEMS["burgers_flow"].description, (of_the_defaults, 1000 - of_the_defaults)

    def both(*counts: int) -> Measured:
        parts = zip(counts, (True, False), strict=True)
        return calibration.joined(*(at(21, count, count, default=default) for count, default in parts))

    made = calibration.calibrate(problem, [both(20, 60)], [both(*counts)])
    assert made is not None
    assert made.layout.cases == 2
    inputs = (1000,) if of_the_defaults == 12 else counts
    assert (made.layout.inputs, made.layout.second) == (*inputs, 0)[:2]
    limit = made.novelty.out_of_distribution
    assert limit == pytest.approx(1.5 / min(inputs), rel=0.01)
    for default in (True, False):
        initial, *others = at(21, 1, 5, default=default).inputs
        assert (made(50 * initial, *others)[-1] < limit).all()
    network = cast("Operator", workload(read(find("burgers-laptop")), Path(), progress=False).network())
    card = account(made, network, calibration.CalibrationSamples([], [], []))
    assert (card["errors_of_a_case"], card["guarantee"]) == (min(counts), calibration.guarantee(min(counts)))


def test_numbers_at_their_defaults_are_drawn_at_every_level_of_noise(tmp_path: Path) -> None:
    changes = ["data.mesh=128", "data.grids=[64]", "data.train=16", "data.validation=4", "data.test=12"]
    work = workload(read(find("burgers-laptop"), [*changes, "fit.noise=[0,0.05]"]), tmp_path, progress=False)
    network = cast("Operator", work.network())
    work.fit_normalisers(network)
    samples = cast("OperatorWorkload", work).renewed(10).calibration_samples(network)
    [held] = samples.calibration
    assert held.noise is not None
    default = held.inputs[1] == torch.tensor(0.01)
    pairs = [(bool(each), level) for each, level in zip(default, held.noise.tolist(), strict=True)]
    assert {pair: pairs.count(pair) for pair in pairs} == dict.fromkeys(itertools.product((False, True), (0, 0.05)), 10)


def test_numbers_with_defaults_are_drawn_with_and_without_them(tmp_path: Path) -> None:
    changes = ["data.mesh=128", "data.grids=[64]", "data.train=16", "data.validation=4", "data.test=12"]
    work = workload(read(find("burgers-laptop"), changes), tmp_path, progress=False)
    network = cast("Operator", work.network())
    work.fit_normalisers(network)
    samples = cast("OperatorWorkload", work).renewed(10).calibration_samples(network)
    [fitted], [held] = list(samples.fitted), list(samples.calibration)
    assert [len(each) for each in (fitted, held)] == [2 * 5, 2 * 10]
    assert held.errors is not None
    viscosity = held.inputs[1]
    assert (viscosity == torch.tensor(0.01)).tolist() == [False] * 10 + [True] * 10
    tested = list(samples.test)
    assert [len(each) for each in tested] == [12, 12]
    assert [each.kind for each in tested] == [{}, {"conditions": "viscosity 0.003 to 0.03, time 0.1 to 2"}]


def test_the_estimate_follows_the_expected_size_of_the_error(found: Calibration) -> None:
    new = measured(GRIDS[0], 600, 400)
    assert new.errors is not None
    order = found(*new.inputs)[0][:, 0].argsort()
    assert new.errors[order[-100:]].mean() > 1.2 * new.errors[order[:100]].mean()


FOREIGN: dict[str, Callable[[Tensor], Tensor]] = {
    "ten times": lambda a: 10 * a,
    "constant": lambda a: torch.full_like(a, 6.0),
    "contrast 40": lambda a: torch.where(a > 6, 120.0, 3.0),
    "smooth": lambda a: 3 + 9 * torch.linspace(0, 1, a.shape[-1]).expand_as(a),
    "noise": lambda a: torch.where(torch.rand(a.shape, generator=torch.Generator().manual_seed(0)) > 0.5, 12.0, 3.0),
    "three materials": lambda a: torch.where(a.roll(5, 1) > 6, 6.0, a),
}


@pytest.mark.parametrize("family", FOREIGN)
def test_foreign_families_are_outside(found: Calibration, family: str) -> None:
    assert (found(FOREIGN[family](fields(29, 600, 10)))[1] < 0.01).all()


def test_between_two_grids_the_larger_estimate_counts(found: Calibration) -> None:
    assert found.estimate is not None
    statistics = torch.randn(5, found.layout.statistics + found.layout.roughness)

    def estimate(points: int) -> Tensor:
        assert found.estimate is not None
        return found.estimate(statistics, torch.tensor([float(points**2)]))

    low, high = map(estimate, GRIDS)
    for points, expected in ((15, low), (25, torch.maximum(low, high)), (40, high)):
        assert torch.equal(estimate(points), expected)
    assert grid_points(torch.zeros(2, 3, 5, 7), axes=2).item() == 35


def test_few_samples_give_no_estimate_and_fewer_nothing(problem: Description) -> None:
    made = calibration.calibrate(problem, [measured(21, 0, 20)], [measured(21, 20, 8)])
    assert made is not None
    assert made.names == ("novelty",)
    assert calibration.calibrate(problem, [measured(21, 0, 15)], [measured(21, 20, 8)]) is None


def test_a_file_keeps_a_calibration(found: Calibration, tmp_path: Path) -> None:
    calibration.save(tmp_path, found)
    read = calibration.load(tmp_path)
    assert read is not None
    inputs = fields(21, 700, 3)
    assert all(map(torch.equal, read(inputs), found(inputs)))
    assert read.layout == found.layout


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    assert calibration.load(tmp_path) is None
    (tmp_path / calibration.FILE).write_bytes(b"{}")
    with pytest.raises(CalibrationError, match="expected a calibration"):
        calibration.load(tmp_path)


def test_a_file_of_an_earlier_version_says_what_renews_it(found: Calibration, tmp_path: Path) -> None:
    layout = found.layout.model_dump(mode="json", exclude={"version", "roughness"})
    save_file({"novelty.distances": torch.zeros(3)}, tmp_path / calibration.FILE, {"layout": json.dumps(layout)})
    with pytest.raises(CalibrationError, match=f"`{re.escape(typed('calibrate', tmp_path))}` renews it"):
        calibration.load(tmp_path)
