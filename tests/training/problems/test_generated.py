"""Generated trajectories: the arrays that their problem files name, from the solver, on one seed."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from physics import kuramoto_sivashinsky as line
from physics import navier_stokes as plane
from training import checkpoint
from training.data import generate
from training.data.pools import ThisProcess
from training.files import read_toml
from training.fit import start
from training.fit.operator_workload import OperatorWorkload
from training.messages import UserError
from training.operators.trajectory import TrajectoryConfig
from training.problems import kuramoto_sivashinsky, navier_stokes
from training.problems.problem import PROBLEMS, Problem, Starts
from training.recipe import RecipeError
from training.recipes import find, validate

NAMES = [name for name in PROBLEMS if PROBLEMS[name].trajectories is not None]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make as few trajectories as the splits allow, and short ones, in this process."""
    monkeypatch.setattr(generate, "ALL_CORES", ThisProcess())
    monkeypatch.setattr(kuramoto_sivashinsky, "TRAJECTORIES", 68)
    monkeypatch.setattr(kuramoto_sivashinsky, "FRAMES", 3)
    monkeypatch.setattr(line, "TRANSIENT", 5.0)
    monkeypatch.setattr(navier_stokes, "TRAJECTORIES", 44)
    monkeypatch.setattr(navier_stokes, "FRAMES", 2)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.deep) for name in NAMES[1:])])
def test_a_run_of_a_generated_problem_has_a_recipe_and_the_solver_s_frames(name: str, tmp_path: Path) -> None:
    run = start.problem_run(f"{name}-tiny", "quick", ["fit.epochs=1"], tmp_path)
    assert run is not None
    assert run.name == f"{name}-tiny"
    recipe, samples = run.recipe(), run.samples()
    assert recipe.model == name
    assert isinstance(recipe.operator, TrajectoryConfig)
    assert recipe.operator.step.gated
    output, parameter = samples.problem.output_names[0], samples.problem.parameters[0].name
    frames = samples.file[output][:2].astype(np.float64)
    number = samples.file[parameter][:2].astype(np.float64)
    solve = line.solve if name == "kuramoto_sivashinsky" else plane.solve
    step = samples.problem.time.step if samples.problem.time is not None else 0.0
    expected = solve(frames[:, 1], 1, step, number)[:, 0]
    np.testing.assert_allclose(frames[:, 2], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", NAMES)
def test_a_released_model_has_the_description_and_the_code_of_its_problem(name: str) -> None:
    assert checkpoint.load(Path("checkpoints") / name).problem == PROBLEMS[name]


def test_a_recipe_of_fields_takes_no_problem_of_trajectories() -> None:
    document = read_toml(find("burgers-tiny")) | {"problem": "kuramoto_sivashinsky"}
    with pytest.raises(RecipeError, match="expected one of fields but 'kuramoto_sivashinsky' is one of trajectories"):
        validate(document, "here")


@pytest.mark.usefixtures("few")
def test_the_data_are_made_once_and_lie_on_the_disk_once(tmp_path: Path) -> None:
    problem = PROBLEMS["kuramoto_sivashinsky"].require_trajectories()
    path = generate.trajectories(problem, tmp_path)
    before = path.stat().st_mtime_ns
    assert generate.trajectories(problem, tmp_path) == path
    assert path.stat().st_mtime_ns == before
    assert [each for each in tmp_path.iterdir() if each.suffix != ".lock"] == [path]


@pytest.mark.usefixtures("few")
def test_an_interrupted_solver_goes_on_after_its_last_whole_block(tmp_path: Path) -> None:
    made = PROBLEMS["kuramoto_sivashinsky"].require_trajectories()
    solved: list[int] = []

    def follow(starts: Starts, blocks: int) -> Starts:
        if len(solved) == blocks:
            raise KeyboardInterrupt
        solved.append(len(starts["length"]))
        return made.follow(starts)

    with pytest.raises(KeyboardInterrupt):
        generate.trajectories(replace(made, follow=partial(follow, blocks=1)), tmp_path / "one")
    path = generate.trajectories(replace(made, follow=partial(follow, blocks=2)), tmp_path / "one")
    assert solved == [32, 36]  # of 68
    path.with_suffix(".solved").touch()  # as of a run that ended before it removed it
    assert generate.trajectories(made, tmp_path / "one") == path
    whole = generate.trajectories(made, tmp_path / "two")
    assert path.read_bytes() == whole.read_bytes()
    assert [each for each in path.parent.iterdir() if each.suffix != ".lock"] == [path]


@pytest.mark.usefixtures("few")
def test_a_file_of_fewer_trajectories_or_a_cut_one_is_not_gone_on_with(tmp_path: Path) -> None:
    made = PROBLEMS["kuramoto_sivashinsky"].require_trajectories()
    path = generate.trajectories(made, tmp_path / "one")
    whole, solved = path.read_bytes(), path.with_suffix(".solved")
    with h5py.File(path) as file:
        shapes = {key: array.shape[1:] for key, array in file.items()}
    for cut in (False, True):
        path.unlink()
        generate.create(generate.Store("fewer", solved, {"/": 40}), shapes)
        with h5py.File(solved, "r+") as file:
            file[generate.DONE][:] = 1
        blocks = generate.blocks("/", 68, 32)
        assert generate.missing(solved, blocks) == blocks[1:]
        if cut:
            os.truncate(solved, 1000)
        assert generate.trajectories(made, tmp_path / "one").read_bytes() == whole
        assert not solved.exists()


@pytest.mark.usefixtures("few")
def test_what_an_earlier_version_has_left_is_named(tmp_path: Path) -> None:
    made = PROBLEMS["kuramoto_sivashinsky"].require_trajectories()
    path = generate.trajectories(made, tmp_path)
    path.with_suffix(".blocks").mkdir()
    with pytest.warns(UserWarning, match=r"\.blocks is of an earlier version, and no longer read: remove it"):
        assert generate.trajectories(made, tmp_path) == path


def test_no_samples_are_no_request(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected samples of darcy to be requested but got"):
        generate.prepare(generate.Request(PROBLEMS["darcy"], mesh=15, train=0, test=0, seed=0), tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("few")
def test_a_checkpoint_finds_its_samples_after_they_are_made_again(tmp_path: Path) -> None:
    started = start.problem_run("kuramoto_sivashinsky-tiny", "quick", [], tmp_path / "one")
    assert started is not None
    recipe = started.recipe()
    first = OperatorWorkload(recipe, tmp_path / "one").prepare()
    again = OperatorWorkload(recipe, tmp_path / "two").prepare()
    assert (again.name, again.parent) == (first.name, tmp_path / "two")
    named = recipe.model_copy(update={"samples": "own-kuramoto_sivashinsky-3142f4d86ec3.h5"})  # as it once was
    workload = OperatorWorkload(named, tmp_path / "two")
    assert workload.prepare() == again
    other = workload.problem.description.model_copy(update={"distribution": "the 448 training samples"})
    with pytest.raises(RecipeError, match="expected the 448 training samples but found the 4 training samples of"):
        workload.compare(Problem(description=other))
    changed = recipe.problem.model_copy(update={"seed": 5})
    with pytest.raises(RecipeError, match=r"3142f4d86ec3\.h5 but found none, and .* in another way now"):
        OperatorWorkload(named.model_copy(update={"problem": changed}), tmp_path).prepare()


def test_an_unknown_preset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="preset"):
        start.problem_run("navier_stokes-huge", "quick", [], tmp_path)


def test_other_names_are_recipes_of_fields(tmp_path: Path) -> None:
    assert start.problem_run("darcy-quick", "quick", [], tmp_path) is None
