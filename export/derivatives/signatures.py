"""The tensors of a product: those of its model, and beside them cotangents and gradients, or tangents.

The names have a point, which no tensor of a model has: `cotangents.solution`, `gradients.coefficient`,
`tangents.coefficient`. They are the names in Triton, over the Open Inference Protocol and in safetensors files.
"""

from __future__ import annotations

from typing import Literal

from export.signature import ParameterSpec, Signature, TensorSpec

Kind = Literal["vjp", "jvp"]
KINDS: tuple[Kind, ...] = ("vjp", "jvp")

FRAMES = 16
"""Most frames of a rollout's product, whose states are kept or whose tangents are carried."""


def signature_of(kind: Kind, model: Signature) -> Signature:
    """Return the signature of a product of a model.

    Args:
        kind: Which product.
        model: The model's signature. Its quality outputs are not differentiated and not returned.
    """
    more = {"vjp": vector_jacobian, "jvp": jacobian_vector}[kind](model)
    if model.frames is not None:
        fewer = {name: min(FRAMES, getattr(model.frames, name)) for name in ("trained", "maximum")}
        more["frames"] = model.frames.model_copy(update=fewer)
    return model.model_copy(update={"quality": (), **more})


def vector_jacobian(model: Signature) -> dict[str, object]:
    """Return the tensors of a vector-Jacobian product: a cotangent per output, a gradient per input and parameter.

    Where there are several outputs, a cotangent that is left out is 0.
    """
    default = 0.0 if len(model.outputs) > 1 else None
    gradients = (
        *(beside("gradients", spec) for spec in model.inputs),
        *(column("gradients", spec) for spec in model.parameters),
    )
    return {
        "inputs": (*model.inputs, *(beside("cotangents", spec, default) for spec in model.outputs)),
        "outputs": (*model.outputs, *gradients),
    }


def jacobian_vector(model: Signature) -> dict[str, object]:
    """Return the tensors of a Jacobian-vector product: a tangent per input, parameter and output.

    A tangent that is left out is 0.
    """
    return {
        "inputs": (*model.inputs, *(beside("tangents", spec, 0.0) for spec in model.inputs)),
        "parameters": (*model.parameters, *(direction(spec) for spec in model.parameters)),
        "outputs": (*model.outputs, *(beside("tangents", spec) for spec in model.outputs)),
    }


def order(kind: Kind, model: Signature) -> list[int]:
    """Return the position among the arguments of a product of the model's own arguments, then of the vectors."""
    names = signature_of(kind, model).argument_names
    own = [names.index(name) for name in model.argument_names]
    return [*own, *(index for index in range(len(names)) if index not in own)]


def beside(role: str, spec: TensorSpec, default: float | None = None) -> TensorSpec:
    """Describe a vector that has the shape of a tensor of the model."""
    update = {
        "name": f"{role}.{spec.name}",
        "meaning": f"{role.removesuffix('s')} of {spec.name}",
        "units": "1",
        "positive": False,
        "default": default,
    }
    return spec.model_copy(update=update)


def column(role: str, spec: ParameterSpec) -> TensorSpec:
    """Describe a number per sample that a graph returns, `[batch, 1]`."""
    return TensorSpec(
        name=f"{role}.{spec.name}",
        dtype="FP32",
        axes=("batch", "value"),
        shape=(None, 1),
        meaning=f"{role.removesuffix('s')} of {spec.name}",
        units="1",
        positive=False,
    )


def direction(spec: ParameterSpec) -> ParameterSpec:
    """Describe the tangent of a parameter."""
    return ParameterSpec(
        name=f"tangents.{spec.name}",
        meaning=f"tangent of {spec.name}",
        units="1",
        default=0.0,
        minimum=None,
        maximum=None,
    )
