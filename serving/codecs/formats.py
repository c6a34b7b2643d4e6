"""Request bodies in, named arrays out; arrays in, response bodies out: `Content-Type` and `Accept` choose how.

A codec reads what a stranger wrote: it bounds before it allocates, and it knows nothing of models but the names of
their inputs. An answer in JSON is coded as the question was, in nested lists or as `{"shape", "dtype", "base64"}`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from pydantic import ValidationError

from serving.codecs import buffers as raw
from serving.codecs import npy, safetensors
from serving.problem_details import (
    NotAcceptable,
    UnreadableBody,
    UnsupportedMediaType,
    WrongDtype,
    WrongInput,
    WrongShape,
)
from serving.schemas import Base64Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from starlette.datastructures import Headers

JSON = "application/json"
JSON_SHARE = 4  # numbers in JSON take some eight times their text in memory, so JSON bodies get a part of the limit
MEDIA_TYPES = (npy.MEDIA_TYPE, JSON, safetensors.MEDIA_TYPE)
_MANY = 16
_SEVERAL = (JSON, safetensors.MEDIA_TYPE)  # formats that hold more than one array
DTYPES = frozenset(
    {"float16", "float32", "float64", "bool"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


@dataclass(frozen=True)
class Coding:
    """How a body is written: its media type and, within JSON, whether arrays are base64."""

    media_type: str
    base64: bool = False


class Body:
    """A question of `/v1` and the writing of its answer; an `Exchange` of `serving.inference.prediction`.

    Args:
        content: The request's body.
        question_type: Its media type.
        answer_type: The media type to answer in.
    """

    def __init__(self, content: bytearray, question_type: str, answer_type: str) -> None:
        self.size = len(content)
        self._content = content
        self._question_type = question_type
        self._answer = Coding(answer_type)

    def read(self, names: Sequence[str], max_bytes: int) -> dict[str, NDArray[Any]]:
        """The arrays of the body; see the function `read`."""
        found, coding = read(self._content, self._question_type, names, max_bytes)
        self._answer = replace(self._answer, base64=coding.base64)
        return found

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]]) -> bytes:
        """The body of the answer; see the function `write`."""
        return write(model, version, outputs, self._answer)


def question_type(headers: Headers) -> str:
    """The media type of the body.

    Raises:
        UnsupportedMediaType: None of `MEDIA_TYPES`, or compressed.
    """
    check_uncompressed(headers)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise UnsupportedMediaType(
            f'expected Content-Type {" or ".join(MEDIA_TYPES)} but got "{media_type[:64]}"',
            headers={"Accept-Post": ", ".join(MEDIA_TYPES)},
        )
    return media_type


def check_uncompressed(headers: Headers) -> None:
    """Fields of numbers do not shrink, and what was compressed has no size until it is too late.

    Raises:
        UnsupportedMediaType: A `Content-Encoding`.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType(f'Content-Encoding "{encoding[:32]}" is not read; send the body uncompressed')


def answer_type(headers: Headers, question: str) -> str:
    """The media type that `Accept` prefers; the question's own where it leaves the choice.

    Raises:
        NotAcceptable: `Accept` names none of `MEDIA_TYPES`.
    """
    accept = headers.get("accept", "*/*")
    if accept in {"*/*", question}:
        return question
    weights = dict(_weight(part) for part in accept.split(",")[:32])
    order = [question, *(known for known in MEDIA_TYPES if known != question)]
    quality = {known: weights.get(known, weights.get("application/*", weights.get("*/*", 0.0))) for known in order}
    best = max(order, key=lambda known: quality[known])
    if quality[best] <= 0:
        raise NotAcceptable(f'answers come as {" or ".join(MEDIA_TYPES)}, not as "{accept[:64]}"')
    return best


def _weight(part: str) -> tuple[str, float]:
    """A media range of `Accept` and its q, which is 1 unless it says otherwise."""
    media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
    texts = [parameter[2:] for parameter in parameters if parameter.startswith("q=")]
    try:
        return media_range, float(texts[0]) if texts else 1.0
    except ValueError:
        return media_range, 0.0


