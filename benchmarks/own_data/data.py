"""The data sets on the disk: made once by their solvers, then checked and prepared as a user's data are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.baselines.environment import interpreter
from benchmarks.baselines.process import ONE_THREAD
from benchmarks.own_data.samples import Prepared
from training.data import own_samples
from training.data.own_samples import OwnSamples
from training.problems.own.problem_file import ProblemFile, read_problem_file

PROBLEMS = Path(__file__).parent / "problems"
FOLDER = Path("data/own-data")
ENVIRONMENT = "own_data"
SAMPLES = 1000
NAMES = ("heat", "darcy", "reaction", "advection", "neuralop")


def prepared(name: str, folder: Path) -> Prepared:
    """Return the prepared samples of a problem; they are made if there are none.

    Args:
        name: One of `NAMES`.
        folder: The folder of the data.

    Raises:
        CalledProcessError: The solver failed.
        DataError: The data do not fit the problem file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.toml"
    shutil.copyfile(PROBLEMS / file.name, file)
    problem = read_problem_file(file)
    if not all((folder / each).exists() for each in problem.data.files):
        solve(name, folder)
    samples = OwnSamples(own_samples.prepare(problem, folder, folder), problem)
    return description(problem, samples, file)


def solve(name: str, folder: Path) -> None:
    """Make the data of a problem by its solver.

    Args:
        name: The solver's module.
        folder: Where to.
    """
    command = [str(interpreter(ENVIRONMENT)), "-W", "ignore", "-m", "benchmarks.own_data.solvers"]
    with TemporaryDirectory(dir=folder) as aside:  # an interrupted run leaves no file that looks complete
        subprocess.run(  # noqa: S603 -- our own command
            [*command, name, str(SAMPLES), aside], check=True, env=os.environ | ONE_THREAD
        )
        for made in Path(aside).iterdir():
            made.replace(folder / made.name)


def description(problem: ProblemFile, samples: OwnSamples, file: Path) -> Prepared:
    """Describe prepared samples for another process.

    Args:
        problem: The problem.
        samples: Its samples.
        file: Its problem file.
    """
    [output] = problem.outputs
    return Prepared(
        file=str(samples.path),
        problem=str(file),
        inputs=tuple(problem.inputs),
        parameters=tuple(problem.parameters),
        output=output,
        counts=samples.counts,
        sides=samples.sides,
        periodic=tuple(axis.boundary == "periodic" for axis in problem.axes.values()),
    )
