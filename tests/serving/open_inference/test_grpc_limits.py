"""The limits and deadlines of gRPC: what is too large, late or too much, and what goes on at the end."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import grpc
import httpx2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from serving.limits import Ticket
from serving.local_triton.server import TritonServer
from serving.protocols import grpc as grpc_chapter
from serving.protocols import open_inference
from serving.settings import Settings
from tests.conftest import Gateway, wait_until
from tests.serving.conftest import RunGateway
from tests.serving.http.test_gateway import sample
from tests.serving.open_inference.test_grpc import INPUT, MEBIBYTE, ONES, OUTPUT, request
from tests.serving.triton.test_faults import stopped


@pytest.fixture(scope="module")
def tight(run_before_triton: RunGateway) -> Iterator[Gateway]:
    """Run a gateway with tight limits, before the shared Triton."""
    seconds = {"receive_seconds": 2.0, "request_seconds": 5.0}
    with run_before_triton(max_body_bytes=MEBIBYTE, max_requests_in_flight=2, **seconds) as gateway:
        yield gateway


@pytest.fixture
def tight_stub(tight: Gateway) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{tight.settings.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        yield stub
        wait_until(lambda: stub.ServerReady(service_pb2.ServerReadyRequest()).ready)
        assert stub.ModelInfer(request(ONES)).model_name == "blur"  # whatever a test did, the next request is served


def test_a_message_beyond_the_limit_is_not_received(tight_stub: Any) -> None:
    """Its tensors may take a quarter of a body's bytes, since gRPC copies it while nothing else runs."""
    with pytest.raises(grpc.RpcError) as caught:
        tight_stub.ModelInfer(request(ONES, raw_input_contents=[bytes(MEBIBYTE)]))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_message_that_does_not_arrive_is_not_waited_for(tight: Gateway, tight_stub: Any) -> None:
    del tight_stub
    with grpc.insecure_channel(f"127.0.0.1:{tight.settings.grpc_port}") as channel:
        call = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")
        never = threading.Event()
        with pytest.raises(grpc.RpcError, match=r"no complete message arrived within 2 s") as caught:
            call(silence(never))
        never.set()
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        with pytest.raises(grpc.RpcError, match="expected a ModelInferRequest but got nothing"):
            call(iter(()))


@pytest.mark.parametrize(
    ("method", "message", "member"),
    [
        ("ModelInfer", request(ONES), {"model_name": "blur"}),
        ("ModelReady", service_pb2.ModelReadyRequest(name="blur"), {"ready": True}),
    ],
)
def test_slow_messages_give_way(
    run_before_triton: RunGateway, monkeypatch: pytest.MonkeyPatch, method: str, message: Any, member: dict[str, Any]
) -> None:
    """Few messages may arrive at one time, since the size of none is known before it is complete."""
    monkeypatch.setattr(grpc_chapter, "PATIENCE", 0.1)
    limits = {"max_body_bytes": MEBIBYTE, "max_bytes_in_flight": 4 * MEBIBYTE}
    with (
        run_before_triton(**limits) as gateway,
        grpc.insecure_channel(f"127.0.0.1:{gateway.settings.grpc_port}") as channel,
    ):
        never, call = threading.Event(), channel.stream_unary(f"/inference.GRPCInferenceService/{method}")
        slow = [call.future(silence(never)) for _ in range(2 * grpc_chapter.ARRIVING)]
        for _ in range(6):
            response = getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), method)(message)
            assert {name: getattr(response, name) for name in member} == member
        ended = [each for each in slow if each.done()]
        assert len(ended) >= 4
        assert {each.code() for each in ended} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        never.set()


async def test_a_message_whose_time_ends_in_the_moment_in_which_it_gives_way_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_chapter, "PATIENCE", 0.0)
    turns, loop = grpc_chapter.Turns(1), asyncio.get_running_loop()
    arriving: asyncio.Future[asyncio.Timeout] = loop.create_future()

    async def arrive(*, forever: bool) -> bool:
        async with asyncio.timeout(60) as limit, turns.next(limit, further=False):
            if forever:
                arriving.set_result(limit)
                await asyncio.sleep(60)
            return True

    slow = asyncio.create_task(arrive(forever=True))
    (await arriving).reschedule(loop.time())  # and in the same turn of the loop another one wants its place
    assert await asyncio.create_task(arrive(forever=False))
    with pytest.raises(TimeoutError):
        await slow


