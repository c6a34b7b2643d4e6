"""One Triton over HTTP: the Open Inference Protocol with binary tensors, and its repository API.

HTTP, since gRPC in Python copies each message on both sides and waits for a thread on its way to the event loop;
`python -m benchmarks service` measures both. Models are loaded over gRPC where its address is known, since a thread of
Triton's HTTP does nothing else until a model is loaded, and one thread may have all connections: while two models were
loaded by HTTP, no other call was answered for 17 s. By gRPC calls took as long as ever, and the loads 10 s.

Where a backend suffixes the names of tensors (`solution__0`, TorchScript), the suffix ends here.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

import grpc
import numpy as np
import orjson
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from serving import system
from serving.document import JSON_BYTES
from serving.errors import Problem
from serving.failures import NOT_ALLOWED, problem_of, silent, uncontrolled, unreadable
from serving.http_client import HttpClient, InvalidReplyError, LargeReplyError, Reply

logger = logging.getLogger(__name__)
Batch = Mapping[str, NDArray[Any]]
Outputs = dict[str, NDArray[Any]]
RUN_BYTES = 8 * 2**20  # of one call that is a part of a request: larger ones are no faster and delay other requests
#: A local Triton's shared memory holds inputs and outputs of three calls in each of two instances of some five models.
RUNS_IN_SHARED_MEMORY = 64
MERGED_BYTES = 2**18  # of the inputs of one run on a processor: more of them are no faster
KEY_HEADER = "petrov-key"  # of the calls that a local Triton allows its gateway alone
_ENVELOPE_BYTES = 2**20
_PROBE_SECONDS = 3.0  # the index is in Triton's memory
_UNLOAD_SECONDS = 10.0  # until it replies, which it does before it unloads
_LOAD_SECONDS = 600.0  # a load takes as long as the model; one that hangs is tried again, and does not block others
_UNLOAD_PAUSE = 0.02
_DENIED = (401, 403)  # without the key of its restricted APIs
_LOAD = "/inference.GRPCInferenceService/RepositoryModelLoad"
SPREAD_BYTES = 2**18  # of arrays that are copied before they are sent: milliseconds
_SUFFIX = re.compile(r"__\d+$")


@dataclass(frozen=True)
class Run:
    """What goes with every call of a model for one request, from `serving.predict` to Triton.

    Attributes:
        deadline: On the clock of the event loop: until then the caller waits, and Triton keeps a call in its queue.
        id: Of the request, for Triton's log and for the processor time of its calls.
        held: Whether the request holds the model already: a call goes on although the model is to leave.
        trace: The headers of the trace that the call belongs to.
    """

    deadline: float
    id: str = ""
    held: bool = False
    trace: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def within(cls, seconds: float) -> Self:
        """Return a run of no request, which ends in so many seconds."""
        return cls(asyncio.get_running_loop().time() + seconds)


class Triton:
    """A Triton server; an asynchronous context manager, open while the gateway runs.

    Args:
        address: `HOST:PORT` of its HTTP endpoint.
        message_bytes: The largest output of one request.
        key: Of its restricted APIs; empty where it has none.
        grpc_address: `HOST:PORT` of its gRPC, by which it loads models; empty: by HTTP.
        own: Whether it is a process of this user on this machine; nothing is sent to one of another user. Else nothing
            is sent to one of another user of this machine than it was at first.
    """

    def __init__(
        self, address: str, message_bytes: int, key: str = "", grpc_address: str = "", *, own: bool = False
    ) -> None:
        self.address, self._grpc_address = address, grpc_address
        self._check: Callable[[str], None] = system.require_own if own else system.SameUser()
        self.reply_bytes = max(message_bytes, RUN_BYTES)  # of all outputs of one call
        self.http = HttpClient(address, self.reply_bytes + _ENVELOPE_BYTES, lambda: self._check(address))
        self._key = {KEY_HEADER: key} if key else {}
        self._configurations: dict[tuple[str, int], _Configuration] = {}
        self._calls = set[asyncio.Task[Reply]]()
        self._warned, self._unlisted = False, ""
        self.loading = self.unloading = frozenset[str]()  # models, by the last index

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for call in self._calls:  # that have been abandoned
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self.http.close()

    async def ready_versions(self) -> dict[str, set[int]]:
        """Return the versions that can be run now of every model with any; note which models come and go."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                reply = await self.http.request("POST", "/v2/repository/index", self._key)
                # It lists every folder of the repository, also one whose name is not UTF-8.
                index = orjson.loads(reply.data.decode("utf-8", "replace"))
                if reply.status != 200:
                    index = await self._listed_by_statistics(reply.status, index["error"])
                else:
                    self._unlisted = ""
            ready: dict[str, set[int]] = {}
            self.loading, self.unloading = (
                frozenset(each["name"] for each in index if each.get("state") == state)
                for state in ("LOADING", "UNLOADING")
            )
            for each in index:
                if each.get("state") == "READY":
                    ready.setdefault(each["name"], set()).add(int(each["version"]))
        except (InvalidReplyError, ValueError, TypeError, KeyError, AttributeError) as error:
            fault = f"the server at {self.address} is not Triton's HTTP endpoint (port 8000 by default)"
            if not self._warned:  # once, and not at every probe
                logger.warning("%s", fault)
            self._warned = True
            raise Problem("triton-unavailable", fault) from error
        except OSError as error:
            raise silent(error, self.address) from error
        self._warned = False
        kept = {key: found for key, found in self._configurations.items() if key[1] in ready.get(key[0], ())}
        self._configurations = kept
        return ready

    async def _listed_by_statistics(self, status: int, error: str) -> list[dict[str, str]]:
        """Return the versions that can be run where the index fails, which is logged.

        For the index Triton looks at every entry of the repository, and one that it cannot look at, such as a link that
        leads nowhere, or a folder that goes in this moment, is an error for all. It runs what it has loaded, whose
        statistics it keeps in memory.
        """
        fault = f"Triton's index of models: {status}: {error[:200]}"
        if fault != self._unlisted:
            logger.warning("%s", fault)
        self._unlisted = fault
        if status in _DENIED:
            raise Problem("triton-unavailable", fault)
        reply = await self.http.request("GET", "/v2/models/stats", {})
        found = orjson.loads(reply.data).get("model_stats")
        if reply.status != 200 or found is None:
            raise Problem("triton-unavailable", fault)
        return [{"name": each["name"], "version": each["version"], "state": "READY"} for each in found]

    async def last_use(self, model: str) -> float | None:
        """Return how many seconds ago any client ran a model, by both machines' clocks; None where it never was."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                reply = await self.http.request("GET", f"/v2/models/{quote(model, safe='')}/stats", {})
            found = orjson.loads(reply.data).get("model_stats", ())
            last = max((int(each["last_inference"]) for each in found), default=0)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None  # the next look says whether Triton is lost
        return max(0.0, time.time() - last / 1e3) if last else None

    async def load(self, model: str, config: str | None = None) -> bool:
        """Load a model, or what has changed of it, with another configuration in JSON than that in the repository.

        False where this Triton loads no model on request, since it polls its repository. Where it cannot load the model
        (`model-failed`, with a note of the reason), what it had loaded stays.
        """
        document = {} if config is None else {"parameters": {"config": config}}
        try:
            if self._grpc_address:
                self._check(self._grpc_address)
                return await self._load_by_grpc(model, config)
            return await self._control(model, "load", document)
        except ConnectionRefusedError as error:
            raise silent(error, self._grpc_address) from error
        finally:  # its config may say other instances and other names now
            self._configurations = {key: each for key, each in self._configurations.items() if key[0] != model}

    async def unload(self, model: str, seconds: float = 0.0) -> bool:
        """Unload a model, and wait so long until it is gone: Triton replies before, and finishes its requests.

        Another gateway may have it loaded again meanwhile.
        """
        done = await self._control(model, "unload", {})
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self.ready_versions()
            if model not in self.unloading:
                break
            await asyncio.sleep(_UNLOAD_PAUSE)
        return done

    async def _control(self, model: str, action: str, document: dict[str, Any]) -> bool:
        path = f"/v2/repository/models/{quote(model, safe='')}/{action}"
        try:
            async with asyncio.timeout(_UNLOAD_SECONDS if action == "unload" else _LOAD_SECONDS):
                reply = await self.http.request("POST", path, self._key, [orjson.dumps(document)])
        except OSError as error:
            raise silent(error, self.address) from error
        return reply.status == 200 or uncontrolled(model, action, reply.status, reply.data.decode("utf-8", "replace"))

    async def _load_by_grpc(self, model: str, config: str | None) -> bool:
        request = service_pb2.RepositoryModelLoadRequest(model_name=model)
        if config is not None:
            request.parameters["config"].string_param = config
        key = [(f"triton-grpc-protocol-{name}", value) for name, value in self._key.items()]
        # A connection of its own, which is made anew although another one has just failed, and whatever proxy is set.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(self._grpc_address, options) as channel:
            call = channel.unary_unary(_LOAD, service_pb2.RepositoryModelLoadRequest.SerializeToString)
            try:
                await call(request, timeout=_LOAD_SECONDS, metadata=key)
            except grpc.aio.AioRpcError as error:
                code, text = error.code(), error.details() or ""
                if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise silent(TimeoutError(), self._grpc_address) from error
                if code is grpc.StatusCode.UNAVAILABLE and NOT_ALLOWED not in text:
                    raise silent(ConnectionError(), self._grpc_address) from error
                return uncontrolled(model, "load", code.name, text)
        return True

    async def infer(self, model: str, version: int, inputs: Batch, run: Run) -> Outputs:
        """Run a model once, with batches `[B, ...]` by the card's names, and return the outputs by the card's names."""
        try:
            async with asyncio.timeout_at(run.deadline):
                configuration = await self._configuration(model, version)
                most = configuration.most_samples * sum(array[:1].nbytes for array in inputs.values())
                size = sum(array.nbytes for array in inputs.values())
                await configuration.window.enter(size, most)
                # Once it has been sent, Triton is busy with it, whether the caller still waits or not.
                call = asyncio.create_task(self._infer(model, version, configuration.names, inputs, run))
                self._calls.add(call)
                call.add_done_callback(lambda _: configuration.window.leave(size))
                call.add_done_callback(self._ended)
                reply = await asyncio.shield(call)
        except TimeoutError as error:
            raise Problem("deadline-exceeded", f'"{model}" version {version} did not respond in time') from error
        except LargeReplyError as error:
            detail = f'"{model}" version {version}: {error}: send fewer points or frames'
            raise Problem("body-too-large", detail) from error
        except OSError as error:
            raise self._lost(model, version, error) from error
        if reply.status != 200:
            raise problem_of(reply, model, version)
        outputs: Outputs = {}
        start, data = 0, memoryview(reply.data)
        try:
            for tensor in orjson.loads(reply.head)["outputs"]:
                end = start + tensor["parameters"]["binary_data_size"]
                values = np.frombuffer(data[start:end], triton_to_np_dtype(tensor["datatype"]))  # a view
                outputs[unsuffixed(tensor["name"])] = values.reshape(tensor["shape"])
                start = end
        except (ValueError, TypeError, KeyError) as error:
            raise unreadable(model, version, reply, error) from error
        return outputs

    def _ended(self, call: asyncio.Task[Reply]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # asyncio would log one that no caller has awaited

    async def _infer(self, model: str, version: int, names: Mapping[str, str], inputs: Batch, run: Run) -> Reply:
        """Send what `run` says as members and headers of Triton's request."""
        described = [
            {
                "name": names.get(name, name),
                "datatype": np_to_triton_dtype(array.dtype),
                "shape": array.shape if array.ndim > 1 else (len(array), 1),  # Triton sends no tensor [batch]
                "parameters": {"binary_data_size": array.nbytes},
            }
            for name, array in inputs.items()
        ]
        # Triton drops requests that waited longer than `timeout` in its queue, if the model's config allows it to.
        seconds = run.deadline - asyncio.get_running_loop().time()
        parameters = {"binary_data_output": True, "timeout": max(1, int(seconds * 1e6))}
        head = orjson.dumps({"id": run.id, "inputs": described, "parameters": parameters})
        headers = {JSON_BYTES: str(len(head)), **run.trace}
        path = f"/v2/models/{quote(model, safe='')}/versions/{version}/infer"
        spread = sum(each.nbytes for each in inputs.values() if not each.flags.c_contiguous)
        async with asyncio.timeout_at(run.deadline):
            large = spread > SPREAD_BYTES  # the event loop serves others meanwhile
            buffers = await asyncio.to_thread(_buffers, inputs) if large else _buffers(inputs)
            return await self.http.request("POST", path, headers, [head, *buffers])

    async def instances(self, model: str, version: int) -> int:
        try:
            return (await self._configuration(model, version)).window.instances
        except OSError as error:
            raise self._lost(model, version, error) from error

    async def _configuration(self, model: str, version: int) -> _Configuration:
        if found := self._configurations.get((model, version)):
            return found
        path = f"/v2/models/{quote(model, safe='')}/versions/{version}/config"
        reply = await self.http.request("GET", path, {})
        if reply.status != 200:
            raise problem_of(reply, model, version)
        try:
            config = orjson.loads(reply.data)
            names = {unsuffixed(tensor["name"]): tensor["name"] for tensor in config["input"]}
            groups = config.get("instance_group", ())
            instances = sum(group.get("count", 1) * max(1, len(group.get("gpus", ()))) for group in groups)
            batch = int(config.get("max_batch_size", 0)) if any(group.get("gpus") for group in groups) else 0
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise unreadable(model, version, reply, error) from error
        # Two requests may have come here at one time.
        return self._configurations.setdefault((model, version), _Configuration(names, batch, Window(instances)))

    def _lost(self, model: str, version: int, error: OSError) -> Problem:
        logger.warning("triton at %s: %s version %d: %s", self.address, model, version, error)
        return Problem("triton-unavailable", "the connection to the inference server ended; try again in a moment")


