"""Models with several inputs, a parameter and vector fields: from a problem file to every route of the service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from numpy.typing import NDArray
from safetensors.numpy import load, load_file, save

from export.__main__ import app as exporting
from petrov_client import Client, GrpcClient, InvalidInput, ParameterInfo, Where
from tests.conftest import Gateway, RunService
from tests.pipeline.conftest import command
from training.commands import app as training

HEAT = """
name = "heat"
[data]
files = ["heat.h5"]
[inputs.conductivity]
key = "k"
units = "W/(m K)"
positive = true
[inputs.source]
key = "f"
default = 0.0
[parameters.wind]
units = "m/s"
default = 0.25
minimum = 0.0
[outputs.temperature]
key = "T"
units = "K"
[axes.row]
boundary = "wall"
[axes.column]
length = 2.0
boundary = "periodic"
"""
FLOW = """
name = "flow"
[data]
files = ["flow.npz"]
validation = 20
[inputs.velocity]
components = ["x", "y"]
[outputs.stress]
components = ["normal", "shear"]
[axes.row]
boundary = "wall"
[axes.column]
boundary = "periodic"
"""
# Two trainings, two exports and a start of Triton, on a busy machine.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]
SMALL = ("fit.epochs=1", "operator.channels=16", "operator.detail=8", "operator.spectral=1")
LAYERS = {"heat": 1, "flow": 0}  # of attention
SAFETENSORS = {"Content-Type": "application/vnd.safetensors"}
Arrays = dict[str, "NDArray[np.float32]"]


def waves(samples: int, sides: tuple[int, int], seed: int = 0) -> NDArray[np.float32]:
    """Draw smooth fields, periodic in the second direction."""
    x, y = (np.arange(side) / side for side in sides)
    amplitudes = np.random.default_rng(seed).standard_normal((samples, 3, 3))
    rows = np.stack([np.cos(np.pi * k * x) for k in range(3)])
    columns = np.stack([np.cos(2 * np.pi * k * y) for k in range(3)])
    return np.einsum("nkl,kx,ly->nxy", amplitudes, rows, columns).astype(np.float32)


def heat(samples: int, seed: int = 0) -> Arrays:
    """Draw inputs of `heat` on 48 x 64 cells."""
    return {
        "conductivity": np.exp(0.3 * waves(samples, (48, 64), seed)),
        "source": waves(samples, (48, 64), seed + 1),
        "wind": np.random.default_rng(seed).random(samples, np.float32),
    }


@dataclass(frozen=True)
class Service:
    """A gateway, and the Triton behind it."""

    gateway: Gateway
    triton: str

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.gateway.settings.grpc_port}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two problem files with their data."""
    made: Path = tmp_path_factory.mktemp("own")
    inputs, velocity = heat(24), np.stack([waves(70, (60, 90), 2), waves(70, (60, 90), 3)], axis=1)
    with h5py.File(made / "heat.h5", "w") as file:
        file["k"], file["f"], file["wind"] = inputs.values()
        file["T"] = inputs["source"] / inputs["conductivity"] + inputs["wind"][:, None, None]
    np.savez(made / "flow.npz", velocity=velocity, stress=1 + velocity[:, ::-1] / 2)
    (made / "heat.toml").write_text(HEAT)
    (made / "flow.toml").write_text(FLOW)
    return made


@pytest.fixture(scope="module")
def service(
    folder: Path,
    run_service: RunService,
) -> Iterator[Service]:
    """Train both problems with the commands that a person types, export them and serve them."""
    sets = [part for change in SMALL for part in ("--set", change)]
    for name in ("heat", "flow"):
        options = ["--no-amounts", "--preset", "tiny", "--out", folder / name, "--data", folder / "data", *sets]
        command(training, "fit", folder / f"{name}.toml", *options, "--set", f"operator.layers={LAYERS[name]}")
        command(exporting, folder / name, "--repository", folder / "model_repository")
    with run_service(folder / "model_repository") as gateway:
        yield Service(gateway, f"127.0.0.1:{gateway.settings.triton_grpc_port}")


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.gateway.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def expected(service: Service) -> NDArray[np.float32]:
    """Return the temperatures of three samples, as the HTTP client has them."""
    with Client(service.gateway.url) as client:
        output: NDArray[np.float32] = client.predict("heat", **heat(3, seed=9))
    assert output.shape == (3, 48, 64)
    return output


