"""A Triton server over HTTP, as an `Inference`: the Open Inference Protocol with binary tensors.

Over HTTP, since gRPC in Python copies a message on each side, and lets it wait for a thread on its way to the event
loop: `python -m benchmarks overhead` has both roads to Triton.

Where a backend suffixes the names of tensors (`solution__0`, TorchScript), the suffix ends here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import numpy as np
import orjson
from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from serving.http.limits import RUN_BYTES
from serving.observability import telemetry
from serving.problem_details import (
    DeadlineExceeded,
    ModelFailed,
    ModelNotReady,
    Overloaded,
    Problem,
    TritonUnavailable,
)
from serving.triton.http_connection import HttpConnections, NotHttpError

if TYPE_CHECKING:
    from types import TracebackType

    from serving.inference.backend import Batch
    from serving.triton.http_connection import Answer, Buffer

logger = logging.getLogger(__name__)
SPLIT = "Inference-Header-Content-Length"
_ENVELOPE_BYTES = 2**20
_ASKING_SECONDS = 3.0  # index and metadata are answered from memory
_SUFFIX = re.compile(r"__\d+$")


class TritonInference:
    """A Triton server.

    Args:
        address: `HOST:PORT` of its HTTP endpoint.
        message_bytes: The largest answer that a message has to hold, beside runs of several.
    """

    def __init__(self, address: str, message_bytes: int) -> None:
        self.address = address
        size = max(message_bytes, RUN_BYTES) + _ENVELOPE_BYTES
        self._connections = HttpConnections(address, SPLIT.lower().encode(), size)
        self._names: dict[tuple[str, int], dict[str, str]] = {}
        self._warned = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connections.close()

    async def loaded(self) -> frozenset[tuple[str, int]]:
        try:
            async with asyncio.timeout(_ASKING_SECONDS):
                answer = await self._connections.ask("POST", "/v2/repository/index", {})
            index = orjson.loads(answer.data)
            loaded = frozenset((entry["name"], int(entry["version"])) for entry in index if _ready(entry))
        except (NotHttpError, ValueError, TypeError, KeyError) as error:
            fault = f"what answers at {self.address} is no Triton; its HTTP port is expected, 8000 by default"
            if not self._warned:  # once, and not at every look
                logger.warning("%s", fault)
            self._warned = True
            raise TritonUnavailable(fault) from error
        except (OSError, TimeoutError) as error:
            raise TritonUnavailable(f"Triton at {self.address} does not answer") from error
        self._warned = False
        self._names = {key: names for key, names in self._names.items() if key in loaded}
        return loaded

    async def infer(
        self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = ""
    ) -> dict[str, NDArray[Any]]:
        path = f"/v2/models/{quote(model, safe='')}/versions/{version}"
        try:
            async with asyncio.timeout(seconds):
                names = self._names.get((model, version)) or await self._wire_names(model, version, path)
                head = orjson.dumps(_question(names, inputs, seconds, request_id))
                headers: dict[str, str | int] = {SPLIT: len(head), **(telemetry.outgoing.get() or {})}
                parts: list[Buffer] = [head, *map(_bytes, inputs.values())]
                answer = await self._connections.ask("POST", f"{path}/infer", headers, parts)
        except TimeoutError as error:
            raise DeadlineExceeded(f'"{model}" version {version} did not answer in time') from error
        except OSError as error:
            logger.warning("triton at %s: %s version %d: %s", self.address, model, version, error)
            raise TritonUnavailable("the inference server went away; try again in a moment") from error
        _check(answer, model, version)
        return _outputs(answer)

    async def _wire_names(self, model: str, version: int, path: str) -> dict[str, str]:
        """Triton's name of each input, by the card's."""
        answer = await self._connections.ask("GET", path, {})
        _check(answer, model, version)
        names = {_SUFFIX.sub("", tensor["name"]): tensor["name"] for tensor in orjson.loads(answer.data)["inputs"]}
        self._names[model, version] = names
        return names


def _ready(entry: dict[str, str]) -> bool:
    return entry.get("state") == "READY"


def _question(names: dict[str, str], inputs: Batch, seconds: float, request_id: str) -> dict[str, Any]:
    """The head of a request: what the bytes behind it are."""
    return {
        "id": request_id,
        "inputs": [
            {
                "name": names.get(name, name),
                "datatype": np_to_triton_dtype(array.dtype),
                "shape": array.shape,
                "parameters": {"binary_data_size": array.nbytes},
            }
            for name, array in inputs.items()
        ],
        # Triton drops what waited longer in its queue.
        "parameters": {"binary_data_output": True, "timeout": max(1, int(seconds * 1e6))},
    }


def _bytes(array: NDArray[Any]) -> memoryview:
    """The array's own memory, unless its values do not lie one after another there."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _outputs(answer: Answer) -> dict[str, NDArray[Any]]:
    """The tensors of an answer, in its memory."""
    outputs, start = dict[str, NDArray[Any]](), 0
    for tensor in orjson.loads(answer.head)["outputs"]:
        end = start + tensor["parameters"]["binary_data_size"]
        values = np.frombuffer(answer.data[start:end], triton_to_np_dtype(tensor["datatype"]))
        outputs[_SUFFIX.sub("", tensor["name"])] = values.reshape(tensor["shape"])
        start = end
    return outputs


def _check(answer: Answer, model: str, version: int) -> None:
    """Raise Triton's error as a problem; its message goes to the log, since it may hold a traceback.

    Raises:
        Problem: One of its kinds.
    """
    status = answer.status
    if status == 200:
        return
    message = bytes(answer.head) + bytes(answer.data)
    text = message[:2000].decode("utf-8", "replace")
    logger.warning("triton: %s version %d: %d: %s", model, version, status, text)
    raise _problem(status, text.lower(), model, version)


def _problem(status: int, message: str, model: str, version: int) -> Problem:
    if "timeout expired" in message:
        return DeadlineExceeded(f'"{model}" version {version} did not answer in time')
    if "maximum queue size" in message:
        return Overloaded(f'the queue of "{model}" is full')
    if status == 404 or "not at ready state" in message or "unknown model" in message:
        return ModelNotReady(f'"{model}" version {version} is not loaded')
    if status in {499, 503}:
        return TritonUnavailable("the inference server went away; try again in a moment")
    return ModelFailed(f'the inference server could not run "{model}" version {version}')
