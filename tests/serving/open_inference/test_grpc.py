"""The Open Inference Protocol over gRPC: Triton's own clients and ours, unmodified, pointed at the gateway's port."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import grpc
import httpx2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2, service_pb2_grpc

import petrov_client
from serving.errors import Problem
from tests.conftest import Gateway, wait_until
from tests.serving.conftest import Toy
from tests.serving.http.test_gateway import permeability, sample

INPUT, OUTPUT = "coefficient", "solution"
MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def address(gateway: Gateway) -> str:
    return f"127.0.0.1:{gateway.settings.grpc_port}"


@pytest.fixture(scope="module")
def triton_client(address: str) -> Iterator[tritonclient.grpc.InferenceServerClient]:
    with tritonclient.grpc.InferenceServerClient(address) as client:
        yield client


@pytest.fixture(scope="module")
def stub(address: str) -> Iterator[Any]:
    with grpc.insecure_channel(address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def tensor(array: NDArray[Any]) -> Any:
    datatype = {"float32": "FP32", "float64": "FP64"}[array.dtype.name]
    return tritonclient.grpc.InferInput(INPUT, list(array.shape), datatype).set_data_from_numpy(array)


def request(array: NDArray[Any], **change: Any) -> Any:
    described = {"name": INPUT, "datatype": "FP32", "shape": array.shape}
    data = array.astype("<f4").tobytes()
    return service_pb2.ModelInferRequest(
        **({"model_name": "blur", "inputs": [described], "raw_input_contents": [data]} | change)
    )


def test_a_triton_client_finds_its_way(triton_client: Any, toy: Toy) -> None:
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready(toy.name)
    assert triton_client.is_model_ready(toy.name, "1")
    for missing in ((toy.name, "2"), ("missing", "")):  # as over HTTP: who asks until it is ready gets no error
        assert not triton_client.is_model_ready(*missing)
    assert triton_client.get_server_metadata().name == "petrov"
    metadata = triton_client.get_model_metadata(toy.name)
    assert (metadata.name, list(metadata.versions)) == (toy.name, ["1"])
    [(name, shape)] = [(given.name, list(given.shape)) for given in metadata.outputs]
    assert (name, shape) == (OUTPUT, [-1, -1, -1])  # without the suffix that a backend may give it
    config = triton_client.get_model_config(toy.name).config
    assert (config.max_batch_size, config.input[0].data_type) == (8, tritonclient.grpc.model_config_pb2.TYPE_FP32)
    index = triton_client.get_model_repository_index().models
    assert ("blur", "1", "READY") in {(entry.name, entry.version, entry.state) for entry in index}


@pytest.mark.parametrize("version", ["", "1"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_triton_client_is_answered(triton_client: Any, toy: Toy, dtype: str, version: str) -> None:
    array = permeability(20, 21, 23).astype(dtype)  # cut into the model's batches of eight, as over HTTP
    outputs = [tritonclient.grpc.InferRequestedOutput(OUTPUT)]
    result = triton_client.infer(toy.name, [tensor(array)], version, outputs, request_id="mine")
    np.testing.assert_allclose(result.as_numpy(OUTPUT), toy.output(array), rtol=1e-5)
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("mine", toy.name, "1")


async def test_the_asynchronous_client_is_answered(address: str, toy: Toy) -> None:
    array = permeability(2, 21, 23)
    async with tritonclient.grpc.aio.InferenceServerClient(address) as client:
        assert await client.is_model_ready(toy.name)
        result = await client.infer(toy.name, [tensor(array)])
    np.testing.assert_allclose(result.as_numpy(OUTPUT), toy.output(array), rtol=1e-5)


@pytest.mark.parametrize("field", ["fp32_contents", "fp64_contents"])
def test_typed_contents_are_read(stub: Any, toy: Toy, field: str) -> None:
    array = permeability(1, 21, 23)
    given = {
        "name": INPUT,
        "datatype": field[:4].upper(),
        "shape": array.shape,
        "contents": {field: array.reshape(-1).tolist()},
    }
    response = stub.ModelInfer(request(array, model_name=toy.name, inputs=[given], raw_input_contents=[]))
    output = np.frombuffer(response.raw_output_contents[0], "<f4").reshape(response.outputs[0].shape)
    np.testing.assert_allclose(output, toy.output(array), rtol=1e-5)


@pytest.mark.parametrize("kind", [petrov_client.GrpcClient, petrov_client.AsyncGrpcClient])
async def test_our_own_clients_are_answered(address: str, toy: Toy, kind: Any) -> None:
    array = permeability(20, 21, 23)
    if kind is petrov_client.GrpcClient:
        with kind(address) as client:
            assert toy.name in [info.name for info in client.models()]
            output = client.predict(toy.name, array)
    else:
        async with kind(address) as client:
            assert toy.name in [info.name for info in await client.models()]
            output = await client.predict(toy.name, array)
    np.testing.assert_allclose(output, toy.output(array), rtol=1e-5)


def test_our_client_names_what_is_wrong(address: str, toy: Toy) -> None:
    with petrov_client.GrpcClient(address) as client:
        with pytest.raises(petrov_client.InvalidInput, match=r"\[3,2\] is -1.0; permeability must be positive"):
            client.predict(toy.name, _with(permeability(21, 23), -1.0))
        with pytest.raises(petrov_client.UnknownModel, match='no model "missing"'):
            client.model("missing")


ONES = np.ones((1, 8, 8), np.float32)
PLAIN = {"name": INPUT, "datatype": "FP32", "shape": [1, 8, 8]}
INVALID, MISSING = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
BAD: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "unknown model": ({"model_name": "missing"}, MISSING, 'no model "missing"'),
    "version": ({"model_version": "7"}, MISSING, "no version 7"),
    "version that is no number": ({"model_version": "newest"}, INVALID, 'model version but got "newest"'),
    "no inputs": ({"inputs": []}, INVALID, '"coefficient" is missing; got none'),
    "twice": ({"inputs": [PLAIN, PLAIN]}, INVALID, "sent twice"),
    "other input": ({"inputs": [PLAIN | {"name": "viscosity"}]}, INVALID, "viscosity"),
    "half": ({"inputs": [PLAIN | {"datatype": "FP16"}]}, INVALID, '"FP16" is not read; send FP32 or FP64'),
    "double": (
        {"inputs": [PLAIN | {"datatype": "FP64"}]},
        INVALID,
        "takes 512 bytes, but raw_input_contents holds 256",
    ),
    "negative": ({"inputs": [PLAIN | {"shape": [-1, -8, 8]}]}, INVALID, "is not the shape of a field"),
    "deep": ({"inputs": [PLAIN | {"shape": [9] * 200_000}]}, INVALID, "is not the shape of a field"),
    "deep and typed": (
        {"inputs": [PLAIN | {"shape": [9] * 200_000}], "raw_input_contents": []},
        INVALID,
        "is not the shape of a field",
    ),
    "many tensors": ({"inputs": [{}] * 100_000}, INVALID, "more than 1024 parts"),
    "much that is not raw": (
        {"inputs": [PLAIN | {"contents": {"int_contents": [1] * 2**19}}], "raw_input_contents": []},
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "may have 262144 bytes beside raw_input_contents",
    ),
    "huge": ({"inputs": [PLAIN | {"shape": [2**62, 8, 8]}]}, INVALID, r"more than 10\^18 bytes"),
    "no data": ({"raw_input_contents": []}, INVALID, "fp32_contents has 0 numbers"),
    "more data": ({"raw_input_contents": [b"", b""]}, INVALID, "2 raw_input_contents for 1 inputs"),
    "both": ({"inputs": [PLAIN | {"contents": {"fp32_contents": [1]}}]}, INVALID, "contents beside"),
    "grid": (
        {"inputs": [PLAIN | {"shape": [64, 1, 1]}]},
        INVALID,
        'coefficient has 1 points along "row"; the model takes 4 to 64',
    ),
    "timeout": ({"parameters": {"timeout": {"string_param": "1"}}}, INVALID, "timeout: .* microseconds but got 1"),
    "misspelled": ({"parameters": {"tolerence": {"double_param": 1}}}, INVALID, 'no "tolerence"; there are after'),
    "parameter of an input": (
        {"inputs": [PLAIN | {"parameters": {"tolerance": {"double_param": 1}}}]},
        INVALID,
        'coefficient: there is no parameter "tolerance"; there are binary_data_size, content_type',
    ),
    "parameter of an output": (
        {"outputs": [{"name": "solution", "parameters": {"binary_dat": {"bool_param": True}}}]},
        INVALID,
        'solution: there is no parameter "binary_dat"; there are binary_data, content_type',
    ),
    "no value": ({"parameters": {"tolerance": {}}}, INVALID, 'tolerance: expected a positive number but got ""'),
    "other contents": (
        {"inputs": [PLAIN | {"contents": {"fp64_contents": [1.0] * 64}}], "raw_input_contents": []},
        INVALID,
        "coefficient: FP32 has its numbers in fp32_contents, not in fp64_contents",
    ),
    "more contents": (
        {
            "inputs": [PLAIN | {"contents": {"fp32_contents": [1.0] * 64, "bool_contents": [True]}}],
            "raw_input_contents": [],
        },
        INVALID,
        "coefficient: FP32 has its numbers in fp32_contents, not in bool_contents",
    ),
    "contents of another type": (
        {"inputs": [PLAIN | {"datatype": "INT8", "contents": {"int_contents": [128] * 64}}], "raw_input_contents": []},
        INVALID,
        "coefficient: int_contents has numbers that are no INT8",
    ),
    "one negative size": ({"inputs": [PLAIN | {"shape": [-1, 8, 8]}]}, INVALID, "is not the shape of a field"),
    "other output": ({"outputs": [{"name": "flux"}]}, INVALID, 'no output "flux"; the model has solution'),
    "shared memory": (
        {"inputs": [PLAIN | {"parameters": {"shared_memory_region": {"string_param": "a"}}}]},
        INVALID,
        "shared memory is not offered",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_has_a_code_and_a_sentence(stub: Any, case: str) -> None:
    change, code, pattern = BAD[case]
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request(ONES, **change))
    assert (caught.value.code(), re.search(pattern, caught.value.details()) is not None) == (code, True), caught.value
    assert stub.ModelInfer(request(ONES)).model_name == "blur"


def test_noise_is_the_callers_fault(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError, match="not a ModelInferRequest") as caught:
            call(b"\xff\xff\xff")
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("RepositoryModelLoad", service_pb2.RepositoryModelLoadRequest),
        ("RepositoryModelUnload", service_pb2.RepositoryModelUnloadRequest),
        ("SystemSharedMemoryRegister", service_pb2.SystemSharedMemoryRegisterRequest),
        ("CudaSharedMemoryStatus", service_pb2.CudaSharedMemoryStatusRequest),
        ("TraceSetting", service_pb2.TraceSettingRequest),
        ("LogSettings", service_pb2.LogSettingsRequest),
        ("ModelStatistics", service_pb2.ModelStatisticsRequest),
    ],
)
def test_what_is_tritons_own_is_not_here(stub: Any, method: str, message: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        getattr(stub, method)(message())
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_request_ids_come_back(stub: Any) -> None:
    _, given = stub.ModelInfer.with_call(request(ONES), metadata=(("x-request-id", "mine-1"),))
    assert ("x-request-id", "mine-1") in given.trailing_metadata()
    _, replaced = stub.ServerLive.with_call(service_pb2.ServerLiveRequest(), metadata=(("x-request-id", "no good"),))
    assert re.fullmatch("[0-9a-f]{32}", dict(replaced.trailing_metadata())["x-request-id"])
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="missing"), metadata=(("x-request-id", "mine-2"),))
    assert ("x-request-id", "mine-2") in caught.value.trailing_metadata()
    assert ("petrov-problem-type", "urn:petrov:problem:unknown-model") in caught.value.trailing_metadata()


def test_calls_are_measured_as_requests_are(gateway: Gateway, stub: Any, toy: Toy) -> None:
    def text() -> str:
        return httpx2.get(f"{gateway.url}/metrics").text

    before = after = text()
    stub.ModelInfer(request(permeability(3, 16, 16), model_name=toy.name, inputs=[PLAIN | {"shape": [3, 16, 16]}]))
    with pytest.raises(grpc.RpcError):
        stub.ModelInfer(request(ONES, model_name=toy.name, inputs=[]))

    def grown(name: str, **labels: str) -> float:
        return sample(after, name, **labels) - sample(before, name, **labels)

    def calls(code: str) -> float:
        route = "/inference.GRPCInferenceService/ModelInfer"
        return grown("petrov_request_duration_seconds_count", model=toy.name, route=route, code=code)

    def measured() -> bool:
        nonlocal after
        after = text()
        return calls("OK") + calls("INVALID_ARGUMENT") >= 2

    wait_until(measured)  # a client may have its response before the gateway has counted the call
    assert calls("OK") == calls("INVALID_ARGUMENT") == 1
    assert grown("petrov_fields_total", model=toy.name, grid="16x16") == 3
    assert grown("petrov_rejected_total", reason="wrong-input") == 1
    assert grown("petrov_request_bytes_count") == 2
    assert sample(after, "petrov_inflight_requests") == 1  # this request itself


def test_readiness_follows_the_gateways(gateway: Gateway, triton_client: Any) -> None:
    gateway.service.catalogue.draining = True
    try:
        assert not triton_client.is_server_ready()
        assert triton_client.is_server_live()
    finally:
        gateway.service.catalogue.draining = False


def test_an_error_that_lists_many_models_keeps_its_code(
    gateway: Gateway, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(*_: Any) -> Any:
        raise Problem("unknown-model", f"there are {', '.join(['a_model_of_some_name'] * 2000)}")

    monkeypatch.setattr(gateway.service.catalogue, "find", find)
    with pytest.raises(grpc.RpcError, match="there are a_model_of_some_name, ") as caught:
        stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="none"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert "x-request-id" in dict(caught.value.trailing_metadata())


def test_a_message_about_a_model_is_short(stub: Any) -> None:
    for method, message in {
        "ModelReady": service_pb2.ModelReadyRequest,
        "ModelMetadata": service_pb2.ModelMetadataRequest,
        "ModelConfig": service_pb2.ModelConfigRequest,
    }.items():
        with pytest.raises(grpc.RpcError, match="the limit is 65536") as caught:
            getattr(stub, method)(message(name="x" * MEBIBYTE))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def _with(array: NDArray[Any], value: float) -> NDArray[Any]:
    changed = array.copy()
    changed[3, 2] = value
    return changed