def close(output: Any, expected: Any) -> None:
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("service")
def test_a_version_has_its_graph_its_documents_and_examples_of_every_tensor(folder: Path) -> None:
    version = folder / "model_repository/heat/1"
    published = {path.name for path in version.iterdir()}
    assert {"model.onnx", "card.json", "certificate.json", "examples.safetensors"} <= published
    tensors = {"source", "conductivity", "wind", "temperature"}
    assert load_file(version / "examples.safetensors").keys() == tensors


def test_json_and_safetensors_carry_every_tensor(http: httpx2.Client, expected: NDArray[np.float32]) -> None:
    inputs, url = heat(3, seed=9), "/v1/models/heat/predict"
    lists = http.post(url, json={"inputs": {name: array.tolist() for name, array in inputs.items()}})
    close(lists.json()["outputs"]["temperature"], expected)
    packed = http.post(url, content=save(inputs), headers=SAFETENSORS)
    close(load(packed.content)["temperature"], expected)


def test_one_number_serves_all_samples_and_a_single_sample_needs_no_batch_axis(
    http: httpx2.Client, service: Service
) -> None:
    inputs = heat(3, seed=9)
    with Client(service.gateway.url) as client:
        every = client.predict("heat", inputs | {"wind": np.full(3, 0.75)})
        close(client.predict("heat", inputs | {"wind": 0.75}), every)
        one = client.predict("heat", conductivity=inputs["conductivity"][1], source=inputs["source"][1], wind=0.75)
    close(one, every[1])
    single = {name: array[1].tolist() for name, array in inputs.items()} | {"wind": 0.75}
    close(http.post("/v1/models/heat/predict", json={"inputs": single}).json()["outputs"]["temperature"], every[1])


def test_what_is_left_out_has_its_default(http: httpx2.Client, service: Service) -> None:
    field = heat(1, seed=9)["conductivity"][0]
    with Client(service.gateway.url) as client, GrpcClient(service.grpc) as grpc:
        full = client.predict("heat", conductivity=field, source=np.zeros_like(field), wind=0.25)
        close(client.predict("heat", field), full)
        close(grpc.predict("heat", field), full)
    close(
        http.post("/v1/models/heat/predict", json={"inputs": {"conductivity": field.tolist()}}).json()["outputs"][
            "temperature"
        ],
        full,
    )


def test_samples_with_different_parameters_have_their_own_outputs(service: Service) -> None:
    inputs = heat(4, seed=5)
    with Client(service.gateway.url) as client:
        together = client.predict("heat", **inputs)
        alone = [client.predict("heat", **{name: array[i] for name, array in inputs.items()}) for i in range(4)]
    close(np.stack(alone), together)
    assert not np.allclose(together[0], together[1])


def test_grpc_carries_every_tensor_to_the_gateway_and_to_triton(
    service: Service, expected: NDArray[np.float32]
) -> None:
    inputs = heat(3, seed=9)
    with GrpcClient(service.grpc) as gateway, GrpcClient(service.triton) as triton:
        close(gateway.predict("heat", **inputs), expected)
        close(triton.predict("heat", **inputs), expected)
        with Client(service.gateway.url) as client:
            described = client.model("heat")
        assert gateway.model("heat").inputs == described.inputs
        assert gateway.model("heat").parameters == described.parameters


