"""Differentiate the toy `drift` through its URL with tesseract-jax; print gradients, and what vmap makes of it."""

from __future__ import annotations

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from tesseract_core import Tesseract
from tesseract_jax import apply_tesseract

url, arrays = sys.argv[1], np.load(sys.argv[2])
names = ["density", "velocity", "time"]
drift = Tesseract.from_url(url)


def loss(inputs):  # noqa: ANN001, ANN201
    outputs = apply_tesseract(drift, inputs)
    return jnp.sin(outputs["moved"]).sum() + (outputs["flux"] ** 2).mean()


def moved(density, velocity, time, method):  # noqa: ANN001, ANN201
    inputs = {"density": density, "velocity": velocity, "time": time}
    return apply_tesseract(drift, inputs, vmap_method=method)["moved"]


inputs = {name: jnp.asarray(arrays[name]) for name in names}
value, gradients = jax.jit(jax.value_and_grad(loss))(inputs)
mapped = {
    method: jax.vmap(lambda d, v, t, method=method: moved(d, v, t, method), in_axes=(0, 0, None))(
        inputs["density"], inputs["velocity"], inputs["time"][0]
    ).tolist()
    for method in ("broadcast_all", "expand_dims", "auto_experimental")
}
tangents = {name: jnp.asarray(arrays[f"tangent_{name}"]) for name in names}
_, tangent = jax.jvp(lambda x: apply_tesseract(drift, x)["flux"], (inputs,), (tangents,))
each = jax.vmap(jax.grad(lambda d, v: moved(d, v, jnp.float32(0.5), "sequential").sum(), argnums=1))
print(
    json.dumps(
        {
            "loss": float(value),
            "gradients": {name: array.tolist() for name, array in gradients.items()},
            "mapped": mapped,
            "flux_tangent": tangent.tolist(),
            "each": each(inputs["density"], inputs["velocity"]).tolist(),
        }
    )
)
