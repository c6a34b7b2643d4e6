"""Tesseracts under `/tesseract/{model}`: what tesseract-torch and tesseract-jax speak, for differentiable models.

    from tesseract_core import Tesseract

    darcy = Tesseract.from_url("http://127.0.0.1:8080/tesseract/darcy")

Messages are JSON:

    apply                     {"inputs": {…}}
    vector_jacobian_product   {"inputs": {…}, "vjp_inputs": […], "vjp_outputs": […], "cotangent_vector": {…}}
    jacobian_vector_product   {"inputs": {…}, "jvp_inputs": […], "jvp_outputs": […], "tangent_vector": {…}}

An array is `{"object_type", "shape", "dtype", "data": {"buffer", "encoding"}}` with little-endian bytes in C order
(`base64`) or nested lists (`raw`) as buffer; or plain numbers. Files and GPU memory, which a buffer may name in other
servers, are not read. A response holds arrays by the names of outputs, or for a vector-Jacobian product by those of
`vjp_inputs`. Beside the outputs of `apply` is what is known about their error: one number per sample.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError
from pydantic.types import FailFast

from serving.auth import Scope, requires
from serving.codecs import binary, formats, json_arrays
from serving.codecs.names import check_names
from serving.document import Document
from serving.errors import MEDIA_TYPE, Problem, ProblemDetails
from serving.predict import Prediction
from serving.protocols import over_http
from serving.protocols.over_http import DirectRoute
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from serving.catalogue.card import Card, Kind, Parameter, Tensor
    from serving.predict import Successor
    from serving.quality import Quality

    Shape = tuple[int, ...]

PREFIX = "/tesseract/{model}"
Encoding = Literal["base64", "raw"]
MEDIA_TYPES: dict[Encoding, str] = {"base64": "application/json+base64", "raw": "application/json"}
ENDPOINTS: dict[Kind, str] = {"vjp": "vector_jacobian_product", "jvp": "jacobian_vector_product"}
DTYPE = "float32"
MOST_RANGES = 32  # of a header Accept
_QUERY = ("run_id",)  # which clients of Tesseracts may send; it names a folder of logs, of which there are none here
SHORT = 2**16  # bytes of a body without values
Sizes = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=16), FailFast()]


class Vector(NamedTuple):
    """The vector of a product in a request.

    Attributes:
        member: The member of the body that holds it.
        role: What the tensors of the product are called.
        named: The member that lists its names.
        wanted: The member that lists the results.
        results: What the tensors of the results are called.
    """

    member: str
    role: Literal["cotangents", "tangents"]
    named: str
    wanted: str
    results: Literal["gradients", "tangents"]


VECTORS = {
    "vjp": Vector("cotangent_vector", "cotangents", "vjp_outputs", "vjp_inputs", "gradients"),
    "jvp": Vector("tangent_vector", "tangents", "jvp_inputs", "jvp_outputs", "tangents"),
}


class Data(Document):
    """The values of an array."""

    buffer: Any
    encoding: Encoding
    compression: None = None


class ArrayDocument(Document):
    """One array."""

    object_type: Literal["array"] = "array"
    shape: Sizes
    dtype: str
    data: Data


def decode(value: Any, name: str, max_bytes: int) -> NDArray[Any]:
    """Return the array of a document, of nested lists or of a number.

    Args:
        value: A value of parsed JSON.
        name: Name of the array in error messages.
        max_bytes: The most bytes that it may take as float32.

    Raises:
        Problem: unreadable-body, or a kind of invalid-array: The document is none of an array, its bytes do not fit its
            shape, or the values are no numbers.
        Problem: body-too-large: The array would be too large as float32.
    """
    if not isinstance(value, dict):
        return json_arrays.nested(value, name)
    document = _validated(ArrayDocument, value, name)
    if document.dtype not in json_arrays.DTYPES:
        detail = f'{name}: dtype "{document.dtype[:32]}" is not read; use one such as "{DTYPE}"'
        raise Problem("wrong-dtype", detail, array=name)
    buffer = document.data.buffer
    if document.data.encoding == "raw":
        array = json_arrays.nested(buffer, name)
        if array.shape != document.shape:
            detail = f"{name} has shape {array.shape}, but its document says {document.shape[:8]}"
            raise Problem("wrong-shape", detail, array=name)
        return array
    if not isinstance(buffer, str):
        raise Problem("unreadable-body", f"{name}.data.buffer: expected a string in base64")
    try:
        data = base64.b64decode(buffer, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem("unreadable-body", f"{name}.data.buffer: {error}") from error
    dtype = np.dtype(document.dtype).newbyteorder("<")
    return binary.view(data, dtype, document.shape, name, max_bytes, "data.buffer")


def encode(array: NDArray[Any], encoding: Encoding) -> dict[str, Any]:
    """Return the document of an array; a value that is not finite is null in nested lists."""
    if encoding == "raw":
        buffer: Any = np.ascontiguousarray(array) if array.ndim else array.item()
    else:
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data
        buffer = base64.b64encode(data).decode("ascii")
    about = {"object_type": "array", "shape": array.shape, "dtype": array.dtype.name}
    return about | {"data": {"buffer": buffer, "encoding": encoding}}


def _validated(document: type[Any], value: Any, name: str) -> Any:
    """Return a document of a value; pydantic describes an error per unknown key, so there are few."""
    try:
        if isinstance(value, dict) and len(value) > 16:
            raise Problem(
                "unreadable-body", f"{name} has {len(value)} keys; expected {', '.join(document.model_fields)}"
            )
        return document.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        location = ".".join(str(part)[:32] for part in (name, *first["loc"]))
        raise Problem("unreadable-body", f"{location}: {first['msg']}") from error


class TesseractBody:
    """A request to a Tesseract: an `Exchange` of `serving.predict`.

    Args:
        content: The request's body.
        card: The card of the model, or of the product for a derivative.
        encoding: How the response encodes arrays.
    """

    frames: int | None = None  # models of trajectories are no Tesseracts

    def __init__(self, content: bytearray, card: Card, encoding: Encoding) -> None:
        self.size, self._content, self._card, self._encoding = len(content), content, card, encoding
        self._vector = VECTORS[card.product.kind] if card.product else None
        self._sent: dict[str, NDArray[Any]] = {}
        self._wanted: list[str] = []

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body."""
        document, vector = self._document(), self._vector
        arrays = dict(document["inputs"])
        if vector is not None:
            self._wanted = self._requested(document, vector)
            arrays |= {f"{vector.role}.{name}": value for name, value in document[vector.member].items()}
        check_names(arrays, names, optional)
        self._sent = {name: decode(value, name, max_bytes) for name, value in arrays.items()}
        return broadcast(self._sent, self._card, max_bytes)

    def _document(self) -> dict[str, Any]:
        """Return the members of the body, each of its own type."""
        try:
            document = orjson.loads(self._content)
        except orjson.JSONDecodeError as error:
            detail = f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
            raise Problem("unreadable-body", detail) from error
        vector = self._vector
        types: dict[str, type] = {"inputs": dict}
        if vector is not None:
            types |= {vector.named: list, vector.wanted: list, vector.member: dict}
        if not isinstance(document, dict) or document.keys() != types.keys():
            raise Problem("unreadable-body", f"expected a JSON object with {', '.join(types)}")
        for name, kind in types.items():
            if not isinstance(document[name], kind):
                expected = "an object" if kind is dict else "a list of names"
                raise Problem("unreadable-body", f"{name}: expected {expected}")
        return document

    def _requested(self, document: dict[str, Any], vector: Vector) -> list[str]:
        """Return the results that a request wants, once its lists of names are right."""
        listed, sent, wanted = document[vector.named], document[vector.member], document[vector.wanted]
        if not sent:
            detail = f"{vector.member} is empty; expected the arrays of {vector.named}"
            raise Problem("wrong-input", detail, array=vector.member)
        if len(listed) != len(sent) or not all(isinstance(name, str) and name in sent for name in listed):
            detail = f"{vector.named} and the names of {vector.member} differ; expected the same"
            raise Problem("wrong-input", detail, array=vector.member)
        prefix = f"{vector.results}."
        known = [each.name.removeprefix(prefix) for each in self._card.outputs if each.name.startswith(prefix)]
        if not wanted:
            raise Problem(
                "wrong-input", f"{vector.wanted} is empty; expected some of {', '.join(known)}", array=known[0]
            )
        for name in wanted:
            if name not in known:
                shown = str(name)[:64]
                detail = f'{vector.wanted}: expected some of {", ".join(known)} but got "{shown}"'
                raise Problem("wrong-input", detail, array=shown)
        return list(dict.fromkeys(wanted))

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> bytes:
        """Return the body of the response; a gradient has shape and type of the input that was sent."""
        del model, version  # the URL says them
        shown: dict[str, NDArray[Any]] = {}
        if self._vector is None:
            first = self._card.outputs[0]
            single = outputs[first.name].ndim < len(first.axes)
            shown = {**outputs, **{name: each[0] if single else each for name, each in quality.numbers.items()}}
        else:
            shown = {name: outputs[f"{self._vector.results}.{name}"] for name in self._wanted}
            if self._vector.results == "gradients":
                shown |= {name: fitted(shown[name], self._sent[name]) for name in shown.keys() & self._sent.keys()}
        encoded = {name: encode(array, self._encoding) for name, array in shown.items()}
        return orjson.dumps(encoded, option=orjson.OPT_SERIALIZE_NUMPY)


