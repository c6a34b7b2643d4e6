"""Trajectories on meshes: their problem files, the checks of their data, step operators, rollouts and measures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.toy_meshes import cooling, padded
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.evaluation.measures import Measures, mean_prediction, naive
from training.fit import presets
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import PRESETS
from training.operators.points_trajectory import PointsTrajectoryOperator
from training.problems.problem_file import read_problem_file
from training.problems.sections import DataError
from training.recipe import OF_PROBLEM_FILES, Fit, Recipe

Arrays = dict[str, NDArray[Any]]
TEXT = """
name = "cooling"
[data]
files = ["cooling.npz"]
[inputs.start]
key = "heat"
[parameters.rate]
[outputs.heat]
[points]
coordinates = "xy"
counts = "n"
[time]
step = 0.02
"""
FRAMES = 6


@pytest.fixture(scope="module")
def drawn() -> Arrays:
    return padded(cooling(14, FRAMES))


def opened(folder: Path, arrays: Arrays, text: str = TEXT) -> SampleFile:
    """Check and prepare data."""
    np.savez(folder / "cooling.npz", **arrays)
    (folder / "cooling.toml").write_text(text)
    problem = read_problem_file(folder / "cooling.toml")
    return SampleFile(prepare(problem, folder, folder / "data"), problem)


def workload(samples: SampleFile) -> OperatorWorkload:
    recipe = Recipe(
        model="cooling",
        preset="tiny",
        problem=samples.problem,
        samples=samples.path.name,
        seed=0,
        operator=presets.network(samples, PRESETS["tiny"]),
        fit=Fit(epochs=1, batch=4, **(OF_PROBLEM_FILES | {"unroll": (1, 2)})),
    )
    return OperatorWorkload(recipe, samples.path.parent)


def network(work: OperatorWorkload) -> PointsTrajectoryOperator:
    found = work.network()
    assert isinstance(found, PointsTrajectoryOperator)
    work.fit_normalisers(found)
    return found.eval()


@pytest.fixture(params=[1, 2], ids=["one frame", "history"])
def work(request: pytest.FixtureRequest, drawn: Arrays, tmp_path: Path) -> OperatorWorkload:
    return workload(opened(tmp_path, drawn, f"{TEXT}history = {request.param}\n"))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_frames_of_meshes_are_prepared(drawn: Arrays, tmp_path: Path) -> None:
    samples = opened(tmp_path, drawn)
    found = samples.read(range(14))
    assert found["heat"].shape == drawn["heat"].shape
    for heat, truth, count in zip(found["heat"], drawn["heat"], drawn["n"], strict=True):
        assert heat[:, :count] == pytest.approx(truth[:, :count], abs=1e-6)
        assert not heat[:, count:].any()
    assert samples.frames == FRAMES
    assert presets.fitting(samples, PRESETS["quick"]).batch == 8  # of trajectories on grids there are 16
    described = samples.described
    assert described.frames is not None
    assert described.frames.states == ("start",)
    values = np.concatenate([one[:, :n].ravel() for one, n in zip(drawn["heat"], drawn["n"], strict=True)])
    assert samples.statistic("heat", "deviation") == pytest.approx(values.std(), rel=1e-4)  # without padding


def test_points_that_are_the_same_in_every_frame_need_no_axis_of_time(drawn: Arrays, tmp_path: Path) -> None:
    times = np.broadcast_to(drawn["xy"][:, None], (14, FRAMES, *drawn["xy"].shape[1:]))
    found = opened(tmp_path, drawn | {"xy": np.nan_to_num(times)}).read(range(14))
    assert found["coordinates"][3, : drawn["n"][3]] == pytest.approx(drawn["xy"][3, : drawn["n"][3]], abs=1e-6)


def moving(arrays: Arrays) -> None:
    arrays["xy"] = np.repeat(np.nan_to_num(arrays["xy"])[:, None], FRAMES, axis=1)
    arrays["xy"][5, 3, 2] += 0.01


def fewer_points(arrays: Arrays) -> None:
    arrays["heat"] = arrays["heat"][:, :, :-1]


def one_frame(arrays: Arrays) -> None:
    arrays["heat"] = arrays["heat"][:, :1]


def hole(arrays: Arrays) -> None:
    arrays["heat"][4, 2, 1] = np.nan


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (moving, r"'xy': the points of sample 5 move, at frame 3 first; expected points that stay where they are"),
        (fewer_points, r"'heat' has \d+ points and .*'xy' \d+; expected as many"),
        (one_frame, r"'heat' has 1 frames; expected at least 2"),
        (hole, r"'heat' is nan at sample 4, index \(2, 1\)"),
    ],
)
def test_data_that_cannot_be_used_have_their_sentence(
    change: Callable[[Arrays], None], sentence: str, drawn: Arrays, tmp_path: Path
) -> None:
    arrays = {name: each.copy() for name, each in drawn.items()}
    change(arrays)
    with pytest.raises(DataError, match=sentence):
        opened(tmp_path, arrays)


def test_a_rollout_in_pieces_is_the_whole_one(work: OperatorWorkload) -> None:
    operator, inputs = network(work), work.batch(range(3)).inputs
    with torch.inference_mode():
        [whole] = operator.rollout(inputs, 4)
        [first], rest = operator.rollout(inputs, 1), operator.after(inputs, 1)
        [second] = operator.rollout(rest, 3)
    assert torch.equal(whole, torch.cat([first, second], dim=1))
    assert whole.shape == (3, 4, inputs[0].shape[1])


@torch.inference_mode()
def test_order_and_padding_change_nothing(work: OperatorWorkload) -> None:
    operator, inputs = network(work), list(work.batch(range(3)).inputs)
    [expected], seen = operator.rollout(inputs, 3), operator.canonical(*inputs)
    counts = inputs[2].long()
    assert len({*counts.tolist()}) > 1
    for number, count in enumerate(counts):
        inputs[0][number, count:] = torch.nan
        inputs[1][number, ..., count:] = torch.nan
        assert not expected[number, :, count:].any()
    close(operator.rollout(inputs, 3)[0], expected)
    for one, other in zip(operator.canonical(*inputs), seen, strict=True):
        close(one, other)
    count = int(counts[0])
    alone = [inputs[0][:1, :count], inputs[1][:1, ..., :count], torch.zeros(1), inputs[3][:1]]
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    mixed = [alone[0][:, order], alone[1][..., order], *alone[2:]]
    close(operator.rollout(alone, 3)[0], expected[:1, :, :count])
    close(operator.rollout(mixed, 3)[0], expected[:1, :, :count][..., order])


def test_weights_count_in_loss_and_errors(drawn: Arrays, tmp_path: Path) -> None:
    weights = np.where(np.isnan(drawn["xy"][:, :, 0]), np.nan, 1.0)
    weights[:, 5] = 0.0
    text = TEXT.replace('counts = "n"', 'counts = "n"\nweights = "w"')
    work = workload(opened(tmp_path, drawn | {"w": weights}, text))
    batch = work.batch(range(3))
    wrong = [each.clone() for each in batch.outputs]
    wrong[0][:, :, 5] += 100
    assert work.errors(wrong, batch.outputs, batch.measure).max() == 0
    assert work.errors(wrong, batch.outputs).min() > 1
    assert work.measures(wrong, batch)["vrmse"].max() == 0


def test_a_step_sees_points_that_are_drawn(drawn: Arrays, tmp_path: Path) -> None:
    work = workload(opened(tmp_path, drawn))
    fit = work.recipe.fit.model_copy(update={"points": 45})
    fewer = OperatorWorkload(work.recipe.model_copy(update={"fit": fit}), tmp_path / "data")
    chosen = np.arange(10) * work.longest  # the first frame of every trajectory
    coordinates, start, counts, _ = (few := fewer.draw(chosen, np.random.default_rng(0), 0.0)).inputs
    assert coordinates.shape == (10, 45, 2)
    assert counts.tolist() == np.minimum(drawn["n"][:10], 45).tolist()
    again = fewer.draw(chosen, np.random.default_rng(1), 0.0).inputs[0]
    assert (again != coordinates).any()
    for number, count in enumerate(counts.long().tolist()):
        nodes = torch.from_numpy(drawn["xy"][number, : drawn["n"][number]]).float()
        found = torch.cdist(coordinates[number, :count], nodes).argmin(dim=1)
        assert len(found.unique()) == count
        truth = torch.from_numpy(drawn["heat"][number]).float()[:, found]
        torch.testing.assert_close(start[number, :count], truth[0])
        torch.testing.assert_close(few.outputs[0][number, 0, :count], truth[1])


def test_the_mean_is_predicted_at_valid_points_alone(work: OperatorWorkload, drawn: Arrays) -> None:
    batch = work.batch(range(3), frames=2)
    [found] = mean_prediction(work, batch)
    known = zip(drawn["heat"][: len(work.rows)], drawn["n"], strict=False)
    mean = np.concatenate([heat[work.history :, :count].ravel() for heat, count in known]).mean()
    for each, count in zip(found, drawn["n"], strict=False):
        assert each[:, :count].numpy() == pytest.approx(mean, rel=0.1)
        assert not each[:, count:].any()


def test_gradients_are_measured_at_every_frame(work: OperatorWorkload) -> None:
    batch = work.batch(range(2), frames=3)
    found = [1.5 * each for each in batch.outputs]
    measured = work.measures(found, batch)
    assert measured["relative_h1"].shape == (2, 3)
    assert measured["relative_h1"] == pytest.approx(0.5, abs=1e-6)
    assert "relative_h1" not in work.measures(found, batch, whole=False)
    measures = Measures.of(work, network(work), "test")
    assert [*measures.summary(0.1)] == ["rollout", "correlation_time"]


def test_fifty_steps_of_training_learn_to_cool(drawn: Arrays, tmp_path: Path) -> None:
    work = workload(opened(tmp_path, drawn))
    operator, rng = network(work).train(), np.random.default_rng(0)
    optimiser = torch.optim.Adam(operator.parameters(), 5e-3)

    def error() -> float:
        batch = work.batch(work.samples.split("test"), frames=4)
        with torch.inference_mode():
            return float(work.errors(work.predictions(operator, batch), batch.outputs).mean())

    batch = work.batch(work.samples.split("test"), frames=4)
    still = float(work.errors(naive(work, batch), batch.outputs).mean())
    for _ in range(50):
        optimiser.zero_grad()
        work.loss(operator, work.draw(rng.integers(0, len(work.rows) * work.longest, 8), rng, 0.6)).backward()
        optimiser.step()
    assert error() < 0.5 * still
