"""Inversions over HTTP: started, watched, fetched, cancelled, bounded, and ended at shutdown."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import orjson
import pytest
from safetensors.numpy import load

from physics import darcy
from physics.numerics.grid import axis
from physics.posterior.prior import KarhunenLoeve, LogNormal
from physics.posterior.sensors import Sensors, lattice
from schema.card import Card
from serving import auth
from serving.document import JSON
from serving.inversion.jobs import Job, State
from serving.local_triton.server import TritonServer
from serving.settings import Settings
from tests import toy_flow
from tests.conftest import Gateway, wait_until
from tests.serving.test_commands import command, status, wait_for

NAME, GRID, NOISE = toy_flow.NAME, (12, 14), 1e-3
SAFETENSORS = "application/vnd.safetensors"
PENDING = {"queued", "running"}


@pytest.fixture(scope="module")
def repository(toy_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inversions")
    toy_flow.add(folder)
    shutil.copytree(toy_repository / "blur", folder / "blur")
    return folder


@pytest.fixture(scope="module")
def triton(
    repository: Path,
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
) -> Iterator[TritonServer]:
    with run_triton(make_settings(repository)) as server:
        yield server


@pytest.fixture(scope="module")
def another(
    triton: TritonServer,
    make_settings: Callable[..., Settings],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> Callable[..., AbstractContextManager[Gateway]]:
    """Return a function that runs a gateway with other settings, in front of the same Triton."""

    def run(**changes: Any) -> AbstractContextManager[Gateway]:
        addresses = triton.settings.triton_address
        return run_gateway(make_settings(triton.settings.repository, triton=addresses, **changes))

    return run


@pytest.fixture(scope="module")
def gateway(
    triton: TritonServer,
    free_ports: Callable[[int], list[int]],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> Iterator[Gateway]:
    port, grpc_port = free_ports(2)
    with run_gateway(triton.settings.model_copy(update={"port": port, "grpc_port": grpc_port})) as running:
        yield running


def truth() -> np.ndarray:
    xi = KarhunenLoeve(16).sample(1, np.random.default_rng(0))
    return LogNormal().permeability(KarhunenLoeve(16).field(xi, axis(GRID[0]), axis(GRID[1])))[0]


def wanted(**changes: Any) -> dict[str, Any]:
    """Return a request for the inversion of the toy, which returns 1 / coefficient."""
    positions = lattice(6)
    values = Sensors(positions, axis(GRID[0]), axis(GRID[1])).observe(1 / truth()[None])[0]
    body = {"sensors": positions.tolist(), "values": values.tolist(), "noise": NOISE, "grid": list(GRID), "modes": 16}
    return body | {"model_error": 0.0} | changes


def start(gateway: Gateway, body: dict[str, Any], model: str = NAME, **options: Any) -> httpx2.Response:
    return httpx2.post(f"{gateway.url}/v1/models/{model}/inversions", json=body, **options)


def get(gateway: Gateway, path: str, **options: Any) -> httpx2.Response:
    return httpx2.get(f"{gateway.url}{path}", **options)


def finished(gateway: Gateway, location: str) -> dict[str, Any]:
    found: dict[str, Any] = {"state": "queued"}
    while found["state"] in PENDING:
        found = get(gateway, location, params={"wait": 20}, timeout=60).raise_for_status().json()
    return found


def test_a_field_is_recovered_from_its_measurements(gateway: Gateway) -> None:
    response = start(gateway, wanted())
    assert response.status_code == 202
    begun, location = response.json(), response.headers["Location"]
    assert location == f"/v1/models/{NAME}/inversions/{begun['id']}"
    assert (begun["model"], begun["version"], begun["state"] in PENDING) == (NAME, 1, True)
    ended = finished(gateway, location)
    assert ended["state"] == "succeeded"
    assert 0 < ended["iterations"] <= ended["most_iterations"] == 50
    assert ended["misfit"] < 1.5
    found = get(gateway, f"{location}/result").raise_for_status().json()
    fields = {name: np.array(found[name]) for name in ("mean", "deviation", "lower", "upper")}
    optimum = np.array(found["inputs"]["coefficient"])
    assert optimum.shape == GRID
    assert np.abs(optimum / truth() - 1).max() < 0.1
    assert np.abs(optimum / truth() - 1).mean() < 0.02
    assert ((fields["lower"] < truth()) & (truth() < fields["upper"])).mean() > 0.8
    assert found["converged"]
    assert found["misfit"] == ended["misfit"]
    np.testing.assert_allclose(found["predicted"], wanted()["values"], atol=5 * NOISE)
    assert len(found["coefficients"]) == 16


def test_a_result_in_safetensors_is_the_same(gateway: Gateway) -> None:
    location = start(gateway, wanted(samples=20)).headers["Location"]
    finished(gateway, location)
    in_json = get(gateway, f"{location}/result").json()
    arrays = load(get(gateway, f"{location}/result", headers={"Accept": SAFETENSORS}).raise_for_status().content)
    np.testing.assert_array_equal(arrays["coefficient"], np.array(in_json["inputs"]["coefficient"], np.float32))
    for name in ("mean", "deviation", "lower", "upper", "coefficients", "predicted"):
        np.testing.assert_array_equal(arrays[name], np.array(in_json[name], np.float32))
    assert get(gateway, f"{location}/result", headers={"Accept": "application/x-npy"}).status_code == 406
    admission = gateway.service.admission
    admission.count(admission.max_bytes, "")  # of others
    try:
        assert get(gateway, f"{location}/result").status_code == 503
    finally:
        admission.count(-admission.max_bytes, "")


def test_two_materials_on_the_declared_grid(gateway: Gateway) -> None:
    """Without a grid it is the first declared size; the deviation includes the error of the card."""
    values = np.where(lattice(6)[:, 0] < 0.5, 1 / 3, 1 / 12)
    body = wanted(values=values.tolist(), prior={"kind": "two-materials", "low": 3, "high": 12, "width": 0.3})
    del body["grid"], body["model_error"]
    location = start(gateway, body).headers["Location"]
    assert finished(gateway, location)["state"] == "succeeded"
    found = np.array(get(gateway, f"{location}/result").json()["inputs"]["coefficient"])
    assert found.shape == (16, 16)
    assert found[:6].max() < 4
    assert found[-6:].min() > 11


@pytest.mark.parametrize(
    ("changes", "pointer", "detail"),
    [
        ({"sensors": [[0.5, 1.5]], "values": [1], "noise": 1}, "/sensors/0/1", "less than or equal to 1"),
        ({"values": [0.1]}, None, "expected 36 values"),
        ({"noise": -1.0}, "/noise", "greater than"),
        ({"noise": "1"}, "/noise", "valid number"),
        ({"noise": [1.0]}, None, "expected 36 noise"),
        ({"grid": [12, 99]}, "/grid/1", "99 points; the model takes 4 to 64"),
        ({"modes": 0}, "/modes", "greater than"),
        ({"prior": {"kind": "log-normal", "deviation": 0}}, "/prior/deviation", "greater than"),
        ({"prior": {"kind": "two-materials", "low": 3, "high": 2}}, "/prior", "low < high"),
        ({"prior": {"kind": "other"}}, "/prior", "expected tags"),
        ({"extra": 1}, "/extra", "not permitted"),
    ],
)
def test_a_wrong_request_is_refused_with_its_location(
    gateway: Gateway, changes: dict[str, Any], pointer: str | None, detail: str
) -> None:
    response = start(gateway, wanted(**changes))
    problem = response.json()
    assert (response.status_code, problem["type"]) == (422, "urn:petrov:problem:invalid-inversion")
    assert problem.get("where", {}).get("pointer") == pointer
    assert detail in problem["detail"]


def test_the_classical_solver_needs_no_derivatives_of_the_model(gateway: Gateway) -> None:
    """`blur` is served without, and its problem has a solver."""
    rows, columns = (axis(points) for points in GRID)
    values = Sensors(lattice(6), rows, columns).observe(darcy.solve(truth())[None])[0]
    body = wanted(values=values.tolist(), noise=1e-5, forward="solver")
    location = start(gateway, body, "blur").headers["Location"]
    ended = finished(gateway, location)
    assert (ended["state"], ended["converged"]) == ("succeeded", True)
    found = get(gateway, f"{location}/result").json()
    np.testing.assert_allclose(found["predicted"], values, atol=5e-5)
    assert np.abs(np.array(found["inputs"]["coefficient"]) / truth() - 1).mean() < 0.1


def test_what_cannot_be_inverted_is_refused(gateway: Gateway) -> None:
    for model, kind in {"blur": "not-differentiable", f"{NAME}_vjp": "not-invertible", "none": "unknown-model"}.items():
        response = start(gateway, wanted(), model)
        assert (response.status_code, response.json()["type"]) == (404, f"urn:petrov:problem:{kind}")
    url = f"{gateway.url}/v1/models/{NAME}/inversions"
    headers = {"Content-Type": "application/json"}
    assert httpx2.post(url, content=b"{", headers=headers).json()["type"].endswith("unreadable-body")
    assert httpx2.post(url, content=b"{}", headers={"Content-Type": SAFETENSORS}).status_code == 415
    assert httpx2.post(url, content=b" " * 2_000_000, headers=headers).status_code == 413


def test_a_job_is_cancelled_and_forgotten(gateway: Gateway) -> None:
    location = start(gateway, wanted()).headers["Location"]
    assert httpx2.delete(f"{gateway.url}{location}").status_code == 204
    for response in (get(gateway, location), get(gateway, f"{location}/result")):
        assert response.json()["type"] == "urn:petrov:problem:unknown-inversion"
    assert get(gateway, location.replace(NAME, "blur")).status_code == 404
    assert get(gateway, location, params={"wait": 1e9}).status_code == 422


def test_a_job_is_where_a_proxy_publishes_it(gateway: Gateway) -> None:
    location = start(gateway, wanted(), headers={"X-Forwarded-Prefix": "/petrov"}).headers["Location"]
    assert location.startswith(f"/petrov/v1/models/{NAME}/inversions/")
    assert httpx2.delete(f"{gateway.url}{location.removeprefix('/petrov')}").status_code == 204


def endless() -> dict[str, Any]:
    """Return a request whose job runs until it is stopped: each of many steps costs a call for every 8 of 256 modes."""
    rng = np.random.default_rng(1)
    body = wanted(sensors=rng.uniform(size=(1024, 2)).tolist(), values=rng.uniform(0.05, 5, 1024).tolist())
    return body | {"noise": 1e-9, "modes": 256, "grid": [64, 64], "iterations": 200}


def test_jobs_are_bounded_and_end_at_shutdown(another: Callable[..., AbstractContextManager[Gateway]]) -> None:
    """A job that is removed makes room for another; a result is 409 before it is there."""
    with another(max_inversions=3) as gateway:
        locations = [start(gateway, endless()).headers["Location"] for _ in range(3)]
        refused = start(gateway, wanted())
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10")
        assert get(gateway, f"{locations[0]}/result").json()["type"] == "urn:petrov:problem:unfinished"
        assert get(gateway, locations[2]).json()["state"] == "queued"
        wait_until(lambda: get(gateway, locations[0]).json()["state"] == "running")
        assert httpx2.delete(f"{gateway.url}{locations[2]}").status_code == 204
        again = start(gateway, wanted())
        assert again.status_code == 202
    # The context ends: its threads have ended, or leaving it would hang.


async def test_a_job_ends_at_whatever_moment_its_thread_forgets_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter([Future[None](), None])
    monkeypatch.setattr(Job, "_pending", property(lambda _: next(calls), lambda *_: None), raising=False)
    job = Job(Card.model_construct(), "coefficient", "", 1, ("", ""))
    job.end(State.CANCELLED)
    async with asyncio.timeout(5):
        await job.wait(60)
    assert job.state == State.CANCELLED


def test_a_job_that_takes_too_long_fails(another: Callable[..., AbstractContextManager[Gateway]]) -> None:
    with another(inversion_seconds=0.3) as gateway:
        location = start(gateway, endless()).headers["Location"]
        ended = finished(gateway, location)
        assert (ended["state"], ended["problem"]["type"]) == ("failed", "urn:petrov:problem:deadline-exceeded")
        assert get(gateway, f"{location}/result").status_code == 504


def test_a_job_belongs_to_the_key_that_started_it(
    another: Callable[..., AbstractContextManager[Gateway]], tmp_path: Path
) -> None:
    """Another key does not see it; a key with a rate waits for its samples instead of failing."""
    secrets = {}
    for name, rate in {"alice": 200.0, "bob": None}.items():
        secrets[name], entry = auth.make_key(name, (auth.Scope.INFER,), rate)
        auth.append_key(tmp_path / "keys.toml", entry)
    with another(keys=tmp_path / "keys.toml") as gateway:
        alice, bob = ({"Authorization": f"Bearer {secrets[name]}"} for name in ("alice", "bob"))
        assert start(gateway, wanted()).status_code == 401
        location = start(gateway, wanted(samples=2), headers=alice).headers["Location"]
        assert get(gateway, location, headers=bob).status_code == 404
        assert httpx2.delete(f"{gateway.url}{location}", headers=bob).status_code == 404
        ended = get(gateway, location, params={"wait": 30}, headers=alice, timeout=60).json()
        assert ended["state"] == "succeeded"


def test_repetitions_of_a_request_are_one_job(another: Callable[..., AbstractContextManager[Gateway]]) -> None:
    """A repetition whose key of idempotency is known returns its job, also where there is no place for another."""
    with another(max_inversions=2) as gateway:
        headers = {"Idempotency-Key": "once"}
        replies = [start(gateway, endless(), headers=headers) for _ in range(4)]
        assert [reply.status_code for reply in replies] == [202] * 4
        assert len({reply.json()["id"] for reply in replies}) == 1
        assert len({reply.headers["Location"] for reply in replies}) == 1
        other = start(gateway, wanted(), headers=headers)
        assert (other.status_code, other.json()["type"]) == (422, "urn:petrov:problem:invalid-inversion")
        second = start(gateway, endless(), headers={"Idempotency-Key": "twice"})
        assert second.json()["id"] != replies[0].json()["id"]
        assert start(gateway, endless()).status_code == 503
        assert start(gateway, endless(), headers=headers).json()["id"] == replies[0].json()["id"]
        assert start(gateway, endless(), headers={"Idempotency-Key": "x" * 257}).status_code == 422


def test_a_classical_inversion_is_paid_before_it_starts(
    another: Callable[..., AbstractContextManager[Gateway]], tmp_path: Path
) -> None:
    secret, entry = auth.make_key("carol", (auth.Scope.INFER,), 4.0)
    auth.append_key(tmp_path / "keys.toml", entry)
    with another(keys=tmp_path / "keys.toml") as gateway:
        headers = {"Authorization": f"Bearer {secret}"}
        body = wanted(forward="solver", iterations=200)
        assert start(gateway, body, "blur", headers=headers).status_code == 202
        refused = start(gateway, body, "blur", headers=headers)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:petrov:problem:rate-limited")


def test_another_key_does_not_evict_a_result(
    another: Callable[..., AbstractContextManager[Gateway]], tmp_path: Path
) -> None:
    holders = []
    for name in ("dave", "erin"):
        secret, entry = auth.make_key(name, (auth.Scope.INFER,))
        auth.append_key(tmp_path / "keys.toml", entry)
        holders.append({"Authorization": f"Bearer {secret}"})
    with another(keys=tmp_path / "keys.toml", max_inversions=1) as gateway:

        def ended(headers: dict[str, str]) -> str:
            location = start(gateway, wanted(samples=2), headers=headers).headers["Location"]
            wait_until(lambda: get(gateway, location, headers=headers).json()["state"] == "succeeded", 60)
            return location

        first, *others = [ended(holders[0]), ended(holders[1]), ended(holders[1])]
        assert get(gateway, f"{first}/result", headers=holders[0]).status_code == 200
        assert get(gateway, f"{others[0]}/result", headers=holders[1]).status_code == 404  # of the same key
        assert get(gateway, f"{others[1]}/result", headers=holders[1]).status_code == 200


def test_a_key_leaves_places_to_others(another: Callable[..., AbstractContextManager[Gateway]], tmp_path: Path) -> None:
    holders = []
    for name in ("frank", "grace"):
        secret, entry = auth.make_key(name, (auth.Scope.INFER,))
        auth.append_key(tmp_path / "keys.toml", entry)
        holders.append({"Authorization": f"Bearer {secret}"})
    with another(keys=tmp_path / "keys.toml", max_inversions=3) as gateway:
        codes = [start(gateway, endless(), headers=holders[each]).status_code for each in (0, 0, 0, 1, 1)]
        assert codes == [202, 202, 503, 202, 503]


@contextmanager
def begun_job(
    triton: TritonServer, settings: Settings, **changes: Any
) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """Run a gateway in which a job has begun; yield its process, the job's address and the file of the log."""
    with command(settings, "gateway", "--triton", triton.settings.triton_address) as (service, log):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        url = f"http://127.0.0.1:{settings.port}"
        response = httpx2.post(f"{url}/v1/models/{NAME}/inversions", json=endless() | changes)
        yield service, f"{url}{response.headers['Location']}", log


