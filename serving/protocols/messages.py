"""The messages of an inference over gRPC: a request read without copies of its raw contents, and a response written so.

protobuf would copy each tensor twice, while no thread of Python runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from schema.card import Card
from serving.errors import Problem
from serving.protocols import inference
from serving.protocols.inference import DATATYPES, Sent
from serving.protocols.metadata import FLOAT32
from serving.quality import Quality

ENVELOPE_BYTES = 2**18  # of a message beside its raw contents; typed ones of a field of 255 x 255 fit in
MOST_PARTS = 1024  # fields of a message: no model has as many tensors
#: The typed contents of a tensor; those of smaller integers are `int_contents` and `uint_contents`.
CONTENTS = {name: f"{name.lower()}_contents" for name in (FLOAT32, "FP64", "INT64", "UINT64")}


class GrpcExchange:
    """A request, its raw contents and its bytes, and the writer of its response: an `Exchange` of `serving.inputs`."""

    frames: int | None = None  # a parameter of the request says it, and the grid
    grid: tuple[int, ...] | None = None
    seconds: float | None = None
    growth = 2.0  # gRPC copies a message

    def __init__(self, request: Any, contents: Sequence[memoryview], size: int) -> None:
        self.size, self._request, self._contents = size, request, contents

    def read(self, card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
        request = self._request
        self.seconds = inference.seconds(parameters_of(request).get("timeout", 0))
        return inference.read(request.inputs, request.outputs, self._sent(), card, max_bytes)

    def _sent(self) -> Iterator[Sent]:
        """Yield the inputs with the raw contents of the message, or else with their typed ones."""
        inputs, contents = self._request.inputs, self._contents
        if contents and len(contents) != len(inputs):
            raise Problem("unreadable-body", f"{len(contents)} raw_input_contents for {len(inputs)} inputs")
        for index, tensor in enumerate(inputs):
            if not contents:
                member = CONTENTS.get(
                    tensor.datatype, "uint_contents" if tensor.datatype[:1] == "U" else "int_contents"
                )
                others = [field.name for field, _ in tensor.contents.ListFields() if field.name != member]
                if others and tensor.datatype in DATATYPES:
                    detail = f"{tensor.name}: {tensor.datatype} has its numbers in {member}, not in {others[0]}"
                    raise Problem("unreadable-body", detail)
                yield Sent(tensor.name, tensor.datatype, tensor.shape, list(getattr(tensor.contents, member)), member)
            elif tensor.HasField("contents"):
                raise Problem("unreadable-body", f"{tensor.name}: contents beside raw_input_contents")
            else:
                yield Sent(tensor.name, tensor.datatype, tensor.shape, contents[index], "raw_input_contents")

    def write(self, card: Card, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Response:
        shown, parameters = inference.results(card, outputs, quality, self._request.outputs)
        message = service_pb2.ModelInferResponse(
            id=self._request.id,
            model_name=card.model,
            model_version=str(card.version),
            outputs=[{"name": name, "datatype": FLOAT32, "shape": array.shape} for name, array in shown.items()],
            parameters={name: {"string_param": text} for name, text in parameters.items()},
        )
        return Response(message, list(shown.values()))


class Response(NamedTuple):
    """A response without its raw contents, and the arrays that these are."""

    message: Any
    arrays: list[NDArray[np.float32]]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def serialised(self, *, streamed: bool = False) -> bytes:
        """Return the message with its contents, each array copied once; in a response of a stream, if it is one."""
        parts: list[Any] = [self.message.SerializeToString()]
        for array in self.arrays:
            parts += [_head(_RAW_OUTPUT, array.nbytes), array.reshape(-1).view(np.uint8).data]
        if streamed:
            parts.insert(0, _head(_STREAMED, sum(map(len, parts))))
        return b"".join(parts)


def parameters_of(request: Any) -> dict[str, Any]:
    """Return the parameters of a request by name, empty where one has no value."""
    return {
        name: getattr(value, value.WhichOneof("parameter_choice") or "string_param")
        for name, value in request.parameters.items()
    }


def parse(message: Any, body: bytes | None) -> Any:
    """Return a message of a class, or refuse what is none (`unreadable-body`)."""
    if body is None:
        raise Problem("unreadable-body", f"expected a {message.DESCRIPTOR.name} but got nothing")
    try:
        return message.FromString(body)
    except DecodeError as error:
        raise Problem("unreadable-body", f"not a {message.DESCRIPTOR.name}: {error}") from error


def request_of(body: bytes | None) -> tuple[Any, list[memoryview]]:
    """Return a request without its raw contents, and these as views of the message.

    protobuf would copy each tensor twice. What is not raw is parsed as protobuf does, with memory of many times its
    size and without a pause, so there may be `ENVELOPE_BYTES` of it in `MOST_PARTS` parts.
    """
    if body is None:
        return parse(service_pb2.ModelInferRequest, None), []
    view, rest, contents, position, size = memoryview(body), list[memoryview](), list[memoryview](), 0, 0
    while position < len(view):
        begin = position
        try:
            tag, start = _varint(view, begin)
            position = _behind(view, tag, start)
            if tag == _RAW_INPUT:
                contents.append(view[_varint(view, start)[1] : position])
        except IndexError as error:
            raise Problem("unreadable-body", f"not a ModelInferRequest: {error}") from error
        if tag != _RAW_INPUT:
            rest.append(view[begin:position])
            size += position - begin
        if len(rest) + len(contents) > MOST_PARTS:
            raise Problem("unreadable-body", f"the message has more than {MOST_PARTS} parts")
        if size > ENVELOPE_BYTES:
            detail = f"a message may have {ENVELOPE_BYTES} bytes beside raw_input_contents: send tensors as these"
            raise Problem("body-too-large", detail)
    request = parse(service_pb2.ModelInferRequest, b"".join(rest))
    if max(len(request.inputs), len(request.outputs)) > MOST_PARTS:
        raise Problem("unreadable-body", f"the message has more than {MOST_PARTS} parts")
    return request, contents


# The wire format is https://protobuf.dev/programming-guides/encoding. The package's functions for it are private
# (`google.protobuf.internal`), and its public `UnknownFieldSet` copies every field.
_FIELDS = service_pb2.ModelInferRequest.DESCRIPTOR.fields_by_name
_LENGTH = 2  # the wire type of what is preceded by its length
_RAW_INPUT = _FIELDS["raw_input_contents"].number << 3 | _LENGTH
_RAW_OUTPUT = service_pb2.ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number << 3 | _LENGTH
_STREAMED = service_pb2.ModelStreamInferResponse.DESCRIPTOR.fields_by_name["infer_response"].number << 3 | _LENGTH


def _behind(data: memoryview, tag: int, position: int) -> int:
    """Return the position behind the value of a field; an IndexError: it ends before, or has an unknown type."""
    match tag & 7:
        case 0:
            _, position = _varint(data, position)
        case 2:
            size, position = _varint(data, position)
            position += size
        case 1 | 5 as kind:
            position += 8 if kind == 1 else 4
        case other:
            raise IndexError(f"a field of the wire type {other}")
    if position > len(data):
        raise IndexError("it ends within a field")
    return position


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, the lowest first, and the position behind it."""
    value = 0
    for index in range(10):
        byte = data[position + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, position + index + 1
    raise IndexError("a number of more than ten bytes")


def _head(tag: int, size: int) -> bytes:
    """Return what precedes a field of so many bytes."""
    digits = [tag]
    while size > 127:
        digits.append(size & 127 | 128)
        size >>= 7
    return bytes([*digits, size])
