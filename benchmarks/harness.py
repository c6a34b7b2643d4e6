"""The harness of all measurements: sides do the same work, interleaved in one run, and rows go into a file.

A side maps input arrays to an output, mostly an array, and the processor seconds that it took. It is a function of
this process (`timed`) or a `Worker` in an environment with other packages. Other load on the machine slows all sides
alike, so ratios hold where times do not. Results are JSON files of `rows`, from which `benchmarks.tables` makes the
tables.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


Array: TypeAlias = NDArray[Any]
Side: TypeAlias = Callable[..., tuple[Any, float]]
Row: TypeAlias = dict[str, Any]

OWN = "own"  # the environment of this process
ENVIRONMENTS, REQUIREMENTS = Path(".third_party/baselines"), Path(__file__).parent / "requirements"
RESULTS, QUICK_RESULTS = Path("docs/bench"), Path("runs/bench-quick")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
DEFAULTS = {"viscosity": 0.01, "noise": -1.0}  # parameters of released models whose default is not 1


class BaselineError(RuntimeError):
    """A worker failed; the message is its error, or its exit status and last output."""


@dataclass
class Measured:
    """The outputs of a side, one per input, and the seconds of every call."""

    outputs: list[Any] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The median of the processor time."""
        return statistics.median(self.times)


def timed(work: Callable[..., object]) -> Side:
    """Return a function of this process as a side."""

    def side(*inputs: Array) -> tuple[object, float]:
        started = time.process_time()
        output = work(*inputs)
        return output, time.process_time() - started

    return side


def interleave(
    sides: Mapping[str, Side], inputs: Sequence[tuple[Array, ...]], rounds: int, *, warm: bool = True
) -> dict[str, Measured]:
    """Call every side with every input, one after the other, round by round."""
    names, found = [*sides], {name: Measured() for name in sides}
    for side in sides.values() if warm else ():
        side(*inputs[0])
    for number in range(rounds * len(inputs)):
        first = number % len(names)  # so that no side always follows the one that fills the cache
        for name in names[first:] + names[:first]:
            output, seconds = sides[name](*inputs[number % len(inputs)])
            found[name].times.append(seconds)
            if number < len(inputs):
                found[name].outputs.append(output)
    return found


def mean(values: Array) -> tuple[float, float | None]:
    """Return the mean of some errors, and its standard error; None for a single one, of which nothing says how large.

    Example:
        >>> mean(np.array([1.0, 3.0])), mean(np.array([2.0]))
        ((2.0, 1.0), (2.0, None))
    """
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def over_seeds(values: Array) -> tuple[float, float]:
    """Return the mean of values `[seed, sample]`, and its standard error by samples and by seeds together."""
    means = (values.mean(axis=0), values.mean(axis=1))
    spreads = [each.std(ddof=1) / len(each) ** 0.5 for each in means if len(each) > 1]
    return float(values.mean()), math.hypot(*spreads)


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Return rows by a key of each, in their order."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


