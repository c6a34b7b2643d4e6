"""Who may do what: every route and every method, keys that come and go, and rates, over HTTP and gRPC alike."""

from __future__ import annotations

import logging
import queue
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

import petrov_client
from petrov_client import RateLimited, Unauthorised
from serving import auth
from serving.app import create_app
from serving.auth import OPEN, Authorisation, Guard, KeyFile, Scope, declarations, requires
from serving.limits import Admission
from serving.local_triton.server import TritonServer
from serving.observe import Access, Metrics
from serving.settings import Settings
from serving.triton import Triton
from tests.conftest import Gateway, wait_until

FIELD = np.full((9, 8), 5.0, np.float32)
BATCH = np.full((25, 9, 8), 5.0, np.float32)
V1, V2 = "/v1/models/blur/predict", "/v2/models/blur/infer"
SECRET: dict[str, str] = {}  # of the keys below, by name
HOLDERS = {
    "alice": ((Scope.INFER,), None, None),
    "prometheus": ((Scope.METRICS,), None, None),
    "root": ((Scope.ADMIN,), None, None),
    "slow": ((Scope.INFER,), 25.0, 10),
    "slower": ((Scope.INFER,), 0.5, 1),
    "slowest": ((Scope.INFER,), 0.001, 1),
    "narrow": ((Scope.INFER,), 0.001, 1),
}


@dataclass(frozen=True)
class Keyed:
    """A gateway that wants keys."""

    gateway: Gateway
    path: Path

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.gateway.settings.grpc_port}"


@pytest.fixture(scope="module")
def keyed(
    triton: TritonServer,
    free_ports: Callable[[int], list[int]],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Keyed]:
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    for name, given in HOLDERS.items():
        SECRET[name], entry = auth.make_key(name, *given)
        auth.append_key(path, entry)
    port, grpc_port = free_ports(2)
    changes = {"keys": path, "port": port, "grpc_port": grpc_port}
    with run_gateway(triton.settings.model_copy(update=changes)) as gateway:
        yield Keyed(gateway, path)


@pytest.fixture(scope="module")
def http(keyed: Keyed) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=keyed.url, timeout=30) as client:
        yield client


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRET[name]}"}


def infer(batch: Any, holder: str) -> dict[str, Any]:
    """Return the arguments of a request to `/v2`."""
    tensor = {"name": "coefficient", "datatype": "FP32", "shape": batch.shape, "data": batch.reshape(-1).tolist()}
    return {"url": V2, "json": {"inputs": [tensor]}, "headers": bearer(holder)}


# What is not listed needs the scope "infer".
OPEN_TO_ALL = {
    *("/", "/playground", "/docs", "/openapi.json", "/static-offline-docs"),
    *("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready", "ServerLive", "ServerReady"),
}
FOR_METRICS = {"/metrics"}
METHODS = {
    *("ServerLive", "ServerReady", "ServerMetadata", "RepositoryIndex"),
    *("ModelReady", "ModelMetadata", "ModelConfig", "ModelInfer"),
}


def wanted(name: str) -> Scope | None:
    return OPEN if name in OPEN_TO_ALL else Scope.METRICS if name in FOR_METRICS else Scope.INFER


@pytest.fixture(scope="module")
def app(make_settings: Any, toy_repository: Path) -> FastAPI:
    settings = make_settings(toy_repository)
    return create_app(settings, Triton(settings.triton_address, settings.max_body_bytes))


def test_every_route_declares_its_scope(app: FastAPI) -> None:
    declared = {route.path: route.scope for route in declarations(app.routes)}
    assert declared == {str(route.path): wanted(str(route.path)) for route in iter_route_contexts(app.routes)}
    assert set(declared) > OPEN_TO_ALL - METHODS
    assert len(declared) > 20


def test_a_key_file_that_is_not_there_does_not_leave_the_gateway_open(make_settings: Any, toy_repository: Path) -> None:
    settings = make_settings(toy_repository, keys=toy_repository / "keys.toml")
    with pytest.raises(auth.KeysError, match="No such file"):
        create_app(settings, Triton(settings.triton_address, settings.max_body_bytes))


FILES = {"/playground": "/style.css", "/static-offline-docs": "/swagger-ui.css"}
PARAMETERS = {"model": "drift", "version": "1", "inversion": "none"}


