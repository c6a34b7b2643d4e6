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
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from numpy.typing import NDArray
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.background import BackgroundTask

from schema.card import CELLS, Card
from serving import cells, system, timing
from serving.auth import OPEN, Scope, requires
from serving.catalogue.documents import Model, Readiness
from serving.codecs import binary, json_arrays
from serving.codecs.binary import Buffer
from serving.codecs.json_text import written
from serving.connection import BREAK_OFF
from serving.document import JSON
from serving.errors import MEDIA_TYPE, PROBLEM, VECTORS, Problem
from serving.inputs import TEXT_GROWTH, offload
from serving.protocols import over_http
from serving.protocols.over_http import DirectRoute, Version
from serving.protocols.schemas import JVP, MULTIPART, PREDICTION, REFERENCE, ROLLOUT, VJP, Example, Liveness, ModelList
from serving.quality import Quality
from serving.rollout import Frame, stream
from serving.service import Service, Serving

logger = logging.getLogger(__name__)
GRADIENTS = "gradients."
TRUTH = "outputs."
EXAMPLES = "examples.safetensors"
_GROWTH = {binary.NPY: 1.0, binary.SAFETENSORS: 1.0}
PER_SAMPLE = ("batch", "value")  # axes of a gradient by a parameter

router = APIRouter(responses=over_http.PROBLEMS, dependencies=over_http.CHECKED)
calls = APIRouter(tags=["Predictions"], responses=over_http.PROBLEMS, route_class=DirectRoute)


