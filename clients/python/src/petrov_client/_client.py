"""The two synchronous clients: arrays in physical units in, arrays in physical units out, over HTTP or gRPC.

Everything but the lines that send, receive and wait is shared with the asynchronous ones: `_arrays` checks and cuts,
`_http` and `_grpc` write and read, `_retry` decides.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx2
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from petrov_client import _grpc, _http
from petrov_client._arrays import Answer, ask
from petrov_client._exceptions import PetrovError, RequestError
from petrov_client._key import bearer, shown
from petrov_client._models import checked_name
from petrov_client._progress import Progress, reporting
from petrov_client._retry import TIMEOUT_SECONDS, Attempts, checked_timeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from petrov_client._arrays import Fields, Question
    from petrov_client._models import ModelInfo
    from petrov_client._wire import Call, Flow, Wire

T = TypeVar("T")


class SyncPredictor:
    """What both synchronous clients do; a subclass adds the one line that sends."""

    def __init__(self, wire: Wire, timeout: float) -> None:
        self._wire = wire
        self._timeout = checked_timeout(timeout)
        self._known: dict[tuple[str, int | None], ModelInfo] = {}

    def models(self) -> list[ModelInfo]:
        """All models that answer now.

        Raises:
            PetrovError: Any but `InvalidInput`.
        """
        names = self._perform(self._wire.names(), self._timeout)
        return [self.model(name) for name in names]

    def model(self, name: str) -> ModelInfo:
        """One model: its versions, inputs, outputs and, over HTTP, its card.

        Raises:
            UnknownModel: No such model.
            PetrovError: Any other but `InvalidInput`.
        """
        return self._describe(name, None, self._timeout)

    def predict(
        self,
        model: str,
        array: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
    ) -> Fields:
        """Ask a model for the solutions of one field or of a batch of any size.

        The array is checked as a whole before anything is sent, then sent in pieces, one after another.

        Args:
            model: The model's name.
            array: Real numbers in physical units, one field `[…]` or a batch `[batch, …]`; anything that NumPy reads.
                Memory maps and HDF5 datasets are read a piece at a time.
            version: A version of the model; the newest if None.
            timeout: Seconds for each request, its repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (fields done, fields in all).

        Returns:
            float32 in physical units, with the rank of `array`.

        Raises:
            InvalidInput: The array does not fit the model; `.where` names the place.
            PetrovError: Any other of the tree in `petrov_client._exceptions`.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        question = self._question(model, array, version, limit)
        answer = Answer(question)
        for piece, fields in self._answers(question, version, limit, progress):
            answer.put(piece, fields)
        return answer.array()

    def stream(
        self,
        model: str,
        array: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
    ) -> Iterator[Fields]:
        """Ask as `predict` does, and give the solutions as they come: memory holds one piece of a batch of any length.

        The array is checked as a whole before this returns; pieces are sent as their answers are taken.

        Args:
            model: The model's name.
            array: As for `predict`; with a memory map or an HDF5 dataset the question stays on disk, too.
            version: A version of the model; the newest if None.
            timeout: Seconds for each request, its repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (fields done, fields in all).

        Returns:
            Batches `[fields, …]` of consecutive solutions, in order; together they are what `predict` answers.

        Raises:
            InvalidInput: The array does not fit the model; `.where` names the place.
            PetrovError: Any other of the tree in `petrov_client._exceptions`, here or from the iterator.
        """
        limit = checked_timeout(self._timeout if timeout is None else timeout)
        question = self._question(model, array, version, limit)
        answer = Answer(question)
        return (answer.checked(*part) for part in self._answers(question, version, limit, progress))

    def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _question(self, model: str, array: Any, version: int | None, timeout: float) -> Question:
        with self._doubting():
            info = self._known.get((model, version)) or self._describe(model, version, timeout)
            return ask(info, array)

    def _answers(
        self, question: Question, version: int | None, timeout: float, progress: Progress
    ) -> Iterator[tuple[slice, Fields]]:
        """Each piece of the question with its answer, in order."""
        with self._doubting(), reporting(progress, question.info.name, len(question)) as advance:
            for piece in question.pieces():
                call = self._wire.prediction(question.info, version, question.fields(piece))
                yield piece, self._perform(call, timeout)
                advance(piece.stop - piece.start)

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """After a refusal, what was known of the model may be out of date."""
        try:
            yield
        except RequestError:
            self._known.clear()
            raise

    def _describe(self, name: str, version: int | None, timeout: float) -> ModelInfo:
        info = self._follow(self._wire.model(checked_name(name), version), timeout)
        self._known[name, version] = info
        return info

    def _follow(self, flow: Flow[T], timeout: float) -> T:
        """Drive a flow of calls to its result."""
        try:
            call = next(flow)
            while True:
                call = flow.send(self._perform(call, timeout))
        except StopIteration as end:
            result: T = end.value
            return result

    def _perform(self, call: Call[T], timeout: float) -> T:
        """Send one call, again where that is safe, and read its reply."""
        attempts = Attempts(timeout)
        while True:
            try:
                return call.read(self._send(call.request, attempts.remaining()))
            except PetrovError as fault:
                time.sleep(attempts.pause_after(fault))

    def _send(self, request: Any, remaining: float) -> Any:
        raise NotImplementedError


class Client(SyncPredictor):
    """A client of the gateway over HTTP.

    Args:
        url: The gateway's address.
        api_key: Sent as a bearer token, never shown.
        timeout: Seconds for each request, its repetitions included.
        transport: What carries the requests, in place of sockets: the one seam for proxies, certificates and tests.

    Raises:
        ValueError: `url` is not an address of HTTP, or no header can carry the key.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        super().__init__(_http.HttpWire(), timeout)
        self._url = _http.checked_url(url)
        self._key = bearer(api_key)
        self._http = httpx2.Client(transport=transport, **_http.settings(self._url, self._key))

    def __repr__(self) -> str:
        return shown("Client", _http.address(self._url), self._key)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, request: _http.HttpRequest, remaining: float) -> _http.HttpReply:
        body = _http.Body(time.monotonic() + remaining)
        try:
            with self._http.stream(**_http.arguments(request, remaining)) as response:
                for chunk in response.iter_raw():
                    body.add(chunk)
                return body.reply(response)
        except httpx2.HTTPError as error:
            raise _http.connection_fault(error, self._url) from error


class GrpcClient(SyncPredictor):
    """A client of a Triton, or of anything that speaks the Open Inference Protocol, over gRPC.

    Args:
        address: `HOST:PORT` of the server.
        api_key: Sent as a bearer token in the metadata, never shown.
        timeout: Seconds for each request, its repetitions included.
        tls: Whether to encrypt, with the certificates that the system trusts.

    Raises:
        ValueError: `address` is not HOST:PORT, or no header can carry the key.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8001",
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        tls: bool = False,
    ) -> None:
        super().__init__(_grpc.GrpcWire(), timeout)
        self._address = _grpc.checked_address(address)
        self._key = bearer(api_key)
        self._stub = InferenceServerClient(self._address, ssl=tls, channel_args=_grpc.CHANNEL)

    def __repr__(self) -> str:
        return shown("GrpcClient", self._address, self._key)

    def close(self) -> None:
        """Close the connection."""
        self._stub.close()

    def _send(self, request: _grpc.GrpcRequest, remaining: float) -> Any:
        try:
            return getattr(self._stub, request.method)(**_grpc.arguments(request, self._key, remaining))
        except InferenceServerException as error:
            raise _grpc.fault(error, self._address) from error
