"""The trainings of the comparison: which there are, and their results, kept in a file that a later run continues."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from benchmarks.baselines.environment import OWN, interpreter
from benchmarks.baselines.process import ONE_THREAD, BaselineError
from benchmarks.own_data.data import ENVIRONMENT
from training.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.own_data.samples import Prepared

FROZEN = ConfigDict(frozen=True, extra="forbid")
Split = Literal["validation", "test"]


class Candidate(BaseModel):
    """A network with its sizes, and how it is trained.

    Attributes:
        network: The module in `networks`.
        sizes: Arguments of the module's `build`.
        settings: Arguments of `loop.Settings`.
    """

    model_config = FROZEN

    network: str
    sizes: dict[str, Any] = {}
    settings: dict[str, float | int] = {}

    @property
    def environment(self) -> str:
        """The environment that the network runs in."""
        return OWN if self.network == "petrov" else ENVIRONMENT


class Training(BaseModel):
    """One training: what is trained on which problem, for how long, and where it is measured.

    Attributes:
        problem: The name of the problem.
        title: The network's name in the table.
        candidate: The network.
        seconds: Processor time of the training.
        seed: Of weights and orders.
        split: The samples that the network is measured on.
    """

    model_config = FROZEN

    problem: str
    title: str
    candidate: Candidate
    seconds: float
    seed: int
    split: Split


class Result(BaseModel):
    """What a training has reached; see `train.main`."""

    model_config = FROZEN

    error: float
    standard_error: float
    samples: int
    parameters: int
    steps: int
    epochs: float
    seconds: float


class Row(BaseModel):
    """A training and its result."""

    model_config = FROZEN

    training: Training
    result: Result


class Results:
    """The rows in a file.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, Lock()
        document = json.loads(path.read_text()) if path.exists() else {"rows": []}
        self.rows = [Row.model_validate(row) for row in document["rows"]]

    def find(self, training: Training) -> Row | None:
        """Return the row of a training, if it has been made."""
        return next((row for row in self.rows if row.training == training), None)

    def add(self, row: Row) -> Row:
        """Append a row, write the file, and return the row."""
        with self.lock:
            self.rows.append(row)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, {"rows": [each.model_dump(mode="json") for each in self.rows]})
        return row


def complete(
    trainings: Sequence[Training], results: Results, prepared: dict[str, Prepared], workers: int = 1
) -> Iterator[Row]:
    """Make the trainings that have no row yet.

    Args:
        trainings: All of them.
        results: The rows that exist; new ones are added.
        prepared: The samples of each problem.
        workers: Trainings at the same time, each of one thread.

    Yields:
        The row of every training, old or new, in order.

    Raises:
        BaselineError: A training failed.
    """

    def row(training: Training) -> Row:
        found = results.find(training)
        return found or results.add(Row(training=training, result=run(training, prepared[training.problem])))

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(row, trainings)


def run(training: Training, prepared: Prepared) -> Result:
    """Train in a process and an environment of its own.

    Args:
        training: What is trained.
        prepared: The samples.

    Raises:
        BaselineError: The process failed.
    """
    candidate = training.candidate
    request = {"prepared": asdict(prepared), **candidate.model_dump(), **training.model_dump(include=REQUESTED)}
    program = [str(interpreter(candidate.environment)), "-W", "ignore", "-m", "benchmarks.own_data.train"]
    done = subprocess.run(  # noqa: S603 -- our own command
        [*program, json.dumps(request)], capture_output=True, text=True, check=False, env=os.environ | ONE_THREAD
    )
    if done.returncode:
        raise BaselineError(f"{training.title} on {training.problem}: {done.stderr[-800:]}")
    return Result.model_validate_json(done.stdout.splitlines()[-1])


REQUESTED = {"seconds", "seed", "split"}
