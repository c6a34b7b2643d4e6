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
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.background import BackgroundTask

from serving.auth import OPEN, Scope, requires
from serving.catalogue import repository as stored
from serving.catalogue.card import Model, Readiness
from serving.codecs import binary, formats
from serving.codecs.formats import MULTIPART, Body, origin, write_example
from serving.connection import BREAK_OFF
from serving.document import JSON
from serving.errors import MEDIA_TYPE, Problem
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

    from serving.catalogue.card import Card
    from serving.codecs.formats import Written
    from serving.document import Document
    from serving.predict import Frame, Successor
    from serving.quality import Quality

logger = logging.getLogger(__name__)
VECTORS = {"vjp": "cotangents", "jvp": "tangents"}
GRADIENTS = "gradients."
PER_SAMPLE = ("batch", "value")  # axes of a gradient by a parameter


class DerivativeBody(Body):
    """A `Body` whose response names the model that is differentiated, by the card of the derivative.

    The response has gradients of those inputs that the request sent. That of a parameter is one number per sample.
    """

    def __init__(self, content: bytearray, request_type: str, response_type: str, card: Card) -> None:
        super().__init__(content, request_type, response_type)
        self._card = card
        self._sent: frozenset[str] = frozenset()

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body, at least one of them a cotangent or a tangent."""
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


_BINARIES = {binary.NPY: over_http.BINARY, binary.SAFETENSORS: over_http.BINARY}
_ORIGIN = {"Petrov-Model": {"schema": {"type": "string"}}, "Petrov-Version": {"schema": {"type": "integer"}}}


def _body(request: type[Document], binaries: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a request's body, in JSON or in a binary format."""
    schema = request.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"required": True, "content": binaries | {JSON: {"schema": schema}}}


def _derivative(request: type[Document], response: type[Document]) -> dict[str, Any]:
    """Return the documentation of the route of a derivative."""
    binaries = {binary.SAFETENSORS: over_http.BINARY}
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
            "content": {MULTIPART: over_http.BINARY},
            "description": "A part per frame in the format that `Accept` names, each with its number in the header "
            "`Petrov-Frame` and the headers of `predict`. The rollout is complete if the closing delimiter follows the "
            "last part; an error is a last part of the type `application/problem+json`.",
        }
    },
}
_VJP, _JVP = _derivative(VjpRequest, VjpResponse), _derivative(JvpRequest, JvpResponse)
_CHECKED = [Depends(over_http.only_known_query)]

router = APIRouter(responses=over_http.PROBLEMS)
predictions = APIRouter(responses=over_http.PROBLEMS, route_class=DirectRoute)


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
    card, sampled = service.catalogue.find(model).card, seed is not None or grid is not None
    media_type = formats.response_type(request.headers, JSON)
    if index is not None and sampled:
        detail = "index is a stored sample, seed and grid make a new one: send one or the other"
        raise Problem("invalid-parameter", detail)
    if index is not None or (not sampled and not service.classical.samples(card)):
        found = await asyncio.to_thread(stored.example, service.settings.repository, card, index or 0)
    else:
        points = card.grid.declared[0] if grid is None else grid
        found = stored.Example(await service.classical.example(card, points, seed or 0))
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

    `successor` finds the version that is served instead of one that is gone; `make` makes the exchange of the body, its
    media type and that of the response; a `reference` is computed by the classical solver.
    """
    sent = formats.request_type(request.headers)
    media_type = formats.response_type(request.headers, sent)
    policy, json = over_http.policy_of_query(request.query_params), None if sent == JSON else 0
    how: dict[str, Any] = {"policy": policy, "successor": successor, "reference": reference, "json": json}
    wanted, content = await over_http.received(card, request, service, **how)
    work = service.predictor.predict(wanted, make(content, sent, media_type))
    written = await over_http.unless_disconnected(request, work)
    return Response(written.body, media_type=media_type, headers=written.headers)


async def _stream(card: Card, request: Request, service: Service, successor: Successor | None = None) -> Response:
    """Read the body, compute the first frames, and return the response that computes and sends the others."""
    sent = formats.request_type(request.headers)
    media_type = formats.response_type(request.headers, sent, {MULTIPART})
    policy, json = over_http.policy_of_query(request.query_params), None if sent == JSON else 0
    how: dict[str, Any] = {"policy": policy, "successor": successor, "rollout": True, "json": json}
    wanted, content = await over_http.received(card, request, service, **how)
    frames, boundary = service.predictor.stream(wanted, Body(content, sent, media_type)), secrets.token_hex(16)

    def part(content: bytes, media_type: str, number: int, headers: Mapping[str, str]) -> bytes:
        length = str(len(content))
        lines = {"Content-Type": media_type, "Content-Length": length, "Petrov-Frame": str(number), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return b"".join((f"--{boundary}\r\n{head}\r\n".encode(), content, b"\r\n"))

    async def parts(frame: Frame[Written]) -> AsyncGenerator[bytes]:
        async with aclosing(frames):
            try:
                yield part(frame.written.body, media_type, frame.number, frame.written.headers)
                async for frame in frames:  # noqa: PLR1704 - the next one
                    yield part(frame.written.body, media_type, frame.number, frame.written.headers)
            except Problem as problem:
                service.metrics.rejected.labels(problem.kind).inc()
                logger.warning("a rollout ends after frame %d: %s", frame.number, problem.detail)
                document = orjson.dumps(problem.details().model_dump(exclude_none=True))
                yield part(document, MEDIA_TYPE, frame.number + 1, problem.headers)
                request.scope["extensions"][BREAK_OFF]["call"]()
                return
        yield f"--{boundary}--\r\n".encode()

    async def first() -> Frame[Written]:
        return await anext(frames)

    written = parts(await over_http.unless_disconnected(request, first()))
    # A client that leaves ends the computation at once.
    ending = BackgroundTask(written.aclose)
    return StreamingResponse(written, media_type=f"{MULTIPART}; boundary={boundary}", background=ending)
