"""The wire format of the gateway's HTTP routes: inputs to requests, replies to arrays and exceptions. No sockets."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import httpx2

from petrov_client._requests.derivatives import received_names
from petrov_client._requests.example import Example, example
from petrov_client._values.exceptions import (
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    InvalidResponse,
    PetrovError,
    RateLimited,
    RequestError,
    ServerFault,
    TooLarge,
    Unauthorised,
    Unavailable,
    UnknownModel,
    Where,
)
from petrov_client._values.models import ModelInfo, model_info, model_names
from petrov_client._values.quality import NAMES, Response
from petrov_client._wire import npy, safetensors, trace
from petrov_client._wire.interface import PLAIN, Call
from petrov_client._wire.inversion import Inversion, Status, inversion, job_id, status
from petrov_client._wire.multipart import MEDIA_TYPE as MULTIPART
from petrov_client._wire.multipart import Part, Parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from petrov_client._values.quality import Options
    from petrov_client._wire.interface import Arrays, Flow

CONNECT_SECONDS = 5.0
#: Of every request. Arrays of numbers do not shrink by compression, so none is requested.
HEADERS = {"accept-encoding": "identity", "user-agent": "petrov-client"}
PROBLEM = "application/problem+json"
#: Bytes of the longest response. The largest piece gives a few megabytes; the limit stops an endless response.
LONGEST_RESPONSE = 256 * 2**20

_FAULTS: Mapping[int, type[PetrovError]] = {
    401: Unauthorised,
    403: Unauthorised,
    404: UnknownModel,
    413: TooLarge,
    422: InvalidInput,
    429: RateLimited,
    503: Unavailable,
    504: DeadlineExceeded,
}
#: Problems whose status alone would give another class: the model is there, and lacks a solver or samples.
_KINDS: Mapping[str, type[PetrovError]] = dict.fromkeys(
    ("no-reference", "no-example", "not-invertible", "unknown-inversion"), RequestError
)


@dataclass(frozen=True)
class HttpRequest:
    """A request as the transport sends it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None


