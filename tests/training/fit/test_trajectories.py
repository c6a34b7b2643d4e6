"""Trajectories: their problem files, windows, step operators and measures."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from training import calibration, checkpoint
from training.calibration import calibration_samples, fitting
from training.calibration.samples import Measured, Stored
from training.commands import app
from training.data import dataset as sample_files
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.evaluation import measures
from training.evaluation.measures import Measures
from training.files import read_json
from training.fit import presets
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import PRESETS, working_grid
from training.fit.run import fit
from training.fit.run_folder import RunFolder
from training.fit.workload import Scope, ScopeError
from training.losses import Batch
from training.metrics import METRICS
from training.metrics.fields import spectrum
from training.operators.trajectory import TrajectoryOperator
from training.problems.problem_file import read_problem_file
from training.recipe import OF_PROBLEM_FILES, Fit, Recipe

ROOT = Path(__file__).parents[3]
WAVES = """
name = "waves"
[data]
files = ["waves.npz"]
[inputs.initial]
key = "u"
[inputs.depth]
positive = true
[parameters.drag]
[outputs.u]
[axes.x]
boundary = "periodic"
points = "left"
[symmetries]
exact = ["shift_x"]
[time]
step = 0.5
history = 2
horizon = 3
conserved = ["u"]
"""
SAMPLES, FRAMES, POINTS = 12, 7, 16


def arrays() -> dict[str, NDArray[np.float64]]:
    """Draw trajectories whose values tell sample, frame and point."""
    sample, frame, point = np.ogrid[:SAMPLES, :FRAMES, :POINTS]
    return {
        "u": sample + frame / 10 + np.sin(2 * np.pi * (point - frame) / POINTS),
        "depth": np.broadcast_to(1.0 + np.arange(SAMPLES)[:, None], (SAMPLES, POINTS)) + np.arange(POINTS) / 100,
        "drag": np.arange(SAMPLES) / SAMPLES,
    }


def problem_file(folder: Path, text: str = WAVES, **changed: Any) -> Path:
    """Write a problem file with its data."""
    np.savez(folder / "waves.npz", **(arrays() | changed))
    (folder / "waves.toml").write_text(text)
    return folder / "waves.toml"


def opened(path: Path) -> SampleFile:
    """Check and prepare the data of a problem file."""
    problem = read_problem_file(path)
    return SampleFile(prepare(problem, path.parent, path.parent / "data"), problem)


@pytest.fixture
def samples(tmp_path: Path) -> SampleFile:
    return opened(problem_file(tmp_path))


def workload(samples: SampleFile, **settings: Any) -> OperatorWorkload:
    """Return the workload of the tiny preset."""
    fit = Fit(epochs=4, batch=6, **(OF_PROBLEM_FILES | {"unroll": (1, 2)} | settings))
    recipe = Recipe(
        model="waves",
        preset="tiny",
        problem=samples.problem,
        samples=samples.path.name,
        seed=0,
        operator=presets.network(samples, PRESETS["tiny"]),
        fit=fit,
    )
    return OperatorWorkload(recipe, samples.path.parent)


def first(work: OperatorWorkload, rows: range, frames: int) -> Batch:
    """Return rollouts from the first frames of some trajectories."""
    return work.batch(rows, frames)


@pytest.fixture
def operator(samples: SampleFile) -> TrajectoryOperator:
    work = workload(samples)
    network = work.network()
    assert isinstance(network, TrajectoryOperator)
    work.fit_normalisers(network, first(work, range(10), 1))
    return network.eval()


def test_a_window_holds_its_frames_and_what_belongs_to_its_trajectory(samples: SampleFile) -> None:
    found = samples.windows(np.array([7, 2, 7]), [3, 0, 1], 4)
    u = arrays()["u"].astype(np.float32)
    for window, sample, start in zip(found["u"], (7, 2, 7), (3, 0, 1), strict=True):
        np.testing.assert_array_equal(window, u[sample, start : start + 4])
    assert found["depth"][:, 0].tolist() == [8, 3, 8]
    np.testing.assert_allclose(found["drag"], np.array([7, 2, 7]) / SAMPLES, rtol=1e-6)


def test_a_rollout_starts_from_the_history_and_has_the_frames_that_follow(samples: SampleFile) -> None:
    work = workload(samples)
    initial, depth, drag = (batch := work.batch(range(4, 5))).inputs
    u = torch.from_numpy(arrays()["u"].astype(np.float32))
    assert torch.equal(initial, u[4:5, :2])
    assert torch.equal(batch.outputs[0], u[4:5, 2:5])
    assert (depth.shape, drag.shape) == ((1, POINTS), (1,))
    assert work.horizon == 3


def test_every_training_batch_is_a_window_of_one_trajectory_moved_as_a_whole(samples: SampleFile) -> None:
    initial, depth, _ = (batch := workload(samples).draw(np.arange(30), np.random.default_rng(1), 0.0)).inputs
    frames = torch.cat([initial, batch.outputs[0]], dim=1)
    expected = torch.from_numpy(arrays()["u"])
    shifts = depth.argmin(dim=1)
    assert len(set(shifts.tolist())) > 5
    for window, ground, shift in zip(frames, depth, shifts, strict=True):
        sample, back = round(float(ground.min())) - 1, window.roll(-int(shift), 1).double()
        starts = [k for k in range(FRAMES - 2) if torch.allclose(back, expected[sample, k : k + 3], atol=1e-5)]
        assert len(starts) == 1


def test_the_unrolled_steps_grow_with_the_share_of_the_training() -> None:
    fit = Fit(epochs=6, batch=1, learning_rate=1e-3, unroll=(1, 2, 4))
    assert [fit.steps_of(epoch / 6) for epoch in range(7)] == [1, 1, 2, 2, 4, 4, 4]


def test_noise_is_on_the_given_frames_alone(samples: SampleFile) -> None:
    rows = np.arange(30)
    plain, noisy = (workload(samples, noise=noise).draw(rows, np.random.default_rng(3), 0.0) for noise in (0.0, 0.1))
    assert torch.equal(plain.outputs[0], noisy.outputs[0])
    ratio = (noisy.inputs[0] - plain.inputs[0]).std() / arrays()["u"].std()
    assert 0.08 < ratio < 0.12


def test_gradients_of_the_last_step_alone_are_those_of_a_single_step(
    samples: SampleFile, operator: TrajectoryOperator
) -> None:
    work = workload(samples, through=False)
    batch = first(work, range(4), 3)
    work.loss(operator, batch).backward()
    found = [parameter.grad.clone() for parameter in operator.parameters()]
    operator.zero_grad()
    with torch.no_grad():
        inputs = operator.advance(operator.advance(batch.inputs))
    last = Batch([*inputs], [each[:, -1:] for each in batch.outputs])
    work.errors(work.predictions(operator, last), last.outputs).mean().backward()
    assert all(torch.equal(one, other.grad) for one, other in zip(found, operator.parameters(), strict=True))


def test_a_shift_moves_the_rollout_of_a_network_without_coordinates(
    samples: SampleFile, operator: TrajectoryOperator
) -> None:
    initial, depth, drag = first(workload(samples), range(3), 1).inputs
    patch = operator.config.step.patch
    frames = torch.zeros(3, 4, dtype=torch.int32)
    moved = operator(initial.roll(3 * patch, -1), depth.roll(3 * patch, -1), drag, frames)
    torch.testing.assert_close(moved, operator(initial, depth, drag, frames).roll(3 * patch, -1), rtol=1e-4, atol=1e-4)


def test_the_mean_of_a_conserved_state_stays(samples: SampleFile, operator: TrajectoryOperator) -> None:
    batch = first(workload(samples), range(5), 1)
    [found] = operator.rollout(batch.inputs, 9)
    expected = batch.inputs[0][:, -1:].double().mean(dim=-1).expand(5, 9)
    torch.testing.assert_close(found.double().mean(dim=-1), expected, rtol=0, atol=1e-4)


def test_an_exact_step_has_no_error_and_persistence_is_measured(
    samples: SampleFile, operator: TrajectoryOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    u = torch.from_numpy(arrays()["u"].astype(np.float32))

    def exact(inputs: Any, frames: int) -> list[torch.Tensor]:
        rows = inputs[1].min(dim=1).values.round().long() - 1
        return [u[rows, 2 : 2 + frames]]

    monkeypatch.setattr(operator, "rollout", exact)
    found = Measures.of(workload(samples), operator, "test")
    errors = {name: each for name, each in found.errors.items() if name != "correlation"}
    assert errors.keys() == {"relative_l2", "relative_h1", "relative_maximum", "vrmse", "relative_spectrum"}
    assert all(each.max() == 0 for each in errors.values())
    assert found.errors["correlation"].min() == pytest.approx(1)
    [row, *_] = found.rows(0.5)
    truth = u[SAMPLES - 1].double()
    assert row["persistence"] == pytest.approx(float((truth[2] - truth[1]).norm() / truth[2].norm()), rel=1e-3)
    assert [each["time"] for each in found.rows(0.5)] == [0.5, 1.0, 1.5, 2.0, 2.5]


def test_measures_of_frames() -> None:
    x = 2 * np.pi * np.arange(32) / 32
    truth = np.stack([np.sin(x), np.cos(3 * x)])
    assert METRICS["relative_l2"](2 * truth, truth) == pytest.approx(np.ones(2))
    assert METRICS["vrmse"](truth + 5, truth) == pytest.approx(np.full(2, 5 * 2**0.5))
    assert METRICS["correlation"](3 * truth + 5, truth) == pytest.approx(np.ones(2))
    assert METRICS["correlation"](np.zeros_like(truth), truth).tolist() == [0, 0]
    assert measures.correlated_frames(np.array([[1, 0.9, 0.7, 0.9], [1, 1, 1, 1.0]])).tolist() == [2, 4]
    without = np.array([[np.nan, 1, 1, np.nan], [np.nan, 1, 0.7, 1]])  # of a truth that is constant in some frames
    assert measures.correlated_frames(without).tolist() == [4, 2]
    energy = spectrum(torch.from_numpy(truth), 1).numpy()
    assert energy[:, [1, 3]] == pytest.approx(np.diag([0.5, 0.5]))
    assert energy.sum() == pytest.approx(1)
    plane = np.cos(3 * x)[:, None] * np.cos(4 * x)  # of radius 5
    vector = spectrum(torch.from_numpy(np.stack([plane, 2 * plane])[None]), 2).numpy()
    assert vector[0, 5] == pytest.approx(5 / 4)
    assert vector.sum() == pytest.approx(5 / 4)


def test_a_rollout_that_overflows_is_measured(samples: SampleFile, operator: TrajectoryOperator) -> None:
    with torch.no_grad():
        operator.step.output_normaliser.deviation.mul_(1e30)
    found = Measures.of(workload(samples), operator, "test")
    assert found.errors["relative_l2"].max() == found.errors["relative_h1"].max() == measures.LOST
    assert found.errors["correlation"].min() == 0
    every = (*found.errors.values(), found.persistence, found.energy)
    assert np.isfinite(np.concatenate([each.ravel() for each in every])).all()
    assert found.summary(0.5)["correlation_time"] < 0.5 * FRAMES
    with torch.inference_mode():
        work = workload(samples)
        scores, count = work.scores(operator, first(work, range(4), FRAMES - 2))
    assert 1 < float(scores["rollout_l2"]) <= measures.LOST
    assert all(np.isfinite(float(score)) for score in scores.values())
    assert count == 4


def test_every_whole_training_damps_waves_and_a_turn_of_a_race_none(samples: SampleFile, tmp_path: Path) -> None:
    work = workload(samples)

    def gains(*, keep: bool) -> torch.Tensor:
        run, task = RunFolder(tmp_path / f"run-{keep}"), work.task()
        run.path.mkdir()
        fit(task, work, run, run.open(work.recipe, resume=False), keep=keep)
        [bounds] = task.network.bounds  # type: ignore[misc, union-attr] # it has modules
        found: torch.Tensor = bounds.gains
        return found

    assert (gains(keep=False) == 1).all()
    damped = gains(keep=True)
    assert damped.min() < 1  # of a network that has learned next to nothing
    assert damped.max() == 1


def test_a_rough_steady_field_needs_all_points(samples: SampleFile) -> None:
    assert working_grid(samples) == (POINTS,)


def test_windows_are_the_same_from_memory_and_from_the_disk(
    samples: SampleFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, starts = np.array([3, 3, 8]), [0, 2, 1]
    memory = samples.windows(rows, starts, 3)["u"]
    assert samples.held
    monkeypatch.setattr(sample_files, "IN_MEMORY", 0)
    disk = SampleFile(samples.path, samples.problem)
    np.testing.assert_array_equal(disk.windows(rows, starts, 3)["u"], memory)
    assert not disk.held


def test_frames_have_conformal_estimates_where_the_held_trajectories_suffice(
    samples: SampleFile, operator: TrajectoryOperator
) -> None:
    found = Measures.of(workload(samples), operator, "test")
    held = np.arange(1.0, 11.0)[:, None] * np.arange(1.0, FRAMES - 1)
    rows = found.summary(0.5, held)["rollout"]
    assert [row["error_estimate"] for row in rows] == pytest.approx([10.0 * frame for frame in range(1, FRAMES - 1)])
    assert {row["coverage"] for row in rows} <= {0.0, 1.0}  # one test trajectory
    assert "error_estimate" not in found.summary(0.5, held[:8])["rollout"][0]


def test_states_of_many_trajectories_say_how_unusual_others_are(
    samples: SampleFile, operator: TrajectoryOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trajectories(some: Iterable[Measured]) -> list[set[int]]:
        return [{*one.inputs[0].flatten(1).mean(dim=1).int().tolist()} for one in some]

    few = calibration_samples(workload(samples), operator)
    assert trajectories(few.fitted) == [{*range(10)}]
    assert trajectories(few.calibration) == [{10}]
    monkeypatch.setattr(fitting, "MANY", 5)
    found = calibration_samples(workload(samples), operator)
    assert trajectories(found.fitted) == [{0, 2, 4, 6, 8}]
    assert trajectories(found.calibration) == [{10}, {1, 3, 5, 7, 9}]
    assert trajectories(found.test) == [{11}]


def test_large_states_are_read_a_few_at_a_time(
    samples: SampleFile, operator: TrajectoryOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = calibration_samples(workload(samples), operator)
    monkeypatch.setattr(fitting, "BYTES", 4 * 2 * POINTS * 3)  # of some states
    found = calibration_samples(workload(samples), operator)
    for before, after in zip((*whole.fitted, *whole.calibration), (*found.fitted, *found.calibration), strict=True):
        assert isinstance(after, Stored)
        assert len(after) == len(before)
        assert len(after.inputs[0]) < len(before)
        for index in range(len(before.inputs)):
            assert torch.equal(after.of(lambda inputs, at=index: inputs[at]), before.inputs[index])


def test_a_user_s_new_samples_cannot_be_drawn(samples: SampleFile) -> None:
    with pytest.raises(ScopeError, match="waves-tiny: a user's samples cannot be drawn: --files names files"):
        workload(samples).renewed(500)


def test_trajectories_are_calibrated_with_new_ones_of_files(
    samples: SampleFile, operator: TrajectoryOperator, tmp_path: Path
) -> None:
    np.savez(tmp_path / "new.npz", **{name: np.concatenate([each + 20, each]) for name, each in arrays().items()})
    with pytest.raises(ScopeError, match="sample 12 of --files is the sample 0 of the training"):
        workload(samples).renewed(0, (str(tmp_path / "new.npz"),))
    np.savez(tmp_path / "new.npz", **{name: np.concatenate([each + 40, each + 20]) for name, each in arrays().items()})
    renewed = workload(samples).renewed(0, (str(tmp_path / "new.npz"),))
    assert renewed.samples.counts == (7, 10, 7)
    of_run = workload(samples)
    rows = of_run.measure(operator, of_run.problem, Scope())["rollout"]
    [row, *others] = renewed.estimated(operator, rows)
    assert (row["trajectories"], row["coverage"]) == (7, pytest.approx(6 / 7, abs=1 / 7 + 1e-4))
    assert row["relative_l2"] > 0
    assert renewed.estimated(operator, rows[:1]) == [row]  # of a card whose trajectories are shorter
    with pytest.raises(ScopeError, match=rf"expected {len(rows) + 1} frames behind the history but found {len(rows)}"):
        renewed.estimated(operator, [row, *others, row])


@pytest.mark.deep
def test_trajectories_of_a_solver_are_calibrated_with_new_ones(tmp_path: Path) -> None:
    """The estimates of the frames are new; the errors of the card stay those of its own test trajectories."""
    folder, before = tmp_path / "waves", ROOT / "checkpoints" / "kuramoto_sivashinsky"
    shutil.copytree(before, folder, ignore=shutil.ignore_patterns("published"))
    arguments = ["calibrate", str(folder), "--samples", "10", "--data", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    old, new = (read_json(each / checkpoint.CARD) for each in (before, folder))
    for one, other in zip(old["rollout"], new["rollout"], strict=True):
        assert one["relative_l2"] == other["relative_l2"]
        assert one["error_estimate"] != other["error_estimate"]
    [row] = new["calibration"]["test"]
    worst = min(new["rollout"], key=lambda frame: frame["coverage"])
    assert (row["coverage"], row["frame"], row["trajectories"]) == (worst["coverage"], worst["frame"], 10)
    assert row["coverage_standard_error"] > 0.05
    assert new["calibration"]["errors_of_a_case"] == 10
    assert new["calibration"]["guarantee"] == calibration.guarantee(10)


def test_weights_to_start_from_may_damp_waves_and_are_those_of_the_same_network(
    samples: SampleFile, tmp_path: Path
) -> None:
    work, folder = workload(samples), tmp_path / "earlier"
    assert work.recipe.operator.damped
    saved = work.network()
    checkpoint.save(folder, saved, work.recipe, work.problem, checkpoint.CheckpointCard(errors=()))
    plain = work.recipe.operator.model_copy(update={"damped": False})
    for operator in (work.recipe.operator, plain):  # the factors are fitted after the training
        started = OperatorWorkload(work.recipe.model_copy(update={"operator": operator}), work.data).task(folder)
        weights, expected = started.network.state_dict(), saved.state_dict()
        names = [name for name, _ in saved.named_parameters()]
        assert all(torch.equal(weights[name], expected[name]) for name in names)
    step = plain.step.model_copy(update={"spectral": plain.step.spectral + 1, "working": (12,)})
    larger = work.recipe.model_copy(update={"operator": plain.model_copy(update={"step": step})})
    sizes = rf"step.working \[16\] instead of \[12\], step.spectral {plain.step.spectral} instead of {step.spectral}"
    advice = rf"expected .* but found .*; its network has {sizes}: train one like it, by its preset or --set operator"
    with pytest.raises(checkpoint.CheckpointError, match=advice):
        OperatorWorkload(larger, work.data).task(folder)
