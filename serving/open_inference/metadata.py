"""Metadata and configuration of the server and its models, made from their cards.

Each document is the JSON of `/v2` and has the fields of the gRPC message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import Field

from serving.catalogue.card import FRAME
from serving.document import Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from serving.catalogue.card import Card, Tensor
    from serving.catalogue.card import Parameter as Number

    Argument = Tensor | Number

SERVER = "petrov"
EXTENSIONS = ("binary_tensor_data", "model_configuration")
ANY = -1  # a size that the request decides


class ServerMetadata(Document):
    """`GET /v2`."""

    name: str = SERVER
    version: str
    extensions: tuple[str, ...] = EXTENSIONS


class ServerLive(Document):
    """`GET /v2/health/live`."""

    live: bool = True


class ServerReady(Document):
    """`GET /v2/health/ready`: 200 when `ready`, else 503."""

    ready: bool


class ModelReady(Document):
    """`GET /v2/models/{model}/ready`: 200, or the error that says why it is not."""

    name: str
    ready: bool = True


class TensorMetadata(Document):
    """One input, parameter or output; the first axis is the batch.

    `parameters` says what the protocol has no key for: axes, units, meaning, and the default of an input that may be
    left out.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: dict[str, Any] = Field(examples=[{"axes": ["batch"], "units": "m/s", "default": 0.0}])


class ModelMetadata(Document):
    """`GET /v2/models/{model}`."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


class TensorConfig(Document):
    """One input or output; the batch is not among `dims`."""

    name: str
    data_type: str
    dims: tuple[int, ...]


class Parameter(Document):
    """A value of the configuration; all of them are strings, as in Triton."""

    string_value: str


class ModelConfig(Document):
    """`GET /v2/models/{model}/config`: the part of Triton's configuration that clients use.

    The parameter `signature` is the part of the card that describes inputs, parameters, outputs and grids, as JSON; the
    parameter `vocabulary` of a model of sequences is its vocabulary.
    """

    name: str
    platform: str
    max_batch_size: int
    input: tuple[TensorConfig, ...]
    output: tuple[TensorConfig, ...]
    parameters: dict[str, Parameter]


class ErrorMessage(Document):
    """The body of every error under `/v2`."""

    error: str


def describe(card: Card, versions: Iterable[int]) -> ModelMetadata:
    """Return the metadata of a version, with all versions of the model that are served."""
    return ModelMetadata(
        name=card.model,
        versions=tuple(str(version) for version in versions),
        platform=card.format,
        inputs=tuple(_metadata(argument) for argument in card.arguments),
        outputs=(*(_metadata(tensor) for tensor in card.outputs), *_quality_metadata(card)),
    )


def configure(card: Card) -> ModelConfig:
    """Return the configuration of a version; its batch bounds one call of the model, not a request."""
    return ModelConfig(
        name=card.model,
        platform=card.format,
        max_batch_size=card.limits.batch,
        input=tuple(_config(argument) for argument in card.arguments),
        output=(*(_config(tensor) for tensor in card.outputs), *_quality_config(card)),
        parameters=_parameters(card),
    )


def _parameters(card: Card) -> dict[str, Parameter]:
    signature = card.model_dump(mode="json", include={"title", "inputs", "parameters", "outputs", "grid", "frames"}) | {
        "quality": card.known
    }
    found = {"signature": Parameter(string_value=json.dumps(signature))}
    if card.vocabulary is not None:
        found["vocabulary"] = Parameter(string_value=card.vocabulary.model_dump_json())
    return found


def _metadata(tensor: Argument) -> TensorMetadata:
    described = tensor.model_dump(mode="json", exclude={"name", "dtype", "shape"}, exclude_defaults=True)
    return TensorMetadata(
        name=tensor.name, datatype=tensor.dtype, shape=_sizes(tensor), parameters={"axes": tensor.axes, **described}
    )


def _quality_metadata(card: Card) -> Iterator[TensorMetadata]:
    """Yield what describes the numbers about outputs: one per sample, or one per frame of a trajectory."""
    size, axis = (ANY, FRAME) if card.frames else (1, "value")
    for name in card.known:
        yield TensorMetadata(name=name, datatype="FP32", shape=(ANY, size), parameters={"axes": ("batch", axis)})


def _quality_config(card: Card) -> Iterator[TensorConfig]:
    for name in card.known:
        yield TensorConfig(name=name, data_type="TYPE_FP32", dims=(ANY if card.frames else 1,))


def _config(tensor: Argument) -> TensorConfig:
    return TensorConfig(name=tensor.name, data_type=f"TYPE_{tensor.dtype}", dims=_sizes(tensor)[1:])


def _sizes(tensor: Argument) -> tuple[int, ...]:
    return tuple(ANY if points is None else points for points in tensor.sizes)
