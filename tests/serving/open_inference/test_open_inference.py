"""The Open Inference Protocol over HTTP: Triton's own clients, unmodified, pointed at the gateway's port."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.http
import tritonclient.http.aio
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from schema.card import Card
from serving.protocols.inference import Sent, results
from serving.protocols.open_inference import RequestedOutput
from serving.quality import Quality
from tests import toy_gauges, toy_rollouts
from tests.conftest import Gateway
from tests.serving.conftest import Toy
from tests.serving.http.test_gateway import permeability, sample

JSON_BYTES = "Inference-Header-Content-Length"
INPUT, OUTPUT = "coefficient", "solution"


@pytest.fixture(scope="module")
def address(gateway: Gateway) -> str:
    return gateway.url.removeprefix("http://")


@pytest.fixture(scope="module")
def triton_client(address: str) -> Iterator[tritonclient.http.InferenceServerClient]:
    with tritonclient.http.InferenceServerClient(address) as client:
        yield client


def tensor(array: NDArray[Any], *, binary: bool = True, kind: Any = tritonclient.http) -> Any:
    datatype = {"float32": "FP32", "float64": "FP64"}[array.dtype.name]
    return kind.InferInput(INPUT, list(array.shape), datatype).set_data_from_numpy(array, binary_data=binary)


def described(array: NDArray[Any], **change: Any) -> dict[str, Any]:
    plain = {"name": INPUT, "shape": list(array.shape), "datatype": "FP32", "data": array.reshape(-1).tolist()}
    return {key: value for key, value in (plain | change).items() if value is not None}


def test_a_triton_client_finds_its_way(triton_client: Any, toy: Toy) -> None:
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready(toy.name)
    assert triton_client.is_model_ready(toy.name, "1")
    assert not triton_client.is_model_ready(toy.name, "2")
    assert not triton_client.is_model_ready("missing")
    assert triton_client.get_server_metadata()["name"] == "petrov"
    metadata = triton_client.get_model_metadata(toy.name)
    assert metadata == triton_client.get_model_metadata(toy.name, "1")
    assert (metadata["name"], metadata["versions"]) == (toy.name, ["1"])
    for [tensor], name in ((metadata["inputs"], INPUT), (metadata["outputs"], OUTPUT)):
        described = tensor.pop("parameters")
        assert (described["axes"], described["units"]) == (["batch", "row", "column"], "1")
        assert tensor == {"name": name, "datatype": "FP32", "shape": [-1, -1, -1]}
    config = triton_client.get_model_config(toy.name)
    assert config["max_batch_size"] == 8
    assert config["input"] == [{"name": INPUT, "data_type": "TYPE_FP32", "dims": [-1, -1], "optional": False}]


@pytest.mark.parametrize("version", ["", "1"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("binary", [True, False])
def test_a_triton_client_is_answered(triton_client: Any, toy: Toy, binary: bool, dtype: str, version: str) -> None:
    array = permeability(20, 21, 23).astype(dtype)  # cut into the model's batches of eight, as on /v1
    result = triton_client.infer(toy.name, [tensor(array, binary=binary)], version, request_id="mine")
    np.testing.assert_allclose(result.as_numpy(OUTPUT), toy.output(array), rtol=1e-5)
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("mine", toy.name, "1")


@pytest.mark.parametrize("binary", [True, False])
def test_a_triton_client_chooses_how_the_output_comes(triton_client: Any, toy: Toy, binary: bool) -> None:
    array = permeability(2, 21, 23)
    outputs = [tritonclient.http.InferRequestedOutput(OUTPUT, binary_data=binary)]
    result = triton_client.infer(toy.name, [tensor(array)], outputs=outputs)
    assert ("data" in result.get_output(OUTPUT)) is not binary
    np.testing.assert_allclose(result.as_numpy(OUTPUT), toy.output(array), rtol=1e-5)


async def test_the_asynchronous_client_is_answered(address: str, toy: Toy) -> None:
    array = permeability(2, 21, 23)
    async with tritonclient.http.aio.InferenceServerClient(address) as client:
        assert await client.is_model_ready(toy.name)
        result = await client.infer(toy.name, [tensor(array, kind=tritonclient.http.aio)])
        np.testing.assert_allclose(result.as_numpy(OUTPUT), toy.output(array), rtol=1e-5)
        with pytest.raises(InferenceServerException, match=r"\[0,0,0\] is -1.0; a permeability must be positive"):
            await client.infer(toy.name, [tensor(-np.ones_like(array), kind=tritonclient.http.aio)])


def test_a_triton_client_is_told_what_is_wrong(triton_client: Any, toy: Toy) -> None:
    with pytest.raises(InferenceServerException, match=r"coefficient\[0,17,3\] is nan") as caught:
        triton_client.infer(toy.name, [tensor(_with(permeability(1, 25, 25), np.nan))])
    assert caught.value.status() == "422"
    with pytest.raises(InferenceServerException, match='no model "missing"') as caught:
        triton_client.infer("missing", [tensor(permeability(1, 25, 25))])
    assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="no version 7"):
        triton_client.get_model_metadata(toy.name, "7")


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("get_model_repository_index", ()),
        ("load_model", ("TOY",)),
        ("unload_model", ("TOY",)),
        ("get_inference_statistics", ("TOY",)),
        ("get_trace_settings", ()),
        ("update_trace_settings", ("TOY", {"trace_level": "OFF"})),
        ("get_log_settings", ()),
        ("update_log_settings", ({"log_verbose_level": 1},)),
        ("get_system_shared_memory_status", ()),
        ("register_system_shared_memory", ("a", "/a", 8)),
        ("unregister_system_shared_memory", ()),
        ("get_cuda_shared_memory_status", ()),
    ],
)
def test_what_is_tritons_own_is_not_here(triton_client: Any, call: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InferenceServerException, match="there is nothing at /v2") as caught:
        getattr(triton_client, call)(*("blur" if argument == "TOY" else argument for argument in arguments))
    assert caught.value.status() == "404"


def test_a_field_without_a_batch_comes_back_without(http: httpx2.Client, toy: Toy) -> None:
    array = permeability(21, 23)
    response = http.post(f"/v2/models/{toy.name}/infer", json={"inputs": [described(array)]}).json()
    [output] = response["outputs"]
    assert "id" not in response
    assert output["shape"] == [21, 23]
    np.testing.assert_allclose(np.reshape(output["data"], (21, 23)), toy.output(array), rtol=1e-5)


def test_data_may_be_nested_and_some_binary(http: httpx2.Client, toy: Toy) -> None:
    array = permeability(1, 21, 23)
    body = {
        "inputs": [described(array, data=array.tolist())],
        "parameters": {"binary_data_output": True, "priority": 3},
    }
    response = http.post(f"/v2/models/{toy.name}/versions/1/infer", json=body)
    end = int(response.headers[JSON_BYTES])
    [output] = json.loads(response.content[:end])["outputs"]
    assert output["parameters"] == {"binary_data_size": array.nbytes}
    output = np.frombuffer(response.content[end:], "<f4").reshape(output["shape"])
    np.testing.assert_allclose(output, toy.output(array), rtol=1e-5)


@pytest.mark.parametrize(
    ("datatype", "numbers"), [("INT8", [-128, 127]), ("UINT64", [1, 2**64 - 1]), ("INT64", [-(2**63), 2.0**62])]
)
def test_numbers_of_the_whole_range_of_their_type_are_read(datatype: str, numbers: list[float]) -> None:
    found = Sent("a", datatype, [2], numbers, "data").array(2**20)
    np.testing.assert_array_equal(found, np.array(numbers))


def test_a_demand_stands_in_the_query_or_in_the_parameters(http: httpx2.Client) -> None:
    body, path = {"inputs": [described(ONES)], "parameters": {"tolerance": 1e-3}}, "/v2/models/blur/infer"
    assert http.post(path, json=body).json()["parameters"]["solved_by"] == "solver"
    twice = http.post(f"{path}?tolerance=1e-3", json=body)
    assert (twice.status_code, twice.json()["error"]) == (422, "tolerance: expected one value but got several")


ONES = np.ones((1, 8, 8), np.float32)
BYTES = {"binary_data_size": ONES.nbytes}
Case = tuple[dict[str, Any], int, str]
BAD: dict[str, Case] = {
    "no inputs": ({"inputs": []}, 400, "inputs: "),
    "many inputs": ({"inputs": [described(ONES)] * 65}, 400, "inputs: .*64"),
    "other input": ({"inputs": [described(ONES, name="viscosity")]}, 422, '"coefficient" is missing; got "viscosity"'),
    "twice": ({"inputs": [described(ONES)] * 2}, 422, "sent twice"),
    "half": ({"inputs": [described(ONES, datatype="FP16")]}, 422, 'datatype "FP16" is not read; send FP32 or FP64'),
    "bytes": ({"inputs": [described(ONES, datatype="BYTES")]}, 422, '"BYTES" is not read'),
    "no data": ({"inputs": [described(ONES, data=None)]}, 422, "got null"),
    "strings": ({"inputs": [described(ONES, data=["1"] * 64)]}, 422, r"\[0\] is a string"),
    "few": ({"inputs": [described(ONES, data=[1.0])]}, 422, "data has 1 numbers, not those of shape"),
    "negative size": ({"inputs": [described(ONES, shape=[-1, 8, 8])]}, 400, r"inputs\.0\.shape\.0"),
    "size of text": ({"inputs": [described(ONES, shape=["1", 8, 8])]}, 400, r"inputs\.0\.shape\.0"),
    "rank 1": ({"inputs": [described(ONES[0, 0])]}, 422, r"got shape \(8,\)"),
    "rank 9": ({"inputs": [described(ONES, shape=[1] * 7 + [8, 8])]}, 422, "is not the shape of a field"),
    "rank 300,000": ({"inputs": [described(ONES, shape=[9] * 300_000)]}, 400, r"inputs\.0\.shape"),
    "empty": ({"inputs": [described(ONES, shape=[0, 2**62, 8], data=[])]}, 422, "is not the shape of a field"),
    "3 x 3": ({"inputs": [described(ONES[:, :3, :3])]}, 422, '3 points along "row"'),
    "zero": ({"inputs": [described(0 * ONES)]}, 422, r"coefficient\[0,0,0\] is 0.0; a permeability must be positive"),
    "null": ({"inputs": [described(ONES, data=[None] * 64)]}, 422, r"coefficient\[0,0,0\] is nan"),
    "bytes that are not there": ({"inputs": [described(ONES, data=None, parameters=BYTES)]}, 400, "but 0 bytes follow"),
    "size of bytes": (
        {"inputs": [described(ONES, data=None, parameters={"binary_data_size": "all"})]},
        400,
        "binary_data_size is all",
    ),
    "shared memory": (
        {"inputs": [described(ONES, data=None, parameters={"shared_memory_region": "a"})]},
        422,
        "shared memory is not offered",
    ),
    "other output": (
        {"inputs": [described(ONES)], "outputs": [{"name": "flux"}]},
        422,
        'no output "flux"; the model has solution',
    ),
    "output twice": ({"inputs": [described(ONES)], "outputs": [{"name": OUTPUT}] * 2}, 422, "requested twice"),
    "classes": (
        {"inputs": [described(ONES)], "outputs": [{"name": OUTPUT, "parameters": {"classification": 3}}]},
        422,
        "no classes",
    ),
    "timeout": ({"inputs": [described(ONES)], "parameters": {"timeout": 0.5}}, 422, "microseconds but got 0.5"),
    "timeout that is none": ({"inputs": [described(ONES)], "parameters": {"timeout": None}}, 422, "but got None"),
    "tolerance": ({"inputs": [described(ONES)], "parameters": {"tolerance": -1}}, 422, 'tolerance: .*but got "-1"'),
    "list of frames": ({"inputs": [described(ONES)], "parameters": {"frames": [1]}}, 422, 'but got "null, a list'),
    "misspelled": (
        {"inputs": [described(ONES)], "parameters": {"tolerence": 1}},
        400,
        'no "tolerence"; there are after',
    ),
    "parameter of an input": (
        {"inputs": [described(ONES, parameters={"tolerance": 1})]},
        400,
        'coefficient: there is no parameter "tolerance"; there are binary_data_size, content_type',
    ),
    "parameter of an output": (
        {"inputs": [described(ONES)], "outputs": [{"name": OUTPUT, "parameters": {"binary_dat": True}}]},
        400,
        'solution: there is no parameter "binary_dat"; there are binary_data, content_type',
    ),
    "flag": ({"inputs": [described(ONES)], "parameters": {"binary_data_output": 1}}, 422, "true or false but got 1"),
    "flag of an output": (
        {"inputs": [described(ONES)], "outputs": [{"name": OUTPUT, "parameters": {"binary_data": "yes"}}]},
        422,
        "binary_data: expected true or false but got yes",
    ),
    "fractions": (
        {"inputs": [described(1.5 * ONES, datatype="INT32")]},
        422,
        "coefficient: data has numbers that are no INT32",
    ),
    "small integers": (
        {"inputs": [described(256 * ONES, datatype="UINT8")]},
        422,
        "data has numbers that are no UINT8",
    ),
    "data beside bytes": ({"inputs": [described(ONES, parameters=BYTES)]}, 400, "data beside binary_data_size"),
    "negative timeout": ({"inputs": [described(ONES)], "parameters": {"timeout": -1}}, 422, "microseconds but got -1"),
    "another document": ({"instances": [1]}, 400, "inputs: "),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_refused_by_name(http: httpx2.Client, case: str) -> None:
    body, status, pattern = BAD[case]
    response = http.post("/v2/models/blur/infer", json=body)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert list(response.json()) == ["error"]
    assert re.search(pattern, response.json()["error"]), response.json()
    assert http.post("/v2/models/blur/infer", json={"inputs": [described(ONES)]}).status_code == 200


@pytest.mark.parametrize(
    ("tail", "json_bytes", "status", "pattern"),
    [
        (ONES.tobytes()[:-1], None, 400, "but 255 bytes follow the JSON"),
        (ONES.tobytes() + b"x", None, 400, "1 bytes follow the last tensor"),
        (ONES.tobytes(), "9999", 400, "is 9999, but the body has"),
        (ONES.tobytes(), "3", 400, "not JSON"),
        (ONES.tobytes(), "-3", 400, "expected a number of bytes"),
        (ONES.tobytes(), "9" * 400, 413, "the limit is"),
        (ONES.tobytes(), str(2**25), 413, "33554432; the limit is 16777216 bytes"),
    ],
)
def test_the_header_does_not_lie(
    http: httpx2.Client, tail: bytes, json_bytes: str | None, status: int, pattern: str
) -> None:
    text = json.dumps({"inputs": [described(ONES, data=None, parameters=BYTES)]}).encode()
    headers = {JSON_BYTES: json_bytes or str(len(text))}
    response = http.post("/v2/models/blur/infer", content=text + tail, headers=headers)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert pattern in response.json()["error"]


def test_compressed_questions_are_refused(triton_client: Any) -> None:
    with pytest.raises(InferenceServerException, match='Content-Encoding "gzip" is not read'):
        triton_client.infer("blur", [tensor(ONES)], request_compression_algorithm="gzip")


def test_it_is_measured_as_v1_is(http: httpx2.Client, toy: Toy) -> None:
    before = http.get("/metrics").text
    http.post(f"/v2/models/{toy.name}/infer", json={"inputs": [described(permeability(3, 16, 16))]})
    http.post(f"/v2/models/{toy.name}/infer", json={"inputs": []})
    after = http.get("/metrics").text

    def grown(name: str, **labels: str) -> float:
        return sample(after, name, **labels) - sample(before, name, **labels)

    route = "/v2/models/{model}/infer"
    assert grown("petrov_request_duration_seconds_count", model=toy.name, route=route, code="200") == 1
    assert grown("petrov_request_duration_seconds_count", model=toy.name, route=route, code="400") == 1
    assert grown("petrov_fields_total", model=toy.name, grid="16x16") == 3
    assert grown("petrov_rejected_total", reason="unreadable-body") == 1


def test_readiness_follows_the_gateways(gateway: Gateway, triton_client: Any) -> None:
    gateway.service.catalogue.draining = True
    try:
        assert not triton_client.is_server_ready()
        assert triton_client.is_server_live()
    finally:
        gateway.service.catalogue.draining = False


def test_it_is_documented(http: httpx2.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    content = paths["/v2/models/{model}/infer"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "application/octet-stream"}
    assert "$ref" not in json.dumps(content)
    assert {path for path in paths if path.startswith("/v2")} == {
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
        *(
            f"/v2/models/{{model}}{version}{what}"
            for version in ("", "/versions/{version}")
            for what in ("", "/ready", "/config", "/infer")
        ),
    }


def _with(array: NDArray[Any], value: float) -> NDArray[Any]:
    changed = array.copy()
    changed[0, 17, 3] = value
    return changed


@pytest.mark.parametrize(
    ("document", "output", "shape"),
    [
        (toy_gauges.card("gauge", "darcy"), (3, 5, 4), (3, 1)),
        (toy_rollouts.card(), (2, 7, 16), (2, 7)),
        (toy_rollouts.card(), (7, 16), (1, 7)),  # one sample without its axis
    ],
)
def test_a_number_that_is_requested_and_not_known_is_nan(
    document: dict[str, Any], output: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """As of a classical solution, of which the network's numbers say nothing."""
    card = Card.model_validate(document)
    name, quality = card.outputs[0].name, Quality.classical(np.full(shape[0], np.nan, np.float32))
    requested = [RequestedOutput(name=each) for each in (name, "novelty")]
    found, _ = results(card, {name: np.ones(output, np.float32)}, quality, requested)
    assert {each: array.shape for each, array in found.items()} == {name: output, "novelty": shape}
    assert np.isnan(found["novelty"]).all()
    assert list(results(card, {name: np.ones(output, np.float32)}, quality, ())[0]) == [name]
