"""The wire format of gRPC, over the Open Inference Protocol: inputs to messages, replies to arrays. No connections.

The protocol carries the names, shapes and versions of a model. The gateway puts what its card says of inputs,
parameters, outputs and grids into the configuration, and the vocabulary of a sequence model; a plain Triton has only
the vocabulary.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import np_to_triton_dtype

from petrov_client._arrays import Arrays
from petrov_client._descriptions import readable, signature, vocabulary
from petrov_client._errors import InvalidResponse
from petrov_client._flow import Call, Perform
from petrov_client._identity import check_id, new_id
from petrov_client._models import ModelInfo
from petrov_client._quality import NOVELTY, OUTSIDE, Options, Response, is_quality, version_number
from petrov_client._schema import COMPONENT, ParameterInfo, TensorInfo
from petrov_client._untrusted import parsed, printable

#: Triton's PyTorch backend numbers its outputs by position: `solution__0`.
_POSITION = re.compile(r"__\d+$")


@dataclass(frozen=True)
class GrpcRequest:
    """A method of the service and its message; of a stream, the seconds for each response behind the first, else 0."""

    method: str
    message: Any
    further: float = 0.0


class GrpcWire:
    """The calls of the protocol."""

    def names(self) -> Call[list[str]]:
        """Return the call `RepositoryIndex`, which lists the models that are ready."""

        def read(index: Any) -> list[str]:
            return sorted({printable(model.name) for model in index.models if model.state == "READY"})

        return Call(GrpcRequest("RepositoryIndex", service_pb2.RepositoryIndexRequest()), read)

    async def model(self, name: str, version: int | None, perform: Perform) -> ModelInfo:
        """Perform the calls `ModelMetadata` and `ModelConfig`."""
        replies = []
        for method in ("ModelMetadata", "ModelConfig"):
            message = getattr(service_pb2, f"{method}Request")(name=name, version=_text(version))
            replies.append(await perform(Call(GrpcRequest(method, message), lambda reply: reply)))
        metadata, config = replies[0], replies[1].config
        with readable("the signature of a model"):
            versions = tuple(sorted(int(number) for number in metadata.versions))
            known = {
                key: parsed(config.parameters[key].string_value)
                for key in ("signature", "vocabulary")
                if key in config.parameters
            }
            return ModelInfo(
                name=printable(metadata.name),
                version=max(versions, default=1),
                versions=versions,
                batch=max(1, int(config.max_batch_size)),
                vocabulary=vocabulary(known["vocabulary"]) if known.get("vocabulary") is not None else None,
                **(signature(known["signature"]) if known.get("signature") is not None else _tensors(metadata)),
            )

    def prediction(self, info: ModelInfo, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `ModelInfer`."""
        return self._inference("ModelInfer", info, inputs, options)

    def rollout(self, info: ModelInfo, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `ModelStreamInfer`; it reads each response of the stream."""
        return self._inference("ModelStreamInfer", info, inputs, options, options.timeout)

    @staticmethod
    def _inference(
        method: str, info: ModelInfo, inputs: Arrays, options: Options, further: float = 0.0
    ) -> Call[Response]:
        shapes = {each.name: each.shape[1:] for each in info.parameters if None not in each.shape[1:]}
        tensors = {
            name: np.ascontiguousarray(array.reshape(len(array), *shapes.get(name, array.shape[1:])))
            for name, array in inputs.items()
        }
        message = service_pb2.ModelInferRequest(
            id=new_id(),
            model_name=info.name,
            model_version=_text(options.version),
            inputs=[
                {"name": name, "datatype": np_to_triton_dtype(array.dtype), "shape": array.shape}
                for name, array in tensors.items()
            ],
            raw_input_contents=[array.tobytes() for array in tensors.values()],
            parameters={name: {"string_param": text} for name, text in options.parameters.items()},
        )

        def read(response: Any) -> Response:
            check_id(message.id, response.id)
            return _response(response, info)

        return Call(GrpcRequest(method, message, further), read)


def _text(version: int | None) -> str:
    return "" if version is None else str(version)


def _tensors(metadata: Any) -> dict[str, Any]:
    """Return the tensors as a plain Triton describes them; a parameter is a tensor `[batch]` or `[batch, 1]`."""
    shapes = {printable(tensor.name): tuple(tensor.shape) for tensor in metadata.inputs}
    inputs, outputs = ([_tensor(tensor) for tensor in group] for group in (metadata.inputs, metadata.outputs))
    if not outputs:
        raise ValueError("expected outputs but got none")
    numbers = [name for name, shape in shapes.items() if shape in {(-1,), (-1, 1)}]
    return {
        "inputs": tuple(tensor for tensor in inputs if tensor.name not in numbers),
        "parameters": tuple(ParameterInfo(name, shape=(None, *shapes[name][1:])) for name in numbers),
        "outputs": tuple(tensor for tensor in outputs if not is_quality(tensor.name)),
        "quality": tuple(tensor.name for tensor in outputs if is_quality(tensor.name)),
    }


def _tensor(tensor: Any) -> TensorInfo:
    sizes = tuple(None if points < 0 else int(points) for points in list(tensor.shape)[1:])
    first, last = (sizes[end] is not None and None in sizes for end in (0, -1))  # only the grid's axes are free
    grid = (f"axis{number}" for number in range(1, len(sizes) + 1 - first - last))
    axes = (*(COMPONENT,) * first, *grid, *(COMPONENT,) * last)
    name = _POSITION.sub("", printable(tensor.name))
    return TensorInfo(name=name, axes=("batch", *axes), shape=(None, *sizes), dtype=printable(tensor.datatype))


def _response(response: Any, info: ModelInfo) -> Response:
    """Return the outputs of a model and their quality, each of exactly the bytes that its shape requires."""
    if not response.outputs or len(response.outputs) != len(response.raw_output_contents):
        raise InvalidResponse("expected outputs with binary contents but got none")
    found = {}
    for output, content in zip(response.outputs, response.raw_output_contents, strict=True):
        shape = tuple(int(points) for points in output.shape)
        if output.datatype != "FP32" or min(shape, default=0) < 1 or len(content) != 4 * math.prod(shape):
            raise InvalidResponse(f"expected FP32 {shape} but got {output.datatype} in {len(content)} bytes")
        found[_POSITION.sub("", output.name)] = np.frombuffer(content, dtype="<f4").reshape(shape)
    if missing := [tensor.name for tensor in info.outputs if tensor.name not in found]:
        raise InvalidResponse(f"expected the output {missing[0]} but got {', '.join(found)}")
    numbers = {
        name: found[name] if found[name].shape[1:] != (1,) else found[name][:, 0]  # or [batch, frame or component]
        for name in info.quality
        if name in found
    }
    by = response.parameters["solved_by"].string_param if "solved_by" in response.parameters else "network"
    return Response(
        {  # Triton sends no tensor [batch]
            tensor.name: found[tensor.name].reshape(-1) if tensor.axes == ("batch",) else found[tensor.name]
            for tensor in info.outputs
        },
        numbers,
        outside=bool((numbers.get(NOVELTY, np.ones(1)) < OUTSIDE).any()),
        solved_by=printable(by),
        version=version_number(response.model_version),
    )
