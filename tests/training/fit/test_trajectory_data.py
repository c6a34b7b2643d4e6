"""What the data of trajectories decide: the grid that a network works on, what is named, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.fit.test_trajectories import FRAMES, POINTS, SAMPLES, WAVES, arrays, opened, problem_file
from training.fit import presets
from training.fit.presets import PRESETS, working_grid
from training.problems.problem_file import read_problem_file
from training.problems.sections import DataError, ProblemFileError

BARE = WAVES.replace("[inputs.depth]\npositive = true\n[parameters.drag]\n", "")  # the state alone


def test_smooth_trajectories_are_learned_on_a_grid_that_resolves_them(tmp_path: Path) -> None:
    x = 2 * np.pi * np.arange(256) / 256
    sample, frame = np.ogrid[:SAMPLES, :FRAMES]
    u = sample[..., None] + np.sin(5 * (x - frame[..., None] / 10)) + 1e-7 * np.sin(40 * x)
    (tmp_path / "waves.toml").write_text(BARE)
    np.savez(tmp_path / "waves.npz", u=u)
    smooth = opened(tmp_path / "waves.toml")
    assert smooth.sides == (256,)
    assert working_grid(smooth) == (20,)
    step = presets.network(smooth, PRESETS["quick"]).step
    assert (step.working, step.modes, step.layers, step.gated) == ((20,), 11, 0, True)


def test_windows_of_one_series_that_overlap_between_splits_are_named(tmp_path: Path) -> None:
    series = np.random.default_rng(0).standard_normal((60, POINTS))
    text = BARE.replace('conserved = ["u"]\n', "")
    for apart, said in (2, "2 of 4 validation and test trajectories have steps of training trajectories"), (5, ""):
        windows = np.stack([series[start : start + 6] for start in range(0, 50, apart)])
        if not said:
            windows[:, 4:] = 1.0  # all end at rest
        folder = tmp_path / str(apart)
        folder.mkdir()
        found = str(opened(problem_file(folder, text, u=windows)).file.attrs["remarks"])
        assert found.startswith(said) if said else found == ""


@pytest.mark.parametrize("faded", [lambda frame: frame, lambda frame: np.abs(frame - FRAMES // 2)])
def test_the_grid_resolves_waves_that_are_gone_in_the_last_frame(faded: Any, tmp_path: Path) -> None:
    x = 2 * np.pi * np.arange(256) / 256
    sample, frame = np.ogrid[:SAMPLES, :FRAMES]
    u = (sample + 1)[..., None] * np.sin(2 * x) + 0.1 ** (3.0 * faded(frame))[..., None] * np.sin(12 * x)
    text = BARE.replace("history = 2\n", "")
    (tmp_path / "waves.toml").write_text(text)
    np.savez(tmp_path / "waves.npz", u=u)
    assert working_grid(opened(tmp_path / "waves.toml")) == (48,)


def test_of_large_fields_the_grid_resolves_the_waves_of_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = 2 * np.pi * np.arange(256) / 256
    sample, frame = np.ogrid[:SAMPLES, :FRAMES]
    u = (sample + frame)[..., None] + np.sin(np.where(sample == 5, 12, 5)[..., None] * x)
    text = BARE.replace('conserved = ["u"]\n', "")
    (tmp_path / "waves.toml").write_text(text)
    np.savez(tmp_path / "waves.npz", u=u)
    samples = opened(tmp_path / "waves.toml")
    assert working_grid(samples) == (48,)
    for fields, expected in ((0.5, 20), (2, 20), (10, 48)):
        monkeypatch.setattr(presets, "BAND_BYTES", int(fields * 256 * 4))
        assert working_grid(samples) == (expected,)


FAULTS = {
    ('key = "u"', 'key = "v"'): "outputs.u: expected one input with the key 'u'",
    ('conserved = ["u"]', 'conserved = ["w"]'): "time.conserved: expected outputs but got w",
    ('boundary = "periodic"\npoints = "left"', 'boundary = "wall"'): "time.conserved: expected periodic axes only",
    ("[outputs.u]", "[outputs.u]\npositive = true"): "outputs.u: a positive state",
    ("[outputs.u]", "[outputs.u]\nframe = 1"): "inputs.initial: expected no frame",
}


@pytest.mark.parametrize("change", FAULTS)
def test_a_fault_of_the_time_axis_is_named(change: tuple[str, str], tmp_path: Path) -> None:
    text = WAVES.replace('[symmetries]\nexact = ["shift_x"]\n', "").replace(*change)
    with pytest.raises(ProblemFileError, match=FAULTS[change]):
        read_problem_file(problem_file(tmp_path, text))


def test_data_that_are_no_trajectories_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected axes \[sample, time, x\] in 'u' but found shape \(12, 16\)"):
        opened(problem_file(tmp_path, u=arrays()["u"][:, 0]))
    with pytest.raises(DataError, match="'u' has 2 frames; expected at least 3"):
        opened(problem_file(tmp_path, u=arrays()["u"][:, :2]))
    same = arrays()["u"]
    same[-1] = same[0]
    with pytest.raises(DataError, match=r"samples 0 \(training\) and 11 \(test\) have equal inputs"):
        opened(problem_file(tmp_path, u=same, depth=np.ones((SAMPLES, POINTS)), drag=np.zeros(SAMPLES)))
