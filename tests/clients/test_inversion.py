"""`invert` starts a job, watches it and returns its result; an interruption cancels the job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from petrov_client import AsyncClient, Client, DeadlineExceeded, InvalidInput, Inversion, RequestError, UnknownModel
from petrov_client._inversion import END_SECONDS, sensors, status
from physics import darcy
from physics.numerics.grid import axis
from physics.posterior.sensors import Sensors, lattice
from tests.clients.conftest import AnyClient, Done
from tests.conftest import Gateway, wait_until

GRID, SENSORS = (11, 13), lattice(5)
OPTIONS: dict[str, Any] = {"forward": "solver", "grid": GRID, "modes": 12, "samples": 20}
#: Minutes of work.
LONG: dict[str, Any] = {"forward": "solver", "grid": (64, 64), "modes": 256, "samples": 2, "iterations": 200}


def measured() -> np.ndarray:
    field = 6 * np.exp(0.3 * np.cos(np.pi * axis(GRID[0]))[:, None] + 0 * axis(GRID[1]))
    return Sensors(SENSORS, axis(GRID[0]), axis(GRID[1])).observe(darcy.solve(field)[None])[0]


def test_an_input_is_inferred(http_client: AnyClient, gateway: Gateway) -> None:
    seen: list[tuple[int, int]] = []
    found = http_client.call(
        gateway.url.removeprefix("http://"),
        "invert",
        "blur",
        SENSORS,
        measured(),
        1e-5,
        prior={"kind": "log-normal", "median": 6.0, "deviation": 0.4},
        progress=lambda *count: seen.append(count),
        **OPTIONS,
    )
    assert isinstance(found, Inversion)
    assert found.inputs["coefficient"].shape == found.mean.shape == GRID
    expected = 6 * np.exp(0.3 * np.cos(np.pi * axis(GRID[0]))[:, None])
    assert np.abs(found.inputs["coefficient"] / expected - 1).mean() < 0.05
    assert (found.lower < found.upper).all()
    np.testing.assert_allclose(found.predicted, measured(), atol=1e-4)
    assert (found.converged, found.coefficients.shape) == (True, (12,))
    assert seen[-1] == (found.iterations, 50)


def test_options_are_numbers_of_numpy_too(gateway: Gateway) -> None:
    short: dict[str, Any] = {"forward": "solver", "modes": np.int64(4), "samples": 2, "iterations": np.int8(1)}
    with Client(gateway.url) as client:
        for grid, shape in ((np.array([9, 11]), (9, 11)), (9, (9, 9)), (np.int32(9), (9, 9))):
            found = client.invert("blur", SENSORS, np.full(25, 0.01), np.float32(1e-3), grid=grid, **short)
            assert found.mean.shape == shape


def test_wrong_measurements_are_named(http_client: AnyClient, gateway: Gateway) -> None:
    address = gateway.url.removeprefix("http://")

    def invert(*args: Any, model: str = "blur", **options: Any) -> Any:
        return http_client.call(address, "invert", model, *args, **OPTIONS | options)

    with pytest.raises(InvalidInput, match=r"values: expected \(25,\)") as raised:
        invert(SENSORS, [1.0], 1e-3)
    assert str(raised.value.where) == "values"
    with pytest.raises(InvalidInput, match="noise: a value is not finite"):
        invert(SENSORS, measured(), np.nan)
    with pytest.raises(InvalidInput, match=r"sensors\[0\]\[1\]") as raised:
        invert([[0.5, 1.5]], [1.0], 1e-3)
    assert str(raised.value.where) == "sensors[0,1]"
    with pytest.raises(RequestError, match="no prior"):
        invert(SENSORS, measured(), 1e-3, model="drift")
    with pytest.raises(UnknownModel):
        invert(SENSORS, measured(), 1e-3, model="none")


def test_an_interruption_cancels_the_job(gateway: Gateway, interrupted: Callable[[int, int], None]) -> None:
    with Client(gateway.url) as petrov, pytest.raises(KeyboardInterrupt):
        petrov.invert("blur", SENSORS, measured(), 1e-9, progress=interrupted, **LONG)
    wait_until(lambda: running(gateway) == 0)


@pytest.fixture
def interrupted() -> Callable[[int, int], None]:
    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    return interrupt


def test_a_cancelled_task_cancels_the_job(gateway: Gateway) -> None:
    async def invert() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with AsyncClient(gateway.url) as petrov:
            await petrov.invert("blur", SENSORS, measured(), 1e-9, progress=lambda *_: task.cancel(), **LONG)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(invert())
    wait_until(lambda: running(gateway) == 0)


class Unheard(httpx2.BaseTransport):
    """A service whose user presses Ctrl-C, and which no longer responds then."""

    def __init__(self) -> None:
        self.seconds = list[float]()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return httpx2.Response(202, json={"id": "j"})
        if request.method == "GET":
            raise KeyboardInterrupt
        self.seconds.append(request.extensions["timeout"]["read"])
        raise httpx2.ReadTimeout("nothing was read")


def test_a_job_that_cannot_be_cancelled_is_left_soon() -> None:
    transport = Unheard()
    with Client("http://toy", timeout=600.0, transport=transport) as petrov, pytest.raises(KeyboardInterrupt):
        petrov.invert("toy", [[0.5, 0.5]], [1.0], 0.1)
    [seconds] = transport.seconds
    assert 0 < seconds <= END_SECONDS < 10


def running(gateway: Gateway) -> float:
    """Return how many jobs wait or run; a job that is cancelled ends after its step."""
    text = httpx2.get(f"{gateway.url}/metrics").text
    [line] = [line for line in text.splitlines() if line.startswith("petrov_inflight_inversions ")]
    return float(line.split()[-1])


def test_a_job_that_fails_raises_its_problem() -> None:
    problem = {"type": "urn:petrov:problem:deadline-exceeded", "status": 504, "detail": "too slow"}
    ended = {"state": "failed", "iterations": 3, "seconds": 1.0, "problem": problem}
    with pytest.raises(DeadlineExceeded, match="too slow"):
        status(ended)
    with pytest.raises(RequestError, match="cancelled"):
        status(ended | {"state": "cancelled"})


@pytest.mark.parametrize("noise", [(), ("--noise", "1e-5")])
def test_the_command_reads_a_table_and_writes_arrays(
    petrov: Callable[..., Done], gateway: Gateway, tmp_path: Path, noise: tuple[str, ...]
) -> None:
    source, target = tmp_path / "sensors.csv", tmp_path / "found.npz"
    columns = [SENSORS, measured()[:, None], *([] if noise else [np.full((25, 1), 1e-5)])]
    np.savetxt(source, np.hstack(columns), delimiter=",")
    command = ("invert", "blur", source, target, *noise, "--solver", "--points", *GRID, "--url", gateway.url)
    assert petrov(*command).returncode == 0
    with np.load(target) as found:
        assert found["coefficient"].shape == found["upper"].shape == GRID
        np.testing.assert_allclose(found["predicted"], measured(), atol=1e-4)


@pytest.mark.parametrize("heading", ["", "row,column,value\n", "\ufeffRow, Column, Value\r\n"])
def test_a_table_may_begin_with_the_names_of_its_columns(heading: str, tmp_path: Path) -> None:
    (tmp_path / "sensors.csv").write_text(f"{heading}0.25,0.5,3\n0.5,0.75,4\n")
    positions, values, noise = sensors(tmp_path / "sensors.csv", 1e-3)
    np.testing.assert_array_equal(positions, [[0.25, 0.5], [0.5, 0.75]])
    np.testing.assert_array_equal(values, [3, 4])
    assert noise == 1e-3


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sensors.csv").write_text("value,row,column\n3,0.25,0.5\n")
    with pytest.raises(ValueError, match="expected numbers with commas between them"):
        sensors(tmp_path / "sensors.csv", 1e-3)


def test_a_table_without_noise_is_refused(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "sensors.csv", np.ones((3, 3)), delimiter=",")
    with pytest.raises(ValueError, match=r"expected 4 columns \(row, column, value, noise\)"):
        sensors(tmp_path / "sensors.csv", None)


@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_a_repeated_request_for_a_job_has_the_same_key(kind: str, http_service: Any) -> None:
    accepted = (202, {"Content-Type": "application/json"}, b'{"id": "j"}')
    problem = (422, {"Content-Type": "application/problem+json"}, b'{"status": 422, "detail": "no"}')
    busy = (503, {"Retry-After": "0"}, b"")
    path = "/v1/models/toy/inversions"
    http_service.replies = {path: [busy, accepted, accepted], f"{path}/j?wait=20.0": [problem], f"{path}/j": [problem]}
    for _ in range(2):
        with pytest.raises(InvalidInput, match="no"):
            AnyClient(kind).call(http_service.address, "invert", "toy", [[0.5, 0.5]], [1.0], 0.1)
    keys = [headers["idempotency-key"] for method, _, headers in http_service.seen if method == "POST"]
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]
    assert [method for method, _, _ in http_service.seen].count("DELETE") == 2
