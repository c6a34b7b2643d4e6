"""A training on few samples may begin with samples of the same problem on a coarser grid."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from training import checkpoint
from training.commands import app
from training.fit.operator_workload import OperatorWorkload
from training.fit.run import train
from training.fit.start import ProblemRun
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataError, ProblemFileError
from training.recipe import Recipe, RecipeError, changed

SMALL = ("operator.channels=4", "operator.layers=0", "operator.spectral=1", "operator.detail=4", "operator.modes=4")
COUNTED = ("fit.epochs=8", "fit.seconds=1e9", "fit.average=0.0")  # steps decide, on any machine
PLATE = """
name = "plate"
[data]
files = ["fine.npz"]
validation = 8
test = 4
coarse = { files = ["coarse.npz"] }
[inputs.k]
[outputs.u]
[axes.x]
[axes.y]
"""


def problem(**changes: Any) -> ProblemFile:
    document: dict[str, Any] = {
        "name": "plate",
        "data": {"files": ["fine.npz"], "validation": 8, "test": 4, "coarse": {"files": ["coarse.npz"]}},
        "inputs": {"k": {}},
        "outputs": {"u": {}},
        "axes": {"x": {"boundary": "wall"}, "y": {"boundary": "periodic"}},
        "symmetries": {"exact": ["shift_y"]},
    }
    return ProblemFile.model_validate(document | changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, samples, sides in (("fine", 20, (12, 16)), ("coarse", 40, (6, 8))):
        k = np.random.default_rng(samples).standard_normal((samples, *sides))
        np.savez(tmp_path / f"{name}.npz", k=k, u=k**2 + 1)
    return tmp_path


def recipe(folder: Path, preset: str = "tiny", *overrides: str, **changes: Any) -> Recipe:
    return ProblemRun(problem(**changes), preset, overrides, folder, folder=folder).recipe()


def test_the_first_part_of_a_training_has_coarse_samples(folder: Path) -> None:
    work = OperatorWorkload(recipe(folder, "tiny", *SMALL), folder)
    early, late = (work.draw(np.arange(1), np.random.default_rng(0), share) for share in (0.74, 0.75))
    assert early.outputs[0].shape == (5, 6, 8)  # an eighth of all 40 coarse samples
    assert late.outputs[0].shape == (1, 12, 16)
    assert work.loss(work.network(), early).item() > 0
    with np.load(folder / "coarse.npz") as file:
        expected = float(file["k"].mean())
    assert float(work.task().network.input_normaliser.mean.mean()) == pytest.approx(expected, abs=1e-6)


def test_coarse_samples_of_parameters_alone_are_predicted_on_their_own_grid(tmp_path: Path) -> None:
    for name, samples, sides in (("fine", 20, (12, 16)), ("coarse", 40, (6, 8))):
        rate = np.random.default_rng(samples).random(samples)
        np.savez(tmp_path / f"{name}.npz", rate=rate, u=rate[:, None, None] * np.ones((samples, *sides)))
    work = OperatorWorkload(recipe(tmp_path, "tiny", *SMALL, inputs={}, parameters={"rate": {}}), tmp_path)
    for share, sides in ((0.0, (6, 8)), (0.9, (12, 16))):
        batch = work.draw(np.arange(1), np.random.default_rng(0), share)
        assert batch.inputs[-1].shape[1:] == batch.outputs[0].shape[1:] == sides
    assert work.loss(work.network(), work.draw(np.arange(1), np.random.default_rng(0), 0.0)).item() > 0


def test_the_checksums_of_fine_and_coarse_data_are_kept_side_by_side(folder: Path) -> None:
    recipe(folder, "tiny", *SMALL)
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("own-plate*.json")}
    assert kept.keys() == {"own-plate.json", "own-plate-coarse.json"}
    recipe(folder, "tiny", *SMALL)  # which reads no data file again
    assert kept == {path.name: path.stat().st_mtime_ns for path in folder.glob("own-plate*.json")}


@pytest.mark.deep
def test_a_model_of_both_is_measured_on_fine_samples_and_needs_no_coarse_ones(folder: Path) -> None:
    made = recipe(folder, "tiny", *SMALL, *COUNTED)
    found = checkpoint.load(train(made, folder / "run", folder))
    assert found.card.training["coarse"] == {"fields": 40, "grid": [6, 8]}
    assert [row["grid"] for row in found.card.errors] == [[12, 16]]
    (folder / made.coarse.samples if made.coarse else folder).unlink()
    work = OperatorWorkload(found.recipe, folder)
    assert work.measured(found.operator, work.batches("test"))["relative_l2"].shape == (4,)
    with pytest.raises(RecipeError, match="expected the coarse samples"):
        work.task()


@pytest.mark.deep
def test_the_race_has_a_candidate_of_fine_samples_alone(folder: Path) -> None:
    made = recipe(folder, "quick")
    assert [each.fine for each in made.race] == [False] * 3 + [True]
    assert made.race[-1].name == "U-Net and gated spectral layers, 16 channels, fine samples alone"
    small = {"layers": 0, "spectral": 1, "modes": 4}
    entries = tuple(
        each.model_copy(update={"operator": {**small, "detail": detail}})
        for each, detail in ((made.race[0], 4), (made.race[-1], 4))
    )
    short = changed(made.model_copy(update={"race": entries}), ["fit.epochs=12", *COUNTED[1:]])
    found = checkpoint.load(train(short, folder / "run", folder))
    alone = "fine samples alone" in found.card.race["winner"]
    assert len(found.card.race["rounds"][0]["validation_error"]) == 2
    assert (found.recipe.coarse is None) == ("coarse" not in found.card.training) == alone


def test_coarse_samples_are_checked_and_for_steady_fields_on_grids_alone(folder: Path) -> None:
    with pytest.raises(RecipeError, match="expected the network `field`"):
        ProblemRun(problem(symmetries={}), "tiny", (), folder, "grid-transformer", folder=folder).recipe()
    with pytest.raises(ValidationError, match=r"expected none with \[time\] or \[points\]"):
        problem(inputs={"k": {"key": "u"}}, time={"step": 0.1})
    np.savez(folder / "coarse.npz", **dict(np.load(folder / "fine.npz")))  # validation and test samples among them
    with pytest.raises(DataError, match="expected fewer points than the 12 x 16 of the other samples but found 12 x 1"):
        recipe(folder)
    (folder / "coarse.npz").unlink()
    with pytest.raises(ProblemFileError, match=r"data.coarse.files: expected files for 'coarse.npz'"):
        recipe(folder)


def test_check_reads_coarse_samples(folder: Path) -> None:
    (folder / "plate.toml").write_text(PLATE)
    checked = partial(CliRunner().invoke, app, ["check", str(folder / "plate.toml"), "--data", str(folder)])
    assert "40 coarse samples on 6 x 8 points" in checked().stderr
    with np.load(folder / "coarse.npz") as file:
        arrays = dict(file)
    arrays["u"][3, 2, 1] = np.nan
    np.savez(folder / "coarse.npz", **arrays)
    assert "coarse.npz: 'u' is nan at sample 3, index (2, 1)" in str(checked().exception)
    (folder / "coarse.npz").unlink()
    refused = CliRunner().invoke(app, ["check", str(folder / "plate.toml"), "--no-values"])
    assert "data.coarse.files: expected files for 'coarse.npz'" in str(refused.exception)