@calls.post("/v1/models/{model}/predict", **PREDICTION)
@calls.post("/v1/models/{model}/versions/{version}/predict", **PREDICTION)
@requires(Scope.INFER)
async def predict(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Predict with the newest version of a model, or with a named one, for one sample or a batch."""
    card = await service.catalogue.newest(model, version)
    return await _predict(card, request, service, latest=version is None)


@calls.post("/v1/models/{model}/rollout", **ROLLOUT)
@calls.post("/v1/models/{model}/versions/{version}/rollout", **ROLLOUT)
@requires(Scope.INFER)
async def rollout(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Roll out trajectories with the newest or a named version, and send every frame as it is computed."""
    card = await service.catalogue.newest(model, version)
    sent = over_http.request_type(request.headers)
    media_type = over_http.response_type(request.headers, sent, {MULTIPART})
    json = None if sent == JSON else 0
    wanted, content = await over_http.received(card, request, service, json=json, latest=version is None, rollout=True)
    body = Body(content, sent, media_type)
    frames, boundary = stream(service.predictor, wanted, body), secrets.token_hex(16)

    def part(content: bytes | memoryview, media_type: str, number: int, headers: Mapping[str, str]) -> bytes:
        length = str(len(content))
        lines = {"Content-Type": media_type, "Content-Length": length, "Petrov-Frame": str(number), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return b"".join((f"--{boundary}\r\n{head}\r\n".encode(), content, b"\r\n"))

    async def parts(frame: Frame[Written] | None) -> AsyncGenerator[bytes]:
        number = 0
        async with aclosing(frames):
            try:
                while frame is not None:
                    number = frame.number
                    yield part(frame.written.body, body.response_type, number, frame.written.headers)
                    frame = await anext(frames, None)
            except Problem as problem:
                service.metrics.rejected.labels(problem.kind).inc()
                request.scope["state"][PROBLEM] = problem.kind
                logger.warning("a rollout ends after frame %d: %s", number, problem.detail)
                document = written(problem.details().model_dump(exclude_none=True))
                yield part(document, MEDIA_TYPE, number + 1, problem.headers)
                request.scope["extensions"][BREAK_OFF]["call"]()
                return
        yield f"--{boundary}--\r\n".encode()

    content_parts = parts(await over_http.unless_disconnected(request, anext(frames)))
    # A client that leaves ends the computation at once.
    ending = BackgroundTask(content_parts.aclose)
    return StreamingResponse(content_parts, media_type=f"{MULTIPART}; boundary={boundary}", background=ending)


@calls.post("/v1/models/{model}/reference", **REFERENCE)
@requires(Scope.INFER)
async def reference(model: str, request: Request, service: Serving) -> Response:
    """Solve with the classical solver what `predict` predicts; 404 where the model's problem has no solver."""
    return await _predict(service.catalogue.find(model), request, service, reference=True)


@calls.post("/v1/models/{model}/vjp", **VJP)
@calls.post("/v1/models/{model}/versions/{version}/vjp", **VJP)
@requires(Scope.INFER)
async def vjp(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Return the outputs for inputs, and the gradients of the inner product of outputs and cotangents."""
    return await _predict(service.catalogue.derivative(model, "vjp", version), request, service, derivative=True)


@calls.post("/v1/models/{model}/jvp", **JVP)
@calls.post("/v1/models/{model}/versions/{version}/jvp", **JVP)
@requires(Scope.INFER)
async def jvp(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Return the outputs for inputs, and their derivatives along the tangents."""
    return await _predict(service.catalogue.derivative(model, "jvp", version), request, service, derivative=True)


@router.get("/v1/models", tags=["Models"])
@requires(Scope.INFER)
async def list_models(service: Serving) -> ModelList:
    """List the models that are served now, and what they are computed on."""
    return ModelList(models=tuple(service.catalogue.models()), device=service.device)


# A card has only the keys that were written.
@router.get("/v1/models/{model}", tags=["Models"], response_model_exclude_unset=True)
@requires(Scope.INFER)
async def describe_model(model: str, service: Serving) -> Model:
    """Return card, versions and export certificate of a model, and whether `reference` can solve its problem."""
    found = service.catalogue.model(model)
    return found.model_copy(update={"solver": service.classical.knows(found.card)})


@router.get(
    "/v1/models/{model}/example",
    tags=["Models"],
    response_model=Example,
    responses={200: {"content": dict.fromkeys((binary.NPY, binary.SAFETENSORS), over_http.BINARY)}},
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
    header `Petrov-Examples` of a stored sample counts all of them. In safetensors the true outputs are tensors
    `outputs.NAME`, which `predict` leaves out; `.npy` has the input alone.
    """
    card, sampled = service.catalogue.find(model), seed is not None or grid is not None
    media_type = over_http.response_type(request.headers, JSON)
    headers = {"Petrov-Model": card.model, "Petrov-Version": str(card.version)}
    if index is not None and sampled:
        detail = "index is a stored sample, seed and grid make a new one: send one or the other"
        raise Problem("invalid-parameter", detail)
    if index is not None or (not sampled and not service.classical.samples(card)):
        stored = service.settings.repository, card, index or 0
        inputs, truth, count = await asyncio.to_thread(stored_example, *stored)
        headers |= {"Petrov-Examples": str(count)}
    else:
        points = card.grid.declared[0] if grid is None else grid
        inputs, truth = await service.classical.example(card, points, seed or 0), None

    def write() -> bytes | memoryview:
        if media_type == JSON:
            return written({"inputs": inputs} | ({} if truth is None else {"outputs": truth}))
        if media_type == binary.SAFETENSORS:
            outputs = {f"{TRUTH}{name}": array for name, array in (truth or {}).items()}
            return binary.write_safetensors({**inputs, **outputs}, {})
        return _only_npy(inputs, "inputs")

    size = sum(array.nbytes for array in (*inputs.values(), *(truth or {}).values()))
    with over_http.counted(request, size * (1 + _GROWTH.get(media_type, TEXT_GROWTH))):
        return Response(await offload(size, write), media_type=media_type, headers=headers)


def stored_example(repository: Path, card: Card, index: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return a test sample of a version, its true outputs and the number of samples in `examples.safetensors`.

    The names of the tensors are the wire names of inputs and outputs (`labels` for a model of sequences); the first
    axis counts the samples.
    """
    path = repository / card.model / str(card.version) / EXAMPLES
    try:
        with system.opened(path) as file:
            truth, count = binary.read_sample(file, index)
        inputs = {name: truth.pop(name) for name in card.names if name in truth or name not in card.optional}
    except (OSError, ValueError, KeyError, Problem) as error:
        raise Problem("no-example", f'"{card.model}" version {card.version} has no stored examples') from error
    if index >= count:
        raise Problem("invalid-parameter", f"index is {index}; the model has {count} stored examples, counted from 0")
    return inputs, truth, count


@router.get("/health/live", tags=["Health"])
@requires(OPEN)
async def live() -> Liveness:
    """Return 200 while the process runs."""
    return Liveness()


@router.get("/health/ready", tags=["Health"], responses={503: {"model": Readiness}})
@requires(OPEN)
async def ready(service: Serving) -> JSONResponse:
    """Return 200 while every model is loaded and warm, or is loaded at its first use, until the gateway shuts down."""
    readiness = service.readiness()
    return JSONResponse(readiness.model_dump(exclude_none=True), 200 if readiness.ready else 503)


@router.get("/metrics", include_in_schema=False)
@requires(Scope.METRICS)
async def metrics(service: Serving) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _predict(card: Card, request: Request, service: Service, *, derivative: bool = False, **how: Any) -> Response:
    sent = over_http.request_type(request.headers)
    media_type = over_http.response_type(request.headers, sent)
    json = None if sent == JSON else 0
    wanted, content = await over_http.received(card, request, service, json=json, **how)
    body = Body(content, sent, media_type, derivative=derivative)
    spent = timing.start()
    found = await over_http.unless_disconnected(request, service.predictor.predict(wanted, body))
    return Response(found.body, media_type=body.response_type, headers={**found.headers, **timing.headers(spent)})


class Written(NamedTuple):
    """The body of a response, and the headers that say what is known about it."""

    body: bytes | memoryview
    headers: Mapping[str, str]


class Body:
    """The body of a `/v1` request and the writer of its response: an `Exchange` of `serving.inputs`.

    Outputs in JSON are encoded as the inputs were, in nested lists or in base64. The response of a derivative names the
    model that is differentiated, and has gradients of those inputs that the request sent. That of a parameter is one
    number per sample.

    Attributes:
        base64: Whether arrays in JSON are base64, as they are in the request.
        frames: How many it asks for.
        grid: The grid of the outputs that it asks for.
        counts: The points of every sample, where it has lists of unequal lengths; the response has such, too.
    """

    seconds: float | None = None

    def __init__(self, content: Buffer, request_type: str, response_type: str, *, derivative: bool = False) -> None:
        self._content = content
        self.size = len(content)
        self.growth = _GROWTH.get(response_type, TEXT_GROWTH)
        self.request_type, self.response_type, self._derivative = request_type, response_type, derivative
        self.base64 = False
        self.frames: int | None = None
        self.grid: tuple[int, ...] | None = None
        self.counts: list[int] | None = None
        self._sent: frozenset[str] = frozenset()

    def read(self, card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body by name; an .npy body holds the only one that is required."""
        names, optional = card.names, card.optional
        if self.request_type == binary.NPY:
            required = [name for name in names if name not in optional] or list(names)
            if len(required) != 1:
                detail = f"the model takes {', '.join(required)}: one .npy file cannot hold them, send {_SEVERAL}"
                raise Problem("unsupported-media-type", detail)
            return {required[0]: binary.read_npy(self._content, required[0], max_bytes)}
        if self.request_type == JSON:
            axis = card.grid.axes[0]
            on_points = {tensor.name: len(tensor.leading) for tensor in card.inputs if axis in tensor.axes}
            found = json_arrays.read(self._content, names, max_bytes, optional, on_points, cells.derivable(card))
            arrays, self.base64, (self.frames, self.grid, known), self.counts = found
            if known is not None and CELLS in names:
                raise Problem("wrong-input", f'"{CELLS}" is an input of the model, and belongs there')
            arrays |= {} if known is None else {CELLS: known}
        else:
            arrays = binary.read_safetensors(self._content, max_bytes)
            # A stored sample can be sent back as it came.
            arrays = {name: array for name, array in arrays.items() if not name.startswith(TRUTH) or name in names}
            cells.check_names(arrays, card)
        if self._derivative:
            role = f"{VECTORS[card.product.kind]}." if card.product else ""
            if not any(name.startswith(role) for name in arrays):
                expected = [name for name in names if name.startswith(role)]
                raise Problem("wrong-input", f"expected {' or '.join(expected)} but got none", array=expected[0])
            self._sent = frozenset(arrays)
        return arrays

    def write(self, card: Card, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Written:
        model = card.model
        if self._derivative:
            model = card.product.of if card.product else model
            outputs = {
                tensor.name: outputs[tensor.name][..., 0] if tensor.axes == PER_SAMPLE else outputs[tensor.name]
                for tensor in card.outputs
                if not tensor.name.startswith(GRADIENTS) or tensor.name.removeprefix(GRADIENTS) in self._sent
            }
        headers = {"Petrov-Model": model, "Petrov-Version": str(card.version), **quality.headers()}
        if self.response_type == binary.NPY:
            return Written(_only_npy(outputs, "outputs"), headers)
        if self.response_type == binary.SAFETENSORS:
            about = {"model": model, "version": str(card.version), "solved_by": quality.solved_by}
            return Written(binary.write_safetensors({**outputs, **quality.lists}, about), headers)
        axis = card.grid.axes[0]
        behind = {
            tensor.name: len(tensor.axes) - tensor.axes.index(axis) for tensor in card.outputs if axis in tensor.axes
        }
        members: dict[str, dict[str, Any]] = {}  # `gradients.source` is the member `source` of `gradients`
        for path, array in outputs.items():
            role, _, name = path.rpartition(".")
            value: Any = json_arrays.encode(array) if self.base64 else array if array.ndim else float(array)
            if self.counts and not self.base64 and path in behind:
                lead = (slice(None),) * (array.ndim - 1 - behind[path])  # of one frame, where frames are streamed
                samples = zip(array, self.counts, strict=True)
                value = [np.ascontiguousarray(each[*lead, :count]) for each, count in samples]
            members.setdefault(role or "outputs", {})[name] = value
        known = {"quality": quality.lists | {"solved_by": quality.solved_by}} if quality.known else {}
        return Written(written({"model": model, "version": card.version, **members, **known}), headers)


_SEVERAL = f"{JSON} or {binary.SAFETENSORS}"  # formats that hold more than one array


def _only_npy(named: Mapping[str, NDArray[Any]], role: str) -> bytes | memoryview:
    if len(named) != 1:
        detail = f"the model's {role} are {', '.join(named)}: one .npy file cannot hold them, accept {_SEVERAL}"
        raise Problem("not-acceptable", detail)
    [array] = named.values()
    return binary.write_npy(array)
