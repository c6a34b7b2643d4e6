"""Arrays of a body of `POST /v2/…/infer`, and the body of its response: JSON, with tensors in it or as bytes after it.

    {"inputs": [{"name", "shape", "datatype", "parameters": {"binary_data_size": 4}, "data": […]}], "outputs": …}<bytes>

Where bytes follow, the header `Inference-Header-Content-Length` says where the JSON ends, in both directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError

from serving.codecs import buffers, json_arrays
from serving.errors import Problem
from serving.open_inference import tensors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from serving.quality import Quality

MAX_TENSORS = 64  # more tensors than any model has
Size = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=256)]
_BOUNDED = (Field(max_length=MAX_TENSORS), FailFast())  # pydantic would describe a million errors one by one


class _Part(BaseModel):
    """A document of the protocol; keys that the gateway does not use are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Named(_Part):
    name: Name
    parameters: dict[str, Any] = {}


class InputTensor(_Named):
    """An input: its data as a flat or nested list, or `binary_data_size` bytes after the JSON."""

    shape: Annotated[tuple[Size, ...], *_BOUNDED]
    datatype: Name = Field(examples=[tensors.FLOAT32])
    data: Any = Field(default=None, description="Numbers, in row-major order.")


class RequestedOutput(_Named):
    """An output that is wanted; the parameter `binary_data` says whether as bytes."""


class InferenceRequest(_Part):
    """`POST /v2/models/{model}/infer`."""

    id: Annotated[str, Field(max_length=1024)] = ""
    parameters: dict[str, Any] = Field(
        default={}, description="`binary_data_output`, and `frames` for models of trajectories."
    )
    inputs: Annotated[tuple[InputTensor, ...], Field(min_length=1), *_BOUNDED]
    outputs: Annotated[tuple[RequestedOutput, ...], *_BOUNDED] = ()


class OutputTensor(_Part):
    """An output, encoded as requested: `data`, or `binary_data_size` bytes after the JSON."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: dict[str, int] | None = None
    data: list[float | None] | None = None


class InferenceResponse(_Part):
    """The response in JSON."""

    id: str | None = None
    model_name: str
    model_version: str
    parameters: dict[str, str] | None = Field(
        default=None, description="`solved_by`: network, solver or mixed; `failed`: indices."
    )
    outputs: tuple[OutputTensor, ...]


@dataclass(frozen=True)
class Reply:
    """The body of a response, and where its JSON ends if bytes follow."""

    body: bytes
    json_bytes: int | None


class RestExchange:
    """A request of `/v2` and the writer of its response: an `Exchange` of `serving.predict`.

    Args:
        content: The request's body.
        json_bytes: Where its JSON ends; None for all of it.
        outputs: The outputs of the model.

    Attributes:
        frames: How many frames of a trajectory its parameters ask for; None where the query may say it.
    """

    def __init__(self, content: bytearray, json_bytes: int | None, outputs: Sequence[str]) -> None:
        self.size = len(content)
        self._content = content
        self._json_bytes = len(content) if json_bytes is None else json_bytes
        self._outputs = outputs
        self.frames: int | None = None

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body.

        Raises:
            Problem: The body does not hold the inputs of the model.
        """
        self._request = request = _parsed(self._content, self._json_bytes)
        self.frames = _frames(request.parameters.get("frames"))
        tensors.check_inputs([tensor.name for tensor in request.inputs], names, optional)
        tensors.check_outputs([output.name for output in request.outputs], self._outputs)
        for tensor in (*request.inputs, *request.outputs):
            tensors.check_parameters(tensor.parameters, tensor.name)
        return _arrays(request.inputs, memoryview(self._content)[self._json_bytes :], max_bytes)

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Reply:
        """Return the response with the requested outputs, or all of them if none is named."""
        request, results = self._request, tensors.results(outputs, quality)
        default = request.parameters.get("binary_data_output") is True
        requested = {output.name: output.parameters.get("binary_data", default) is True for output in request.outputs}
        written: list[dict[str, Any]] = []
        tail: list[bytes] = []
        for name, binary in (requested or dict.fromkeys(results, default)).items():
            array = np.ascontiguousarray(results[name], "<f4")
            if binary:
                tail.append(array.tobytes())
            coded = {"parameters": {"binary_data_size": array.nbytes}} if binary else {"data": array.reshape(-1)}
            written.append({"name": name, "datatype": tensors.FLOAT32, "shape": array.shape, **coded})
        document: dict[str, Any] = {"model_name": model, "model_version": str(version), "outputs": written}
        if about := tensors.about(quality):
            document["parameters"] = about
        echoed = {"id": request.id} if request.id else {}
        text = orjson.dumps(echoed | document, option=orjson.OPT_SERIALIZE_NUMPY)
        return Reply(b"".join((text, *tail)), len(text) if tail else None)


def _parsed(content: bytearray, json_bytes: int) -> InferenceRequest:
    if json_bytes > len(content):
        raise Problem(
            "unreadable-body", f"Inference-Header-Content-Length is {json_bytes}, but the body has {len(content)} bytes"
        )
    try:
        return InferenceRequest.model_validate(orjson.loads(memoryview(content)[:json_bytes]))
    except orjson.JSONDecodeError as error:
        raise Problem(
            "unreadable-body", f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        location = ".".join(str(key)[:32] for key in first["loc"]) or "the JSON body"
        raise Problem("unreadable-body", f"{location}: {first['msg']}") from error


def _frames(value: Any) -> int | None:
    """Return the parameter `frames`.

    Raises:
        Problem: invalid-parameter: It is no number of frames.
    """
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise Problem("invalid-parameter", f"frames: expected a whole number from 1 but got {str(value)[:32]}")


def _arrays(inputs: Sequence[InputTensor], tail: memoryview, max_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of the inputs; those in bytes follow one another without a gap."""
    found: dict[str, NDArray[Any]] = {}
    position = 0
    for tensor in inputs:
        if "binary_data_size" not in tensor.parameters:
            found[tensor.name] = _listed(tensor, max_bytes)
            continue
        size = _binary_size(tensor, len(tail) - position)
        data = tail[position : position + size]
        dtype = tensors.dtype(tensor.datatype, tensor.name)
        found[tensor.name] = buffers.view(data, dtype, tensor.shape, tensor.name, max_bytes, "binary_data_size")
        position += size
    if position != len(tail):
        raise Problem("unreadable-body", f"{len(tail) - position} bytes follow the last tensor")
    return found


def _binary_size(tensor: InputTensor, left: int) -> int:
    size = tensor.parameters["binary_data_size"]
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= left:
        raise Problem(
            "unreadable-body", f"{tensor.name}: binary_data_size is {str(size)[:32]}, but {left} bytes follow the JSON"
        )
    return size


def _listed(tensor: InputTensor, max_bytes: int) -> NDArray[Any]:
    """Return the array of a list of numbers, flat or nested as its shape; integers only if its datatype is one."""
    dtype = tensors.dtype(tensor.datatype, tensor.name)
    values = json_arrays.nested(tensor.data, tensor.name)
    values = values if dtype.kind in "iu" else values.astype(np.float64, copy=False)
    if values.size != math.prod(tensor.shape):
        raise Problem(
            "wrong-shape",
            f"{tensor.name}: data has {values.size} numbers, not those of shape {str(list(tensor.shape))[:256]}",
            array=tensor.name,
        )
    if values.size * 4 > max_bytes:
        raise Problem(
            "body-too-large", f"{tensor.name}: {values.size} numbers take more than {max_bytes} bytes as float32"
        )
    return buffers.shaped(values, tensor.shape, tensor.name)
