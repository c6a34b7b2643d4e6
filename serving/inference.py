"""The one seam to Triton: named float32 batches in, named float32 batches out.

`Inference` is all that the gateway knows of an inference server; `TritonInference` speaks gRPC to a real one. Tensor
names are the card's. Where a backend suffixes them (`solution__0`, TorchScript), the suffix ends here.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Protocol, Self

from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from serving.problem_details import (
    DeadlineExceeded,
    ModelFailed,
    ModelNotReady,
    Overloaded,
    Problem,
    TritonUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)
_ASKING_SECONDS = 5.0  # index and metadata are answered from memory
_SUFFIX = re.compile(r"__\d+$")


class Inference(Protocol):
    """An inference server; an asynchronous context manager, open while the gateway runs."""

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
        self,
        model: str,
        version: int,
        inputs: Mapping[str, NDArray[np.float32]],
        *,
        seconds: float,
        request_id: str = "",
    ) -> dict[str, NDArray[np.float32]]:
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

    Args:
        address: `HOST:PORT` of Triton's gRPC endpoint.
        message_bytes: The largest tensor batch that a message has to hold.
    """

    def __init__(self, address: str, message_bytes: int) -> None:
        self._address = address
        size = message_bytes + 2**20  # tensor and envelope
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
        self._client = InferenceServerClient(self._address, channel_args=self._options)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()

    async def loaded(self) -> frozenset[tuple[str, int]]:
        try:
            index = await self._client.get_model_repository_index(client_timeout=_ASKING_SECONDS)
        except InferenceServerException as error:
            raise TritonUnavailable(f"Triton at {self._address} does not answer") from error
        loaded = frozenset((entry.name, int(entry.version)) for entry in index.models if entry.state == "READY")
        self._names = {key: names for key, names in self._names.items() if key in loaded}
        return loaded

    async def infer(
        self,
        model: str,
        version: int,
        inputs: Mapping[str, NDArray[np.float32]],
        *,
        seconds: float,
        request_id: str = "",
    ) -> dict[str, NDArray[np.float32]]:
        try:
            wire = await self._wire_names(model, version)
            result = await self._client.infer(
                model,
                [_tensor(wire.get(name, name), array) for name, array in inputs.items()],
                model_version=str(version),
                request_id=request_id,
                timeout=max(1, int(seconds * 1e6)),  # Triton drops what waited longer in its queue
                client_timeout=seconds,
            )
        except InferenceServerException as error:
            raise _problem(error, model, version) from error
        names = [output.name for output in result.get_response().outputs]
        return {_SUFFIX.sub("", name): result.as_numpy(name) for name in names}

    async def _wire_names(self, model: str, version: int) -> dict[str, str]:
        """Triton's name of each input, by the card's."""
        names = self._names.get((model, version))
        if names is None:
            metadata = await self._client.get_model_metadata(model, str(version), client_timeout=_ASKING_SECONDS)
            names = {_SUFFIX.sub("", tensor.name): tensor.name for tensor in metadata.inputs}
            self._names[model, version] = names
        return names


def _tensor(name: str, array: NDArray[np.float32]) -> InferInput:
    return InferInput(name, list(array.shape), "FP32").set_data_from_numpy(array)


def _problem(error: InferenceServerException, model: str, version: int) -> Problem:
    """Triton's status and message as a problem; the message itself goes to the log, since it may hold a traceback."""
    status, message = str(error.status()), str(error.message())
    logger.warning("triton: %s version %d: %s: %s", model, version, status, message)
    if status == "StatusCode.DEADLINE_EXCEEDED" or "timeout expired" in message.lower():
        return DeadlineExceeded(f'"{model}" version {version} did not answer in time')
    if "maximum queue size" in message:
        return Overloaded(f'the queue of "{model}" is full')
    if status == "StatusCode.NOT_FOUND" or "not at ready state" in message or "unknown model" in message:
        return ModelNotReady(f'"{model}" version {version} is not loaded')
    if status in {"StatusCode.UNAVAILABLE", "StatusCode.CANCELLED"}:
        return TritonUnavailable("the inference server went away; try again in a moment")
    return ModelFailed(f'the inference server could not run "{model}" version {version}')
