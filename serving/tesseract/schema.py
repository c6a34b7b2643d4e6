"""The OpenAPI document of a model as a Tesseract, made of its card: clients find endpoints and arrays in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from serving.catalogue.card import Card, Kind, Parameter, Tensor

ENDPOINTS: dict[Kind, str] = {"vjp": "vector_jacobian_product", "jvp": "jacobian_vector_product"}
FORMATS = ("json+base64", "json")
DTYPE = "float32"


def document(card: Card, kinds: Iterable[Kind]) -> dict[str, Any]:
    """Return the OpenAPI document of a model.

    Args:
        card: The card of the model.
        kinds: The derivatives that are served.
    """
    posts = ["apply", "abstract_eval", *(ENDPOINTS[kind] for kind in kinds)]
    return {
        "openapi": "3.1.0",
        "info": {"title": card.model, "version": str(card.version), "description": card.title},
        "paths": {"/health": {"get": _operation("health")}}
        | {f"/{name}": {"post": _operation(name)} for name in posts},
        "components": {"schemas": _schemas(card)},
        "x-supported-output-formats": list(FORMATS),
        "x-supported-gpu-transports": ["none"],
        "x-supported-compressions": ["none"],
    }


def _operation(name: str) -> dict[str, Any]:
    return {"operationId": name, "responses": {"200": {"description": "Arrays by name"}}}


def _schemas(card: Card) -> dict[str, Any]:
    required = [argument.name for argument in card.arguments if argument.default is None]
    inputs = {argument.name: _array(argument) for argument in card.arguments}
    known = {name: _array(None, f"{name}, one number per sample") for name in card.quality}
    outputs = {tensor.name: _array(tensor) for tensor in card.outputs}
    return {
        "Apply_InputSchema": _object(inputs, required),
        "Apply_OutputSchema": _object(outputs | known, [*outputs, *known]),
        "ApplyInputSchema": {
            **_object({"inputs": {"$ref": "#/components/schemas/Apply_InputSchema"}}, ["inputs"]),
            "differentiable_arrays": _differentiable(inputs),
        },
        "ApplyOutputSchema": {
            "$ref": "#/components/schemas/Apply_OutputSchema",
            "differentiable_arrays": _differentiable(outputs),
        },
    }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _differentiable(arrays: Iterable[str]) -> dict[str, Any]:
    """Return the differentiable arrays; without a shape, an array may have an axis of samples or none."""
    return {name: {"dtype": DTYPE} for name in arrays}


def _array(argument: Tensor | Parameter | None, meaning: str = "") -> dict[str, Any]:
    """Return the schema of an array; None for one that is not differentiable."""
    described = {"description": meaning}
    if argument is not None:
        described = {"description": f"{argument.meaning}, axes ({', '.join(argument.axes)})", "units": argument.units}
    data = {"buffer": {}, "encoding": {"enum": ["base64", "raw"]}}
    properties = {
        "object_type": {"const": "array", "type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "dtype": {"type": "string", "examples": [DTYPE]},
        "data": _object(data, list(data)),
    }
    flags = [] if argument is None else ["DIFFERENTIABLE"]
    return {**_object(properties, ["shape", "dtype", "data"]), **described, "array_flags": flags}