def test_a_response_is_counted_with_its_request(
    tight: Gateway, tight_stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then with the copy of it that gRPC sends."""
    fields, held, add = np.ones((30, 64, 64), np.float32), list[tuple[int, int]](), Ticket.add

    def watched(ticket: Ticket, count: int) -> None:
        add(ticket, count)
        held.append((count, ticket.held))

    monkeypatch.setattr(Ticket, "add", watched)
    assert tight_stub.ModelInfer(request(fields)).outputs[0].shape == [30, 64, 64]
    assert max(most for _, most in held) > 2 * fields.nbytes
    sent = next(index for index, (count, _) in enumerate(held) if count == 2 * fields.nbytes)
    assert held[sent + 1][0] == -2 * fields.nbytes
    wait_until(lambda: tight.service.admission.bytes == 0)


def silence(until: threading.Event) -> Iterator[bytes]:
    """Return a message that is announced and not sent."""
    until.wait()
    yield from ()


def test_the_deadlines_of_both_sides_hold(triton: TritonServer, tight: Gateway, tight_stub: Any) -> None:
    with stopped(triton.settings):
        with pytest.raises(grpc.RpcError) as caught:
            tight_stub.ModelInfer(request(ONES), timeout=0.3)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: tight.service.admission.bytes == 0, 4.0)  # well before our own deadline
        with pytest.raises(grpc.RpcError) as caught:
            tight_stub.ModelInfer(request(ONES))
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("library", [tritonclient.grpc, tritonclient.http])
def test_the_parameter_timeout_is_a_deadline_in_microseconds(
    triton: TritonServer, gateway: Gateway, library: Any
) -> None:
    settings = gateway.settings  # of a gateway that itself waits for a minute, as the client over HTTP does
    port = settings.grpc_port if library is tritonclient.grpc else settings.port
    field = library.InferInput(INPUT, ONES.shape, "FP32").set_data_from_numpy(ONES)
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        with (
            stopped(triton.settings),
            pytest.raises(InferenceServerException, match=r"did not respond in time|no response within 0\.1\d* s"),
        ):
            client.infer("blur", [field], timeout=100_000)
        assert client.infer("blur", [field], timeout=30_000_000).as_numpy(OUTPUT).shape == ONES.shape


@pytest.mark.parametrize("library", [tritonclient.grpc, tritonclient.http])
def test_the_time_counts_from_the_end_of_the_body_while_it_is_parsed_too(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, library: Any
) -> None:
    port = gateway.settings.grpc_port if library is tritonclient.grpc else gateway.settings.port
    module, name = (grpc_chapter, "request_of") if library is tritonclient.grpc else (open_inference, "parsed")
    parse = getattr(module, name)

    def slowly(*args: Any) -> Any:
        time.sleep(3)
        return parse(*args)

    monkeypatch.setattr(module, name, slowly)
    field = library.InferInput(INPUT, ONES.shape, "FP32").set_data_from_numpy(ONES)
    with (
        library.InferenceServerClient(f"127.0.0.1:{port}") as client,
        pytest.raises(InferenceServerException, match=r"no response within 2 s"),
    ):
        client.infer("blur", [field], timeout=2_000_000)


def test_beyond_the_limit_calls_are_sent_away(triton: TritonServer, tight: Gateway, tight_stub: Any) -> None:
    with stopped(triton.settings):
        waiting = [tight_stub.ModelInfer.future(request(ONES)) for _ in range(2)]
        wait_until(lambda: tight.service.admission.bytes > 2 * ONES.nbytes)
        with pytest.raises(grpc.RpcError, match="2 requests are in flight") as caught:
            tight_stub.ModelInfer(request(ONES))
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert int(dict(caught.value.trailing_metadata())["retry-after"]) >= 1
        for call in waiting:
            call.cancel()
        wait_until(lambda: tight.service.admission.bytes == 0, 4.0)  # well before the deadline


def test_calls_in_flight_are_finished_at_the_end(
    triton: TritonServer,
    make_settings: Callable[..., Settings],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> None:
    settings = make_settings(triton.settings.repository, triton=triton.settings.triton_address)
    with grpc.insecure_channel(f"127.0.0.1:{settings.grpc_port}") as channel, ExitStack() as frozen:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with run_gateway(settings) as gateway:
            frozen.enter_context(stopped(triton.settings))
            call = stub.ModelInfer.future(request(ONES))
            wait_until(lambda: gateway.service.admission.bytes > 0)
            thawing = threading.Timer(1.0, frozen.close)
            thawing.start()
        thawing.join()
        assert call.result(5).model_name == "blur"
        with pytest.raises(grpc.RpcError) as caught:
            stub.ServerLive(service_pb2.ServerLiveRequest())
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_the_deadline_of_a_client_is_no_error_of_the_service(
    triton: TritonServer, tight: Gateway, tight_stub: Any
) -> None:
    def count(name: str, **labels: str) -> float:
        return sample(httpx2.get(f"{tight.url}/metrics").text, name, **labels)

    calls, name, rejected = 12, "petrov_request_duration_seconds_count", "petrov_rejected_total"
    labels = {"model": "blur", "route": "/inference.GRPCInferenceService/ModelInfer"}
    before = count(name, **labels, code="CANCELLED")
    errors = count(name, **labels, code="DEADLINE_EXCEEDED"), count(rejected, reason="deadline-exceeded")
    with stopped(triton.settings):
        for _ in range(calls):
            with pytest.raises(grpc.RpcError) as caught:
                tight_stub.ModelInfer(request(ONES), timeout=0.1)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: count(name, **labels, code="CANCELLED") == before + calls)
    after = count(name, **labels, code="DEADLINE_EXCEEDED"), count(rejected, reason="deadline-exceeded")
    assert after == errors


async def test_an_idle_connection_is_closed(run_before_triton: RunGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_chapter, "IDLE_SECONDS", 0.5)
    with run_before_triton() as gateway:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.settings.grpc_port}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert (await stub.ServerLive(service_pb2.ServerLiveRequest())).live
            async with asyncio.timeout(60):
                await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
            assert channel.get_state() is grpc.ChannelConnectivity.IDLE
            assert (await stub.ServerLive(service_pb2.ServerLiveRequest())).live  # on a new connection


def test_zero_is_no_grpc(run_before_triton: RunGateway) -> None:
    with run_before_triton(grpc_port=0) as gateway:
        assert httpx2.get(f"{gateway.url}/v2/health/ready").status_code == 200


def test_an_unexpected_failure_is_internal(tight: Gateway, tight_stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as breaking:
        breaking.setattr(tight.service.catalogue, "find", None)
        with pytest.raises(grpc.RpcError, match="the log has it under the id") as caught:
            tight_stub.ModelInfer(request(ONES))
    assert caught.value.code() == grpc.StatusCode.INTERNAL


def test_streams_that_wait_for_a_message_give_way(gateway: Gateway) -> None:
    """What arrives on a stream is not counted before it is complete, either; one that has sent a message stays."""
    with grpc.insecure_channel(f"127.0.0.1:{gateway.settings.grpc_port}") as channel:
        stub, never = service_pb2_grpc.GRPCInferenceServiceStub(channel), threading.Event()
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        used = queue.SimpleQueue[Any]()
        responses = stub.ModelStreamInfer(iter(used.get, None))
        used.put(request(ONES))
        assert next(responses).infer_response.model_name == "blur"
        idle = [call(silence(never)) for _ in range(grpc_chapter.ARRIVING_STREAMS)]
        others = stub.ModelStreamInfer(iter([request(ONES)]))
        assert [each.infer_response.model_name for each in others] == ["blur"]
        wait_until(lambda: any(each.code() == grpc.StatusCode.DEADLINE_EXCEEDED for each in idle if each.done()))
        used.put(request(ONES))
        assert next(responses).infer_response.model_name == "blur"
        never.set()
        used.put(None)
