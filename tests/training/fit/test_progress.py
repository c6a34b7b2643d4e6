"""A run reports its epochs, and is refused before it starts where it could not end."""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file

from training import commands, recipes
from training import recipe as config
from training.data import generate
from training.data.generate import Request
from training.data.pools import ThisProcess
from training.data.prepare import prepare
from training.files import expect_files, expect_room, replacing, write_json
from training.fit.run import fit, train, workload
from training.fit.run_folder import RunFolder, least_state_bytes, line, state_bytes
from training.messages import UserError
from training.problems.problem import PROBLEMS
from training.problems.problem_file import ProblemFile

ROWS = [
    {"epoch": 0, "loss": "4e-1", "relative_l2": "3e-1", "rate": "1e-3", "share": "0.2", "seconds": "30.0"},
    {"epoch": 1, "loss": "2e-1", "relative_l2": "1e-1", "rate": "1e-3", "share": "0.4", "seconds": "50.0"},
]


def test_a_line_states_share_errors_and_the_time_left() -> None:
    expected = "epoch 2, 40%: loss 2.000e-01, validation relative_l2 1.000e-01, 50.0 s, 0:02:00 left"
    assert line(ROWS) == expected


def test_a_full_disk_is_reported_before_anything_is_generated(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected \d+ MB of free disk space but found"):
        expect_room(tmp_path, 2**62)
    recipe = recipes.read(recipes.find("burgers-tiny"), ["data.train=100_000_000_000"])
    with pytest.raises(UserError, match="free disk space"):
        train(recipe, tmp_path / "run", tmp_path / "data")
    assert not any((tmp_path / "data").iterdir())
    assert state_bytes(10**9) > 4 * 10**9


def test_a_limit_of_the_size_of_files_is_reported_before_the_first_epoch(tmp_path: Path) -> None:
    recipe = recipes.read(recipes.find("burgers-tiny"), ["data.train=4", "data.validation=1", "data.test=1"])
    work = workload(recipe, tmp_path / "data", progress=False)
    work.prepare()
    least = least_state_bytes(work.parameters, recipe.fit)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (least - 1, hard))
    try:
        with pytest.raises(UserError, match=r"run: expected room for 3 files of \d+\.\d MB each but found: File too"):
            train(recipe, tmp_path / "run", tmp_path / "data")
        expect_files(tmp_path, 3, least - 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    left = {path.name for path in tmp_path.rglob("*")}
    assert not {"metrics.csv", "state"} & left
    assert not any("tmp" in name for name in left)


def test_a_state_takes_at_least_what_is_checked_for_it(tmp_path: Path) -> None:
    settings = ["data.train=4", "data.validation=1", "data.test=1", "data.grids=[64]", "fit.epochs=1", "fit.batch=4"]
    for more in (["fit.optimiser='muon'"], ["fit.average=0.9"]):
        recipe = recipes.read(recipes.find("burgers-tiny"), [*settings, *more])
        work, run = workload(recipe, tmp_path / "data", progress=False), RunFolder(tmp_path / more[0])
        run.path.mkdir()
        fit(work.task(), work, run, run.open(recipe, resume=False), keep=False)
        newest = run.newest()
        assert newest is not None
        size, least = newest.stat().st_size, least_state_bytes(work.parameters, recipe.fit)
        assert least <= size < 1.5 * least


def test_samples_are_not_begun_on_a_disk_without_room_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    k, u = np.random.default_rng(0).standard_normal((2, 40, 12))
    np.savez(tmp_path / "line.npz", k=k, u=u)
    axes = {"x": {"boundary": "periodic", "points": "left"}}
    document = {"data": {"files": ["line.npz"]}, "inputs": {"k": {}}, "outputs": {"u": {}}, "axes": axes}
    problem = ProblemFile.model_validate({"name": "line", **document})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * 4 * 40 * 12 - 1))
    with pytest.raises(UserError, match="free disk space"):
        prepare(problem, tmp_path, tmp_path / "data")
    with pytest.raises(UserError, match="free disk space"):
        generate.prepare(
            Request(PROBLEMS["burgers"], 512, 4, 1, seed=0), tmp_path / "data", ThisProcess(), progress=False
        )
    assert not [*(tmp_path / "data").glob("*.h5*.part"), *(tmp_path / "data").glob("*.h5")]
    monkeypatch.undo()
    assert prepare(problem, tmp_path, tmp_path / "data").is_file()


def test_a_folder_that_cannot_be_made_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    out = f"{tmp_path}/file/run"
    monkeypatch.setattr(commands.console, "width", 400)
    monkeypatch.setattr(sys, "argv", ["training", "fit", "memoriser-tiny", "--out", out])
    with pytest.raises(SystemExit) as end:
        commands.main()
    assert end.value.code == 1
    assert capsys.readouterr().err.strip() == f"{out}: expected a folder that can be made but found: Not a directory"


def test_a_file_for_which_there_is_no_room_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file /dev/full accepts no bytes, as a full disk."""
    path = tmp_path / "card.json"
    (tmp_path / f".card.json.{os.getpid()}.part").symlink_to("/dev/full")
    app = typer.Typer()
    app.command()(lambda: write_json(path, {"errors": []}))
    monkeypatch.setattr(commands.console, "width", 400)
    monkeypatch.setattr(sys, "argv", ["training"])
    with pytest.raises(SystemExit) as end:
        commands.corrected(app)
    assert end.value.code == 1
    said = capsys.readouterr().err.strip()
    assert said == f"{path}: expected room to write it but: No space left on device"
    assert not any(tmp_path.iterdir())


def test_weights_for_which_there_is_no_room_are_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of the size of files is one of safetensors, too, which writes beside the path that it is given."""
    path, app = tmp_path / "weights.safetensors", typer.Typer()

    @app.command()
    def save() -> None:
        with replacing(path) as aside:
            save_file({"weights": torch.zeros(10_000)}, aside)

    monkeypatch.setattr(commands.console, "width", 400)
    monkeypatch.setattr(sys, "argv", ["training"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(SystemExit) as end:
            commands.corrected(app)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert end.value.code == 1
    assert capsys.readouterr().err.strip() == f"{path}: expected room to write it but: File too large"


def test_a_file_that_may_not_be_written_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below /sys, no user makes files, as in a read-only folder."""
    app = typer.Typer()
    app.command()(lambda: write_json(Path("/sys/kernel/card.json"), {"errors": []}))
    monkeypatch.setattr(commands.console, "width", 400)
    monkeypatch.setattr(sys, "argv", ["training"])
    with pytest.raises(SystemExit) as end:
        commands.corrected(app)
    assert end.value.code == 1
    said = capsys.readouterr().err.strip()
    assert re.fullmatch(r"/sys/kernel/.*: expected permission to read and write it but: [A-Z].*", said)


def test_a_recipe_without_validation_samples_is_refused(tmp_path: Path) -> None:
    recipe = recipes.read(recipes.find("burgers-tiny"), ["data.validation=0"])
    with pytest.raises(config.RecipeError, match=r"expected data\.validation of at least 1 but found 0"):
        train(recipe, tmp_path / "run", tmp_path / "data")
    assert not RunFolder(tmp_path / "run").path.exists()
