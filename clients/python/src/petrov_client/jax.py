"""A model of a service as a differentiable function of JAX arrays. Needs the extra `[jax]`.

import jax
import petrov_client
from petrov_client.jax import operator

darcy = operator(petrov_client.Client(), "darcy")
gradient = jax.jit(jax.grad(lambda k: ((darcy(k) - measured) ** 2).sum()))(permeability)
pressures = jax.vmap(darcy)(permeabilities)  # one request
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from petrov_client._client import SyncPredictor
from petrov_client._errors import InvalidInput, Where
from petrov_client._operator import BatchedOperator, second_derivative


def operator(
    client: SyncPredictor, model: str, version: int | None = None, frames: int | None = None
) -> Callable[..., Any]:
    """Return a model as a function.

    It has a reverse-mode derivative (`jax.grad`, `jax.vjp`), computed by the service, and works under `jax.jit` and
    `jax.vmap`, which sends one request for a whole batch, also for gradients. It has no forward mode and no second
    derivatives.

    Args:
        client: A synchronous client, over HTTP or gRPC.
        model: The model's name.
        version: A version of the model; the newest if None.
        frames: Frames of a trajectory, at most 16; 16 if None.

    Returns:
        A function of inputs, then parameters, in the model's order, or by name: fields `[…]` with any number of batch
        axes in front; a parameter is one number, or one per field, with components last, and one that changes in time
        has a number for all frames or for each. It returns a float32 array, or a dictionary by name of several outputs.
    """
    return partial(_call, BatchedOperator(client, model, version, frames))


def _call(batched: BatchedOperator, *inputs: Any, **named: Any) -> Any:
    names = batched.names(len(inputs), tuple(named))
    passed = (*inputs, *named.values())
    for name, x in zip(names, passed, strict=True):
        if np.iscomplexobj(x):
            raise InvalidInput(f"{name}: expected real numbers but got complex ones", where=Where(name))
    arrays = [jnp.asarray(x, jnp.float32) for x in passed]
    arrays = [jnp.broadcast_to(x, batched.repeated(name, x.shape)) for name, x in zip(names, arrays, strict=True)]
    found = function(batched, names)(*arrays)
    outputs = [tensor.name for tensor in batched.info.outputs]
    return found[0] if len(outputs) == 1 else dict(zip(outputs, found, strict=True))


def function(batched: BatchedOperator, names: tuple[str, ...]) -> Callable[..., Any]:
    """Return a differentiable function of the arguments of these names, which returns a tuple of outputs."""

    def predicted(*inputs: Any) -> Any:
        made = batched.shapes(names, [x.shape for x in inputs])
        return on_host(partial(batched.predict, names), made, *inputs)

    def forward(*inputs: Any) -> Any:
        return predicted(*inputs), inputs

    def backward(inputs: Any, cotangents: Any) -> Any:
        return on_host(partial(batched.vjp, names), [x.shape for x in inputs], *inputs, *cotangents)

    wrapped = jax.custom_vjp(predicted)
    wrapped.defvjp(forward, backward)
    return wrapped


def on_host(call: Callable[[list[Any]], list[Any]], shapes: Sequence[tuple[int, ...]], *inputs: Any) -> Any:
    """Call a function of NumPy arrays whose results have these shapes; a vectorised call is one call."""

    def called(*arrays: Any) -> Any:
        return tuple(np.asarray(found, np.float32) for found in call([np.asarray(array) for array in arrays]))

    made = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)  # type: ignore[no-untyped-call]
    differentiated = jax.custom_jvp(partial(jax.pure_callback, called, made, vmap_method="broadcast_all"))
    differentiated.defjvp(second_derivative)  # a first one is the rule of `custom_vjp`
    return differentiated(*inputs)