def test_a_route_requires_its_scope(http: httpx2.Client, app: FastAPI) -> None:
    for template in (route.path for route in declarations(app.routes)):
        path = template.format_map(PARAMETERS) + FILES.get(template, "")
        statuses = {name: http.get(path, headers=bearer(name)).status_code for name in ("alice", "prometheus", "root")}
        statuses[""] = http.get(path).status_code
        served = {404 if "{inversion}" in template else 200, 405}  # 405: the route is there, for another verb
        assert set(statuses.values()) <= {401, 403} | served, template
        refused = {name: status for name, status in statuses.items() if status in {401, 403}}
        expected: dict[Scope | None, dict[str, int]] = {
            OPEN: {},
            Scope.INFER: {"": 401, "prometheus": 403},
            Scope.METRICS: {"": 401, "alice": 403},
        }
        assert refused == expected[wanted(template)], template


def test_a_method_requires_its_scope(keyed: Keyed) -> None:
    """Every method that the protocol has, whether the gateway offers it or not."""
    codes_of: dict[str, list[str]] = {}
    with grpc.insecure_channel(keyed.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
            if method.name == "ModelStreamInfer":
                continue  # a stream, which the gateway does not offer
            message = getattr(service_pb2, method.input_type.name)()
            codes = [_code(getattr(stub, method.name), message, name) for name in ("", "prometheus", "alice")]
            codes_of[method.name] = codes
    offered = {name: codes for name, codes in codes_of.items() if codes != ["UNIMPLEMENTED"] * 3}
    assert set(offered) == METHODS
    for name, codes in offered.items():
        refused = [code for code in codes if code in {"UNAUTHENTICATED", "PERMISSION_DENIED"}]
        assert refused == ([] if wanted(name) is OPEN else ["UNAUTHENTICATED", "PERMISSION_DENIED"]), name


def _code(method: Any, message: Any, holder: str) -> str:
    metadata = [("authorization", f"Bearer {SECRET[holder]}")] if holder else []
    try:
        method(message, metadata=metadata, timeout=30)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Basic YTpi", "petrov_x", "Bearer petrov_x", "Bearer \xff"]
)
def test_what_is_no_key_is_refused_as_the_rules_for_bearer_tokens_say(
    http: httpx2.Client, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    response = http.get("/v1/models", headers=headers)
    assert (response.status_code, response.json()["type"]) == (401, "urn:petrov:problem:unauthenticated")
    sent = bool(authorization) and re.fullmatch("Bearer .+", authorization)
    expected = 'Bearer realm="petrov"' + (', error="invalid_token"' if sent else "")
    assert response.headers["WWW-Authenticate"] == expected
    assert response.headers["X-Request-Id"]


def test_a_key_without_the_scope_is_refused(http: httpx2.Client) -> None:
    response = http.get("/metrics", headers=bearer("alice"))
    assert response.status_code == 403
    assert response.json()["detail"] == 'the key "alice" is for infer, not for metrics'
    assert 'error="insufficient_scope", scope="metrics"' in response.headers["WWW-Authenticate"]
    protocol = http.get("/v2/models/blur", headers=bearer("prometheus"))
    assert protocol.json() == {"error": 'the key "prometheus" is for metrics, not for infer'}


ELSEWHERE = ["/v1", "/v1/models/", "/v2/repository/index", "/metrics/", "//v1/models"]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_unknown_paths_are_hidden_from_callers_without_a_key(http: httpx2.Client, path: str) -> None:
    assert http.get(path).status_code == 401
    assert http.get(path, headers=bearer("root")).status_code == 404


def test_the_scheme_may_be_written_in_any_case(http: httpx2.Client) -> None:
    assert http.get("/v1/models", headers={"Authorization": f"bearer  {SECRET['alice']}"}).status_code == 200


def test_a_client_that_knows_only_a_url_sends_its_key_as_a_password(http: httpx2.Client) -> None:
    for path in ("/v1/models", "/tesseract/drift/health"):
        assert http.get(path, auth=("anybody", SECRET["alice"])).status_code == 200
        assert http.get(path, auth=("anybody", "petrov_wrong")).status_code == 401
        assert http.get(path, headers={"Authorization": "Basic ?"}).status_code == 401
        assert http.get(path, headers={"Authorization": "Basic"}).status_code == 401


async def test_a_route_without_a_declaration_exists_for_nobody(tmp_path: Path) -> None:
    async def respond(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.caller.name)

    @requires(Scope.INFER)
    async def declared(request: Request) -> PlainTextResponse:
        return await respond(request)

    secret, entry = auth.make_key("root", (Scope.ADMIN,))
    auth.append_key(tmp_path / "keys.toml", entry)
    metrics = Metrics("0")
    guard = Guard(KeyFile(tmp_path / "keys.toml"), metrics)
    routes = [Route("/declared", declared), Route("/forgotten", respond)]
    guarded = Authorisation(Starlette(routes=routes), routes, guard, metrics)
    app = Access(guarded, metrics, Admission(1, 1), lambda _: False)
    transport, headers = httpx2.ASGITransport(app), {"Authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as client:
        assert (await client.get("/declared")).text == "root"
        assert (await client.get("/forgotten")).status_code == 404
    assert 'petrov_rejected_total{reason="unknown-route"} 1.0' in metrics.text().decode()


def test_the_interactive_documentation_asks_for_a_key(http: httpx2.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    assert document["paths"]["/v1/models"]["get"]["security"] == [{"key": ["infer"]}]
    assert "security" not in document["paths"]["/health/live"]["get"]


def test_tritons_own_clients_send_a_key(keyed: Keyed, blur: Any) -> None:
    with tritonclient.http.InferenceServerClient(keyed.url.removeprefix("http://")) as client:
        assert client.is_server_ready()
        tensor = tritonclient.http.InferInput("coefficient", BATCH.shape, "FP32").set_data_from_numpy(BATCH)
        output = client.infer("blur", [tensor], headers=bearer("alice")).as_numpy("solution")
        np.testing.assert_allclose(output, blur(BATCH), rtol=1e-5)
        with pytest.raises(InferenceServerException, match="expected an API key") as caught:
            client.infer("blur", [tensor])
        assert caught.value.status() == "401"
    with tritonclient.grpc.InferenceServerClient(keyed.address) as client:
        assert client.is_server_ready()
        tensor = tritonclient.grpc.InferInput("coefficient", BATCH.shape, "FP32").set_data_from_numpy(BATCH)
        output = client.infer("blur", [tensor], headers=bearer("alice")).as_numpy("solution")
        np.testing.assert_allclose(output, blur(BATCH), rtol=1e-5)
        with pytest.raises(InferenceServerException, match="expected an API key") as caught:
            client.infer("blur", [tensor])
        assert caught.value.status() == "StatusCode.UNAUTHENTICATED"


@pytest.fixture(params=["Client", "GrpcClient"])
def connect(request: pytest.FixtureRequest, keyed: Keyed) -> Callable[..., Any]:
    """Return a function that makes one of our clients with a key."""
    address = keyed.address if "Grpc" in request.param else keyed.url

    def connected(holder: str = "", **more: Any) -> Any:
        return getattr(petrov_client, request.param)(address, SECRET[holder] if holder else None, **more)

    return connected


def test_our_clients_send_a_key(connect: Callable[..., Any], blur: Any) -> None:
    with connect("alice") as client:
        assert "blur" in [info.name for info in client.models()]
        np.testing.assert_allclose(client.predict("blur", BATCH), blur(BATCH), rtol=1e-5)
    with connect() as client, pytest.raises(Unauthorised, match="expected an API key"):
        client.predict("blur", FIELD)
    with connect("prometheus") as client, pytest.raises(Unauthorised, match='"prometheus" is for metrics'):
        client.models()


async def test_our_asynchronous_clients_send_a_key(keyed: Keyed, blur: Any) -> None:
    for kind, address in (
        (petrov_client.AsyncClient, keyed.url),
        (petrov_client.AsyncGrpcClient, keyed.address),
    ):
        async with kind(address, SECRET["alice"]) as client:
            np.testing.assert_allclose(await client.predict("blur", BATCH), blur(BATCH), rtol=1e-5)
        async with kind(address) as client:
            with pytest.raises(Unauthorised, match="expected an API key"):
                await client.models()


def test_a_batch_beyond_the_burst_is_served_and_the_next_request_waits(connect: Callable[..., Any]) -> None:
    """25 fields of a rate of 25 a second with a burst of 10 leave a debt of 15; the client bears the pause."""
    with connect("slow") as client:
        assert client.predict("blur", BATCH).shape == BATCH.shape
        assert client.predict("blur", FIELD).shape == FIELD.shape


def test_a_key_over_its_rate_learns_when_to_retry(keyed: Keyed, http: httpx2.Client) -> None:
    start = time.monotonic()
    assert http.post(**infer(BATCH, "slower")).status_code == 200  # one request goes into debt, for less than a minute
    response = http.post(**infer(FIELD[np.newaxis], "slower"))
    assert response.status_code == 429
    seconds = int(response.headers["Retry-After"])
    assert 40 - (time.monotonic() - start) < seconds <= 50
    assert response.json() == {"error": f'the key "slower" is over its rate; retry in {seconds} s'}
    problem = http.post(V1, content=b"never read", headers={"Content-Type": "application/x-npy", **bearer("slower")})
    assert (problem.status_code, problem.json()["type"]) == (429, "urn:petrov:problem:rate-limited")
    assert http.get("/v1/models/blur", headers=bearer("slower")).status_code == 200  # only fields have a rate
    with petrov_client.Client(keyed.url, SECRET["slower"], timeout=20) as client, pytest.raises(RateLimited) as caught:
        client.predict("blur", FIELD)
    with (
        petrov_client.GrpcClient(keyed.address, SECRET["slower"], timeout=20) as client,
        pytest.raises(RateLimited) as caught_too,
    ):
        client.predict("blur", FIELD)
    for error in (caught.value, caught_too.value):
        assert 40 - (time.monotonic() - start) < (error.retry_after or 0) <= 50


def test_what_cannot_be_understood_costs_nothing(http: httpx2.Client) -> None:
    bad = infer(-FIELD[np.newaxis], "slowest")
    assert [http.post(**bad).status_code for _ in range(2)] == [422, 422]
    assert http.post(**infer(FIELD[np.newaxis], "slowest")).status_code == 200
    response = http.post(**infer(FIELD[np.newaxis], "slowest"))
    assert (response.status_code, response.headers["Retry-After"]) == (429, "60")


def test_what_the_rate_would_not_admit_within_a_minute_is_too_large(http: httpx2.Client) -> None:
    response = http.post(**infer(BATCH, "narrow"))
    assert (response.status_code, "Retry-After" in response.headers) == (413, False)
    assert "costs 25 samples" in response.json()["error"]


def test_keys_come_and_go_without_a_restart(keyed: Keyed, http: httpx2.Client) -> None:
    before = keyed.path.read_text()

    def status(holder: str) -> int:
        return http.get("/v1/models", headers=bearer(holder)).status_code

    SECRET["dave"], entry = auth.make_key("dave", (Scope.INFER,))
    assert status("dave") == 401
    auth.append_key(keyed.path, entry)
    wait_until(lambda: status("dave") == 200)
    assert status("alice") == 200
    keyed.path.write_text(before)
    wait_until(lambda: status("dave") == 401)
    assert status("alice") == 200


def test_a_stream_ends_with_its_key(keyed: Keyed, http: httpx2.Client) -> None:
    """However long it is kept open: each of its messages needs the key."""
    before, sent = keyed.path.read_text(), queue.SimpleQueue[Any]()
    SECRET["erin"], entry = auth.make_key("erin", (Scope.INFER,))
    auth.append_key(keyed.path, entry)
    wait_until(lambda: http.get("/v1/models", headers=bearer("erin")).status_code == 200)
    tensor = {"name": "coefficient", "datatype": "FP32", "shape": [1, *FIELD.shape]}
    message = service_pb2.ModelInferRequest(
        model_name="blur", inputs=[tensor], raw_input_contents=[FIELD.astype("<f4").tobytes()]
    )
    with grpc.insecure_channel(keyed.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        responses = stub.ModelStreamInfer(iter(sent.get, None), metadata=tuple(bearer("erin").items()))
        sent.put(message)
        assert next(responses).infer_response.model_name == "blur"
        keyed.path.write_text(before)
        wait_until(lambda: http.get("/v1/models", headers=bearer("erin")).status_code == 401)
        sent.put(message)
        with pytest.raises(grpc.RpcError) as caught:
            next(responses)
        sent.put(None)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_keys_are_counted_and_never_shown(http: httpx2.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert http.post(**infer(BATCH, "alice")).status_code == 200
        assert http.get("/v1/models", headers=bearer("prometheus")).status_code == 403
        assert http.get("/v1/models", headers={"Authorization": "Bearer petrov_mistyped"}).status_code == 401
        wait_until(lambda: "GET /v1/models 401" in caplog.text)  # a request is logged behind its response
    fields = [vars(record).get("fields", {}) for record in caplog.records if "GET /v1/models 40" in record.getMessage()]
    expected = [("/v1/models", "403", "forbidden"), ("/v1/models", "401", "unauthenticated")]
    assert [(each["route"], each["status"], each["problem"]) for each in fields] == expected
    with caplog.at_level(logging.DEBUG):
        text = http.get("/metrics", headers=bearer("root")).text
    counts = {match[1]: float(match[2]) for match in re.finditer(r'key_fields_total{key="(\w+)"} (.+)', text)}
    assert counts["alice"] >= len(BATCH)
    assert set(counts) <= set(SECRET)
    assert "petrov_keys_current 1.0" in text
    assert 'petrov_rejected_total{reason="unauthenticated"}' in text
    assert 'petrov_rejected_total{reason="forbidden"}' in text
    for hidden in (*SECRET.values(), *map(auth.fingerprint, SECRET.values()), "petrov_mistyped"):
        assert hidden not in text + caplog.text
