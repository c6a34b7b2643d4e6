"""The routes of `/v1`, `/health` and `/metrics`: each parses its parameters and delegates.

The response of a rollout is `multipart/mixed` (RFC 2046) with a part per frame, as each is computed:

    --BOUNDARY                              one of 32 hexadecimal digits, named in the Content-Type
    Content-Type: application/x-npy         or JSON, or safetensors: what `predict` would send for this frame
    Content-Length: 640
    Petrov-Frame: 1
    Petrov-Error-Estimate: 0.0031           and the other headers of `predict`
                                            (an empty line, then the bytes)
    …
    --BOUNDARY--                            after the last frame: without it the rollout is not complete

An error after the first frame is a last part of the type `application/problem+json`. The connection is closed after it
without the closing delimiter, and without the end of the chunked response, so that no client takes it for complete. The
response waits for a client that reads slowly, and the model is not called meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect

from serving import errors
from serving.auth import OPEN, Scope, requires
from serving.catalogue import repository as stored
from serving.catalogue.card import Model, Readiness
from serving.codecs import binary, formats, json_arrays
from serving.codecs.formats import MULTIPART, Body, origin, write_example
from serving.connection import BREAK_OFF
from serving.errors import MEDIA_TYPE, Problem, ProblemDetails
from serving.predict import Prediction
from serving.protocols import over_http
from serving.protocols.over_http import DirectRoute, Version
from serving.protocols.schemas import (
    Example,
    JvpRequest,
    JvpResponse,
    Liveness,
    ModelList,
    PredictionRequest,
    PredictionResponse,
    VjpRequest,
    VjpResponse,
)
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from starlette.types import Receive, Send
    from starlette.types import Scope as Connection

    from serving.catalogue.card import Card
    from serving.codecs.formats import Written
    from serving.document import Document
    from serving.observe import Metrics
    from serving.predict import Frame, Successor
    from serving.quality import Quality

VECTORS = {"vjp": "cotangents", "jvp": "tangents"}
GRADIENTS = "gradients."
PER_SAMPLE = ("batch", "value")  # axes of a gradient by a parameter


class DerivativeBody(Body):
    """A `Body` whose response names the model that is differentiated.

    The response has gradients of those inputs that the request sent. That of a parameter is one number per sample.

    Args:
        content: The request's body.
        request_type: Its media type.
        response_type: The media type of the response.
        card: The card of the derivative.
    """

    def __init__(self, content: bytearray, request_type: str, response_type: str, card: Card) -> None:
        super().__init__(content, request_type, response_type)
        self._card = card
        self._sent: frozenset[str] = frozenset()

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body.

        Raises:
            Problem: wrong-input: There is no cotangent or tangent, beside what `Body.read` refuses.
        """
        found = super().read(names, max_bytes, optional)
        product = self._card.product
        role = VECTORS[product.kind] if product else ""
        if not any(name.startswith(f"{role}.") for name in found):
            expected = [name for name in names if name.startswith(f"{role}.")]
            raise Problem("wrong-input", f"expected {' or '.join(expected)} but got none", array=expected[0])
        self._sent = frozenset(found)
        return found

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Written:
        """Return the response; see `Body.write`."""
        product = self._card.product
        shown = {
            tensor.name: outputs[tensor.name][..., 0] if tensor.axes == PER_SAMPLE else outputs[tensor.name]
            for tensor in self._card.outputs
            if not tensor.name.startswith(GRADIENTS) or tensor.name.removeprefix(GRADIENTS) in self._sent
        }
        return super().write(product.of if product else model, version, shown, quality)


logger = logging.getLogger(__name__)
NUMBER = "Petrov-Frame"


