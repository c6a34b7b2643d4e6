"""Petrov's preset, from the file to served rollouts, and FNO on the same trajectories, with the time of each stage."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.baselines.environment import interpreter
from benchmarks.baselines.process import ONE_THREAD
from benchmarks.service.running import running
from benchmarks.trajectories.endurance import measured
from petrov_client import Client
from training import checkpoint
from training.operators.trajectory import TrajectoryOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path("data/trajectories")
PROBLEM = Path(__file__).parent / "ks.toml"
HELD = 16
"""Trajectories for validation, and as many for the test, as the problem file says."""
SHOWN = (1, 10, 20, 40)
HEADER = ("network", "parameters", "processor seconds", *(f"frame {frame}" for frame in SHOWN))
STAGES = ("stage", "seconds", "processor seconds")
Row = dict[str, Any]


def prepare(folder: Path) -> Path:
    """Make the trajectories by exponax, if there are none, and return the problem file beside them.

    Raises:
        CalledProcessError: The environment cannot be made, or the solver failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    problem = folder / PROBLEM.name
    shutil.copyfile(PROBLEM, problem)
    file = folder / "ks.npz"
    if not file.exists():
        aside = folder / "aside.npz"  # an interrupted run leaves no file that looks complete
        run([str(interpreter("exponax")), "-W", "ignore", "-m", "benchmarks.trajectories.solver", str(aside)])
        aside.replace(file)
    return problem


def run(command: list[str]) -> str:
    """Run a program with one thread, and return its output.

    Raises:
        CalledProcessError: It failed.
    """
    environment = os.environ | ONE_THREAD
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 -- our own command
    return done.stdout


def petrov(problem: Path, folder: Path) -> tuple[Row, list[Row]]:
    """Train the preset `quick` as a user does, export it, serve it, and ask it for a rollout.

    Args:
        problem: The problem file.
        folder: Where the run and the exported model go.

    Returns:
        The errors of its rollouts on the test trajectories, and the time of each stage.
    """
    out, repository = folder / "ks-quick", folder / "repository"
    stages: list[Row] = []
    with stage("training", stages):
        run(
            [
                sys.executable,
                "-m",
                "training",
                "fit",
                str(problem),
                "--no-amounts",
                "--out",
                str(out),
                "--data",
                str(folder),
            ]
        )
    with stage("export", stages):
        run([sys.executable, "-m", "export", str(out), "--name", "ks", "--repository", str(repository)])
    start = np.load(folder / "ks.npz")["u"][-1, 0]
    with (
        stage(f"service: start, and a rollout of {SHOWN[-1]} frames", stages),
        running(repository) as service,
        Client(service.gateway) as client,
    ):
        client.rollout("ks", start, frames=SHOWN[-1])
    card = json.loads((out / "card.json").read_text())
    errors = [row["relative_l2"] for row in card["rollout"]]
    used = stages[0]["processor"]
    return row("Petrov, preset quick", card["checkpoint"]["parameters"], used, errors), stages


@contextmanager
def stage(name: str, stages: list[Row]) -> Iterator[None]:
    """Add the time of a block to `stages`: on the clock, and that of the processes which ended in it."""
    clock, used = time.monotonic(), used_seconds()
    yield
    stages.append({"stage": name, "seconds": time.monotonic() - clock, "processor": used_seconds() - used})


def endurance(folder: Path) -> Row:
    """Return how long the rollouts of Petrov's model last, from the first frames of the validation trajectories."""
    network = checkpoint.load(folder / "ks-quick").operator
    if not isinstance(network, TrajectoryOperator):
        raise TypeError(f"expected a model of trajectories but found {type(network).__name__}")
    return measured(network, np.load(folder / "ks.npz")["u"][-2 * HELD : -HELD])


def fno(folder: Path, seconds: float) -> Row:
    """Train FNO for some processor seconds, and measure its rollouts.

    Args:
        folder: Where the trajectories are.
        seconds: The processor time.
    """
    request = {"file": str(folder / "ks.npz"), "held": HELD, "seconds": seconds, "seed": 0, "split": "test"}
    program = [str(interpreter("neuralop")), "-W", "ignore", "-m", "benchmarks.trajectories.fno"]
    found = json.loads(run([*program, json.dumps(request)]).splitlines()[-1])
    return row("FNO (neuraloperator)", found["parameters"], found["seconds"], found["errors"])


def used_seconds() -> float:
    """Return the processor seconds of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(network: str, parameters: int, seconds: float, errors: list[float]) -> Row:
    """Return what is kept of one network: the error of every frame."""
    return {"network": network, "parameters": parameters, "seconds": round(seconds), "errors": errors}


def stage_cells(stages: list[Row]) -> list[tuple[str, ...]]:
    """Return the table of the stages."""
    return [(each["stage"], f"{each['seconds']:.0f}", f"{each['processor']:.0f}") for each in stages]


def cells(rows: list[Row]) -> list[tuple[str, ...]]:
    """Return the table of some rows."""
    return [
        (
            each["network"],
            f"{each['parameters']:,}",
            f"{each['seconds']:g}",
            *(f"{each['errors'][frame - 1]:.2g}" for frame in SHOWN),
        )
        for each in rows
    ]
