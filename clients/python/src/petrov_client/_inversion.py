"""The inference of an input of a model from its output at sensors: the request, the states of the job, the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._descriptions import readable
from petrov_client._errors import InvalidInput, InvalidResponse, RequestError, Where, service_fault

PENDING = frozenset({"queued", "running"})
#: Seconds that the service waits for the end before it responds: shorter with a progress report.
WAIT, SHORT_WAIT = 20.0, 0.5
#: The most seconds for the request that ends a job, since a caller who has interrupted the wait for it waits for this.
END_SECONDS = 3.0
FIELDS = ("mean", "deviation", "lower", "upper")
VECTORS = ("coefficients", "predicted")
#: The most steps of a job where the caller does not say.
STEPS = 50


@dataclass(frozen=True)
class Inversion:
    """What the measurements at the sensors say about an input.

    Attributes:
        inputs: The most probable input `[*grid]` by name.
        mean: The mean of the posterior, per grid point.
        deviation: Its standard deviation.
        lower: Its 5 % quantile.
        upper: Its 95 % quantile.
        coefficients: The most probable Karhunen-Loève coefficients.
        predicted: The model's output at the sensors for the most probable input.
        misfit: Root mean square of (predicted - measured) / deviation; about 1 where model and prior explain the data.
        iterations: Steps of the optimisation.
        converged: Whether they ended before their limit.
        seconds: How long the service computed.
    """

    inputs: Mapping[str, npt.NDArray[np.float32]]
    mean: npt.NDArray[np.float32]
    deviation: npt.NDArray[np.float32]
    lower: npt.NDArray[np.float32]
    upper: npt.NDArray[np.float32]
    coefficients: npt.NDArray[np.float32]
    predicted: npt.NDArray[np.float32]
    misfit: float
    iterations: int
    converged: bool
    seconds: float


@dataclass(frozen=True)
class Status:
    """How far a job has come."""

    state: str = "queued"
    iterations: int = 0
    misfit: float = float("nan")
    converged: bool = False
    seconds: float = 0.0


COLUMNS = ["row", "column", "value", "noise"]  # of a table of sensors


def sensors(source: Path, noise: float | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Any]:
    """Return positions `[sensors, 2]`, values and noise `[sensors]` of a file of comma-separated numbers.

    Its first line may have the names of the columns.
    """
    columns = COLUMNS if noise is None else COLUMNS[:-1]
    try:
        with source.open(encoding="utf-8-sig") as file:
            first = [part.strip().lower() for part in file.readline().split(",")]
            if first != columns:
                file.seek(0)
            table = np.loadtxt(file, delimiter=",", ndmin=2)
    except ValueError as error:
        raise ValueError(f"expected numbers with commas between them in {source}: {error}") from error
    if table.shape[1] != len(columns):
        expected = f"expected {len(columns)} columns ({', '.join(columns)})"
        raise ValueError(f"{expected} in {source} but got {table.shape[1]}")
    return table[:, :2], table[:, 2], table[:, 3] if noise is None else noise


def request(sensors: Any, values: Any, noise: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the request."""
    arrays = {"sensors": sensors, "values": values, "noise": noise}
    for name, array in arrays.items():
        if np.ma.is_masked(array):
            raise InvalidInput(f"{name}: a value is missing", where=Where(name))
        if (kind := np.asarray(array).dtype).kind not in "fiu":
            raise InvalidInput(f"{name}: expected real numbers but got {kind}", where=Where(name))
    numbers = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    count = numbers["sensors"].shape[:1]
    for name, shapes in {"sensors": {(*count, 2)}, "values": {count}, "noise": {(), count}}.items():
        if numbers[name].shape not in shapes:
            expected = " or ".join(map(str, sorted(shapes, key=len)))
            raise InvalidInput(f"{name}: expected {expected} but got {numbers[name].shape}", where=Where(name))
        if not np.isfinite(numbers[name]).all():
            raise InvalidInput(f"{name}: a value is not finite", where=Where(name))
    body: dict[str, Any] = {name: array.tolist() for name, array in numbers.items()}
    return body | {name: _plain(value) for name, value in options.items() if value is not None}


def _plain(value: Any) -> Any:
    """Return an option without the types of NumPy."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def job_id(document: Any) -> str:
    """Return the id of a job that was just accepted; `InvalidResponse` without one."""
    if not isinstance(document, dict) or not isinstance(document.get("id"), str):
        raise InvalidResponse("expected the id of an inversion")
    return str(document["id"])


def status(document: Any) -> Status:
    """Return the state of a job."""
    with readable("the state of an inversion"):
        found = Status(
            str(document["state"]),
            int(document["iterations"]),
            float("nan") if document.get("misfit") is None else float(document["misfit"]),
            bool(document.get("converged")),
            float(document["seconds"]),
        )
        problem = document.get("problem") or {}
        code = int(problem.get("status", 500))
    if found.state == "failed":
        raise service_fault(code, problem)
    if found.state == "cancelled":
        raise RequestError("the inversion was cancelled")
    return found


def inversion(arrays: Mapping[str, npt.NDArray[Any]], ended: Status) -> Inversion:
    """Return the result of a job of its tensors and its last state; `InvalidResponse` where one is missing."""
    with readable("the result of an inversion"):
        known: dict[str, Any] = {name: arrays[name] for name in (*FIELDS, *VECTORS)}
    known |= {name: getattr(ended, name) for name in ("misfit", "iterations", "converged", "seconds")}
    return Inversion({name: array for name, array in arrays.items() if name not in known}, **known)
