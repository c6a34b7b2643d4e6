"""Several processes that share every batch learn what one process does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from training.fit import processes, run_folder
from training.fit.run import check_shares, train
from training.fit.start import begin
from training.recipe import RecipeError, find, read

PROBLEM = """
name = "heat"
[data]
files = ["heat.npz"]
[inputs.k]
[outputs.u]
[axes.row]
[axes.column]
boundary = "periodic"
[symmetries]
exact = ["flip_row", "shift_column"]
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def command(*arguments: object, launcher: tuple[str, ...] = ()) -> None:
    """Run `python -m training fit`."""
    whole = [sys.executable, *launcher, "-m", "training", "fit", *map(str, arguments)]
    done = subprocess.run(whole, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def curve(run: Path) -> list[list[float]]:
    return [[float(row["loss"]), float(row["relative_l2"])] for row in run_folder.read_log(run / "metrics.csv")]


def test_two_processes_learn_a_user_s_data_as_one_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    k = rng.standard_normal((40, 8, 12))
    np.savez(tmp_path / "heat.npz", k=k, u=k + 3)
    (tmp_path / "heat.toml").write_text(PROBLEM)
    changes, data = ["fit.epochs=4", "fit.average=0.9"], tmp_path / "data"
    recipe, folder = begin(str(tmp_path / "heat.toml"), "tiny", changes, tmp_path / "1", data)
    one = train(recipe, folder, data)
    options = ("--set", changes[0], "--set", changes[1], "--data", data, "--out", tmp_path / "2")
    command(tmp_path / "heat.toml", "--preset", "tiny", *options, "--devices", 2)
    assert len(curve(one)) == 4
    assert np.allclose(curve(one), curve(tmp_path / "2"), rtol=1e-4)
    assert {"weights.safetensors", "card.json", "report.html"} <= {path.name for path in (tmp_path / "2").iterdir()}
    assert not (tmp_path / "2" / "state").exists()


@pytest.mark.deep
def test_torchrun_learns_built_in_fields_as_one_process_does(tmp_path: Path) -> None:
    one = train(read(find("burgers-tiny"), ["fit.epochs=1"]), tmp_path / "1", tmp_path / "data")
    options = ("--set", "fit.epochs=1", "--data", tmp_path / "data", "--out", tmp_path / "2")
    command("burgers-tiny", *options, launcher=TORCHRUN)
    assert np.allclose(curve(one), curve(tmp_path / "2"), rtol=1e-4)


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert processes.count() == 3
    with pytest.raises(RecipeError, match="a batch that 3 processes share equally but found 8"):
        check_shares(8, read(find("burgers-tiny")))
