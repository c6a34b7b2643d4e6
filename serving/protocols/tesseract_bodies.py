"""Bodies of Tesseracts: arrays and their encodings, and an exchange that reads requests and writes responses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.types import FailFast

from schema.card import Card, Kind
from serving import checks
from serving.codecs import json_arrays
from serving.codecs.binary import Buffer
from serving.codecs.json_text import parsed, written
from serving.document import Document, validated
from serving.errors import Problem
from serving.inputs import TEXT_GROWTH
from serving.quality import Quality

Shape = tuple[int, ...]
Encoding = Literal["base64", "raw"]
DTYPE = "float32"
Sizes = Annotated[tuple[Annotated[int, Field(strict=True, ge=0, lt=2**31)], ...], Field(max_length=16), FailFast()]


class Vector(NamedTuple):
    """The vector of a product in a request: the member of the body that holds it, and the two that list names.

    The tensors of `member` are called `role`, and listed in `named`; those of the results are called `results`, and
    listed in `wanted`.
    """

    endpoint: str
    member: str
    role: Literal["cotangents", "tangents"]
    named: str
    wanted: str
    results: Literal["gradients", "tangents"]

    @property
    def members(self) -> dict[str, type]:
        return {"inputs": dict, self.named: list, self.wanted: list, self.member: dict}


VECTORS: dict[Kind, Vector] = {
    "vjp": Vector(
        "vector_jacobian_product", "cotangent_vector", "cotangents", "vjp_outputs", "vjp_inputs", "gradients"
    ),
    "jvp": Vector("jacobian_vector_product", "tangent_vector", "tangents", "jvp_inputs", "jvp_outputs", "tangents"),
}


class Data(Document):
    """The values of an array."""

    buffer: Any
    encoding: Encoding
    compression: None = None


class Abstract(Document):
    """An array without values."""

    shape: Sizes
    dtype: str


class ArrayDocument(Abstract):
    """One array."""

    object_type: Literal["array"] = "array"
    data: Data


INPUTS: dict[str, type] = {"inputs": dict}


def members_of(content: Buffer, types: Mapping[str, type]) -> dict[str, Any]:
    """Return the members of a body, if they have these names and types."""
    found = parsed(content)
    if not isinstance(found, dict) or found.keys() != types.keys():
        raise Problem("unreadable-body", f"expected a JSON object with {', '.join(types)}")
    for name, kind in types.items():
        if not isinstance(found[name], kind):
            expected = "an object" if kind is dict else "a list of names"
            raise Problem("unreadable-body", f"{name}: expected {expected}")
    return found


class TesseractBody:
    """A request to a Tesseract, and the writer of its response in an encoding: an `Exchange` of `serving.inputs`."""

    frames: int | None = None  # models of trajectories are no Tesseracts
    grid: tuple[int, ...] | None = None  # that of the query
    seconds: float | None = None
    growth = TEXT_GROWTH

    def __init__(self, content: Buffer, encoding: Encoding) -> None:
        self.size, self._content, self._encoding = len(content), content, encoding
        self._vector: Vector | None = None
        self._sent: dict[str, NDArray[Any]] = {}
        self._wanted: list[str] = []

    def read(self, card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
        product = card.product
        self._vector = vector = VECTORS[product.kind] if product and product.kind != "refined" else None
        found = members_of(self._content, vector.members if vector else INPUTS)
        arrays = dict(found["inputs"])
        if vector is not None:
            self._wanted = self._requested(found, vector, card)
            arrays |= {f"{vector.role}.{name}": value for name, value in found[vector.member].items()}
        checks.names(arrays, card.names, card.optional)
        sent = {name: decode(value, name, max_bytes) for name, value in arrays.items()}
        # Their shapes and types alone are needed for the response.
        self._sent = {name: np.broadcast_to(np.zeros((), each.dtype), each.shape) for name, each in sent.items()}
        return broadcast(sent, card, max_bytes)

    def _requested(self, members: dict[str, Any], vector: Vector, card: Card) -> list[str]:
        """Return the results that a request wants, once its lists of names are right."""
        listed, sent, wanted = members[vector.named], members[vector.member], members[vector.wanted]
        if not sent:
            detail = f"{vector.member} is empty; expected the arrays of {vector.named}"
            raise Problem("wrong-input", detail, array=vector.member)
        if len(listed) != len(sent) or not all(isinstance(name, str) and name in sent for name in listed):
            detail = f"{vector.named} and the names of {vector.member} differ; expected the same"
            raise Problem("wrong-input", detail, array=vector.member)
        prefix = f"{vector.results}."
        known = [each.name.removeprefix(prefix) for each in card.outputs if each.name.startswith(prefix)]
        if not wanted:
            detail = f"{vector.wanted} is empty; expected some of {', '.join(known)}"
            raise Problem("wrong-input", detail, array=known[0])
        for name in wanted:
            if name not in known:
                shown = str(name)[:64]
                detail = f'{vector.wanted}: expected some of {", ".join(known)} but got "{shown}"'
                raise Problem("wrong-input", detail, array=shown)
        return list(dict.fromkeys(wanted))

    def write(self, card: Card, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> bytes | memoryview:
        """Return the body of the response; a gradient has shape and type of the input that was sent."""
        shown: dict[str, NDArray[Any]] = {}
        if self._vector is None:
            first = card.outputs[0]
            single = outputs[first.name].ndim < len(first.axes)
            known = {name: np.asarray(each[0]) if single else each for name, each in quality.numbers.items()}
            shown = {**outputs, **known}
        else:
            shown = {name: outputs[f"{self._vector.results}.{name}"] for name in self._wanted}
            if self._vector.results == "gradients":
                shown |= {name: fitted(shown[name], self._sent[name]) for name in shown.keys() & self._sent.keys()}
        return written({name: encode(array, self._encoding) for name, array in shown.items()})


def decode(value: Any, name: str, max_bytes: int) -> NDArray[Any]:
    """Return the array of a document, of nested lists or of a number, a value of parsed JSON."""
    if not isinstance(value, dict):
        return json_arrays.nested(value, name)
    found = validated(ArrayDocument, value, name)
    buffer = found.data.buffer
    if found.data.encoding == "raw":
        json_arrays.check_dtype(found.dtype, name)
        array = json_arrays.nested(buffer, name)
        if array.shape != found.shape:
            detail = f"{name} has shape {array.shape}, but its document says {found.shape[:8]}"
            raise Problem("wrong-shape", detail, array=name)
        return array
    path = f"{name}.data.buffer"
    if not isinstance(buffer, str):
        raise Problem("unreadable-body", f"{path}: expected a string in base64")
    return json_arrays.from_base64(buffer, found.dtype, found.shape, name, path, max_bytes)


def encode(array: NDArray[Any], encoding: Encoding) -> dict[str, Any]:
    """Return the document of an array; a value that is not finite is null in nested lists."""
    if encoding == "raw":
        buffer: Any = np.ascontiguousarray(array) if array.ndim else array.item()
    else:
        buffer = json_arrays.base64_text(array)
    about = {"object_type": "array", "shape": array.shape, "dtype": array.dtype.name}
    return about | {"data": {"buffer": buffer, "encoding": encoding}}


def broadcast(arrays: Mapping[str, NDArray[Any]], card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
    """Repeat batches of one sample, as views, so that all batches have as many samples, where all are on one grid.

    `vmap_method="expand_dims"` of tesseract-jax sends what is not mapped as a batch of one.
    """
    free = [tensor for tensor in card.inputs if tensor.points is None and tensor.name in arrays]
    counts = counts_of({name: array.shape for name, array in arrays.items()}, card)
    count = max(counts.values(), default=1)
    found = dict(arrays)
    if len({tensor.grid_of(arrays[tensor.name].shape) for tensor in free}) > 1 or set(counts.values()) - {1, count}:
        return found  # the checks that follow name the fault, before anything is repeated
    for name, own in counts.items():
        if own < count:
            shape = (count, *arrays[name].shape[1:])
            if 4 * math.prod(shape) > max_bytes:
                raise Problem("body-too-large", f"{name}: {count} samples would take more than {max_bytes} bytes")
            found[name] = np.broadcast_to(arrays[name], shape)
    return found


def counts_of(sent: Mapping[str, Shape], card: Card) -> dict[str, int]:
    """Return the number of samples of each array that has an axis of them, by name."""
    ranks = {argument.name: len(argument.axes) for argument in card.arguments}
    return {name: shape[0] for name, shape in sent.items() if len(shape) == ranks[name]}


def fitted(gradient: NDArray[Any], sent: NDArray[Any]) -> NDArray[Any]:
    """Return the gradient by an array in the array's own shape, summed over what it was repeated to.

    That by float64 is float64, as automatic differentiation expects.
    """
    whole = gradient.sum(axis=0) if gradient.size != sent.size else gradient
    return whole.reshape(sent.shape).astype(np.float64 if sent.dtype == np.float64 else np.float32, copy=False)