def read(
    body: bytes | bytearray, media_type: str, names: Sequence[str], max_bytes: int
) -> tuple[dict[str, NDArray[Any]], Coding]:
    """The arrays of a body, by the names of the model's inputs, and how they were coded.

    Args:
        body: The whole body.
        media_type: As `question_type` found it.
        names: The inputs of the model; an .npy body holds the only one.
        max_bytes: The most that one array may take as float32.

    Raises:
        UnreadableBody: The body is not what its media type says.
        InvalidArray: It is, and holds something else than the arrays asked for.
        BodyTooLarge: An array would be too large as float32.
    """
    if media_type == JSON:
        return _read_json(body, names, max_bytes)
    if media_type == safetensors.MEDIA_TYPE:
        return _read_safetensors(body, names, max_bytes), Coding(media_type)
    if len(names) != 1:
        raise UnsupportedMediaType(
            f"the model takes {', '.join(names)}: one .npy file cannot hold them, send {' or '.join(_SEVERAL)}"
        )
    return {names[0]: npy.read(body, names[0], max_bytes)}, Coding(npy.MEDIA_TYPE)


def write(model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], coding: Coding) -> bytes:
    """The body of an answer.

    Raises:
        NotAcceptable: The model has several outputs, which one .npy file cannot hold.
    """
    if coding.media_type == JSON:
        arrays = {name: _base64(array) if coding.base64 else array for name, array in outputs.items()}
        return orjson.dumps({"model": model, "version": version, "outputs": arrays}, option=orjson.OPT_SERIALIZE_NUMPY)
    if coding.media_type == safetensors.MEDIA_TYPE:
        return safetensors.write(outputs, {"model": model, "version": str(version)})
    return _write_npy(outputs, "answers")


def write_question(inputs: Mapping[str, NDArray[Any]], media_type: str) -> bytes:
    """A body that can be posted as it is.

    Raises:
        NotAcceptable: The model has several inputs, which one .npy file cannot hold.
    """
    if media_type == JSON:
        return orjson.dumps({"inputs": dict(inputs)}, option=orjson.OPT_SERIALIZE_NUMPY)
    if media_type == safetensors.MEDIA_TYPE:
        return safetensors.write(inputs, {})
    return _write_npy(inputs, "takes")


def _read_safetensors(body: bytes | bytearray, names: Sequence[str], max_bytes: int) -> dict[str, NDArray[Any]]:
    found = safetensors.read(body, max_bytes)
    check_names(found, names)
    return found


def _write_npy(named: Mapping[str, NDArray[Any]], verb: str) -> bytes:
    if len(named) != 1:
        raise NotAcceptable(
            f"the model {verb} {', '.join(named)}: one .npy file cannot hold them, accept {' or '.join(_SEVERAL)}"
        )
    [array] = named.values()
    return npy.write(array)


def _base64(array: NDArray[np.float32]) -> dict[str, Any]:
    text = base64.b64encode(np.ascontiguousarray(array, "<f4").data)
    return {"shape": array.shape, "dtype": "float32", "base64": text.decode("ascii")}


def _read_json(body: bytes | bytearray, names: Sequence[str], max_bytes: int) -> tuple[dict[str, NDArray[Any]], Coding]:
    inputs = _inputs(body, names)
    arrays = {
        name: _decode(value, name, max_bytes) if isinstance(value, dict) else nested(value, name)
        for name, value in inputs.items()
    }
    return arrays, Coding(JSON, base64=any(isinstance(value, dict) for value in inputs.values()))