@dataclass(frozen=True)
class HttpReply:
    """A reply as the transport received it; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Body:
    """The bytes of a response as they arrive, bounded in size and time."""

    end: float
    chunks: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, chunk: bytes) -> None:
        """Append the next bytes.

        Raises:
            InvalidResponse: The response is longer than `LONGEST_RESPONSE`.
            DeadlineExceeded: The time limit has passed.
        """
        self.size += len(chunk)
        if self.size > LONGEST_RESPONSE:
            raise InvalidResponse(f"expected a response of at most {LONGEST_RESPONSE} bytes but got more")
        if time.monotonic() > self.end:
            raise DeadlineExceeded("the response did not arrive in time")
        self.chunks.append(chunk)

    def reply(self, response: httpx2.Response) -> HttpReply:
        """Return the complete reply."""
        return HttpReply(response.status_code, response.headers, b"".join(self.chunks))


class HttpWire:
    """The gateway's routes under `/v1/models`."""

    def names(self) -> Call[list[str]]:
        """Return the call `GET /v1/models`."""
        return Call(_get("/v1/models"), lambda reply: model_names(_document(reply)))

    def model(self, name: str, version: int | None) -> Flow[ModelInfo]:
        """Yield the call `GET /v1/models/{model}`, which describes the default version."""
        del version
        info: ModelInfo = yield Call(_get(_path(name)), lambda reply: model_info(_document(reply)))
        return info

    def prediction(
        self, info: ModelInfo, version: int | None, inputs: Arrays, options: Options = PLAIN
    ) -> Call[Response]:
        """Return the call `POST …/predict`: with `.npy` for one array in or out, else with safetensors.

        That of a derivative is `POST …/vjp` or `POST …/jvp` of its model.
        """
        product = info.card.get("product")
        if product:
            return _prediction(info, f"{_path(product['of'], version)}/{product['kind']}", inputs, options)
        query = f"?{urlencode(options.parameters)}" if options.parameters else ""
        return _prediction(info, f"{_path(info.name, version)}/predict{query}", inputs, options)

    def rollout(self, info: ModelInfo, version: int | None, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `POST …/rollout`; it reads each part of the response."""
        return _prediction(
            info, f"{_path(info.name, version)}/rollout?{urlencode(options.parameters)}", inputs, options
        )

    def reference(self, info: ModelInfo, inputs: Arrays) -> Call[Response]:
        """Return the call `POST …/reference` for the classical solutions of one piece of a batch."""
        return _prediction(info, f"{_path(info.name)}/reference", inputs, PLAIN)

    def inversion(self, name: str, request: Mapping[str, Any]) -> Call[str]:
        """Return the call `POST …/inversions`, whose result is the id of the job."""
        headers = {"content-type": "application/json", "accept": f"application/json, {PROBLEM}"}
        headers["idempotency-key"] = secrets.token_hex(16)  # repetitions of the request are one job
        sent = HttpRequest("POST", f"{_path(name)}/inversions", headers, json.dumps(request).encode())
        return Call(sent, lambda reply: job_id(_json(_good(reply, "application/json", 202).body)))

    def inversion_status(self, name: str, job: str, wait: float) -> Call[Status]:
        """Return the call `GET …/inversions/{id}`, which waits at most so many seconds for the end."""
        path = f"{_job(name, job)}?{urlencode({'wait': wait})}"
        return Call(_get(path), lambda reply: status(_document(reply), problem_fault))

    def inversion_result(self, name: str, job: str, ended: Status) -> Call[Inversion]:
        """Return the call `GET …/inversions/{id}/result`."""
        headers = {"accept": f"{safetensors.MEDIA_TYPE}, {PROBLEM}"}

        def read(reply: HttpReply) -> Inversion:
            return inversion(safetensors.decode(_good(reply, safetensors.MEDIA_TYPE).body), ended)

        return Call(HttpRequest("GET", f"{_job(name, job)}/result", headers), read)

    def inversion_end(self, name: str, job: str) -> Call[None]:
        """Return the call `DELETE …/inversions/{id}`, which stops and forgets the job."""

        def read(reply: HttpReply) -> None:
            if reply.status >= 400:
                raise _fault(reply)

        return Call(HttpRequest("DELETE", _job(name, job), {"accept": f"application/json, {PROBLEM}"}), read)

    def example(self, name: str, query: Mapping[str, int]) -> Call[Example]:
        """Return the call `GET …/example`."""
        request = _get(f"{_path(name)}/example?{urlencode(query)}")
        return Call(request, lambda reply: example(_document(reply), reply.headers.get("petrov-examples")))


class FrameReplies:
    """The frames of a response as its bytes arrive.

    Args:
        response: The response, of which only the head has been read.

    Raises:
        InvalidResponse: It is a success, and no multipart response.
    """

    def __init__(self, response: httpx2.Response, remaining: float) -> None:
        self._response = response
        self._parts = Parts(response.headers.get("content-type", "")) if response.status_code == 200 else None
        self._body = Body(time.monotonic() + remaining)

    def add(self, chunk: bytes) -> Iterator[HttpReply]:
        """Yield a reply for every frame that is complete with these bytes."""
        if self._parts is None:
            self._body.add(chunk)
            return
        for part in self._parts.feed(chunk):
            yield HttpReply(_status(part), part.headers, part.body)

    def end(self) -> Iterator[HttpReply]:
        """Yield the reply that is no frame but a fault, if it is one.

        Raises:
            ConnectionFailed: The last frame is missing.
        """
        if self._parts is None:
            yield self._body.reply(self._response)
        else:
            self._parts.end()


def _status(part: Part) -> int:
    """Return the status of a part: 200, or that of the problem in it."""
    if part.headers.get("content-type") != PROBLEM:
        return 200
    document = _json(part.body)
    status = document.get("status") if isinstance(document, Mapping) else None
    return status if isinstance(status, int) and 400 <= status < 600 else 500


def settings(url: httpx2.URL, key: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of the `httpx2` client. Certificates, which take 0.1 s to load, are loaded for https only."""
    return {"base_url": url, "headers": {**HEADERS, **key}, "verify": url.scheme == "https"}


def arguments(request: HttpRequest, remaining: float) -> dict[str, Any]:
    """Return the arguments of `httpx2` for a request that has `remaining` seconds."""
    return {
        "method": request.method,
        "url": request.path,
        "headers": {**request.headers, **trace.context()},
        "content": request.body,
        "timeout": httpx2.Timeout(remaining, connect=min(CONNECT_SECONDS, remaining)),
    }


def address(url: httpx2.URL) -> str:
    """Return the gateway's address without its password."""
    return str(url.copy_with(password="***")) if url.password else str(url)  # noqa: S106  the mask itself


def checked_url(url: str) -> httpx2.URL:
    """Return the gateway's address, if it is an HTTP URL.

    Raises:
        ValueError: It is not.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ValueError(f'expected an address such as "http://127.0.0.1:8080" but got "{url}"') from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f'expected an address such as "http://127.0.0.1:8080" but got "{url}"')
    return parsed


def connection_fault(error: httpx2.HTTPError, url: httpx2.URL) -> PetrovError:
    """Return the exception for a request without a complete reply."""
    address = f"{url.host}:{url.port}" if url.port else url.host
    if isinstance(error, (httpx2.ConnectTimeout, httpx2.PoolTimeout)):
        return ConnectionFailed(f"no connection to {address} in time")
    if isinstance(error, httpx2.TimeoutException):
        return DeadlineExceeded(f"no response from {address} in time")
    return ConnectionFailed(f"no response from {address}: {error or type(error).__name__}")


def _path(model: str, version: int | None = None) -> str:
    return f"/v1/models/{quote(model, safe='')}" + ("" if version is None else f"/versions/{version}")


def _job(model: str, job: str) -> str:
    return f"{_path(model)}/inversions/{quote(job, safe='')}"


def _prediction(info: ModelInfo, path: str, inputs: Arrays, options: Options) -> Call[Response]:
    """Return the call for a prediction.

    Args:
        info: The model.
        path: The route, with its query.
        inputs: Inputs and parameters by name.
        options: What is wanted besides the outputs; a `.npy` response has no room for it.
    """
    names = received_names([tensor.name for tensor in info.outputs], inputs)
    sent, body = _body(info, inputs)
    codec = npy if len(names) == 1 and sent == npy.MEDIA_TYPE and not options.quality else safetensors
    headers = {"content-type": sent, "accept": f"{codec.MEDIA_TYPE}, {MULTIPART}, {PROBLEM}"}

    def read(reply: HttpReply) -> Response:
        content = _good(reply, codec.MEDIA_TYPE).body
        arrays = safetensors.decode(content) if codec is safetensors else {names[0]: npy.decode(content)}
        return _response(reply, arrays, names)

    return Call(HttpRequest("POST", path, headers, body), read)


def _body(info: ModelInfo, inputs: Arrays) -> tuple[str, bytes]:
    """Return the media type and the body of a request."""
    if not info.alone(inputs):
        return safetensors.MEDIA_TYPE, safetensors.encode(inputs)
    [array] = inputs.values()
    return npy.MEDIA_TYPE, npy.encode(array)


def _get(path: str) -> HttpRequest:
    return HttpRequest("GET", path, {"accept": f"application/json, {PROBLEM}"})


def _response(reply: HttpReply, arrays: Arrays, names: list[str]) -> Response:
    """Return the outputs of a reply, and what its headers and arrays say about them.

    Args:
        reply: The reply.
        arrays: Its arrays by name.
        names: The outputs of the model.

    Raises:
        InvalidResponse: An output is missing.
    """
    if missing := [name for name in names if name not in arrays]:
        raise InvalidResponse(f"expected the output {missing[0]} but got {', '.join(arrays) or 'none'}")
    return Response(
        {name: arrays[name] for name in names},
        {name: arrays[name] for name in NAMES if name in arrays},
        outside=reply.headers.get("petrov-outside") == "true",
        solved_by=reply.headers.get("petrov-solved-by", "network"),
    )


def _document(reply: HttpReply) -> Any:
    return _json(_good(reply, "application/json").body)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidResponse(f"expected JSON but got {body[:60]!r}") from error


def _good(reply: HttpReply, expected: str, success: int = 200) -> HttpReply:
    """Return the reply itself, if it is a success with the expected media type.

    Raises:
        PetrovError: The reply reports a fault, or has another status or media type.
    """
    media_type = _media_type(reply)
    if reply.status >= 400:
        raise _fault(reply)
    if reply.status != success or media_type != expected:
        raise InvalidResponse(f'expected {success} with {expected} but got {reply.status} with "{media_type}"')
    return reply


def _media_type(reply: HttpReply) -> str:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _fault(reply: HttpReply) -> PetrovError:
    """Return the exception for a reply of 400 and above, with the service's own message where it sent one."""
    problem = _problem(reply)
    if reply.status == 404 and not problem:
        return InvalidResponse("expected a Petrov service but got a bare 404: is the address right?")
    return problem_fault(problem, reply.status, retry_after(reply.headers.get("retry-after")))


def problem_fault(problem: Mapping[str, Any], status: int, seconds: float | None = None) -> PetrovError:
    """Return the exception for problem details.

    Args:
        problem: The details.
        status: The status of the reply that they arrived in, or their own.
        seconds: After which the service expects to do better.
    """
    family = RequestError if status < 500 else ServerFault
    kind = str(problem.get("type", "")).rpartition(":")[2]
    return _KINDS.get(kind, _FAULTS.get(status, family))(
        str(problem.get("detail") or f"the service responded with status {status}"),
        problem=problem,
        retry_after=seconds,
        where=_where(problem.get("where")),
    )


def _problem(reply: HttpReply) -> Mapping[str, Any]:
    if _media_type(reply) != PROBLEM:
        return {}
    problem = _json(reply.body)
    return problem if isinstance(problem, Mapping) else {}


def _where(location: Any) -> Where | None:
    if not isinstance(location, Mapping) or "array" not in location:
        return None
    index = location.get("index")
    return Where(str(location["array"]), tuple(index) if isinstance(index, list) else None)


def retry_after(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header (a number or a date); None if it is missing or malformed."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
