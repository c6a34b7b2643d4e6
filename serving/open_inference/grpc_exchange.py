"""The arrays of a `ModelInferRequest`, and a `ModelInferResponse` of arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from tritonclient.grpc import service_pb2

from serving.codecs import buffers
from serving.errors import Problem
from serving.open_inference import tensors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from serving.quality import Quality

# Small integers travel as larger ones.
_CONTENTS: Mapping[str, tuple[str, type[Any]]] = {
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
    "INT64": ("int64_contents", np.int64),
    "UINT64": ("uint64_contents", np.uint64),
    **{f"INT{bits}": ("int_contents", np.int32) for bits in (8, 16, 32)},
    **{f"UINT{bits}": ("uint_contents", np.uint32) for bits in (8, 16, 32)},
}


class GrpcExchange:
    """A request over gRPC and the writer of its response: an `Exchange` of `serving.predict`.

    Args:
        request: The message.
        size: Its bytes.
        outputs: The outputs of the model.
    """

    frames: int | None = None  # a parameter of the request says it

    def __init__(self, request: Any, size: int, outputs: Sequence[str]) -> None:
        self.size = size
        self._request = request
        self._outputs = outputs

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the message: its raw contents, or else its typed ones.

        Raises:
            Problem: The message does not hold the inputs of the model.
        """
        request = self._request
        tensors.check_inputs([tensor.name for tensor in request.inputs], names, optional)
        tensors.check_outputs([output.name for output in request.outputs], self._outputs)
        for tensor in (*request.inputs, *request.outputs):
            tensors.check_parameters(tensor.parameters, tensor.name)
        contents = request.raw_input_contents
        if not contents:
            return {tensor.name: _typed(tensor, max_bytes) for tensor in request.inputs}
        if len(contents) != len(request.inputs):
            raise Problem("unreadable-body", f"{len(contents)} raw_input_contents for {len(request.inputs)} inputs")
        return {
            tensor.name: _raw(tensor, data, max_bytes) for tensor, data in zip(request.inputs, contents, strict=True)
        }

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Any:
        """Return the message with the requested outputs, or all of them if none is named."""
        results = tensors.results(outputs, quality)
        requested = [output.name for output in self._request.outputs] or list(results)
        described = [{"name": name, "datatype": tensors.FLOAT32, "shape": results[name].shape} for name in requested]
        contents = [np.ascontiguousarray(results[name], "<f4").tobytes() for name in requested]
        return service_pb2.ModelInferResponse(
            id=self._request.id,
            model_name=model,
            model_version=str(version),
            outputs=described,
            raw_output_contents=contents,
            parameters={name: {"string_param": text} for name, text in tensors.about(quality).items()},
        )


def _raw(tensor: Any, data: bytes, max_bytes: int) -> NDArray[Any]:
    dtype = tensors.dtype(tensor.datatype, tensor.name)
    if tensor.HasField("contents"):
        raise Problem("unreadable-body", f"{tensor.name}: contents beside raw_input_contents")
    return buffers.view(data, dtype, tensor.shape, tensor.name, max_bytes, "raw_input_contents")


def _typed(tensor: Any, max_bytes: int) -> NDArray[Any]:
    tensors.dtype(tensor.datatype, tensor.name)
    field, dtype = _CONTENTS[tensor.datatype]
    values = getattr(tensor.contents, field)
    if len(values) * 4 > max_bytes:
        raise Problem(
            "body-too-large", f"{tensor.name}: {len(values)} numbers take more than {max_bytes} bytes as float32"
        )
    if len(values) != math.prod(tensor.shape):
        raise Problem(
            "wrong-shape",
            f"{tensor.name}: {field} has {len(values)} numbers, not those of shape {str(list(tensor.shape))[:256]}",
            array=tensor.name,
        )
    return buffers.shaped(np.fromiter(values, dtype, len(values)), tensor.shape, tensor.name)
