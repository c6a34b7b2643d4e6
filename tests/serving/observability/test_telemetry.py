"""One trace across client, gateway and Triton, as a receiver of OTLP over HTTP sees it."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

import petrov_client
from petrov_client._flow import run
from petrov_client._quality import Options
from serving import telemetry
from serving.observe import JsonLines
from serving.settings import Settings
from serving.system import StartupError
from tests.conftest import Gateway, RunService, wait_until
from tests.serving.http.test_gateway import NPY, npy

FIELD = np.full((16, 16), 4.25, np.float32)
GATEWAY, TRITON = "petrov-gateway", "triton"
PHASES = ["encode", "parse", "triton"]
ROUTE = "POST /v1/models/{model}/predict"
INFER = "inference.GRPCInferenceService/ModelInfer"


@dataclass(frozen=True)
class Span:
    """A span as it was received."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    about: Mapping[str, Any]
    failed: bool


class Receiver(ThreadingHTTPServer):
    """Takes OTLP: protobuf, as the gateway's SDK sends it, and JSON, as Triton's does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def of(self, trace: str) -> dict[tuple[str, str], Span]:
        """Return the spans of a trace by service and name."""
        return {(span.service, span.name): span for span in list(self.spans) if span.trace == trace}


class Handler(BaseHTTPRequestHandler):
    """One export."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body)
        self.server.spans += from_json(body) if "json" in self.headers["Content-Type"] else from_protobuf(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def from_protobuf(body: bytes) -> list[Span]:
    return [
        Span(
            service(resource.resource.attributes, lambda value: value.string_value),
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            {each.key: each.value.string_value or each.value.int_value for each in span.attributes},
            span.status.code == 2,
        )
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def from_json(body: bytes) -> list[Span]:
    return [
        Span(
            next(each["value"]["stringValue"] for each in resource["resource"]["attributes"] if is_name(each["key"])),
            span["name"],
            span["traceId"],
            span["spanId"],
            span["parentSpanId"],
            {},
            failed=False,
        )
        for resource in json.loads(body)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def service(attributes: Any, read: Callable[[Any], str]) -> str:
    return next(read(each.value) for each in attributes if is_name(each.key))


def is_name(key: str) -> bool:
    return key == "service.name"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def traced(
    receiver: Receiver,
    toy_repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
    run_service: RunService,
) -> Iterator[Gateway]:
    """Run a gateway and a Triton with one model that send their spans, soon."""
    repository = tmp_path_factory.mktemp("traced") / "model_repository"
    shutil.copytree(toy_repository / "blur", repository / "blur")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # else five seconds, for both
        with run_service(repository, traces=receiver.url, triton_traces=True) as gateway:
            yield gateway


@contextmanager
def caller() -> Iterator[tuple[str, str]]:
    """Start a client span; yield the ids of its trace and span."""
    with TracerProvider(shutdown_on_exit=False).get_tracer("caller").start_as_current_span("caller") as span:
        context = span.get_span_context()
        yield format_trace_id(context.trace_id), format_span_id(context.span_id)


def arrived(receiver: Receiver, trace: str, *expected: tuple[str, str]) -> dict[tuple[str, str], Span]:
    """Return the trace, once these spans of it are there."""
    wait_until(lambda: set(expected) <= receiver.of(trace).keys())
    return receiver.of(trace)


def reaches_triton(receiver: Receiver, send: Callable[[], str]) -> str:
    """Return the trace of a request, which is sent again if Triton has lost its spans, as happens now and then."""
    for _ in range(5):
        trace = send()
        with suppress(TimeoutError):
            wait_until(
                lambda trace=trace: {(TRITON, "InferRequest"), (TRITON, "compute")} <= receiver.of(trace).keys(), 8
            )
            return trace
    raise TimeoutError


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_one_trace_runs_from_the_client_to_triton(traced: Gateway, receiver: Receiver, over: str) -> None:
    address, roots = f"127.0.0.1:{traced.settings.grpc_port}", dict[str, str]()
    client = petrov_client.Client(traced.url) if over == "http" else petrov_client.GrpcClient(address)
    request = ROUTE if over == "http" else INFER

    def send() -> str:
        with caller() as (trace, roots[trace]):
            client.predict("blur", FIELD)
        return trace

    with client:
        trace = reaches_triton(receiver, send)
    spans = arrived(receiver, trace, *((GATEWAY, name) for name in (request, *PHASES)))
    assert spans[GATEWAY, request].parent == roots[trace]
    assert {spans[GATEWAY, phase].parent for phase in PHASES} == {spans[GATEWAY, request].id}
    assert spans[TRITON, "InferRequest"].parent == spans[GATEWAY, "triton"].id
    assert spans[GATEWAY, "triton"].about == {"petrov.model": "blur", "petrov.grid": "16x16"}
    assert not any(span.failed for span in spans.values())


async def test_the_asynchronous_client_joins_too(traced: Gateway, receiver: Receiver) -> None:
    async with petrov_client.AsyncClient(traced.url) as client:
        with caller() as (trace, root):
            await client.predict("blur", FIELD)
    assert arrived(receiver, trace, (GATEWAY, ROUTE))[GATEWAY, ROUTE].parent == root


def test_a_request_of_nobodys_trace_begins_its_own(traced: Gateway, receiver: Receiver) -> None:
    before = len(receiver.spans)
    httpx2.get(f"{traced.url}/v1/models")
    wait_until(lambda: any(span.name == "GET /v1/models" for span in receiver.spans[before:]))
    [span] = [span for span in receiver.spans[before:] if span.name == "GET /v1/models"]
    assert (span.parent, span.about["http.response.status_code"]) == ("", 200)


def test_what_is_refused_is_traced_without_its_values(traced: Gateway, receiver: Receiver) -> None:
    with caller() as (trace, _), petrov_client.GrpcClient(f"127.0.0.1:{traced.settings.grpc_port}") as client:
        field = np.float32(FIELD - 781.5)[np.newaxis]  # the client itself would refuse it
        call = client._operations.wire.prediction(client.model("blur"), {"coefficient": field}, Options())
        with pytest.raises(petrov_client.InvalidInput, match=r"-777\.25"):
            run(client._operations.perform(call, 5))
        with pytest.raises(petrov_client.UnknownModel):
            client.predict("missing", FIELD)
    span = arrived(receiver, trace, (GATEWAY, INFER))[GATEWAY, INFER]
    assert (span.about["rpc.response.status_code"], span.failed) == ("INVALID_ARGUMENT", False)
    assert not any(b"777.25" in body for body in receiver.bodies)


def test_a_failing_phase_is_a_fault(traced: Gateway, receiver: Receiver) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        caller() as (trace, _),
        petrov_client.Client(traced.url, timeout=5) as client,
    ):
        client.model("blur")
        patch.setattr("serving.checks.not_finite", None)
        with pytest.raises(petrov_client.ServerFault):
            client.predict("blur", FIELD)
    spans = arrived(receiver, trace, (GATEWAY, ROUTE), (GATEWAY, "encode"))
    assert (spans[GATEWAY, "encode"].about["error.type"], spans[GATEWAY, "encode"].failed) == ("TypeError", True)
    assert spans[GATEWAY, ROUTE].failed


def test_a_trace_that_is_not_kept_stays_so(traced: Gateway, receiver: Receiver) -> None:
    left_out, numbers = "1" * 32, itertools.count()

    def send(trace: str, flag: str) -> str:
        headers = {**NPY, "traceparent": f"00-{trace}-{'3' * 16}-{flag}"}
        assert httpx2.post(f"{traced.url}/v1/models/blur/predict", content=npy(FIELD), headers=headers).is_success
        return trace

    for _ in range(3):
        send(left_out, "00")
    reaches_triton(receiver, lambda: send(f"2{next(numbers):031x}", "01"))
    assert receiver.of(left_out) == {}


def test_probes_leave_no_trace(traced: Gateway, receiver: Receiver) -> None:
    quiet = "4" * 32
    headers = {"traceparent": f"00-{quiet}-{'3' * 16}-01"}
    for path in ("/health/live", "/health/ready", "/metrics", "/v2/health/ready"):
        assert httpx2.get(traced.url + path, headers=headers).is_success
    with caller() as (trace, _), petrov_client.Client(traced.url) as client:
        client.model("blur")
    arrived(receiver, trace, (GATEWAY, "GET /v1/models/{model}"))
    assert receiver.of(quiet) == {}


def test_probes_below_a_prefix_leave_no_trace(
    traced: Gateway,
    receiver: Receiver,
    make_settings: Callable[..., Settings],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> None:
    settings = make_settings(
        traced.settings.repository,
        triton=traced.settings.triton_address,
        traces=receiver.url,
        path_prefix="/petrov",
    )
    quiet, loud = "5" * 32, "6" * 32
    with run_gateway(settings) as gateway:
        for path in ("/petrov/health/live", "/health/live", "/petrov/metrics"):
            headers = {"traceparent": f"00-{quiet}-{'3' * 16}-01"}
            assert httpx2.get(gateway.url + path, headers=headers).is_success
        assert httpx2.get(
            f"{gateway.url}/petrov/v1/models", headers={"traceparent": f"00-{loud}-{'3' * 16}-01"}
        ).is_success
        wait_until(lambda: receiver.of(loud) != {})
    assert receiver.of(quiet) == {}


def test_lines_of_the_log_name_their_trace(traced: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "petrov.access")
    caplog.handler.setFormatter(JsonLines())
    with caller() as (trace, _), petrov_client.Client(traced.url) as client:
        client.predict("blur", FIELD)
    wait_until(lambda: f'"trace_id":"{trace}"' in caplog.text)


def test_a_receiver_that_is_away_costs_no_answer(
    traced: Gateway,
    make_settings: Callable[..., Settings],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
    free_ports: Callable[[int], list[int]],
) -> None:
    [closed] = free_ports(1)
    settings = make_settings(
        traced.settings.repository,
        triton=traced.settings.triton_address,
        traces=f"http://127.0.0.1:{closed}/v1/traces",
    )
    with run_gateway(settings) as gateway, petrov_client.Client(gateway.url) as client:
        assert client.predict("blur", FIELD).shape == FIELD.shape


async def test_a_receiver_that_hangs_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections wait in its queue for ever
        traces = telemetry.Traces(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces", "0")
        batches = 4
        for _ in range(batches * 512):  # the size of a batch
            with traces.phase("parse", "blur", "9x9"):
                pass
        await traces.close()
        silent.settimeout(0)
        connections = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
    assert connections < batches


@pytest.mark.deep
def test_without_an_address_nothing_is_imported() -> None:
    code = (
        "import sys, petrov_client\nclient = 'opentelemetry' in sys.modules\n"
        "import serving.__main__\nsys.exit(client or 'opentelemetry.sdk' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(StartupError, match=re.escape("pip install --group telemetry")):
        telemetry.Traces("http://127.0.0.1:1/v1/traces", "1")
