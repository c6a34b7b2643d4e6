"""Models of sequences at the gateway: integers in every format, located faults, the protocol's own clients."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from schema.card import Card
from serving import checks
from serving.codecs import binary
from tests import toy_sequences
from tests.conftest import Gateway
from tests.refusals import refused

NPY, JSON = {"Content-Type": "application/x-npy"}, {"Content-Type": "application/json"}
SENTENCES = np.array([[1, 2, 3, 1, 1], [2, 2, 0, 0, 0], [3, 0, 0, 0, 0]])
INTEGERS = ["<i4", "|i1", "<i2", "<i8", "|u1", "<u2", "<u4", "<u8", ">i8"]
MODELS = list(toy_sequences.OUTPUTS)


@pytest.fixture(scope="module")
def card(toy_repository: Path) -> Card:
    return Card.model_validate_json((toy_repository / "tally" / "1" / "card.json").read_bytes())


def npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def json_body(array: Any) -> bytes:
    return json.dumps({"inputs": {"tokens": array}}).encode()


def checked(card: Card, array: Any) -> tuple[NDArray[Any], bool]:
    batches, single = checks.batch({"tokens": np.asarray(array)}, card)
    return batches["tokens"], single


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_any_size_become_int32(card: Card, dtype: str) -> None:
    batch, single = checked(card, np.asfortranarray(SENTENCES.astype(dtype)))
    assert (batch.dtype, batch.flags.c_contiguous, single) == (np.int32, True, False)
    np.testing.assert_array_equal(batch, SENTENCES)
    assert checked(card, SENTENCES[0])[1]


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<f2", "?"])
def test_whole_numbers_of_another_type_are_refused_by_name(card: Card, dtype: str) -> None:
    name = np.dtype(dtype).name
    with refused("wrong-dtype", match=f"^tokens holds {name}; expected integers, the numbers of words$"):
        checked(card, SENTENCES.astype(dtype))


@given(st.data())
def test_the_first_token_outside_the_vocabulary_is_located(card: Card, data: st.DataObject) -> None:
    array = np.ones(data.draw(st.sampled_from([(7,), (3, 7)])), np.int64)
    indices = data.draw(st.lists(st.integers(0, array.size - 1), min_size=1, max_size=3))
    value = data.draw(st.sampled_from([4, 99, -1, -(2**63), 2**32 + 1, 2**63 - 1]))
    array.flat[indices] = value
    index = [int(i) for i in np.unravel_index(min(indices), array.shape)]
    with refused("wrong-token") as caught:
        checked(card, array)
    assert caught.value.detail == f"tokens[{','.join(map(str, index))}] is {value}; the vocabulary has 4 words"
    assert caught.value.where is not None
    assert caught.value.where.index == index


@pytest.mark.parametrize(
    ("array", "index"),
    [([[0, 1, 2]], "0,0"), ([[1, 2], [1, 0], [0, 0]], "2,0"), ([[1, 0, 0, 2]], "0,1"), ([0], "0"), ([1, 2, 0, 3], "2")],
    ids=["in front", "alone", "between", "one alone", "between in one"],
)
def test_padding_belongs_behind_the_words(card: Card, array: Any, index: str) -> None:
    with refused("wrong-token", match=rf"^tokens\[{index}\] is 0, which is padding and belongs behind the words$"):
        checked(card, array)


@pytest.mark.parametrize("change", [{"vocabulary": None}, {"inputs": "FP32"}])
def test_tokens_and_a_vocabulary_belong_together(card: Card, change: dict[str, Any]) -> None:
    document = card.model_dump()
    if change.get("inputs"):
        document["inputs"][0]["dtype"] = change["inputs"]
    with pytest.raises(ValidationError, match=r"expected INT32 \(batch, token\) with a vocabulary"):
        Card.model_validate(document | {key: value for key, value in change.items() if key == "vocabulary"})


def test_lengths_are_labels_where_they_are_declared(card: Card) -> None:
    assert [checks.grid_label((length,), card) for length in (8, 16, 9)] == ["8", "16", "other"]


def test_a_safetensors_file_holds_integers_too() -> None:
    written = binary.write_safetensors({"tokens": SENTENCES.astype(np.int32)}, {})
    read = binary.read_safetensors(written, 2**20)["tokens"]
    assert read.dtype == np.int32
    np.testing.assert_array_equal(read, SENTENCES)


@pytest.mark.parametrize("model", MODELS)
def test_every_format_is_read(http: httpx2.Client, model: str) -> None:
    expected, path = toy_sequences.compute(model, SENTENCES), f"/v1/models/{model}/predict"
    tokens = SENTENCES.astype(np.int32)
    coded = {"shape": [3, 5], "dtype": "int32", "base64": base64.b64encode(tokens.tobytes()).decode()}
    bodies = [
        (npy(SENTENCES), NPY),
        (json_body(SENTENCES.tolist()), JSON),
        (json_body(coded), JSON),
        (binary.write_safetensors({"tokens": tokens}, {}), {"Content-Type": binary.SAFETENSORS}),
    ]
    for content, headers in bodies:
        response = http.post(path, content=content, headers=headers | {"Accept": "application/x-npy"})
        assert response.status_code == 200, response.text
        np.testing.assert_array_equal(np.load(io.BytesIO(response.content)), expected)


def test_a_single_sequence_has_a_single_output_and_many_are_split(http: httpx2.Client) -> None:
    lists = http.post("/v1/models/tally/predict", content=json_body([1, 2, 2]), headers=JSON).json()["outputs"][
        "logits"
    ]
    assert lists == toy_sequences.compute("tally", np.array([1, 2, 2])).tolist()
    many = np.random.default_rng(0).integers(1, 4, (11, 9))  # the model's batch is four
    response = http.post("/v1/models/kinds/predict", content=npy(many), headers=NPY)
    np.testing.assert_array_equal(np.load(io.BytesIO(response.content)), toy_sequences.compute("kinds", many))


@pytest.mark.parametrize(
    ("content", "headers", "kind", "detail"),
    [
        (npy(SENTENCES.astype(np.float32)), NPY, "wrong-dtype", "tokens holds float32; expected integers"),
        (json_body([[1, 2], [3.0, 1]]), JSON, "wrong-dtype", "tokens holds float64"),
        (json_body([[1, None]]), JSON, "wrong-dtype", "tokens holds float64"),
        (json_body([[1, 2], [3]]), JSON, "wrong-shape", "tokens[1] has 1 entries; the ones before have 2"),
        (json_body("ant bee"), JSON, "wrong-shape", "tokens: expected nested lists of numbers"),
        (json_body([[1, 2, 99]]), JSON, "wrong-token", "tokens[0,2] is 99; the vocabulary has 4 words"),
        (json_body([[1, 2**40]]), JSON, "wrong-token", f"tokens[0,1] is {2**40}; the vocabulary has 4 words"),
        (json_body([[0, 1]]), JSON, "wrong-token", "tokens[0,0] is 0, which is padding"),
        (npy(np.ones((1, 41), int)), NPY, "grid-out-of-limits", 'tokens has 41 points along "token"'),
        (npy(np.ones((1, 2, 3), int)), NPY, "wrong-shape", "expected (batch, token) or (token)"),
    ],
    ids=["floats", "a float", "null", "ragged", "text", "no word", "beyond int32", "padding", "long", "rank"],
)
def test_a_fault_is_located(http: httpx2.Client, content: bytes, headers: Any, kind: str, detail: str) -> None:
    response = http.post("/v1/models/tally/predict", content=content, headers=headers)
    problem = response.json()
    assert (response.status_code, problem["type"]) == (422, f"urn:petrov:problem:{kind}"), problem
    assert problem["detail"].startswith(detail)
    assert problem["where"]["array"] == "tokens"


def test_the_card_has_the_vocabulary(http: httpx2.Client) -> None:
    card = http.get("/v1/models/kinds").json()["card"]
    assert card["vocabulary"]["words"] == list(toy_sequences.WORDS)
    assert card["vocabulary"]["answer"] == "token"
    assert card["task"] == "name the animal"
    assert "vocabulary" not in http.get("/v1/models/blur").json()["card"]


@pytest.mark.parametrize("route", ["example", "reference"])
def test_a_model_of_sequences_has_no_sampler_and_no_solver(http: httpx2.Client, route: str) -> None:
    path = f"/v1/models/tally/{route}"
    response = http.get(path) if route == "example" else http.post(path, content=npy(SENTENCES), headers=NPY)
    assert (response.status_code, response.json()["type"]) == (404, f"urn:petrov:problem:no-{route}")


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", ["INT32", "INT64", "UINT8"])
def test_a_triton_client_is_served_over_http(gateway: Gateway, datatype: str, binary: bool) -> None:
    tokens = SENTENCES.astype(datatype.lower())
    tensor = tritonclient.http.InferInput("tokens", [3, 5], datatype).set_data_from_numpy(tokens, binary_data=binary)
    with tritonclient.http.InferenceServerClient(gateway.url.removeprefix("http://")) as client:
        result = client.infer("tally", [tensor]).as_numpy("logits")
        parameters = client.get_model_config("tally")["parameters"]
    np.testing.assert_array_equal(result, toy_sequences.compute("tally", SENTENCES))
    assert json.loads(parameters["vocabulary"]["string_value"])["labels"] == list(toy_sequences.LABELS)


@pytest.mark.parametrize("datatype", ["INT32", "INT64", "UINT8"])
def test_a_triton_client_is_served_over_grpc(gateway: Gateway, datatype: str) -> None:
    tensor = tritonclient.grpc.InferInput("tokens", [3, 5], datatype)
    tensor.set_data_from_numpy(SENTENCES.astype(datatype.lower()))
    typed = tritonclient.grpc.service_pb2.ModelInferRequest(model_name="tally")
    field = {"INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents"}[datatype]
    contents = {field: SENTENCES.reshape(-1).tolist()}
    typed.inputs.add(name="tokens", datatype=datatype, shape=[3, 5], contents=contents)
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{gateway.settings.grpc_port}") as client:
        results = [
            client.infer("tally", [tensor]).as_numpy("logits"),
            tritonclient.grpc.InferResult(client._client_stub.ModelInfer(typed)).as_numpy("logits"),
        ]
        config = client.get_model_config("tally").config
    for result in results:
        np.testing.assert_array_equal(result, toy_sequences.compute("tally", SENTENCES))
    assert json.loads(config.parameters["vocabulary"].string_value)["words"] == list(toy_sequences.WORDS)


def test_a_list_declared_as_floats_holds_floats(http: httpx2.Client) -> None:
    tensor = {"name": "tokens", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    response = http.post("/v2/models/tally/infer", json={"inputs": [tensor]})
    assert response.status_code == 422
    assert "tokens holds float64" in response.json()["error"]