def wait_until_it_runs(job: str) -> None:
    wait_for(lambda: httpx2.get(job).json()["state"] == "running")


def watch(pool: ThreadPoolExecutor, job: str) -> Future[httpx2.Response]:
    """Ask for a job in a thread, and wait there until it ends; return once it runs."""
    watching = pool.submit(httpx2.get, job, params={"wait": 30}, timeout=60)
    wait_until_it_runs(job)
    return watching


def test_sigterm_lets_a_job_finish_or_says_that_it_did_not(
    triton: TritonServer, repository: Path, make_settings: Callable[..., Settings]
) -> None:
    """A client that waits gets its response within the time to drain; new inversions are refused meanwhile."""
    settings = make_settings(repository, drain_seconds=3.0, notice_seconds=0.5)
    with begun_job(triton, settings) as (service, job, _), ThreadPoolExecutor(1) as pool:
        watching = watch(pool, job)
        service.terminate()
        ended = watching.result().json()
        assert service.wait(60) == 0
    assert (ended["state"], ended["problem"]["type"]) == ("failed", "urn:petrov:problem:unavailable")


def test_after_sigterm_a_client_may_ask_until_its_job_has_ended(
    triton: TritonServer, repository: Path, make_settings: Callable[..., Settings]
) -> None:
    """Each question has a connection of its own, as those of the Python client have while a gateway ends."""
    settings = make_settings(repository, drain_seconds=60.0, notice_seconds=0.1)
    with begun_job(triton, settings, iterations=3) as (service, job, _):
        wait_until_it_runs(job)
        service.terminate()
        states = [""]
        while states[-1] not in {"succeeded", "failed"}:
            states.append(httpx2.get(job, timeout=60).json()["state"])
            time.sleep(0.05)
        assert (states[1], states[-1]) == ("running", "succeeded")
        result = httpx2.get(f"{job}/result", timeout=60).raise_for_status().json()
        assert np.shape(result["mean"]) == (64, 64)
        assert service.wait(60) == 0


