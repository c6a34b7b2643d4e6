"""The wire format of the gateway's HTTP routes: inputs to requests, replies to arrays and exceptions. No sockets."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

import httpx2

from petrov_client import _codecs as codecs
from petrov_client._arrays import Arrays
from petrov_client._compression import Compression
from petrov_client._descriptions import model_info, readable
from petrov_client._environment import ENCRYPTS, RootCertificates, remedy
from petrov_client._errors import ConnectionFailed, DeadlineExceeded, InvalidResponse, PetrovError, service_fault
from petrov_client._flow import Call, Deadline, Perform
from petrov_client._identity import check_id, new_id, trace_context
from petrov_client._inversion import Inversion, Status, inversion, job_id, status
from petrov_client._models import GRADIENTS, OUTPUTS, Example, ModelInfo
from petrov_client._quality import PLAIN, Options, Response, is_quality, version_number
from petrov_client._schema import FRAME
from petrov_client._untrusted import LONGEST_JSON, parsed, printable

CONNECT_SECONDS = 5.0
#: The header that the service repeats in its response.
ID = "x-request-id"
JSON, PROBLEM = "application/json", "application/problem+json"
#: What servers that encrypt say to a request that is not: nginx, Go's and Apache's.
_TLS_ALONE = re.compile(rb"to (an )?(HTTPS|SSL-enabled server) (port|server)")
#: User and password in an address, behind the scheme.
_PASSWORD = re.compile("(://).*@")
#: Bytes of the longest response whose shapes are not known beforehand.
LONGEST_RESPONSE = 256 * 2**20
#: Bytes of a response beside its arrays: names, or a problem instead.
BESIDE_ARRAYS = 2**20


@dataclass(frozen=True)
class HttpRequest:
    """A request as the transport sends it.

    Where its replies are the parts of a response, there are `further` seconds for each behind the first, else 0. A
    reply may have `longest` bytes.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None
    further: float = 0.0
    longest: int = LONGEST_JSON