def unsuffixed(name: str) -> str:
    """Return a card's name of a tensor by Triton's."""
    return _SUFFIX.sub("", name)


class Window:
    """The calls of one version that Triton has; further ones wait here, in order.

    Triton computes what has been sent to it by HTTP whether its client is still there or not (2.51; it notices clients
    of gRPC alone). What is abandoned while it waits here costs nothing. Triton has one call per instance and one more,
    so that none is idle; or more calls as long as they are small, so that it can merge them.
    """

    def __init__(self, instances: int) -> None:
        self.instances = max(1, instances)
        self._calls = self._bytes = 0
        self._waiting = deque[tuple[int, int, asyncio.Future[None]]]()

    async def enter(self, size: int, batch: int = 0) -> None:
        """Wait until a call of so many bytes of inputs has a place, which it keeps until `leave`.

        A run takes `batch` bytes at least, where the instances merge so much.
        """
        most = (self.instances + 1) * max(batch, MERGED_BYTES)
        if not self._waiting and self._fits(size, most):
            self._take(size)
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append((size, most, place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was given away in the same moment
                self.leave(size)
            raise

    def leave(self, size: int) -> None:
        self._calls -= 1
        self._bytes -= size
        while self._waiting:
            size, most, place = self._waiting[0]
            if not place.cancelled():
                if not self._fits(size, most):
                    return
                self._take(size)
                place.set_result(None)
            self._waiting.popleft()

    def _fits(self, size: int, most: int) -> bool:
        return self._calls <= self.instances or self._bytes + size <= most

    def _take(self, size: int) -> None:
        self._calls += 1
        self._bytes += size


@dataclass(frozen=True)
class _Configuration:
    """What is needed of Triton's configuration of a version.

    Attributes:
        names: Triton's names of the inputs by the card's.
        most_samples: How many the instances merge into one run; 0 where more than `MERGED_BYTES` are no faster.
        window: The calls that Triton has.
    """

    names: Mapping[str, str]
    most_samples: int
    window: Window


def _buffers(inputs: Batch) -> list[memoryview]:
    """Return the bytes of every input; those of a view that repeats numbers are made here, for one call only."""
    return [np.ascontiguousarray(each).reshape(-1).view(np.uint8).data for each in inputs.values()]
