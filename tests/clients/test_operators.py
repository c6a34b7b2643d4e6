"""Models as functions of torch and JAX: types and devices of outputs, and parameters of several numbers."""

from __future__ import annotations

from typing import Any

import httpx2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from petrov_client import Client, InvalidInput
from petrov_client._codecs import decode_safetensors, encode_safetensors
from petrov_client.jax import operator
from petrov_client.torch import Operator
from tests import toy_rollouts
from tests.conftest import Gateway

FIELD = {"dtype": "FP32", "axes": ["batch", "row", "column"], "units": "1", "meaning": ""}
PARAMETERS = [
    {"name": "scale", "default": 1.0, "axes": ["batch"], "shape": [None]},
    {"name": "wind", "default": 0.0, "axes": ["batch", "component"], "shape": [None, 2], "components": ["x", "y"]},
]
VIEW = {"title": "A toy", "limits": {"batch": 8}}
GRID = {"axes": ["row", "column"], "minimum": 2, "maximum": 64, "declared": [], "points": ""}


class Service(httpx2.BaseTransport):
    """A service of a model that returns (k + w_x + 2 w_y) s, of its product, and of nothing else."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        name = request.url.path.split("/")[3]
        if request.method == "GET":
            document = {"name": name, "version": 1, "versions": [1], "card": _card(name), "certificate": None}
            return httpx2.Response(200, json=document)
        x = decode_safetensors(request.read())
        k, s, w = x["k"], x.get("scale", np.ones(1))[:, None, None], x.get("wind", np.zeros((1, 2)))
        moved = k + (w @ [1, 2])[:, None, None]
        found = {"y": moved * s}
        if request.url.path.endswith("/vjp"):
            c = x["cotangents.y"]
            total = (s * c).sum(axis=(1, 2))
            found |= {"gradients.k": s * c, "gradients.scale": (moved * c).sum(axis=(1, 2))[:, None]}
            found["gradients.wind"] = np.stack([total, 2 * total], axis=1)
        body = encode_safetensors({key: np.asarray(array, np.float32) for key, array in found.items()})
        return httpx2.Response(200, content=body, headers={"content-type": "application/vnd.safetensors"})


def _card(name: str) -> dict[str, Any]:
    inputs, outputs = [FIELD | {"name": "k"}], [FIELD | {"name": "y"}]
    if name == "toy":
        return {**VIEW, "inputs": inputs, "outputs": outputs, "parameters": PARAMETERS, "grid": GRID}
    numbers = [("scale", ["batch", "value"]), ("wind", ["batch", "component"])]
    gradients = [FIELD | {"name": "gradients.k"}, *(FIELD | {"name": f"gradients.{n}", "axes": a} for n, a in numbers)]
    inputs.append(FIELD | {"name": "cotangents.y"})
    product = {"of": "toy", "kind": "vjp"}
    return {**VIEW, "inputs": inputs, "outputs": outputs + gradients, "parameters": PARAMETERS, "grid": GRID} | {
        "product": product
    }


@pytest.fixture
def toy() -> Client:
    return Client("http://toy", transport=Service())


K = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.int64, torch.float32),
        (torch.bool, torch.float32),
        (torch.float64, torch.float64),
        (torch.float16, torch.float16),
    ],
)
def test_outputs_have_the_type_of_the_first_floating_point_tensor(
    toy: Client, dtype: torch.dtype, expected: torch.dtype
) -> None:
    """A coefficient of integers, as of `torch.where(mask, 12, 3)`, has a pressure that is no integer."""
    model, k = Operator(toy, "toy"), torch.ones(3, 4).to(dtype)
    for found in (model(k, 0.25), model(scale=0.25, k=k), model(scale=np.float64(0.25), k=k)):
        assert found.dtype == expected
        np.testing.assert_array_equal(found.numpy(), np.full((3, 4), 0.25))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_arrays_of_no_dense_real_numbers_are_refused(toy: Client) -> None:
    """A cast of complex numbers drops their imaginary parts."""
    model, k = Operator(toy, "toy"), torch.ones(3, 4)
    with pytest.raises(InvalidInput, match=r"k: expected a dense tensor of real numbers but got torch.complex64"):
        model(torch.fft.fft(k))
    with pytest.raises(InvalidInput, match=r"scale: expected a dense tensor .* \.to_dense"):
        model(k, scale=torch.ones(1).to_sparse())
    with pytest.raises(InvalidInput, match="k: expected real numbers but got complex"):
        operator(toy, "toy")(jnp.fft.fft(jnp.ones((3, 4))))


def test_the_imaginary_part_of_a_conjugate_is_an_input(toy: Client) -> None:
    """It is a view with another sign, which NumPy does not see."""
    k = torch.complex(torch.zeros(3, 4), -torch.ones(3, 4)).conj().imag
    np.testing.assert_array_equal(Operator(toy, "toy")(k, 0.25).numpy(), np.full((3, 4), 0.25))


def test_gradients_beside_integers_keep_their_digits(toy: Client) -> None:
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    found = Operator(toy, "toy")(torch.ones(3, 4, dtype=torch.int64), scale)
    assert found.dtype == torch.float64
    (found * 0.125).sum().backward()
    assert scale.grad is not None
    assert (scale.grad.dtype, float(scale.grad)) == (torch.float64, 1.5)


def test_a_parameter_may_have_components(toy: Client) -> None:
    k, wind = torch.from_numpy(K), torch.tensor([1.0, 0.25], requires_grad=True)
    model = Operator(toy, "toy")
    for each in (wind, torch.stack([wind, wind])):
        np.testing.assert_allclose(model(k, wind=each).detach(), K + 1.5)
    model(k, wind=wind).sum().backward()
    assert wind.grad is not None
    np.testing.assert_allclose(wind.grad, [24, 48])
    in_jax = operator(toy, "toy")
    np.testing.assert_allclose(in_jax(K, wind=jnp.array([1.0, 0.25])), K + 1.5)
    gradient = jax.grad(lambda w: in_jax(K, wind=w).sum())
    np.testing.assert_allclose(gradient(jnp.array([1.0, 0.25])), [24, 48])
    np.testing.assert_allclose(jax.vmap(in_jax)(K, jnp.array([1.0, 2.0])), K * [[[1]], [[2]]])


def test_a_number_with_a_batch_axis_of_one_collects_its_gradient(toy: Client) -> None:
    scale = torch.ones(1, requires_grad=True)
    Operator(toy, "toy")(torch.from_numpy(K), scale).sum().backward()
    assert scale.grad is not None
    np.testing.assert_allclose(scale.grad, [K.sum()])


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"wind": torch.tensor(1.0)}, r"wind: expected an array \(component\) behind none or the first of the batch"),
        ({"wind": torch.ones(3, 2)}, r"the batch axes \(2,\) but got shape \(3, 2\)"),
        ({"scale": torch.ones(2, 1)}, r"scale: expected a number behind none or .* but got shape \(2, 1\)"),
    ],
)
def test_other_shapes_of_parameters_are_named(toy: Client, named: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Operator(toy, "toy")(torch.from_numpy(K), **named)
    with pytest.raises(InvalidInput, match=message):
        operator(toy, "toy")(K, **{name: each.numpy() for name, each in named.items()})


U = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
F = np.random.default_rng(1).standard_normal((3, 5, 16)).astype(np.float32)


@pytest.mark.parametrize("power", [2.0, np.arange(1, 6, dtype=np.float32), np.ones((3, 5), np.float32)])
def test_a_parameter_may_change_in_time(gateway: Gateway, power: Any) -> None:
    """A number is for all frames; what has a value for each has them for every field, or for all."""
    expected = toy_rollouts.push(U, F, power)
    pushes = F.sum(axis=2)  # how the sum of the last frame depends on the power of each
    wanted = pushes if np.ndim(power) == 2 else pushes.sum(axis=0) if np.ndim(power) else pushes.sum()
    with Client(gateway.url) as client:
        number = torch.tensor(power, requires_grad=True)
        found = Operator(client, toy_rollouts.PUSHED, frames=5)(torch.from_numpy(U), torch.from_numpy(F), number)
        np.testing.assert_allclose(found.detach(), expected, rtol=1e-4, atol=1e-5)
        found[:, -1].sum().backward()
        assert number.grad is not None
        np.testing.assert_allclose(number.grad, wanted, rtol=1e-3, atol=1e-4)
        pushed = operator(client, toy_rollouts.PUSHED, frames=5)
        gradient = jax.grad(lambda p: pushed(U, F, p)[:, -1].sum())(jnp.asarray(power))
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-4)