@dataclass(frozen=True)
class HttpReply:
    """A reply as the transport received it, or a part of one; header names in lower case.

    `proxy` has words on the proxy that may have sent it instead of the service, if there is one.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    proxy: str = ""


class HttpWire:
    """The gateway's routes under `/v1/models`."""

    def names(self) -> Call[list[str]]:
        """Return the call `GET /v1/models`."""

        def read(reply: HttpReply) -> list[str]:
            with readable("the list of models"):
                return [str(model["name"]) for model in _document(reply)["models"]]

        return Call(_request("/v1/models"), read)

    async def model(self, name: str, version: int | None, perform: Perform) -> ModelInfo:
        """Perform the call `GET /v1/models/{model}`, which describes the default version."""
        del version
        info: ModelInfo = await perform(Call(_request(_path(name)), lambda reply: model_info(_document(reply))))
        return info

    def prediction(self, info: ModelInfo, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `POST …/predict`; that of a derivative is `POST …/vjp` or `POST …/jvp` of its model."""
        with readable("the card of a derivative"):
            product = info.card.get("product") or {"of": info.name, "kind": "predict"}
            path = f"{_path(product['of'], options.version)}/{product['kind']}"
        return _prediction(info, path, inputs, options)

    def rollout(self, info: ModelInfo, inputs: Arrays, options: Options) -> Call[Response]:
        """Return the call `POST …/rollout`; it reads each part of the response."""
        return _prediction(info, f"{_path(info.name, options.version)}/rollout", inputs, options, options.timeout)

    def reference(self, info: ModelInfo, inputs: Arrays) -> Call[Response]:
        """Return the call `POST …/reference` for the classical solutions of one piece of a batch."""
        return _prediction(info, f"{_path(info.name)}/reference", inputs, PLAIN)

    def example(self, name: str, query: Mapping[str, int]) -> Call[Example]:
        """Return the call `GET …/example`."""

        def read(reply: HttpReply) -> Example:
            inputs = codecs.decode_sample(_body(reply, codecs.SAFETENSORS))
            outputs = {path.removeprefix(OUTPUTS): inputs.pop(path) for path in [*inputs] if path.startswith(OUTPUTS)}
            if not inputs:
                raise InvalidResponse("the sample of a model has no inputs")
            with readable("the number of samples"):
                count = reply.headers.get("petrov-examples")
                return Example(inputs, outputs, None if count is None else int(count))

        request = _request(f"{_path(name)}/example?{urlencode(query)}", accept=codecs.SAFETENSORS)
        return Call(replace(request, longest=LONGEST_RESPONSE), read)

    def inversion(self, name: str, body: Mapping[str, Any], key: str) -> Call[str]:
        """Return the call `POST …/inversions`, whose result is the id of the job; the key makes it safe to repeat."""
        headers = {"content-type": JSON, "accept": f"{JSON}, {PROBLEM}", "idempotency-key": key}
        request = HttpRequest("POST", f"{_path(name)}/inversions", headers, json.dumps(body).encode())
        return Call(request, lambda reply: job_id(_document(reply, success=202)))

    def inversion_status(self, name: str, job: str, wait: float) -> Call[Status]:
        """Return the call `GET …/inversions/{id}`, which waits at most so many seconds for the end."""
        path = f"{_job(name, job)}?{urlencode({'wait': wait})}"
        return Call(_request(path), lambda reply: status(_document(reply)))

    def inversion_result(self, name: str, job: str, ended: Status) -> Call[Inversion]:
        """Return the call `GET …/inversions/{id}/result`."""

        def read(reply: HttpReply) -> Inversion:
            return inversion(codecs.decode_safetensors(_body(reply, codecs.SAFETENSORS)), ended)

        request = _request(f"{_job(name, job)}/result", accept=codecs.SAFETENSORS)
        return Call(replace(request, longest=LONGEST_RESPONSE), read)

    def inversion_end(self, name: str, job: str) -> Call[None]:
        """Return the call `DELETE …/inversions/{id}`, which stops and forgets the job."""

        def read(reply: HttpReply) -> None:
            if reply.status >= 400:
                raise _fault(reply)

        return Call(_request(_job(name, job), "DELETE"), read)


class Replies:
    """The replies in a response as its bytes arrive: one, or one per part of a multipart response.

    The first reply has to be complete when the deadline of the request ends; a further one so many seconds after it is
    waited for. None may have more bytes than the request allows.

    Raises:
        InvalidResponse: It is the response to another request, or compressed in another way than was accepted.
    """

    def __init__(self, request: HttpRequest, response: httpx2.Response, deadline: Deadline, proxy: str) -> None:
        check_id(response.request.headers[ID], response.headers.get(ID, ""))
        coding = response.headers.get("content-encoding", "identity").lower()
        accepted = response.request.headers["accept-encoding"]
        if coding not in {"identity", accepted}:
            least = "without compression" if accepted == "identity" else f'with "{accepted}"'
            raise InvalidResponse(f'expected a response {least} but got one with "{coding[:32]}"')
        self._response, self._deadline, self._longest = response, deadline, request.longest
        parted = request.further > 0 and response.status_code == 200
        # What is read from now on has the time of a further reply, and that of the first one is checked; the body of
        # the only one has what its head has left.
        response.request.extensions["timeout"]["read"] = request.further if parted else deadline.remaining()
        kind = response.headers.get("content-type", "")
        self._parts = codecs.Parts(kind, request.longest) if parted else None
        self._body = bytearray()
        self._proxy = "" if ID in response.headers else proxy

    def add(self, chunk: bytes) -> Iterator[HttpReply]:
        """Yield a reply for every part that is complete with these bytes."""
        self._deadline.check()
        if self._parts is not None:
            for part in self._parts.feed(chunk):
                yield HttpReply(_status(part), part.headers, part.body)
                self._deadline.renew()
            return
        self._body += chunk
        if len(self._body) > self._longest:
            raise InvalidResponse(f"expected a response of at most {self._longest} bytes but got more")

    def end(self) -> Iterator[HttpReply]:
        """Yield the only reply, where there are no parts."""
        if self._parts is not None:
            self._parts.end()
        else:
            yield HttpReply(self._response.status_code, self._response.headers, bytes(self._body), self._proxy)


def _status(part: codecs.Part) -> int:
    """Return the status of a part: 200, or that of the problem in it."""
    if part.headers.get("content-type") != PROBLEM:
        return 200
    document = _json(part.body)
    status = document.get("status") if isinstance(document, Mapping) else None
    return status if isinstance(status, int) and 400 <= status < 600 else 500


def settings(
    url: httpx2.URL, key: Mapping[str, str], compression: Compression, root_certificates: RootCertificates | None
) -> dict[str, Any]:
    """Return the options of the `httpx2` client. Certificates, which take 0.1 s to load, are loaded for https only."""
    headers = {"accept-encoding": compression.name, "user-agent": "petrov-client", **key}
    trusted = (
        url.scheme == "https" if root_certificates is None else ssl.create_default_context(cafile=root_certificates)
    )
    return {"base_url": url, "headers": headers, "verify": trusted}


def arguments(request: HttpRequest, seconds: float, compression: Compression) -> dict[str, Any]:
    """Return the arguments of `httpx2` for a request that has so many seconds."""
    headers, body = {**request.headers, ID: new_id(), **trace_context()}, request.body
    if compression.applies(body):
        headers["content-encoding"], body = compression.name, compression.compress(body)
    return {
        "method": request.method,
        "url": request.path,
        "headers": headers,
        "content": body,
        "timeout": httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds / 2)),
    }


def address(url: httpx2.URL) -> str:
    """Return the gateway's address without its password."""
    return str(url.copy_with(password="***")) if url.password else str(url)  # noqa: S106  the mask itself


def checked_url(url: str, api_key: str | None) -> httpx2.URL:
    """Return the gateway's address, if it is an HTTP URL, without a password where there is a key."""
    shown = _PASSWORD.sub(r"\1***@", url)
    fault = ValueError(f'expected an address such as "http://127.0.0.1:8080" but got "{shown}"')
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise fault from error
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.query or parsed.fragment:
        raise fault
    if parsed.userinfo and api_key is not None:
        raise ValueError(f"expected a key or the user of {shown} but got both, and one header carries either")
    return parsed


@dataclass
class Answer:
    """Whether a response has begun."""

    begun: bool = False


@contextmanager
def faults(url: httpx2.URL, proxy: str, *, direct: bool) -> Iterator[Answer]:
    """Turn an error of `httpx2`, after which there is no complete reply, into one of ours; `proxy` are words on it.

    A `direct` connection is one to the address itself. The block says when a response begins.
    """
    address, answer = f"{url.host}:{url.port}" if url.port else url.host, Answer()
    try:
        yield answer
    except (httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise ConnectionFailed(f"no connection to {address} in time{proxy}") from error
    except httpx2.TimeoutException as error:
        raise DeadlineExceeded(f"no response from {address} in time{proxy}") from error
    except httpx2.DecodingError as error:
        raise InvalidResponse(f"the response from {address} is compressed wrongly: {error}") from error
    except httpx2.HTTPError as error:
        reason = str(error) or type(error).__name__
        fault = ConnectionFailed(f"no response from {address}: {reason}{remedy(reason)}{proxy}")
        connected = not isinstance(error, httpx2.ConnectError)
        if direct and url.scheme == "http" and connected and not answer.begun:
            fault.unencrypted = url.host.strip("[]"), url.port or 80
        raise fault from error


def _request(path: str, method: str = "GET", accept: str = JSON) -> HttpRequest:
    return HttpRequest(method, path, {"accept": f"{accept}, {PROBLEM}"})


def _path(model: str, version: int | None = None) -> str:
    return f"/v1/models/{quote(model, safe='')}" + ("" if version is None else f"/versions/{version}")


def _job(model: str, job: str) -> str:
    return f"{_path(model)}/inversions/{quote(job, safe='')}"


def _prediction(info: ModelInfo, path: str, inputs: Arrays, options: Options, further: float = 0.0) -> Call[Response]:
    """Return the call for a prediction: with `.npy` for one array in or out, else with safetensors."""
    names = [tensor.name for tensor in info.outputs]
    names = [name for name in names if not name.startswith(GRADIENTS) or name.removeprefix(GRADIENTS) in inputs]
    if info.alone(inputs):
        [array] = inputs.values()
        sent, body = codecs.NPY, codecs.encode_npy(array)
    else:
        sent, body = codecs.SAFETENSORS, codecs.encode_safetensors(inputs)
    plain = len(names) == 1 and sent == codecs.NPY and not options.quality
    expected = codecs.NPY if plain else codecs.SAFETENSORS
    headers = {"content-type": sent, "accept": f"{expected}, {codecs.MULTIPART}, {PROBLEM}"}

    def read(reply: HttpReply) -> Response:
        content = _body(reply, expected)
        arrays: Arrays = {names[0]: codecs.decode_npy(content)} if plain else codecs.decode_safetensors(content)
        if missing := [name for name in names if name not in arrays]:
            raise InvalidResponse(f"expected the output {missing[0]} but got {', '.join(arrays) or 'none'}")
        return Response(
            {name: arrays[name] for name in names},
            {name: array for name, array in arrays.items() if is_quality(name)},
            outside=reply.headers.get("petrov-outside") == "true",
            solved_by=printable(reply.headers.get("petrov-solved-by", "network")),
            version=version_number(reply.headers.get("petrov-version", "")),
        )

    query = f"?{urlencode(options.parameters)}" if options.parameters else ""
    longest = _longest(info, inputs, {FRAME: 1} if further else {})
    return Call(HttpRequest("POST", path + query, headers, body, further, longest), read)


def _longest(info: ModelInfo, inputs: Arrays, sizes: Mapping[str, int]) -> int:
    """Return how many bytes a reply with the outputs of these inputs may have; `sizes` are those of further axes."""
    values = info.output_values({name: array.shape for name, array in inputs.items()}, sizes)
    return LONGEST_RESPONSE if values is None else 4 * values + BESIDE_ARRAYS


def _document(reply: HttpReply, success: int = 200) -> Any:
    return _json(_body(reply, JSON, success))


def _json(body: bytes) -> Any:
    try:
        return parsed(body)
    except (ValueError, RecursionError) as error:
        raise InvalidResponse(f"expected JSON but got {body[:60]!r}: {error}") from error


def _body(reply: HttpReply, expected: str, success: int = 200) -> bytes:
    """Return the body of a reply, if it is a success with the expected media type."""
    if reply.status >= 400:
        raise _fault(reply)
    if reply.status != success or _media_type(reply) != expected:
        found = f'{reply.status} with "{_media_type(reply)[:80]}"'
        if 300 <= reply.status < 400:
            found = f"a redirect ({reply.status}), which is not followed: it might carry the key elsewhere"
        raise InvalidResponse(f"expected {success} with {expected} but got {found}{reply.proxy}")
    return reply.body


def _media_type(reply: HttpReply) -> str:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _fault(reply: HttpReply) -> PetrovError:
    """Return the exception for a reply of 400 and above, with the service's own message where it sent one."""
    problem = _json(reply.body) if _media_type(reply) == PROBLEM else {}
    problem = problem if isinstance(problem, Mapping) else {}
    if reply.status == 404 and not problem:
        return InvalidResponse(f"expected a Petrov service but got a bare 404: is the address right?{reply.proxy}")
    if reply.status == 400 and not problem and _TLS_ALONE.search(reply.body):
        return InvalidResponse(f"the response has status 400{ENCRYPTS}")
    message = None if problem or not reply.proxy else f"the response has status {reply.status}{reply.proxy}"
    return service_fault(reply.status, problem, message, wait=reply.headers.get("retry-after"))