def test_the_open_inference_protocol_carries_every_tensor(service: Service, expected: NDArray[np.float32]) -> None:
    inputs = heat(3, seed=9)
    for module, address in ((triton_http, service.gateway.url.removeprefix("http://")), (triton_grpc, service.grpc)):
        tensors = [module.InferInput(name, array.shape, "FP32") for name, array in inputs.items()]
        for tensor, array in zip(tensors, inputs.values(), strict=True):
            tensor.set_data_from_numpy(array)
        client = module.InferenceServerClient(address)
        close(client.infer("heat", tensors).as_numpy("temperature"), expected)
        client.close()


def test_models_say_axes_units_and_defaults(http: httpx2.Client, service: Service) -> None:
    metadata = {tensor["name"]: tensor for tensor in http.get("/v2/models/heat").json()["inputs"]}
    assert metadata["wind"]["shape"] == [-1]
    assert metadata["wind"]["parameters"] == {
        "axes": ["batch"],
        "meaning": "wind",
        "units": "m/s",
        "default": 0.25,
        "minimum": 0.0,
    }
    assert metadata["source"]["parameters"]["default"] == 0.0
    [velocity] = http.get("/v2/models/flow").json()["inputs"]
    assert velocity["shape"] == [-1, 2, -1, -1]
    assert velocity["parameters"]["components"] == ["x", "y"]
    with Client(service.gateway.url) as client:
        info = client.model("heat")
    assert info.parameters == (ParameterInfo("wind", "m/s", "wind", default=0.25, minimum=0.0),)
    assert [tensor.units for tensor in (*info.inputs, *info.outputs)] == ["W/(m K)", "1", "K"]


def test_a_vector_field_goes_in_and_out(http: httpx2.Client, service: Service) -> None:
    velocity = np.stack([waves(2, (60, 90), 7), waves(2, (60, 90), 8)], axis=1)
    with (
        Client(service.gateway.url) as client,
        GrpcClient(service.grpc) as gateway,
        GrpcClient(service.triton) as triton,
    ):
        stress = client.predict("flow", velocity)
        assert stress.shape == (2, 2, 60, 90)
        for each in (gateway, triton):
            close(each.predict("flow", velocity=velocity), stress)
        close(client.predict("flow", velocity[0]), stress[0])
    lists = http.post("/v1/models/flow/predict", json={"inputs": {"velocity": velocity[1].tolist()}})
    close(lists.json()["outputs"]["stress"], stress[1])


def test_a_model_that_is_calibrated_on_own_data_reports_its_quality(http: httpx2.Client, service: Service) -> None:
    velocity = np.stack([waves(3, (60, 90), 7), waves(3, (60, 90), 8)], axis=1)
    with Client(service.gateway.url) as client, GrpcClient(service.triton) as triton:
        assert client.model("flow").quality == triton.model("flow").quality == ("error_estimate", "novelty")
        stress, quality = client.predict("flow", velocity, quality=True)
        _, direct = triton.predict("flow", velocity, quality=True)
    assert stress.shape == velocity.shape
    assert (quality.error_estimate > 0).all()
    assert ((quality.novelty > 0) & (quality.novelty <= 1)).all()
    close(direct.error_estimate, quality.error_estimate)
    response = http.post("/v1/models/flow/predict", json={"inputs": {"velocity": velocity.tolist()}}).json()
    close(response["quality"]["error_estimate"], quality.error_estimate)


def test_an_example_can_be_posted_as_it_is(http: httpx2.Client) -> None:
    for model in ("heat", "flow"):
        document = http.get(f"/v1/models/{model}/example?index=1").json()
        response = http.post(f"/v1/models/{model}/predict", json={"inputs": document["inputs"]})
        [name] = document["outputs"]
        assert np.shape(response.json()["outputs"][name]) == np.shape(document["outputs"][name])


@contextmanager
def refused(kind: str, pointer: str | None, detail: str) -> Iterator[list[httpx2.Response]]:
    """Check the response that the block appends: a problem of a kind, with its location and its sentence."""
    responses: list[httpx2.Response] = []
    yield responses
    problem = responses[0].json()
    assert (responses[0].status_code, problem["type"]) == (422, f"urn:petrov:problem:{kind}"), problem
    assert problem["where"]["pointer"] == pointer
    assert detail in problem["detail"]


