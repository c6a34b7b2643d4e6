"""A Triton server over HTTP, as an `InferenceBackend`: the Open Inference Protocol with binary tensors.

HTTP, since gRPC in Python copies each message on both sides and waits for a thread on its way to the event loop;
`python -m benchmarks service` measures both.

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

from serving.errors import Problem
from serving.inference.shape_queue import RUN_BYTES
from serving.observability import telemetry
from serving.triton.http_client import HttpClient, InvalidReplyError

if TYPE_CHECKING:
    from types import TracebackType

    from serving.inference.backend import Batch
    from serving.triton.http_client import Buffer, Reply

logger = logging.getLogger(__name__)
SPLIT = "Inference-Header-Content-Length"
_ENVELOPE_BYTES = 2**20
_PROBE_SECONDS = 3.0  # index and metadata are in Triton's memory
_SUFFIX = re.compile(r"__\d+$")


class TritonInference:
    """A Triton server.

    Args:
        address: `HOST:PORT` of its HTTP endpoint.
        message_bytes: The largest output of one request.
    """

    def __init__(self, address: str, message_bytes: int) -> None:
        self.address = address
        self._http = HttpClient(address, SPLIT, max(message_bytes, RUN_BYTES) + _ENVELOPE_BYTES)
        self._names: dict[tuple[str, int], dict[str, str]] = {}
        self._warned = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.close()

    async def loaded(self) -> frozenset[tuple[str, int]]:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                reply = await self._http.request("POST", "/v2/repository/index", {})
            loaded = _ready(reply)
        except (InvalidReplyError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise Problem("triton-unavailable", self._warn_of_address()) from error
        except (OSError, TimeoutError) as error:
            raise Problem("triton-unavailable", f"Triton at {self.address} does not respond") from error
        self._warned = False
        self._names = {key: names for key, names in self._names.items() if key in loaded}
        return loaded

    async def infer(
        self, model: str, version: int, inputs: Batch, *, seconds: float, request_id: str = ""
    ) -> dict[str, NDArray[Any]]:
        path = f"/v2/models/{quote(model, safe='')}/versions/{version}"
        try:
            async with asyncio.timeout(seconds):
                names = self._names.get((model, version)) or await self._tensor_names(model, version, path)
                head = orjson.dumps(_head(names, inputs, seconds, request_id))
                headers = {SPLIT: str(len(head)), **(telemetry.outgoing.get() or {})}
                body: list[Buffer] = [head, *map(_bytes, inputs.values())]
                reply = await self._http.request("POST", f"{path}/infer", headers, body)
        except TimeoutError as error:
            raise Problem("deadline-exceeded", f'"{model}" version {version} did not respond in time') from error
        except OSError as error:
            logger.warning("triton at %s: %s version %d: %s", self.address, model, version, error)
            raise Problem(
                "triton-unavailable", "the connection to the inference server ended; try again in a moment"
            ) from error
        _check(reply, model, version)
        try:
            return _outputs(reply)
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(model, version, reply, error) from error

    async def _tensor_names(self, model: str, version: int, path: str) -> dict[str, str]:
        """Return Triton's name of each input by the card's name."""
        reply = await self._http.request("GET", path, {})
        _check(reply, model, version)
        try:
            inputs = [tensor["name"] for tensor in orjson.loads(reply.data)["inputs"]]
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(model, version, reply, error) from error
        names = self._names[model, version] = {_SUFFIX.sub("", name): name for name in inputs}
        return names

    def _warn_of_address(self) -> str:
        """Log, once and not at every probe, that the address is not a Triton's, and return the sentence."""
        fault = f"the server at {self.address} is not Triton's HTTP endpoint (port 8000 by default)"
        if not self._warned:
            logger.warning("%s", fault)
        self._warned = True
        return fault


def _ready(reply: Reply) -> frozenset[tuple[str, int]]:
    """Return the versions of Triton's index that are ready.

    Raises:
        Problem: triton-unavailable: Triton responded with an error.
        ValueError, TypeError, KeyError, AttributeError: The reply is no index.
    """
    index = orjson.loads(reply.data)
    if reply.status != 200:
        raise Problem("triton-unavailable", f"Triton's index of models: {reply.status}: {index['error'][:200]}")
    return frozenset((entry["name"], int(entry["version"])) for entry in index if entry.get("state") == "READY")


def _head(names: dict[str, str], inputs: Batch, seconds: float, request_id: str) -> dict[str, Any]:
    """Return the JSON head of a request, which describes the buffers that follow it."""
    return {
        "id": request_id,
        "inputs": [
            {
                "name": names.get(name, name),
                "datatype": np_to_triton_dtype(array.dtype),
                "shape": array.shape if array.ndim > 1 else (len(array), 1),  # Triton sends no tensor [batch]
                "parameters": {"binary_data_size": array.nbytes},
            }
            for name, array in inputs.items()
        ],
        # Triton drops requests that waited longer in its queue.
        "parameters": {"binary_data_output": True, "timeout": max(1, int(seconds * 1e6))},
    }


def _bytes(array: NDArray[Any]) -> memoryview:
    """Return the array's own memory, or that of a contiguous copy."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _outputs(reply: Reply) -> dict[str, NDArray[Any]]:
    """Return the tensors of a reply as views of its memory."""
    outputs, start, data = dict[str, NDArray[Any]](), 0, memoryview(reply.data)
    for tensor in orjson.loads(reply.head)["outputs"]:
        end = start + tensor["parameters"]["binary_data_size"]
        values = np.frombuffer(data[start:end], triton_to_np_dtype(tensor["datatype"]))
        outputs[_SUFFIX.sub("", tensor["name"])] = values.reshape(tensor["shape"])
        start = end
    return outputs


def _unreadable(model: str, version: int, reply: Reply, error: Exception) -> Problem:
    """Return the problem for the caller, with a note for the log of what was found instead of the protocol's JSON."""
    problem = Problem("model-failed", f'the inference server\'s reply for "{model}" version {version} cannot be read')
    problem.add_note(f"reply cannot be read ({error!r}): {(reply.head or reply.data)[:80]!r}")
    return problem


def _check(reply: Reply, model: str, version: int) -> None:
    """Raise Triton's error as a problem; its message is a note for the log, since it may hold a traceback.

    Args:
        reply: Triton's reply.
        model: Name of the model.
        version: Its version.

    Raises:
        Problem: The status is not 200.
    """
    if reply.status == 200:
        return
    text = (reply.head + reply.data)[:2000].decode("utf-8", "replace")
    problem = _problem(reply.status, text.lower(), model, version)
    problem.add_note(f"{reply.status}: {text}")
    raise problem


def _problem(status: int, message: str, model: str, version: int) -> Problem:
    if "timeout expired" in message:
        return Problem("deadline-exceeded", f'"{model}" version {version} did not respond in time')
    if "maximum queue size" in message:
        return Problem("overloaded", f'the queue of "{model}" is full')
    missing = "not at ready state" in message or "unknown model" in message
    ended = "stub process" in message and "is not healthy" in message  # of an instance, which Triton or we start anew
    if status == 404 or missing or ended:
        return Problem("model-not-ready", f'"{model}" version {version} is not loaded')
    if status in {499, 503}:
        return Problem("triton-unavailable", "the inference server is shutting down; try again in a moment")
    return Problem("model-failed", f'the inference server could not run "{model}" version {version}')
