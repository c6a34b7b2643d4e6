"""The four clients with a real gateway and a real Triton: the same values, shapes and exceptions."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from petrov_client import (
    AsyncClient,
    AsyncGrpcClient,
    Client,
    GridInfo,
    GrpcClient,
    InvalidInput,
    PetrovError,
    TensorInfo,
    UnknownModel,
    Where,
)
from petrov_client._flow import run
from petrov_client._quality import Options

MODELS = ["blur", "blur_torchscript"]


def permeability(*shape: int) -> Any:
    return np.random.default_rng(5).uniform(3, 12, shape)


@pytest.fixture(scope="session")
def addresses(gateway: Any, triton: Any) -> tuple[str, str]:
    """HOST:PORT of the gateway, and of the Triton behind it."""
    return gateway.url.removeprefix("http://"), f"127.0.0.1:{triton.settings.triton_grpc_port}"


@pytest.mark.parametrize("model", MODELS)
def test_every_client_returns_the_model_s_output(call_triton: Any, blur: Any, model: str) -> None:
    fields = permeability(3, 24, 17)
    np.testing.assert_allclose(call_triton("predict", model, fields), blur(fields), rtol=1e-5)


async def test_four_clients_give_the_same_numbers(addresses: tuple[str, str]) -> None:
    fields, (http, grpc) = permeability(5, 21, 33), addresses
    with Client(f"http://{http}") as one, GrpcClient(grpc) as two:
        outputs = [one.predict("blur", fields), two.predict("blur", fields)]
    async with AsyncClient(f"http://{http}") as three, AsyncGrpcClient(grpc) as four:
        outputs += [await three.predict("blur", fields), await four.predict("blur", fields)]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])


@pytest.mark.parametrize("shape", [(16, 24), (1, 16, 24), (7, 16, 24)])
def test_the_output_has_the_rank_of_the_input(call_triton: Any, blur: Any, shape: tuple[int, ...]) -> None:
    fields = permeability(*shape)
    output = call_triton("predict", "blur", fields)
    assert output.shape == shape
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, blur(fields.reshape(-1, 16, 24)).reshape(shape), rtol=1e-5)


def test_a_batch_in_pieces_is_its_fields_one_by_one(call_triton: Any, blur: Any) -> None:
    fields, seen = permeability(29, 12, 9), []
    output = call_triton("predict", "blur", fields, progress=lambda done, total: seen.append((done, total)))
    np.testing.assert_allclose(output, blur(fields), rtol=1e-5)
    np.testing.assert_array_equal(output[20], call_triton("predict", "blur", fields[20]))
    assert sorted(total for _, total in seen) == [29] * 4  # 8 + 8 + 8 + 5: the model's batch is 8
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (29, 29)


def test_the_caller_s_array_is_left_alone(call_triton: Any) -> None:
    fields = permeability(2, 8, 8)
    kept = fields.copy()
    output = call_triton("predict", "blur", fields)
    np.testing.assert_array_equal(fields, kept)
    output[...] = 0  # the caller's own, to write to


def test_a_version_can_be_named(call_triton: Any) -> None:
    fields = permeability(8, 8)
    np.testing.assert_array_equal(
        call_triton("predict", "blur", fields, version=1), call_triton("predict", "blur", fields)
    )


def test_models_are_described(call_triton: Any, any_client: Any) -> None:
    models = {info.name: info for info in call_triton("models")}
    assert ("blur_torchscript" in models) is not any_client.http  # Triton's name, and a format of `blur` over HTTP
    blur = models["blur"]
    assert blur == call_triton("model", "blur")
    assert (blur.version, blur.versions, blur.batch) == (1, (1,), 8)
    assert [tensor.name for tensor in blur.inputs + blur.outputs] == ["coefficient", "solution"]
    assert [tensor.name for tensor in call_triton("model", "blur_torchscript").outputs] == ["solution"]
    if any_client.http:
        axes, free = ("batch", "row", "column"), (None, None, None)
        assert blur.inputs == (TensorInfo("coefficient", axes, "1", "permeability", positive=True, shape=free),)
        assert isinstance(blur.grid, GridInfo)
        assert (blur.grid.minimum, blur.grid.maximum, blur.grid.declared) == (4, 64, (16, 24))
        assert blur.card["errors"][0]["grid"] == [16, 16]
        assert blur.certificate["tolerance"] == 1e-5
    else:
        assert (blur.inputs[0].axes, blur.inputs[0].units) == (("batch", "axis1", "axis2"), None)
        assert (blur.grid, blur.card, blur.certificate) == (None, {}, {})


@pytest.mark.parametrize(
    ("fault", "arguments", "named"),
    [
        (UnknownModel, ("unknown", np.ones((8, 8))), {}),
        (UnknownModel, ("", np.ones((8, 8))), {}),
        (UnknownModel, ("../blur", np.ones((8, 8))), {}),
        (UnknownModel, ("ünknown model?", np.ones((8, 8))), {}),
        (UnknownModel, ("blur", np.ones((8, 8))), {"version": 99}),
        (InvalidInput, ("blur", np.ones(8)), {}),
        (InvalidInput, ("blur", np.ones((1, 1, 8, 8))), {}),
        (InvalidInput, ("blur", np.ones((0, 8, 8))), {}),
        (InvalidInput, ("blur", np.full((8, 8), np.nan)), {}),
        (InvalidInput, ("blur", np.full((8, 8), "a")), {}),
    ],
)
def test_the_same_fault_is_the_same_class(
    call_triton: Any, fault: type[PetrovError], arguments: Any, named: Any
) -> None:
    with pytest.raises(PetrovError) as caught:
        call_triton("predict", *arguments, **named)
    assert type(caught.value) is fault
    assert call_triton("predict", "blur", np.ones((8, 8))).shape == (8, 8)


@pytest.mark.parametrize(
    ("field", "where"),
    [
        (np.full((8, 8), -2.0), Where("coefficient", (0, 0))),
        (np.ones((3, 3)), Where("coefficient")),
        (np.ones((80, 80)), Where("coefficient")),
    ],
)
def test_the_client_checks_the_limits_of_the_card(
    http_client: Any, addresses: tuple[str, str], field: Any, where: Where
) -> None:
    with pytest.raises(InvalidInput) as caught:
        http_client.call(addresses[0], "predict", "blur", field)
    assert caught.value.where == where


def test_the_gateway_s_own_refusal_has_the_same_class_and_location(addresses: tuple[str, str]) -> None:
    with Client(f"http://{addresses[0]}") as client:
        inputs = {"coefficient": np.full((1, 8, 8), -2, np.float32)}
        call = client._operations.wire.prediction(client.model("blur"), inputs, Options())
        with pytest.raises(InvalidInput, match="must be positive") as caught:
            run(client._operations.perform(call, 10.0))
    assert caught.value.where == Where("coefficient", (0, 0, 0))
    assert caught.value.problem["type"] == "urn:petrov:problem:non-positive"


@pytest.mark.parametrize("kind", [AsyncClient, AsyncGrpcClient])
async def test_one_asynchronous_client_has_many_predictions_in_flight(
    addresses: tuple[str, str], blur: Any, kind: type[AsyncClient | AsyncGrpcClient]
) -> None:
    inputs = [permeability(3, 8 + n, 8) for n in range(12)]
    address = addresses[1] if kind is AsyncGrpcClient else f"http://{addresses[0]}"
    async with kind(address) as client:
        outputs = await asyncio.gather(*(client.predict("blur", array) for array in inputs))
        with pytest.raises(UnknownModel):
            await client.predict("unknown", inputs[0])
    for array, output in zip(inputs, outputs, strict=True):
        np.testing.assert_allclose(output, blur(array), rtol=1e-5)
