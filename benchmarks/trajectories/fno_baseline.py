"""FNO beside a released model of trajectories: trained on the same trajectories, rolled out by a worker."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.baselines.environment import interpreter
from benchmarks.baselines.process import Baseline
from benchmarks.trajectories.comparison import run
from training.problems.generated import GENERATED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

ENVIRONMENT, PROGRAM = "neuralop", "benchmarks.trajectories.fno_steps"
METHOD = "FNO (neuraloperator)"
FRAMES = 20
"""Frames of the rollouts from validation trajectories."""

CHOSEN: dict[str, dict[str, Any]] = {
    "kuramoto_sivashinsky": {"shape": {"modes": [48], "increment": False, "located": True}, "batch": 16},
    "navier_stokes": {"shape": {"modes": [24, 24], "increment": True, "located": True}, "batch": 8},
}
"""The settings, with as many wave numbers as the released models have.

On the line they are those of the smaller error on validation trajectories after 60 processor seconds: 0.205, where
increments without coordinates have 0.256 (mean over 20 frames). On the square there was one candidate.
"""


def request(name: str, data: Path, seconds: float) -> dict[str, Any]:
    """Return what the program of the training is asked for; see `fno_steps.main`.

    Args:
        name: A name of `CHOSEN`.
        data: The folder of samples.
        seconds: The processor time.
    """
    file = GENERATED[name].file
    [state], [parameter] = (each.key for each in file.inputs.values()), file.parameters
    return CHOSEN[name] | {
        "file": str(data / file.data.files[0]),
        "state": state,
        "parameter": parameter,
        "held": [file.data.validation, file.data.test],
        "seconds": seconds,
        "seed": 0,
        "frames": FRAMES,
        "weights": str(data / f"fno-{name}-{seconds:g}.npz"),
    }


def trained(asked: dict[str, Any]) -> dict[str, Any]:
    """Train unless that is done, and return what the program has found.

    Raises:
        CalledProcessError: The training failed.
    """
    found = Path(asked["weights"]).with_suffix(".json")
    if not found.exists():
        program = [str(interpreter(ENVIRONMENT)), "-W", "ignore", "-m", PROGRAM, json.dumps(asked)]
        found.write_text(run(program).splitlines()[-1])
    result: dict[str, Any] = json.loads(found.read_text())
    return result


@contextmanager
def rollouts(
    asked: dict[str, Any], truth: NDArray[np.float64], numbers: NDArray[np.float64]
) -> Iterator[Callable[[], tuple[NDArray[np.float64], float]]]:
    """Roll a trained FNO out in its environment.

    Args:
        asked: The request of its training.
        truth: Trajectories `[trajectory, frame, *grid]`, which it is started from.
        numbers: Their parameters `[trajectory]`.

    Yields:
        A function that returns the frames that follow the first, and the processor seconds that they took.
    """
    with TemporaryDirectory() as folder, Baseline(f"{PROGRAM}:Rollout", ENVIRONMENT) as worker:
        start, frames = Path(folder) / "start.npz", Path(folder) / "frames.npy"
        np.savez(start, state=truth[:, 0].astype(np.float32), parameter=numbers.astype(np.float32))
        worker.prepare(request=asked, start=str(start), frames=truth.shape[1] - 1)
        worker.run(1)  # the first is slower

        def rolled_out() -> tuple[NDArray[np.float64], float]:
            [seconds] = worker.run(1).processor
            worker.write_output(frames)
            return np.load(frames).astype(np.float64), seconds

        yield rolled_out