FAULTS: dict[str, tuple[Callable[[Arrays], dict[str, Any]], str, str, str]] = {
    "a wrong name": (lambda a: a | {"winds": a["wind"]}, "wrong-input", "/inputs/winds", 'no input "winds"'),
    "a missing input": (lambda a: {"source": a["source"]}, "wrong-input", "/inputs/conductivity", "is missing"),
    "too many numbers": (
        lambda a: a | {"wind": np.ones(3)},
        "wrong-shape",
        "/inputs/wind",
        "wind has shape (3,); expected one number, or one per sample (2,)",
    ),
    "a number out of range": (
        lambda a: a | {"wind": np.array([0.5, -1])},
        "out-of-range",
        "/inputs/wind/1",
        "wind[1] is -1.0; expected 0 to inf",
    ),
    "another grid": (
        lambda a: a | {"source": a["source"][:, :40]},
        "wrong-shape",
        "/inputs/source",
        "source has shape (2, 40, 64) and conductivity (2, 48, 64); expected the same samples and grid",
    ),
    "not positive": (
        lambda a: a | {"conductivity": -a["conductivity"]},
        "non-positive",
        "/inputs/conductivity/0/0/0",
        "must be positive",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_located(http: httpx2.Client, fault: str) -> None:
    change, kind, pointer, detail = FAULTS[fault]
    inputs = {name: array.tolist() for name, array in change(heat(2)).items()}
    with refused(kind, pointer, detail) as responses:
        responses.append(http.post("/v1/models/heat/predict", json={"inputs": inputs}))
    packed = {name: np.asarray(array, np.float32) for name, array in change(heat(2)).items()}
    with refused(kind, pointer, detail) as responses:
        responses.append(http.post("/v1/models/heat/predict", content=save(packed), headers=SAFETENSORS))


def test_a_wrong_number_of_components_is_refused(http: httpx2.Client, service: Service) -> None:
    three = np.ones((2, 3, 60, 90), np.float32)
    with refused("wrong-shape", "/inputs/velocity", "velocity has 3 components; expected 2 (x, y)") as responses:
        responses.append(http.post("/v1/models/flow/predict", content=save({"velocity": three}), headers=SAFETENSORS))
    with (
        Client(service.gateway.url) as client,
        pytest.raises(InvalidInput, match="expected 2 components but got 3") as caught,
    ):
        client.predict("flow", three)
    assert caught.value.where == Where("velocity")


@pytest.mark.parametrize(
    ("change", "message", "where"),
    [
        ({"winds": 1.0}, '"heat" takes "conductivity", "source", "wind" and no "winds"', Where("winds")),
        ({"wind": np.ones(3)}, r"expected one number or \(2,\) numbers but got \(3,\)", Where("wind")),
        ({"wind": [0.5, -1]}, r"wind\[1\] is -1.0; expected 0 to inf", Where("wind", (1,))),
        ({"source": np.ones((2, 40, 64))}, "expected the same fields and grid", Where("source")),
    ],
)
def test_the_client_locates_faults_before_it_sends(service: Service, change: Any, message: str, where: Where) -> None:
    for client in (Client(service.gateway.url), GrpcClient(service.grpc)):
        with client, pytest.raises(InvalidInput, match=message) as caught:
            client.predict("heat", heat(2) | change)
        assert caught.value.where == where


def test_v2_refuses_an_input_that_is_sent_twice(http: httpx2.Client) -> None:
    field = {"name": "conductivity", "datatype": "FP32", "shape": [48, 64], "data": [1.0] * 48 * 64}
    twice = http.post("/v2/models/heat/infer", content=json.dumps({"inputs": [field, field]}))
    assert (twice.status_code, twice.json()["error"]) == (422, 'the input "conductivity" is sent twice')
