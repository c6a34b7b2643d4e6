"""What the Open Inference Protocol says of the server and of its models.

Each document is the JSON of `/v2`, and has the fields of the message of gRPC, which is made of it. The other way round,
`google.protobuf.json_format` would write sizes as strings ("-1"), as it does all 64-bit numbers, and clients of `/v2`
expect numbers; nor has it schemas for OpenAPI, or a member for what the messages have no field for (`parameters`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from schema.card import FRAME, Card, Parameter, Tensor
from serving.document import Document

ANY = -1  # a size that the request decides
FLOAT32 = "FP32"


class ServerMetadata(Document):
    """`GET /v2`."""

    name: str = "petrov"
    version: str
    extensions: tuple[str, ...] = ("binary_tensor_data", "model_configuration")


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
    """One output; the batch is not among `dims`."""

    name: str
    data_type: str
    dims: tuple[int, ...]


class InputConfig(TensorConfig):
    """One input or parameter; what has a default is `optional`."""

    optional: bool


class ModelConfig(Document):
    """`GET /v2/models/{model}/config`: the part of Triton's configuration that clients use.

    The parameter `signature` is the part of the card that describes inputs, parameters, outputs and grids, as JSON; the
    parameter `vocabulary` of a model of sequences is its vocabulary.
    """

    name: str
    platform: str
    max_batch_size: int
    input: tuple[InputConfig, ...]
    output: tuple[TensorConfig, ...]
    parameters: dict[str, dict[str, str]] = Field(examples=[{"signature": {"string_value": "{}"}}])


def describe(card: Card, versions: Iterable[int] = ()) -> ModelMetadata:
    """Return the metadata of a version, with all versions of the model that are served."""

    def tensor(each: Tensor | Parameter) -> TensorMetadata:
        shape = tuple(ANY if points is None else points for points in each.sizes)
        about = each.model_dump(exclude={"name", "dtype", "shape"}, exclude_none=True)
        parameters = {key: value for key, value in about.items() if value != ()}
        return TensorMetadata(name=each.name, datatype=each.dtype, shape=shape, parameters=parameters)

    # What is known about outputs is one number per sample, or one per frame of a trajectory.
    size, axis = (ANY, FRAME) if card.frames else (1, "value")
    known: dict[str, Any] = {"datatype": FLOAT32, "shape": (ANY, size), "parameters": {"axes": ("batch", axis)}}

    def quality(name: str) -> TensorMetadata:
        output = card.interval_of(name)
        if output is None:
            return TensorMetadata(name=name, **known)
        about = {"axes": output.axes if output.vector else ("batch", "value"), "units": output.units}
        shape = (ANY, *(output.vector or (1,)))
        return TensorMetadata(name=name, datatype=FLOAT32, shape=shape, parameters=about)

    return ModelMetadata(
        name=card.model,
        versions=tuple(str(version) for version in versions),
        platform=card.format,
        inputs=tuple(map(tensor, card.arguments)),
        outputs=(*map(tensor, card.outputs), *map(quality, card.known)),
    )


def unknown(
    card: Card, names: Collection[str], outputs: Mapping[str, NDArray[np.float32]], samples: int
) -> dict[str, NDArray[np.float32]]:
    """Return NaN for quality outputs, in their shapes beside these outputs of so many samples."""
    lead = card.outputs[0]
    frames = outputs[lead.name].shape[1 - len(lead.axes)] if card.frames else 1  # one sample may have no batch axis
    found = {tensor.name: tensor.shape[1:] for tensor in describe(card).outputs if tensor.name in names}
    shapes = {name: (frames if size == ANY else size for size in shape) for name, shape in found.items()}
    return {name: np.full((samples, *shape), np.nan, np.float32) for name, shape in shapes.items()}


def configure(card: Card) -> ModelConfig:
    """Return the configuration of a version; its batch bounds one call of the model, not a request."""

    def tensor(each: TensorMetadata) -> dict[str, Any]:
        return {"name": each.name, "data_type": f"TYPE_{each.datatype}", "dims": each.shape[1:]}

    metadata = describe(card)
    described = {"title", "inputs", "parameters", "outputs", "grid", "mask", "frames"}
    signature = card.model_dump(mode="json", include=described) | {"quality": card.known}
    parameters = {"signature": {"string_value": json.dumps(signature)}}
    if card.vocabulary is not None:
        parameters["vocabulary"] = {"string_value": card.vocabulary.model_dump_json()}
    return ModelConfig(
        name=card.model,
        platform=card.format,
        max_batch_size=card.limits.batch,
        input=tuple(InputConfig(**tensor(each), optional="default" in each.parameters) for each in metadata.inputs),
        output=tuple(TensorConfig(**tensor(each)) for each in metadata.outputs),
        parameters=parameters,
    )