def _is_batch(shape: Sequence[int], argument: Tensor | Parameter) -> bool:
    """Return whether an array of that shape has an axis of samples."""
    return len(shape) == len(argument.axes)


def broadcast(arrays: Mapping[str, NDArray[Any]], card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
    """Repeat batches of one sample, so that all batches have as many samples, where all are on one grid.

    `vmap_method="expand_dims"` of tesseract-jax sends what is not mapped as a batch of one.

    Args:
        arrays: Arrays by name.
        card: The card whose arguments they are.
        max_bytes: The most bytes of an array as float32.

    Returns:
        The arrays, as views where they are repeated.

    Raises:
        Problem: body-too-large: A repeated array would take more bytes.
    """
    arguments, axes = {argument.name: argument for argument in card.arguments}, len(card.grid.axes)
    free = [tensor.name for tensor in card.inputs if tensor.points is None and tensor.name in arrays]
    counts = {name: len(each) for name, each in arrays.items() if _is_batch(each.shape, arguments[name])}
    count = max(counts.values(), default=1)
    found = dict(arrays)
    if len({arrays[name].shape[-axes:] for name in free}) > 1 or set(counts.values()) - {1, count}:
        return found  # the checks that follow name the fault, before anything is repeated
    for name, own in counts.items():
        if own < count:
            shape = (count, *arrays[name].shape[1:])
            if 4 * math.prod(shape) > max_bytes:
                raise Problem("body-too-large", f"{name}: {count} samples would take more than {max_bytes} bytes")
            found[name] = np.broadcast_to(arrays[name], shape)
    return found


def fitted(gradient: NDArray[Any], sent: NDArray[Any]) -> NDArray[Any]:
    """Return the gradient by an array in the array's own shape, summed over what it was repeated to.

    That by float64 is float64, as automatic differentiation expects.
    """
    whole = gradient.sum(axis=0) if gradient.size != sent.size else gradient
    return whole.reshape(sent.shape).astype(np.float64 if sent.dtype == np.float64 else np.float32, copy=False)


def results(card: Card, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes of all outputs and of the numbers about their quality.

    Args:
        card: The card of the model.
        shapes: The shapes of the inputs and parameters that are sent.

    Raises:
        Problem: wrong-input: An input is missing, or the model does not have one, or none says the grid.
        Problem: wrong-shape: A rank is neither a sample's nor a batch's, or an output's shape does not follow.
    """
    check_names(shapes, card.names, card.optional)
    arguments = {argument.name: argument for argument in card.arguments}
    for name, shape in shapes.items():
        if len(shape) > binary.MAX_RANK or len(arguments[name].axes) - len(shape) not in {0, 1}:
            axes = ", ".join(arguments[name].axes)
            detail = f"{name}: expected axes ({axes}), with or without the batch, but got shape {list(shape[:8])}"
            raise Problem("wrong-shape", detail, array=name)
    counts = [shape[0] for name, shape in shapes.items() if _is_batch(shape, arguments[name])]
    free = [tensor.name for tensor in card.inputs if tensor.points is None]
    lead = next((name for name in free if name in shapes), None)
    if lead is None:
        detail = f"no input was sent, so the grid is unknown; send {' or '.join(free)}"
        raise Problem("wrong-input", detail, array=free[0])
    points = dict(zip(card.grid.axes, shapes[lead][-len(card.grid.axes) :], strict=True))
    batch = (max(counts),) if counts and _is_batch(shapes[lead], arguments[lead]) else ()
    found: dict[str, Shape] = {}
    for tensor in card.outputs:
        pairs = zip(tensor.axes[1:], tensor.sizes[1:], strict=True)
        sizes = [points.get(axis) if size is None else size for axis, size in pairs]
        if None in sizes:
            detail = f"the shape of {tensor.name} is known only once it is computed"
            raise Problem("wrong-shape", detail, array=tensor.name)
        found[tensor.name] = (*batch, *(size for size in sizes if size is not None))
    return found | dict.fromkeys(card.quality, batch)


def document(card: Card) -> dict[str, Any]:
    """Return the OpenAPI document of a model as a Tesseract: clients find endpoints and arrays in it."""
    inputs = {argument.name: _array(argument) for argument in card.arguments}
    outputs = {tensor.name: _array(tensor) for tensor in card.outputs}
    known = {name: _array(None, f"{name}, one number per sample") for name in card.quality}
    required = [argument.name for argument in card.arguments if argument.default is None]
    reference = "#/components/schemas/Apply_"
    schemas = {
        "Apply_InputSchema": _object(inputs, required),
        "Apply_OutputSchema": _object(outputs | known, [*outputs, *known]),
        "ApplyInputSchema": {
            **_object({"inputs": {"$ref": f"{reference}InputSchema"}}, ["inputs"]),
            # Without a shape, an array may have an axis of samples or none.
            "differentiable_arrays": {name: {"dtype": DTYPE} for name in inputs},
        },
        "ApplyOutputSchema": {
            "$ref": f"{reference}OutputSchema",
            "differentiable_arrays": {name: {"dtype": DTYPE} for name in outputs},
        },
    }
    posts = ["apply", "abstract_eval", *(ENDPOINTS[kind] for kind in card.differentiable)]
    described = {"responses": {"200": {"description": "Arrays by name"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": card.model, "version": str(card.version), "description": card.title},
        "paths": {"/health": {"get": {"operationId": "health"} | described}}
        | {f"/{name}": {"post": {"operationId": name} | described} for name in posts},
        "components": {"schemas": schemas},
        "x-supported-output-formats": ["json+base64", "json"],
        "x-supported-gpu-transports": ["none"],
        "x-supported-compressions": ["none"],
    }


def _object(properties: dict[str, Any], required: Iterable[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


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
        "data": _object(data, data),
    }
    flags = [] if argument is None else ["DIFFERENTIABLE"]
    return {**_object(properties, ["shape", "dtype", "data"]), **described, "array_flags": flags}


class Fault(Document):
    """One fault of a request that cannot be processed."""

    type: str
    loc: tuple[str | int, ...]
    msg: str


class Faults(Document):
    """The body of an error 422, in the form that clients of Tesseracts read; other errors are problem documents."""

    detail: tuple[Fault, ...]


class Abstract(Document):
    """An array without values."""

    shape: Sizes
    dtype: str


def _described(members: dict[str, str], *media_types: str) -> dict[str, Any]:
    """Return the documentation of a route whose body has these members, and whose responses have these types."""
    properties = {name: {"type": kind} for name, kind in members.items()}
    content = {"type": "object", "properties": properties, "required": list(members)}
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": content}}}},
        "responses": {200: {"content": {kind: {"schema": {"type": "object"}} for kind in media_types}}},
    }


_ERRORS: dict[int | str, dict[str, Any]] = {
    422: {"model": Faults, "description": "What is wrong with the arrays"},
    "default": {"model": ProblemDetails, "content": {MEDIA_TYPE: {}}, "description": "A problem (RFC 9457)"},
}
_VJP = {"inputs": "object", "vjp_inputs": "array", "vjp_outputs": "array", "cotangent_vector": "object"}
_JVP = {"inputs": "object", "jvp_inputs": "array", "jvp_outputs": "array", "tangent_vector": "object"}
router = APIRouter(prefix=PREFIX, responses=_ERRORS)
calls = APIRouter(prefix=PREFIX, responses=_ERRORS, route_class=DirectRoute)


@router.get("/openapi.json")
@requires(Scope.INFER)
async def openapi(model: str, service: Serving) -> JSONResponse:
    """Return the endpoints of a model, and which of its arrays are differentiable."""
    return JSONResponse(document(_card(model, service)))


@router.get("/health")
@requires(Scope.INFER)
async def health(model: str, service: Serving) -> dict[str, str]:
    """Return 200 while the model is loaded and warm."""
    _card(model, service)
    return {"status": "ok"}


@calls.post("/apply", **_described({"inputs": "object"}, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def apply(model: str, request: Request, service: Serving) -> Response:
    """Return the outputs of the newest version of a model, and what is known about their error."""
    _card(model, service)
    return await _run((await service.catalogue.newest(model)).card, request, service, service.catalogue.successor)


@calls.post("/vector_jacobian_product", **_described(_VJP, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def vector_jacobian_product(model: str, request: Request, service: Serving) -> Response:
    """Return the gradients of the inner product of outputs and cotangents."""
    return await _run(service.catalogue.derivative(model, "vjp").card, request, service)


@calls.post("/jacobian_vector_product", **_described(_JVP, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def jacobian_vector_product(model: str, request: Request, service: Serving) -> Response:
    """Return the derivatives of outputs along tangents."""
    return await _run(service.catalogue.derivative(model, "jvp").card, request, service)


@calls.post("/abstract_eval", **_described({"inputs": "object"}, MEDIA_TYPES["raw"]))
@requires(Scope.INFER)
async def abstract_eval(model: str, request: Request, service: Serving) -> Response:
    """Return shapes and types of the outputs for shapes of inputs, without computing anything."""
    card = _card(model, service)
    over_http.check_names_of_query(request.query_params, _QUERY)
    content = await over_http.content(request, service, SHORT)
    try:
        sent = orjson.loads(content)["inputs"].items()
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
        raise Problem("unreadable-body", 'expected {"inputs": {…}} as the JSON body') from error
    shapes: dict[str, Shape] = {}
    for name, value in sent:
        number = type(value) in {int, float}
        shapes[name] = () if number else _validated(Abstract, value, f"inputs.{name[:32]}").shape
    found = results(card, shapes)
    return JSONResponse({name: {"shape": shape, "dtype": DTYPE} for name, shape in found.items()})


def _card(model: str, service: Service) -> Card:
    """Return the card of a model with derivatives.

    Raises:
        Problem: not-differentiable: It has none, or computes trajectories: the protocol has no number of frames.
    """
    card = service.catalogue.model(model).card
    if card.frames is not None:
        raise Problem(
            "not-differentiable",
            f'"{model[:64]}" computes trajectories, and a Tesseract has no number of frames; use /v1 or /v2',
        )
    if not card.differentiable:
        raise Problem(
            "not-differentiable",
            f'"{model[:64]}" has no derivative, so it is no Tesseract; /v1 and /v2 predict with it',
        )
    return card


async def _run(card: Card, request: Request, service: Service, successor: Successor | None = None) -> Response:
    """Read the body, run the model, and stop when the client disconnects.

    Args:
        card: Of the model or the product to run.
        request: The request.
        service: The parts of the gateway.
        successor: Finds the version that is served instead of one that is gone.
    """
    formats.check_uncompressed(request.headers)
    over_http.check_names_of_query(request.query_params, _QUERY)
    encoding = accepted(request.headers.get("accept", "*/*"))
    state = request.state
    state.version = card.version
    content = await over_http.content(request, service, service.settings.max_json_bytes)
    exchange = TesseractBody(content, card, encoding)
    wanted = Prediction(card, state.request_id, state.caller, successor=successor)
    written = await over_http.predicted(request, service, wanted, exchange)
    return Response(written, media_type=MEDIA_TYPES[encoding])


def accepted(accept: str) -> Encoding:
    """Return the encoding of arrays that a header `Accept` leaves, base64 where it leaves the choice.

    Raises:
        Problem: not-acceptable: It wants files, GPU memory or compressed buffers.
    """
    for part in accept.split(",")[:MOST_RANGES]:
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        wants = dict(parameter.partition("=")[::2] for parameter in parameters)
        if any(wants.get(name, "none").strip('"') != "none" for name in ("gpu_transport", "compression")):
            continue
        if media in {"*/*", "application/*", MEDIA_TYPES["base64"]}:
            return "base64"
        if media == MEDIA_TYPES["raw"]:
            return "raw"
    raise Problem("not-acceptable", f'responses are {" or ".join(MEDIA_TYPES.values())}, not "{accept[:64]}"')
