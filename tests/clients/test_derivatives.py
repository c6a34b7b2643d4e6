"""Derivatives through the clients, torch and JAX equal those of a toy whose derivatives are known."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from petrov_client import Client, InvalidInput, RequestError, UnknownModel
from petrov_client.jax import operator
from petrov_client.torch import Operator
from tests import toy_fields
from tests.conftest import Gateway
from tests.toy_fields import NAME, drawn, gradients, samples, tangents

GRID = (6, 9)
X = samples(3, GRID)
NAMES = ["density", "velocity", "time"]
Y = dict(toy_fields.compute(**X))
C, T = drawn(Y, 1), drawn(X, 2)


class Counting(Client):
    """A client that counts its requests."""

    requests = 0

    async def _receive(self, request: Any, seconds: float) -> AsyncGenerator[Any]:
        self.requests += request.method == "POST"
        async for reply in super()._receive(request, seconds):
            yield reply


@pytest.fixture
def client(gateway: Gateway) -> Iterator[Counting]:
    with Counting(gateway.url) as made:
        yield made


def close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.shape(found[name]) == np.shape(array)
        np.testing.assert_allclose(np.asarray(found[name]), array, rtol=1e-4, atol=1e-4)


def test_products_of_a_batch(call: Callable[..., Any]) -> None:
    outputs, found = call("vjp", NAME, X, C)
    close(outputs, Y)
    close(found, gradients(X, C))
    outputs, along = call("jvp", NAME, X, T, version=1)
    close(outputs, Y)
    close(along, tangents(X, T))
    some = {name: X[name] for name in ("density", "velocity")}
    _, found = call("vjp", NAME, some, {"flux": C["flux"]})
    assert found.keys() == some.keys()


def test_products_of_one_field(call: Callable[..., Any]) -> None:
    one, cotangent = ({name: array[1] for name, array in arrays.items()} for arrays in (X, C))
    outputs, found = call("vjp", NAME, one, cotangent)
    close(outputs, {name: array[1] for name, array in Y.items()})
    close(found, {name: array[1] for name, array in gradients(X, C).items()})


def test_refusals(client: Client) -> None:
    with pytest.raises(RequestError, match='"blur" has no vjp'):
        client.vjp("blur", np.ones((8, 8)), np.ones((8, 8)))
    with pytest.raises(UnknownModel):
        client.vjp("nowhere", np.ones((8, 8)), np.ones((8, 8)))
    with pytest.raises(InvalidInput, match="expected cotangents by name, of moved, flux"):
        client.vjp(NAME, X, C["moved"])
    with pytest.raises(InvalidInput, match=r'no "cotangents.heat"'):
        client.vjp(NAME, X, {"heat": C["moved"]})
    with pytest.raises(InvalidInput, match="expected cotangents but got none"):
        client.vjp(NAME, X, {})
    with pytest.raises(InvalidInput, match=r"cotangents.moved\[0,0,3\] is nan"):
        client.vjp(NAME, X, {"moved": np.where(np.indices((3, *GRID)).sum(0) == 3, np.nan, C["moved"])})


def toy(density: Any, velocity: Any, time: Any) -> tuple[Any, Any]:
    """Return what the toy computes, in torch or JAX."""
    return density + velocity.sum(-3) * time[..., None, None], velocity * density[..., None, :, :]


def tensors() -> list[torch.Tensor]:
    return [torch.from_numpy(X[name]).requires_grad_() for name in NAMES]


def loss(outputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return outputs["moved"].sin().sum() + outputs["flux"].square().mean()


def test_a_loss_through_torch(client: Counting) -> None:
    served, local, drift = tensors(), tensors(), Operator(client, NAME)
    loss(drift(served[0], served[1], time=served[2])).backward()
    loss(dict(zip(Y, toy(*local), strict=True))).backward()
    for own, other in zip(served, local, strict=True):
        assert own.grad is not None
        assert other.grad is not None
        assert float((own.grad - other.grad).abs().max()) <= 1e-4 * float(other.grad.abs().max())
    assert client.requests == 2
    assert "drift" in repr(drift)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own forward mode calls it
def test_torch_in_forward_mode_and_vectorised(client: Counting) -> None:
    drift = Operator(client, NAME)

    def both(*x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(drift(*x).values())

    inputs = [x.detach() for x in tensors()]
    directions = tuple(torch.from_numpy(T[name]) for name in NAMES)
    _, along = torch.func.jvp(both, tuple(inputs), directions)
    close(dict(zip(Y, along, strict=True)), tangents(X, T))
    client.requests = 0
    found = torch.func.vmap(both)(*inputs)
    assert client.requests == 1
    close(dict(zip(Y, found, strict=True)), Y)


def test_one_field_with_a_number(client: Client) -> None:
    drift, (density, velocity, _) = Operator(client, NAME), (x[0].detach() for x in tensors())
    number = torch.tensor(0.5, requires_grad=True)
    drift(density, velocity, number)["moved"].sum().backward()
    assert number.grad is not None
    np.testing.assert_allclose(number.grad, X["velocity"][0].sum(), rtol=1e-4)
    moved = drift(density, velocity, time=0.5)["moved"]
    np.testing.assert_allclose(moved, X["density"][0] + 0.5 * X["velocity"][0].sum(0), rtol=1e-4, atol=1e-5)


def one_row(client: Client) -> tuple[Callable[[torch.Tensor], Any], torch.Tensor]:
    """Return a row of a result as a function of the density alone, and a density."""
    drift, (density, velocity, time) = Operator(client, NAME), (x[0].detach() for x in tensors())
    return (lambda d: drift(d, velocity, time)["flux"][0, 2, :8]), density


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_jacobians_of_torch_are_batches(client: Counting) -> None:
    row, density = one_row(client)
    expected = np.zeros((8, *GRID))
    expected[:, 2, :8] = np.diag(X["velocity"][0, 0, 2, :8])
    for jacobian, products in ((torch.func.jacrev, 1), (torch.func.jacfwd, 7)):  # of 8 rows, of 54 columns; 8 a request
        client.requests = 0
        np.testing.assert_allclose(jacobian(row)(density), expected, rtol=1e-4, atol=1e-5)
        assert client.requests == 1 + products


def twice(row: Callable[[torch.Tensor], torch.Tensor], density: torch.Tensor) -> None:
    x = density.requires_grad_()
    [gradient] = torch.autograd.grad(row(x).square().sum(), x, create_graph=True)
    gradient.sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "differentiate",
    [
        twice,
        lambda row, density: torch.func.hessian(lambda x: row(x).square().sum())(density),
        lambda row, density: torch.func.jacrev(torch.func.grad(lambda x: row(x).square().sum()))(density),
    ],
    ids=["create_graph", "forward over reverse", "reverse over reverse"],
)
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_second_derivatives_are_refused(client: Client, differentiate: Callable[..., object]) -> None:
    with pytest.raises(RequestError, match="a service computes first derivatives: there are no second ones"):
        differentiate(*one_row(client))


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler looks at it
def test_a_compiled_function_calls_the_module_between_its_graphs(client: Counting) -> None:
    row, density = one_row(client)
    whole = torch.compile(lambda x: row(x.exp()).sin() * 2, backend="eager")
    x, y = density.clone().requires_grad_(), density.clone().requires_grad_()
    found, expected = whole(x).sum(), (row(y.exp()).sin() * 2).sum()
    client.requests = 0
    found.backward()
    expected.backward()
    assert client.requests == 2
    assert x.grad is not None
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_has_no_values_is_refused(client: Client) -> None:
    row, density = one_row(client)
    for tried in (
        lambda: torch.jit.trace(row, density),
        lambda: torch.autograd.functional.jacobian(row, density, vectorize=True),
        lambda: row(density.to("meta")),
    ):
        with pytest.raises(InvalidInput, match=r"needs the values.* torch\.func\.vmap, jacrev and jacfwd"):
            tried()
    with pytest.raises(InvalidInput, match="density: expected a tensor but got ndarray"):
        row(density.numpy())  # type: ignore[arg-type]


def test_a_number_for_a_whole_batch_collects_its_gradient(client: Counting) -> None:
    number = torch.tensor(0.5, requires_grad=True)
    moved = Operator(client, NAME)(*(torch.from_numpy(X[name]) for name in NAMES[:2]), number)["moved"]
    moved.sum().backward()
    assert number.grad is not None
    np.testing.assert_allclose(number.grad, X["velocity"].sum(), rtol=1e-4)


def test_a_loss_through_jax(client: Counting) -> None:
    drift = operator(client, NAME)
    inputs = [jnp.asarray(X[name]) for name in NAMES]

    def served(*x: Any) -> Any:
        outputs = drift(*x)
        return jnp.sin(outputs["moved"]).sum() + (outputs["flux"] ** 2).mean()

    def local(*x: Any) -> Any:
        moved, flux = toy(*x)
        return jnp.sin(moved).sum() + (flux**2).mean()

    found, expected = (jax.jit(jax.grad(each, argnums=(0, 1, 2)))(*inputs) for each in (served, local))
    for own, other in zip(found, expected, strict=True):
        assert float(jnp.abs(own - other).max()) <= 1e-4 * float(jnp.abs(other).max())


def test_second_derivatives_through_jax_are_refused(client: Client) -> None:
    drift, x = operator(client, NAME), [jnp.asarray(X[name]) for name in NAMES]

    def slope(density: Any) -> Any:
        return jax.grad(lambda d: (drift(d, *x[1:])["flux"] ** 2).sum())(density).sum()

    with pytest.raises(RequestError, match="there are no second ones"):
        jax.grad(slope)(x[0])


def test_a_vectorised_function_of_jax_sends_one_request(client: Counting) -> None:
    drift = operator(client, NAME)
    inputs = [jnp.asarray(X[name]) for name in NAMES]
    client.model(NAME)
    found = jax.vmap(lambda d, v, t: drift(density=d, velocity=v, time=t))(*inputs)
    assert client.requests == 1
    close(found, Y)
    client.requests = 0
    gradient = jax.vmap(jax.grad(lambda d, v, t: (drift(d, v, t)["moved"] * d).sum()), in_axes=(0, 0, None))
    gradient(inputs[0], inputs[1], inputs[2][0])
    assert client.requests == 2  # values and gradients of all samples
    nested = jax.vmap(jax.vmap(lambda d, v: drift(d, v)["moved"]))(inputs[0][None], inputs[1][None])
    assert nested.shape == (1, 3, *GRID)


def test_arguments_are_named_once(client: Client) -> None:
    drift = Operator(client, NAME)
    with pytest.raises(InvalidInput, match="takes density, velocity, time, each once"):
        drift(torch.ones(6, 9), density=torch.ones(6, 9))
    with pytest.raises(InvalidInput, match="needs a field"):
        drift(time=torch.ones(()))