class FrameStream(Response):
    """A response of frames.

    Args:
        request: The request, whose body has been read.
        first: The first frame.
        frames: The others.
        media_type: The media type of a frame.
        metrics: Counts errors by their kinds.
    """

    def __init__(
        self,
        request: Request,
        first: Frame[Written],
        frames: AsyncGenerator[Frame[Written]],
        media_type: str,
        metrics: Metrics,
    ) -> None:
        self._boundary = secrets.token_hex(16)
        super().__init__(media_type=f"{MULTIPART}; boundary={self._boundary}")
        del self.headers["content-length"]
        self._request, self._first, self._frames = request, first, frames
        self._frame_type, self._metrics = media_type, metrics

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        del receive
        with suppress(ClientDisconnect):  # a response that has begun has no other end
            async with aclosing(self._frames):
                await over_http.unless_disconnected(self._request, self._send(scope, send))

    async def _send(self, scope: Connection, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def write(content: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": more})

        await write(self._part(self._first))
        number = self._first.number
        try:
            async for frame in self._frames:
                await write(self._part(frame))
                number = frame.number
        except Problem as problem:
            self._metrics.rejected.labels(problem.kind).inc()
            logger.warning("a rollout ends after frame %d: %s", number, problem.detail)
            document = orjson.dumps(problem.details().model_dump(exclude_none=True))
            await write(self._delimited(document, errors.MEDIA_TYPE, {NUMBER: str(number + 1), **problem.headers}))
            scope["extensions"][BREAK_OFF]["call"]()
            return
        await write(f"--{self._boundary}--\r\n".encode(), more=False)

    def _part(self, frame: Frame[Written]) -> bytes:
        headers = {NUMBER: str(frame.number), **frame.written.headers}
        return self._delimited(frame.written.body, self._frame_type, headers)

    def _delimited(self, content: bytes, media_type: str, headers: Mapping[str, str]) -> bytes:
        lines = {"Content-Type": media_type, "Content-Length": str(len(content)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return b"".join((f"--{self._boundary}\r\n{head}\r\n".encode(), content, b"\r\n"))


_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BINARIES = {binary.NPY: _BINARY, binary.SAFETENSORS: _BINARY}
_ORIGIN = {"Petrov-Model": {"schema": {"type": "string"}}, "Petrov-Version": {"schema": {"type": "integer"}}}


def _body(request: type[Document], binaries: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a request's body, in JSON or in a binary format."""
    schema = request.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"required": True, "content": binaries | {json_arrays.MEDIA_TYPE: {"schema": schema}}}


def _derivative(request: type[Document], response: type[Document]) -> dict[str, Any]:
    """Return the documentation of the route of a derivative."""
    binaries = {binary.SAFETENSORS: _BINARY}
    return {
        "openapi_extra": {"requestBody": _body(request, binaries)},
        "response_model": response,
        "responses": {200: {"content": binaries, "headers": _ORIGIN}},
    }


_PREDICTION: dict[str, Any] = {
    "openapi_extra": {"parameters": over_http.QUERY, "requestBody": _body(PredictionRequest, _BINARIES)},
    "response_model": PredictionResponse,
    "responses": {
        200: {
            "content": _BINARIES,
            "headers": _ORIGIN
            | {
                "Petrov-Error-Bound": {"schema": {"type": "number"}, "description": "The largest of the batch."},
                "Petrov-Solve-Bound": {"schema": {"type": "number"}, "description": "The largest of the batch."},
                "Petrov-Error-Estimate": {"schema": {"type": "number"}, "description": "The largest of the batch."},
                "Petrov-Novelty": {"schema": {"type": "number"}, "description": "The least of the batch."},
                "Petrov-Outside": {"schema": {"type": "boolean"}, "description": "Whether any sample is outside."},
                "Petrov-Failed": {
                    "schema": {"type": "integer"},
                    "description": "With `partial`: how many samples failed.",
                },
                "Petrov-Solved-By": {"schema": {"type": "string", "enum": ["network", "refined", "solver", "mixed"]}},
            },
        }
    },
}
_ROLLOUT: dict[str, Any] = {
    "openapi_extra": {
        "parameters": [*over_http.QUERY, over_http.AFTER],
        "requestBody": _body(PredictionRequest, _BINARIES),
    },
    "response_class": Response,
    "responses": {
        200: {
            "content": {formats.MULTIPART: _BINARY},
            "description": "A part per frame in the format that `Accept` names, each with its number in the header "
            "`Petrov-Frame` and the headers of `predict`. The rollout is complete if the closing delimiter follows the "
            "last part; an error is a last part of the type `application/problem+json`.",
        }
    },
}
_VJP, _JVP = _derivative(VjpRequest, VjpResponse), _derivative(JvpRequest, JvpResponse)
_ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ProblemDetails, "content": {MEDIA_TYPE: {}}, "description": "A problem (RFC 9457)"}
}

_CHECKED = [Depends(over_http.only_known_query)]

router = APIRouter(responses=_ERRORS)
predictions = APIRouter(responses=_ERRORS, route_class=DirectRoute)


@predictions.post("/v1/models/{model}/predict", **_PREDICTION)
@predictions.post("/v1/models/{model}/versions/{version}/predict", **_PREDICTION)
@requires(Scope.INFER)
async def predict(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Predict with the newest version of a model, or with a named one, for one sample or a batch."""
    card, successor = await over_http.version_to_run(service.catalogue, model, version)
    return await _predict(card, request, service, successor)


@predictions.post("/v1/models/{model}/rollout", **_ROLLOUT)
@predictions.post("/v1/models/{model}/versions/{version}/rollout", **_ROLLOUT)
@requires(Scope.INFER)
async def rollout(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Roll out trajectories with the newest or a named version, and send every frame as it is computed."""
    card, successor = await over_http.version_to_run(service.catalogue, model, version)
    return await _stream(card, request, service, successor)


@predictions.post("/v1/models/{model}/reference", **_PREDICTION)
@requires(Scope.INFER)
async def reference(model: str, request: Request, service: Serving) -> Response:
    """Solve with the classical solver what `predict` predicts; 404 where the model's problem has no solver."""
    return await _predict(service.catalogue.find(model).card, request, service, reference=True)


@predictions.post("/v1/models/{model}/vjp", **_VJP)
@predictions.post("/v1/models/{model}/versions/{version}/vjp", **_VJP)
@requires(Scope.INFER)
async def vjp(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Return the outputs for inputs, and the gradients of the inner product of outputs and cotangents."""
    card = service.catalogue.derivative(model, "vjp", version).card
    return await _predict(card, request, service, make=partial(DerivativeBody, card=card))


@predictions.post("/v1/models/{model}/jvp", **_JVP)
@predictions.post("/v1/models/{model}/versions/{version}/jvp", **_JVP)
@requires(Scope.INFER)
async def jvp(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Return the outputs for inputs, and their derivatives along the tangents."""
    card = service.catalogue.derivative(model, "jvp", version).card
    return await _predict(card, request, service, make=partial(DerivativeBody, card=card))


@router.get("/v1/models", dependencies=_CHECKED)
@requires(Scope.INFER)
async def list_models(service: Serving) -> ModelList:
    """List the models that are served now."""
    return ModelList(models=tuple(service.catalogue.models()))


# A card has only the keys that were written.
@router.get("/v1/models/{model}", response_model_exclude_unset=True, dependencies=_CHECKED)
@requires(Scope.INFER)
async def describe_model(model: str, service: Serving) -> Model:
    """Return card, versions and export certificate of a model."""
    return service.catalogue.model(model)


@router.get(
    "/v1/models/{model}/example",
    response_model=Example,
    responses={200: {"content": _BINARIES}},
    dependencies=_CHECKED,
)
@requires(Scope.INFER)
async def example(
    model: str,
    request: Request,
    service: Serving,
    index: Annotated[int | None, Query(ge=0, lt=2**31, description="A stored test sample, with its truth.")] = None,
    seed: Annotated[int | None, Query(ge=0, lt=2**63, description="A new sample of the distribution.")] = None,
    grid: Annotated[int | None, Query(ge=1, description="Points per axis; the first declared size by default.")] = None,
) -> Response:
    """Return an input of the model: a stored test sample (`index`), or a new one of its distribution (`seed`, `grid`).

    Without parameters it is the new sample of seed 0 where the problem has a sampler, else the first stored one. The
    header `Petrov-Examples` of a stored sample counts all of them.
    """
    card = service.catalogue.find(model).card
    media_type = formats.response_type(request.headers, json_arrays.MEDIA_TYPE)
    found = await _example(service, card, index, seed, grid)
    headers = origin(card.model, card.version) | ({} if found.count is None else {"Petrov-Examples": str(found.count)})
    return Response(write_example(found.inputs, found.outputs, media_type), media_type=media_type, headers=headers)


@router.get("/health/live")
@requires(OPEN)
async def live() -> Liveness:
    """Return 200 while the process runs."""
    return Liveness()


@router.get("/health/ready", responses={503: {"model": Readiness}})
@requires(OPEN)
async def ready(service: Serving) -> JSONResponse:
    """Return 200 while every model of the repository is loaded and warm, and the gateway is not shutting down."""
    readiness = service.readiness()
    return JSONResponse(readiness.model_dump(exclude_none=True), 200 if readiness.ready else 503)


@router.get("/metrics", include_in_schema=False)
@requires(Scope.METRICS)
async def metrics(service: Serving) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _predict(
    card: Card,
    request: Request,
    service: Service,
    successor: Successor | None = None,
    make: Callable[[bytearray, str, str], Body] = Body,
    *,
    reference: bool = False,
) -> Response:
    """Read the body, predict, and stop when the client disconnects.

    Args:
        card: Of the version to run.
        request: The request.
        service: The parts of the gateway.
        successor: Finds the version that is served instead of one that is gone.
        make: Makes the exchange of the body, its media type and that of the response.
        reference: Whether the classical solver computes the outputs.
    """
    sent = formats.request_type(request.headers)
    media_type = formats.response_type(request.headers, sent)
    wanted, content = await _received(card, request, service, sent, successor, reference=reference)
    exchange = make(content, sent, media_type)
    written = await over_http.unless_disconnected(request, service.predictor.predict(wanted, exchange))
    return Response(written.body, media_type=media_type, headers=written.headers)


async def _stream(card: Card, request: Request, service: Service, successor: Successor | None = None) -> Response:
    """Read the body, compute the first frames, and return the response that computes and sends the others."""
    sent = formats.request_type(request.headers)
    media_type = formats.part_type(request.headers, sent)
    wanted, content = await _received(card, request, service, sent, successor, rollout=True)
    following = service.predictor.stream(wanted, Body(content, sent, media_type))

    async def begin() -> Frame[Written]:
        return await anext(following)

    first = await over_http.unless_disconnected(request, begin())
    return FrameStream(request, first, following, media_type, service.metrics)


async def _received(
    card: Card,
    request: Request,
    service: Service,
    media_type: str,
    successor: Successor | None,
    *,
    reference: bool = False,
    rollout: bool = False,
) -> tuple[Prediction, bytearray]:
    """Return what the head of a request asks for, and its body; record the version that it runs."""
    state, settings, policy = request.state, service.settings, over_http.policy_of_query(request.query_params)
    state.version = card.version
    json = media_type == json_arrays.MEDIA_TYPE
    limit = settings.max_json_bytes if json else settings.max_body_bytes
    content = await over_http.content(request, service, limit, json=None if json else 0, rollout=rollout)
    return Prediction(card, state.request_id, state.caller, policy, successor=successor, reference=reference), content


async def _example(
    service: Service, card: Card, index: int | None, seed: int | None, grid: int | None
) -> stored.Example:
    repository, sampled = service.settings.repository, seed is not None or grid is not None
    if index is not None and sampled:
        raise Problem(
            "invalid-parameter", "index is a stored sample, seed and grid make a new one: send one or the other"
        )
    if index is not None or (not sampled and not service.classical.samples(card)):
        return await asyncio.to_thread(stored.example, repository, card, index or 0)
    points = card.grid.declared[0] if grid is None else grid
    return stored.Example(await service.classical.example(card, points, seed or 0))
