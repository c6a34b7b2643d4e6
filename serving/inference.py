"""The one seam to Triton: named batches in, named batches out.

`Inference` is all that the gateway knows of an inference server; `TritonInference` speaks gRPC to a real one. Tensor
names are the card's. Where a backend suffixes them (`solution__0`, TorchScript), the suffix ends here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

import grpc
import numpy as np
from grpc import StatusCode
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from serving import telemetry
from serving.limits import RUN_BYTES
from serving.problem_details import (
    DeadlineExceeded,
    ModelFailed,
    ModelNotReady,
    Overloaded,
    Problem,
    TritonUnavailable,
)

if TYPE_CHECKING:
    from types import TracebackType

logger = logging.getLogger(__name__)
Batch = Mapping[str, NDArray[Any]]
_ASKING_SECONDS = 3.0  # index and metadata are answered from memory
_SUFFIX = re.compile(r"__\d+$")


class Inference(Protocol):
    """An inference server; an asynchronous context manager, open while the gateway runs.

    Attributes:
        address: Where it is, for people and metrics.
    """

    address: str

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def loaded(self) -> frozenset[tuple[str, int]]:
        """Every (model, version) that can be asked now.

        Raises:
            TritonUnavailable: The server does not answer.
        """
        ...

    async def infer(
        self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = ""
    ) -> dict[str, NDArray[Any]]:
        """One call of a model.

        Args:
            model: Name of the model.
            version: Which of its versions.
            inputs: Batches `[B, ...]`, by the names of the card.
            seconds: Time left; afterwards the server may drop the request.
            request_id: For the server's log.

        Returns:
            The outputs by the names of the card.

        Raises:
            Failed: One of its kinds, `TritonUnavailable` above all.
        """
        ...


class TritonInference:
    """A Triton server over gRPC: one channel, which reconnects by itself when the process behind the address is new.

    It speaks by the stub that Triton's client stands on, and not by that client, which copies each tensor once more.

    Args:
        address: `HOST:PORT` of Triton's gRPC endpoint.
        message_bytes: The largest question that a message has to hold, beside runs of several.
    """

    def __init__(self, address: str, message_bytes: int) -> None:
        self.address = address
        size = max(message_bytes, RUN_BYTES) + 2**20  # tensor and envelope
        self._options = [
            ("grpc.max_send_message_length", size),
            ("grpc.max_receive_message_length", size),
            # The default backs off to two minutes; a restarted Triton is back within seconds.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            # Channels to one address share a connection by default, and with it the state of a connection just lost.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._names: dict[tuple[str, int], dict[str, str]] = {}

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self.address, options=self._options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def loaded(self) -> frozenset[tuple[str, int]]:
        try:
            index = await self._stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(), timeout=_ASKING_SECONDS)
        except grpc.RpcError as error:
            raise TritonUnavailable(f"Triton at {self.address} does not answer") from error
        loaded = frozenset((entry.name, int(entry.version)) for entry in index.models if entry.state == "READY")
        self._names = {key: names for key, names in self._names.items() if key in loaded}
        return loaded

    async def infer(
        self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = ""
    ) -> dict[str, NDArray[Any]]:
        try:
            wire = await self._wire_names(model, version)
            request = service_pb2.ModelInferRequest(
                model_name=model,
                model_version=str(version),
                id=request_id,
                inputs=[_described(wire.get(name, name), array) for name, array in inputs.items()],
                raw_input_contents=[array.tobytes() for array in inputs.values()],
                # Triton drops what waited longer in its queue.
                parameters={"timeout": {"int64_param": max(1, int(seconds * 1e6))}},
            )
            trace = tuple((telemetry.outgoing.get() or {}).items())
            response = await self._stub.ModelInfer(request, timeout=seconds, metadata=trace)
        except grpc.RpcError as error:
            raise _problem(error, model, version) from error
        return {
            _SUFFIX.sub("", output.name): np.frombuffer(data, triton_to_np_dtype(output.datatype)).reshape(output.shape)
            for output, data in zip(response.outputs, response.raw_output_contents, strict=True)
        }

    async def _wire_names(self, model: str, version: int) -> dict[str, str]:
        """Triton's name of each input, by the card's."""
        names = self._names.get((model, version))
        if names is None:
            request = service_pb2.ModelMetadataRequest(name=model, version=str(version))
            metadata = await self._stub.ModelMetadata(request, timeout=_ASKING_SECONDS)
            names = {_SUFFIX.sub("", tensor.name): tensor.name for tensor in metadata.inputs}
            self._names[model, version] = names
        return names


def _described(name: str, array: NDArray[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": np_to_triton_dtype(array.dtype), "shape": array.shape}


def _problem(error: grpc.aio.AioRpcError, model: str, version: int) -> Problem:
    """Triton's status and message as a problem; the message itself goes to the log, since it may hold a traceback."""
    status, message = error.code(), error.details() or ""
    logger.warning("triton: %s version %d: %s: %s", model, version, status.name, message)
    if status is StatusCode.DEADLINE_EXCEEDED or "timeout expired" in message.lower():
        return DeadlineExceeded(f'"{model}" version {version} did not answer in time')
    if "maximum queue size" in message:
        return Overloaded(f'the queue of "{model}" is full')
    if status is StatusCode.NOT_FOUND or "not at ready state" in message or "unknown model" in message:
        return ModelNotReady(f'"{model}" version {version} is not loaded')
    if status in {StatusCode.UNAVAILABLE, StatusCode.CANCELLED}:
        return TritonUnavailable("the inference server went away; try again in a moment")
    return ModelFailed(f'the inference server could not run "{model}" version {version}')