class Worker:
    """A side in a process of its own with one thread, as a context; see `benchmarks.worker`.

    Args:
        subject: `MODULE:CLASS` of what it calls.
        environment: The name of a file in `requirements`, or `OWN`.
        arguments: The arguments of the class.
    """

    def __init__(self, subject: str, environment: str = OWN, **arguments: Any) -> None:
        self.subject, self.folder = subject, tempfile.TemporaryDirectory()
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the process
        command = [str(interpreter(environment)), "-W", "ignore", "-m", "benchmarks.worker"]
        self.process = subprocess.Popen(  # noqa: S603 -- our own command
            [*command, subject, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | ONE_THREAD,
        )

    def __enter__(self) -> Self:
        self.read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()
        self.folder.cleanup()

    def __call__(self, *inputs: Array) -> tuple[Array, float]:
        """Return the subject's output for the inputs, and its processor seconds."""
        file = Path(self.folder.name) / "inputs.npz"
        np.savez(file, *inputs)
        print(file, file=self.process.stdin, flush=True)
        seconds = float(self.read()["seconds"])
        return np.load(file.with_suffix(".npy")), seconds

    def read(self) -> dict[str, Any]:
        """Return the next reply."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            raise BaselineError(f"{self.subject} ended with status {status}: {self.errors.read()[-800:]}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise BaselineError(f"{self.subject}: {found['error']}")
        return found


def interpreter(name: str) -> Path:
    """Return the Python interpreter of an environment, which is made of its pinned requirements on first use."""
    if name == OWN:
        return Path(sys.executable)
    requirements, folder = REQUIREMENTS / f"{name}.txt", ENVIRONMENTS / name
    stamp, python = folder / "installed.txt", (folder / "bin/python").absolute()
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)])
        run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-r", str(requirements)])
        stamp.write_text(requirements.read_text())
    return python


def run(command: Sequence[str]) -> str:
    """Run a program with one thread, and return its output."""
    environment = os.environ | ONE_THREAD
    done = subprocess.run([*command], check=True, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 -- our own command
    return done.stdout


def children_seconds() -> float:
    """Return the processor seconds of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def result_of(module: str, environment: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a module in an environment with a request as JSON, and return its last line, which is JSON."""
    command = [str(interpreter(environment)), "-W", "ignore", "-m", module, json.dumps(request)]
    found: dict[str, Any] = json.loads(run(command).splitlines()[-1])
    return found


def newest_graph(model: Path) -> Path:
    """Return the ONNX graph of a model's newest version in a model repository."""
    return max(model.glob("[0-9]*/model.onnx"), key=lambda path: int(path.parent.name))


def one_thread(graph: Path | bytes) -> InferenceSession:
    """Open a graph in ONNX Runtime on one thread."""
    import onnxruntime  # noqa: PLC0415 - slow to import

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def feed(session: Any, fields: Array) -> dict[str, NDArray[np.float32]]:
    """Return the inputs of an opened graph: the fields, ones for further fields, and `DEFAULTS` for parameters."""
    first, *others = session.get_inputs()
    sent = np.asarray(fields, dtype=np.float32)
    shapes = {
        each.name: [size if isinstance(size, int) else other for size, other in zip(each.shape, sent.shape)]  # noqa: B905
        for each in others
    }
    filled = {name: np.full(shape, DEFAULTS.get(name, 1.0), np.float32) for name, shape in shapes.items()}
    return {first.name: sent} | filled


def graph(file: Path) -> Callable[[Array], Array]:
    """Return an exported graph as a map of one field to its first output, on one thread."""
    session = one_thread(file)
    output = session.get_outputs()[0].name
    return lambda field: np.asarray(session.run([output], feed(session, field[None]))[0][0])


def read(name: str) -> dict[str, Any]:
    """Return the kept results of a run."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def write(name: str, rows: Iterable[Row], *, quick: bool, file: Path | None = None, **facts: Any) -> dict[str, Any]:
    """Write the results of a run, and return them; those of a quick run go aside, and change no page."""
    from training.evaluation.measures import processor  # noqa: PLC0415 - imports torch

    document = {"run": "quick" if quick else "full", "processor": processor(), **facts, "rows": [*rows]}
    file = file or (QUICK_RESULTS if quick else RESULTS) / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n")
    return document


class ResultFile:
    """Rows in a file that an interrupted run continues; several threads may add some.

    Args:
        file: The file; it need not exist. None keeps them in memory.
        facts: What all rows share.

    Raises:
        ValueError: The file's rows share other facts.
    """

    def __init__(self, file: Path | None, **facts: Any) -> None:
        self.file, self.facts, self.lock = file, facts, Lock()
        document = json.loads(file.read_text()) if file is not None and file.exists() else {**facts, "rows": []}
        self.rows: list[Row] = document["rows"]
        if (found := {key: document.get(key) for key in facts}) != facts:
            raise ValueError(f"{file}: expected rows of {facts} but found {found}")

    def add(self, row: Row) -> Row:
        """Append a row, write the file, and return the row."""
        with self.lock:
            self.rows.append(row)
            if self.file is not None:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                aside = self.file.with_suffix(".part")
                aside.write_text(json.dumps({**self.facts, "rows": self.rows}, indent=1) + "\n")
                aside.replace(self.file)
        return row
