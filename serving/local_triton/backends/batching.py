"""What both backends share, copied beside each: the config of a model, and one run for all requests of a Triton batch.

Triton merges requests of equal shape and with the same inputs only, so their arrays always concatenate.
"""  # noqa: INP001 - a folder for Triton, not a package

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb
from device import check_kind  # type: ignore[import-not-found]  # copied beside it

Array = np.ndarray[Any, Any]

#: The largest run on a processor: values of an input, and samples of two axes or more, since a network resamples them
#: to its own grids. An instance keeps the memory of its largest run for ever: a batch of 64 samples of 141 x 141 left
#: 1.0 GiB with each instance of `darcy`; in pieces it leaves 0.15 GiB and takes no longer.
VALUES, SAMPLES = 2**17, 4
#: A Unix socket of the gateway for the processor seconds of requests with an id, as datagrams `SECONDS ID`.
TIMES = os.environ.get("TRITON_TIMES", "")
DEFAULT = "default."  # a parameter of the config: the value everywhere of an input that a request leaves out


class Model:
    """One instance of one version of one model; a backend opens its file, and runs it.

    Attributes:
        config: Triton's config of the model.
        inputs: Names of the inputs, in the order in which `run` takes them.
        outputs: Names of the outputs, in the order in which it returns them.
    """

    file_name: str

    def initialize(self, args: dict[str, str]) -> None:
        """Open the version's file; `model_repository` is the model's own folder, `model_config` JSON."""
        self.config = config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self._defaults = {
            name.removeprefix(DEFAULT): float(value) for name, value in parameters.items() if name.startswith(DEFAULT)
        }
        self.inputs, self.outputs = ([tensor["name"] for tensor in config[role]] for role in ("input", "output"))
        # The axes of each input behind the batch, as the model sees them; -1 where a request decides the size.
        self._dims: dict[str, list[int]] = {
            each["name"]: list(map(int, each.get("reshape", {}).get("shape", each["dims"]))) for each in config["input"]
        }
        self._batched = config["max_batch_size"] > 0
        check_kind(args["model_instance_kind"], Path(args["model_repository"], "config.pbtxt"))
        gpu = int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None
        self._piecewise = self._batched and gpu is None
        self._times = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        name = config["default_model_filename"] or self.file_name
        self.open(Path(args["model_repository"], args["model_version"], name), parameters, gpu)

    def open(self, file: Path, parameters: dict[str, str], gpu: int | None) -> None:
        """Open the file on a GPU or, without its number, on the processor, with the parameters of the config."""
        raise NotImplementedError

    def run(self, arrays: Sequence[Array]) -> Sequence[Array]:
        raise NotImplementedError

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return a response per request, and tell the gateway before how much processor time it took."""
        started = time.process_time()  # of all threads of this process, which runs one instance
        responses = self._responses(requests)
        seconds = time.process_time() - started
        sizes = [math.prod(request.inputs()[0].shape()) for request in requests]  # merged requests share it by these
        per_value, names = seconds / (sum(sizes) or 1), [request.request_id() for request in requests]
        if TIMES and any(names):
            with suppress(OSError):  # the service does not listen, or not as fast as requests are run
                self._send([(name, per_value * size) for name, size in zip(names, sizes, strict=True) if name])
        return responses

    def _send(self, times: list[tuple[str, float]]) -> None:
        """Send the seconds of requests by their ids.

        The socket's address names its folder by a descriptor, since it has at most 107 bytes and a path may have more.
        """
        folder = os.open(Path(TIMES).parent, os.O_PATH)
        try:
            for name, seconds in times:
                self._times.sendto(f"{seconds:.9f} {name}".encode(), f"/proc/self/fd/{folder}/{Path(TIMES).name}")
        finally:
            os.close(folder)

    def _responses(self, requests: list[Any]) -> list[Any]:
        """Return a response per request: from one run for all of them or, where that fails, from a run per request."""
        try:
            feeds = [self._feed(request) for request in requests]
        except ValueError as error:  # the same for all of them, since they have the same inputs
            return [pb.InferenceResponse(error=pb.TritonError(str(error))) for _ in requests]
        if self._batched and len(feeds) > 1:
            try:
                merged = self._run([np.concatenate(arrays) for arrays in zip(*feeds, strict=True)], requests)
            except CancelledError as error:
                return [error.response() for _ in requests]
            except Exception as error:  # noqa: BLE001 - each request is then run alone
                pb.Logger.log_verbose(f"a batch of {len(feeds)} requests is run one by one: {error}")
            else:
                ends = np.cumsum([len(feed[0]) for feed in feeds])[:-1]
                return [self._response(parts) for parts in zip(*(np.split(each, ends) for each in merged), strict=True)]
        responses = []
        for index, (request, feed) in enumerate(zip(requests, feeds, strict=True)):
            try:
                if index:
                    check([request])
                responses.append(self._response(self._run(feed, [request])))
            except CancelledError as error:
                responses.append(error.response())
            except Exception as error:  # noqa: BLE001 - an error is this request's response, and the server goes on
                text = str(error) or type(error).__name__  # a MemoryError has none
                responses.append(pb.InferenceResponse(error=pb.TritonError(text)))
        return responses

    def _feed(self, request: Any) -> list[Array]:
        """Return the inputs of a request; one that is left out has its default, on the grid of those that are sent."""
        tensors = {name: pb.get_input_tensor_by_name(request, name) for name in self.inputs}
        arrays = {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}
        missing = [name for name in tensors if name not in arrays]
        if required := [name for name in missing if name not in self._defaults]:
            raise ValueError(f'the input "{required[0]}" is missing')  # which Triton allows where any may be left out
        if missing:
            lead = max(arrays, key=lambda name: self._dims[name].count(-1))
            count, *sizes = arrays[lead].shape
            free = [size for size, dim in zip(sizes, self._dims[lead], strict=True) if dim == -1]
            for name in missing:
                dims = self._dims[name]
                own = iter(free[len(free) - dims.count(-1) :])
                shape = (count, *(next(own) if dim == -1 else dim for dim in dims))
                arrays[name] = np.full(shape, self._defaults[name], np.float32)
        return [arrays[name] for name in self.inputs]

    def _run(self, arrays: Sequence[Array], requests: Sequence[Any]) -> Sequence[Array]:
        """Run a large batch piece by piece, so that its memory is bounded, until no client waits for it."""
        count = max(map(pieces, arrays)) if self._piecewise else 1
        if count <= 1:
            return self.run(arrays)
        found = list[Sequence[Array]]()
        for feed in zip(*(np.array_split(array, count) for array in arrays), strict=True):
            try:
                if found:
                    check(requests)
            except CancelledError:
                pb.Logger.log_info(f"a run without a client ends after {len(found)} of {count} pieces")
                raise
            found.append(self.run(feed))
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def _response(self, arrays: Sequence[Array]) -> Any:
        return pb.InferenceResponse([pb.Tensor(name, array) for name, array in zip(self.outputs, arrays, strict=True)])


class CancelledError(Exception):
    """The clients of all requests have left, which Triton 2.51 notices over gRPC alone."""

    def response(self) -> Any:
        return pb.InferenceResponse(error=pb.TritonError("the request was cancelled", pb.TritonError.CANCELLED))


def check(requests: Sequence[Any]) -> None:
    """Ask Triton whether requests are still wanted; a CancelledError where none is."""
    if all(request.is_cancelled() for request in requests):
        raise CancelledError


def pieces(batch: Array) -> int:
    """Return the number of pieces that a batch is cut into."""
    by_values, by_samples = -(-batch.size // VALUES), -(-len(batch) // SAMPLES) if batch.ndim > 2 else 1
    return min(max(by_values, by_samples), len(batch))
