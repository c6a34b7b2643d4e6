"""Inputs and parameters that are known in advance for every frame: their data, windows, steps and rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from training.calibration.fitting import states
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.fit import presets
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import PRESETS
from training.operators.field import FieldConfig
from training.operators.trajectory import TrajectoryConfig, TrajectoryOperator
from training.problems.problem_file import read_problem_file
from training.problems.sections import DataError, ProblemFileError
from training.recipe import OF_PROBLEM_FILES, Fit, Recipe

PUSHED = """
name = "pushed"
[data]
files = ["pushed.npz"]
[inputs.initial]
key = "u"
[inputs.f]
per_frame = true
[inputs.wind]
components = ["x", "y"]
component_axis = "last"
per_frame = "end"
[inputs.depth]
[parameters.rate]
per_frame = true
[outputs.u]
[axes.x]
boundary = "periodic"
points = "left"
[time]
step = 0.1
history = 2
horizon = 3
"""
SAMPLES, FRAMES, POINTS = 10, 7, 16


def arrays() -> dict[str, NDArray[np.float64]]:
    """Draw trajectories whose increments are the forcing of the frame before: u[t + 1] = u[t] + f[t]."""
    rng = np.random.default_rng(0)
    f = rng.standard_normal((SAMPLES, FRAMES, 1)) * np.sin(2 * np.pi * np.arange(POINTS) / POINTS)
    u = np.concatenate([np.zeros((SAMPLES, 1, POINTS)), np.cumsum(f, axis=1)[:, :-1]], axis=1) + 1
    sample, frame, point, part = np.ogrid[:SAMPLES, :FRAMES, :POINTS, :2]
    return {
        "u": u,
        "f": f,
        "wind": sample + frame / 10 + point / 1000 + 100.0 * part,
        "depth": rng.standard_normal((SAMPLES, POINTS)),
        "rate": np.arange(SAMPLES)[:, None] + np.arange(FRAMES) / 10,
    }


def opened(folder: Path, text: str = PUSHED, **changed: Any) -> SampleFile:
    """Write data and a problem file, then check and prepare them."""
    np.savez(folder / "pushed.npz", **(arrays() | changed))
    (folder / "pushed.toml").write_text(text)
    problem = read_problem_file(folder / "pushed.toml")
    return SampleFile(prepare(problem, folder, folder / "data"), problem)


@pytest.fixture
def work(tmp_path: Path) -> OperatorWorkload:
    samples = opened(tmp_path)
    recipe = Recipe(
        model="pushed",
        preset="tiny",
        problem=samples.problem,
        samples=samples.path.name,
        seed=0,
        operator=presets.network(samples, PRESETS["tiny"]),
        fit=Fit(epochs=4, batch=6, **(OF_PROBLEM_FILES | {"unroll": (2,)})),
    )
    return OperatorWorkload(recipe, samples.path.parent)


@pytest.fixture
def network(work: OperatorWorkload) -> TrajectoryOperator:
    found = work.network()
    assert isinstance(found, TrajectoryOperator)
    work.fit_normalisers(found)
    return found.eval()


def test_a_step_sees_the_frame_that_it_starts_from_or_the_one_at_its_end(work: OperatorWorkload) -> None:
    initial, f, wind, depth, rate = (batch := work.batch(range(4, 6), 3)).inputs
    expected = {name: torch.from_numpy(each[4:6].astype(np.float32)) for name, each in arrays().items()}
    assert torch.equal(initial, expected["u"][:, :2])
    assert torch.equal(batch.outputs[0], expected["u"][:, 2:5])
    assert torch.equal(f, expected["f"][:, 1:4])
    assert torch.equal(wind, expected["wind"][:, 2:5].movedim(-1, 2))
    assert torch.equal(depth, expected["depth"])
    assert torch.equal(rate, expected["rate"][:, 1:4])
    torch.testing.assert_close(batch.outputs[0][:, 0], initial[:, -1] + f[:, 0])


def test_windows_anywhere_in_a_trajectory_have_the_forcing_of_their_frames(work: OperatorWorkload) -> None:
    for batch in (work.draw(np.arange(30), np.random.default_rng(1), 0.0), work.statistics_batch()):
        initial, f, wind, *_, rate = batch.inputs
        made = initial[:, -1:] + f.cumsum(dim=1)
        torch.testing.assert_close(made, batch.outputs[0])
        torch.testing.assert_close(wind[:, :, 0, 0], rate + 0.1)


def test_what_calibrates_is_every_state_with_what_its_step_sees(work: OperatorWorkload) -> None:
    found = states(work, np.arange(SAMPLES)).inputs
    assert [each.shape[1] for each in found if each.ndim > 2 or each.shape[1:] == (1,)] == [2, 1, 1, 1]
    assert len(found[0]) == SAMPLES * (FRAMES - 2)


def test_a_rollout_sees_the_forcing_of_each_step(work: OperatorWorkload, network: TrajectoryOperator) -> None:
    inputs = work.batch(range(3), 4).inputs
    frames = torch.zeros(3, 4, dtype=torch.int32)
    whole = network(*inputs, frames)
    first = network(
        *(each[:, :1] if index in network.config.forced else each for index, each in enumerate(inputs)), frames[:, :1]
    )
    torch.testing.assert_close(whole[:, :1], first)
    later = [each.clone() for each in inputs]
    later[1][:, 2] += 1
    changed = network(*later, frames)
    torch.testing.assert_close(changed[:, :2], whole[:, :2])
    assert (changed[:, 2:] - whole[:, 2:]).abs().amin(dim=(0, 2)).max() > 0
    resumed = network(*network.after(inputs, 1), frames[:, 1:])
    torch.testing.assert_close(resumed, whole[:, 1:])


def test_novelty_is_judged_of_every_frame_s_forcing(work: OperatorWorkload, network: TrajectoryOperator) -> None:
    state, f, wind, depth, rate = network.canonical(
        *work.batch(range(3), 4).inputs, torch.zeros(3, 4, dtype=torch.int32)
    )
    assert [len(each) for each in (state, f, wind, depth, rate)] == [12] * 5
    assert torch.equal(f.reshape(3, 4, POINTS), work.batch(range(3), 4).inputs[1])
    assert torch.equal(state[0], state[3])
    assert torch.equal(depth[4], depth[7])


def test_calibrations_see_the_components_of_parameters_one_by_one() -> None:
    sizes: dict[str, Any] = {"channels": 4, "layers": 0, "spectral": 1, "detail": 4, "modes": 2}
    step = FieldConfig(
        input_components=(0,),
        input_scales=("linear",),
        parameter_scales=("linear", "linear"),
        parameter_components=(2, 0),
        output_components=(0,),
        output_scales=("linear",),
        periodic=(True,),
        points=("left",),
        working=(8,),
        **sizes,
    )
    frames = torch.zeros(3, 4, dtype=torch.int32)
    for forced, wind in (((), torch.rand(3, 2)), ((1,), torch.rand(3, 4, 2))):
        config = TrajectoryConfig(step=step, components=(0,), states=(0,), conserved=(False,), forced=forced)
        state, x, y, rate = TrajectoryOperator(config).canonical(torch.rand(3, 8), wind, torch.rand(3), frames)
        assert torch.equal(torch.stack([x, y], 1), wind.reshape(-1, 2))
        assert len(state) == len(x) == len(rate)


def test_a_short_forcing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pushed.npz: 'f' has 6 frames and .*pushed.npz: 'u' 7; expected as many"):
        opened(tmp_path, f=arrays()["f"][:, :-1])
    with pytest.raises(DataError, match=r"expected axes \[sample, time, x\] in 'f' but found shape \(10, 16\)"):
        opened(tmp_path, f=arrays()["f"][:, 0])
    with pytest.raises(DataError, match=r"expected axes \[sample, time\] in 'rate' but found shape \(10,\)"):
        opened(tmp_path, rate=arrays()["rate"][:, 0])
    with pytest.raises(DataError, match=r"'f' but found shape \(10, 7, 16\): `per_frame = true` if it changes in time"):
        opened(tmp_path, PUSHED.replace("[inputs.f]\nper_frame = true", "[inputs.f]"))


FAULTS = {
    ("[outputs.u]", "[outputs.u]\nper_frame = true"): "outputs.u.per_frame: expected it of inputs that are known",
    ('key = "u"', 'key = "u"\nper_frame = true'): "inputs.initial.per_frame: expected it of inputs that are known",
    ("per_frame = true", "per_frame = true\nstatic = true"): "inputs.f.per_frame: expected none with static",
    ("[time]\nstep = 0.1\nhistory = 2\nhorizon = 3\n", ""): "inputs.f.per_frame: expected it with .time. only",
    ('per_frame = "end"', 'per_frame = "middle"'): "Input should be 'start' or 'end'",
}


@pytest.mark.parametrize("change", FAULTS)
def test_a_fault_of_what_changes_in_time_is_named(change: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(ProblemFileError, match=FAULTS[change]):
        opened(tmp_path, PUSHED.replace(*change, 1))
