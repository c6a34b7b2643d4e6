"""Several processes that share every batch learn what one process does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from tests.conftest import wait_until
from training.commands import app
from training.fit import processes, run_folder
from training.fit.run import check_shares, train
from training.fit.start import begin
from training.recipe import RecipeError
from training.recipes import find, read

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


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def curve(run: Path) -> list[list[float]]:
    return [[float(row["loss"]), float(row["relative_l2"])] for row in run_folder.read_log(run / "metrics.csv")]


@pytest.mark.deep
def test_two_processes_learn_a_user_s_data_as_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    k = rng.standard_normal((40, 8, 12))
    np.savez(tmp_path / "heat.npz", k=k, u=k + 3)
    (tmp_path / "heat.toml").write_text(PROBLEM)
    changes, data = ["fit.epochs=4", "fit.average=0.9"], tmp_path / "data"
    recipe, folder = begin(str(tmp_path / "heat.toml"), "tiny", changes, tmp_path / "1", data)
    one = train(recipe, folder, data)
    options = ("--set", changes[0], "--set", changes[1], "--data", data, "--out", tmp_path / "2", "--devices", 2)
    arguments = [*map(str, ("fit", tmp_path / "heat.toml", "--preset", "tiny", *options))]
    monkeypatch.setattr(sys, "argv", ["training", *arguments])  # which the two repeat
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
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


@pytest.mark.deep
def test_a_training_on_two_nodes_goes_on_after_one_of_them_was_killed(tmp_path: Path) -> None:
    """An elastic agent of torchrun is a node here; the first has the meeting point, and a new one joins it."""
    rng = np.random.default_rng(0)
    k = rng.standard_normal((40, 8, 12))
    np.savez(tmp_path / "heat.npz", k=k, u=k + 3)
    (tmp_path / "heat.toml").write_text(PROBLEM)
    changes, data, out = ["fit.epochs=30", "fit.seconds=1e9"], tmp_path / "data", tmp_path / "2"
    recipe, folder = begin(str(tmp_path / "heat.toml"), "tiny", changes, tmp_path / "1", data)
    one = train(recipe, folder, data)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=heat", "--local-addr=127.0.0.1"]
    launcher = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=3", *meeting]
    fitted = ["fit", tmp_path / "heat.toml", "--preset", "tiny", "--data", data, "--out", out, "--resume"]
    options = [each for change in changes for each in ("--set", change)]
    whole = [sys.executable, *launcher, "-m", "training", *map(str, fitted), *options]
    with ExitStack() as stack:
        agents: list[subprocess.Popen[bytes]] = []

        def join() -> None:
            log = stack.enter_context((tmp_path / f"agent-{len(agents)}.txt").open("w"))
            # A new agent cannot join a meeting whose store the others share (PyTorch 2.13): it hears no address.
            apart = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            agents.append(subprocess.Popen(whole, stdout=log, stderr=log, env=apart, start_new_session=True))
            stack.callback(end, agents[-1])

        def end(agent: subprocess.Popen[bytes]) -> None:
            children = psutil.Process(agent.pid).children(recursive=True) if agent.poll() is None else []
            agent.kill()  # first: it would join a new round when its process is gone
            agent.wait()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()

        join()
        wait_until(lambda: listens(port))
        join()
        wait_until(lambda: len(run_folder.read_log(out / "metrics.csv")) >= 5, 120)
        before = run_folder.read_log(out / "metrics.csv")
        end(agents[1])
        join()
        for number in (0, 2):
            assert agents[number].wait(timeout=240) == 0, (tmp_path / f"agent-{number}.txt").read_text()[-3000:]
    after = run_folder.read_log(out / "metrics.csv")
    assert len(before) < len(after) == 30
    assert after[: len(before) - 1] == before[:-1]  # they were not computed again, which would take other seconds
    assert np.allclose(curve(one), curve(out), rtol=1e-3)


def test_a_batch_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert processes.process_count() == 3
    with pytest.raises(RecipeError, match="a batch that 3 processes share equally but found 8"):
        check_shares(8, read(find("burgers-tiny")))