def _inputs(body: bytes | bytearray, names: Sequence[str]) -> dict[str, Any]:
    """The value of `inputs`, with exactly the model's names as keys."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        hint = "; JSON has no NaN and no Infinity" if b"NaN" in body or b"Infinity" in body else ""
        raise UnreadableBody(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}{hint}") from error
    if not isinstance(document, dict) or set(document) != {"inputs"} or not isinstance(document["inputs"], dict):
        raise UnreadableBody(f'expected {{"inputs": {{"{names[0]}": <array>}}}} as the JSON body')
    inputs: dict[str, Any] = document["inputs"]
    check_names(inputs, names)
    return inputs


def check_names(sent: Mapping[str, Any] | Sequence[str], names: Sequence[str]) -> None:
    """Compare what was sent with the inputs of the model.

    Raises:
        WrongInput: One is missing, or there is one that the model does not have.
    """
    for name in names:
        if name not in sent:
            raise WrongInput(f'input "{name}" is missing; got {_quoted(sent)}', array=name)
    for name in sent:
        if name not in names:
            raise WrongInput(f'there is no input "{name[:64]}"; the model takes {_quoted(names)}', array=name[:64])


def _quoted(names: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(f'"{name[:64]}"' for name in list(names)[:8]) or "none"


def _decode(value: dict[str, Any], name: str, max_bytes: int) -> NDArray[Any]:
    """An array from `{"shape", "dtype", "base64"}`, as a view of the decoded bytes."""
    if len(value) > _MANY:  # each would be a fault, and each fault be described
        raise UnreadableBody(f'inputs.{name} has {len(value)} keys; expected "shape", "dtype", "base64"')
    try:
        coded = Base64Array.model_validate(value)
        data = base64.b64decode(coded.base64, validate=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(key)[:32] for key in first["loc"])
        raise UnreadableBody(f'inputs.{name}.{place}: {first["msg"]}; expected "shape", "dtype", "base64"') from error
    except (binascii.Error, ValueError) as error:
        raise UnreadableBody(f"inputs.{name}.base64: {error}") from error
    if coded.dtype not in DTYPES:
        raise WrongDtype(f'{name}: dtype "{coded.dtype[:32]}" is not read; use one such as "float32"', array=name)
    return raw.view(data, np.dtype(coded.dtype), coded.shape, name, max_bytes, "base64")


def nested(value: Any, name: str) -> NDArray[Any]:
    """An array from nested lists of numbers, integers if all of them are; null becomes NaN, which no model takes.

    Raises:
        InvalidArray: The first place that is no number, or where a list is longer or shorter than those before it.
        UnreadableBody: A number that no float64 holds.
    """
    if not isinstance(value, list):
        raise WrongShape(f"{name}: expected nested lists of numbers or base64 but got {_kind(value)}", array=name)
    kinds = _kinds(value)
    if not kinds <= {int, float}:
        _search(value, name)
    try:
        return np.array(value, None if kinds == {int} else np.float64)
    except (ValueError, TypeError, OverflowError):
        _search(value, name)
        raise UnreadableBody(f"inputs.{name}: nested lists of numbers of equal length expected") from None


def _kinds(value: list[Any], depth: int = raw.MAX_RANK) -> set[type]:
    """What is in these lists, which are looked at once each: their numbers' types, or else any other."""
    kinds = set(map(type, value))
    if kinds != {list} or depth == 1:
        return kinds
    found: set[type] = set()
    for item in value:
        found |= _kinds(item, depth - 1)
    return found


def _search(value: list[Any], name: str) -> None:
    """Raise for the first place that is not as its elder siblings are, or is no number."""
    shape: list[int] = []
    first: Any = value
    while isinstance(first, list) and len(shape) <= raw.MAX_RANK:
        shape.append(len(first))
        first = first[0] if first else 0.0
    if len(shape) > raw.MAX_RANK:
        raise WrongShape(f"{name}: lists nested deeper than {raw.MAX_RANK}", array=name)
    _visit(value, shape, (), name)


def _visit(value: Any, shape: list[int], index: tuple[int, ...], name: str) -> None:
    place = f"{name}[{','.join(map(str, index))}]" if index else name
    if len(index) == len(shape):
        if isinstance(value, list):
            raise WrongShape(f"{place} is a list; expected a number as in the rows before", array=name, index=index)
        if value is not None and not isinstance(value, int | float):
            raise WrongDtype(f"{place} is {_kind(value)}; expected a number", array=name, index=index)
        return
    if not isinstance(value, list):
        raise WrongShape(f"{place} is {_kind(value)}; expected a list of {shape[len(index)]}", array=name, index=index)
    if len(value) != shape[len(index)]:
        raise WrongShape(
            f"{place} has {len(value)} entries; the ones before have {shape[len(index)]}", array=name, index=index
        )
    for position, item in enumerate(value):
        _visit(item, shape, (*index, position), name)


def _kind(value: Any) -> str:
    """The JSON word for a decoded value."""
    words = {str: "a string", dict: "an object", bool: "a boolean", type(None): "null", list: "a list"}
    return words.get(type(value), "a number")
