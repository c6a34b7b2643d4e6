"""Models as functions of torch: types and devices of outputs."""

from __future__ import annotations

from typing import Any

import httpx2
import numpy as np
import pytest
import torch

from petrov_client import Client
from petrov_client._codecs import decode_safetensors, encode_safetensors
from petrov_client.torch import Operator

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


def test_gradients_beside_integers_keep_their_digits(toy: Client) -> None:
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    found = Operator(toy, "toy")(torch.ones(3, 4, dtype=torch.int64), scale)
    assert found.dtype == torch.float64
    (found * 0.125).sum().backward()
    assert scale.grad is not None
    assert (scale.grad.dtype, float(scale.grad)) == (torch.float64, 1.5)