def test_after_a_second_ctrl_c_nothing_is_waited_for(
    triton: TritonServer, repository: Path, make_settings: Callable[..., Settings]
) -> None:
    settings = make_settings(repository, drain_seconds=600.0)
    with begun_job(triton, settings) as (service, job, log), ThreadPoolExecutor(1) as pool:
        watching = watch(pool, job)
        service.send_signal(signal.SIGINT)
        wait_for(lambda: status(settings, "/health/ready") == 503)
        service.send_signal(signal.SIGINT)
        assert service.wait(60) == 0
        reply = watching.result()
        assert reply.status_code == 503 or reply.json()["state"] == "failed"
        assert "SIGINT again: requests and inversions are broken off" in log.read_text()


@pytest.mark.parametrize("member", ["sensors", "values", "noise"])
def test_of_many_faults_the_first_is_described(gateway: Gateway, member: str) -> None:
    body = orjson.dumps(wanted(**{member: [[]] * 300_000}))
    response = httpx2.post(f"{gateway.url}/v1/models/{NAME}/inversions", content=body, headers={"Content-Type": JSON})
    assert response.status_code == 422
    assert response.json()["detail"].startswith(member)


def test_few_members_are_read(gateway: Gateway) -> None:
    body = orjson.dumps(wanted(**{f"{index}": 1 for index in range(1000)}))
    response = httpx2.post(f"{gateway.url}/v1/models/{NAME}/inversions", content=body, headers={"Content-Type": JSON})
    assert response.status_code == 422
    assert response.json()["detail"] == "expected at most 128 names and texts"
