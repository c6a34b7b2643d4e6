"""Negotiation and the JSON codec."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from starlette.datastructures import Headers

from serving.codecs import binary, json_arrays
from serving.codecs.binary import NPY
from serving.codecs.json_text import PIECE
from serving.document import JSON
from serving.errors import Problem
from serving.protocols import over_http
from serving.protocols.v1 import Body
from serving.quality import Quality
from tests.refusals import refused
from tests.toy_fields import taking

LIMIT = 2**20
NETWORK = Quality({}, np.zeros(1, np.bool_))
fields = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=5),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)


def body(value: object, name: str = "a") -> bytes:
    return json.dumps({"inputs": {name: value}}).encode()


def read(content: bytes) -> NDArray[Any]:
    return Body(content, JSON, JSON).read(taking("a"), LIMIT)["a"]


@given(fields)
def test_nested_lists_round_trip(array: NDArray[Any]) -> None:
    written = Body(b"", JSON, JSON).write(taking("a"), {"a": array}, NETWORK)
    document = json.loads(written.body)
    assert (document["model"], document["version"]) == ("m", 3)
    np.testing.assert_array_equal(read(body(document["outputs"]["a"])).astype(np.float32), array)


@given(fields)
def test_base64_round_trips(array: NDArray[Any]) -> None:
    exchange = Body(body(orjson.loads(orjson.dumps(json_arrays.encode(array)))), JSON, JSON)
    np.testing.assert_array_equal(exchange.read(taking("a"), LIMIT)["a"], array)
    written = json.loads(exchange.write(taking("a"), {"a": array}, NETWORK).body)
    np.testing.assert_array_equal(read(body(written["outputs"]["a"])), array)
    assert written["outputs"]["a"].keys() == {"shape", "dtype", "base64"}


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(Problem):
        read(noise)


@given(nested)
def test_any_json_is_read_or_refused(value: Any) -> None:
    for content in (body(value), json.dumps(value).encode()):
        with contextlib.suppress(Problem):
            assert read(content).dtype.kind in "fiub"


def test_truncated_at_any_offset_is_unreadable() -> None:
    content = body([[1.0, 2.0], [3.0, 4.0]])
    for end in range(len(content)):
        with refused("unreadable-body", match="line 1 column"):
            read(content[:end])


@pytest.mark.parametrize(
    ("value", "problem", "message"),
    [
        ([[1, 2], [3]], "wrong-shape", r"a\[1\] has 1 entries; the ones before have 2"),
        ([[1, 2], 3], "wrong-shape", r"a\[1\] is a number; expected a list of 2"),
        ([[1, 2], [3, [4]]], "wrong-shape", r"a\[1,1\] is a list"),
        ([[1, "2"], [3, 4]], "wrong-dtype", r"a\[0,1\] is a string"),
        ([["nan", "1"], ["2", "3"]], "wrong-dtype", r"a\[0,0\] is a string"),
        ([[1, 2], [{}, 4]], "wrong-dtype", r"a\[1,0\] is an object"),
        ("1.0", "wrong-shape", "a: expected nested lists of numbers, a number or base64 but got a string"),
        (True, "wrong-shape", "a: expected nested lists .* got a boolean"),
        (None, "wrong-shape", "a: expected nested lists .* got null"),
    ],
)
def test_the_first_odd_value_is_named(value: Any, problem: Any, message: str) -> None:
    with refused(problem, match=message):
        read(body(value))


def test_a_long_string_among_numbers_is_not_multiplied() -> None:
    with refused("wrong-dtype"):
        read(body([1.0] * 1000 + ["9" * 100_000]))


def test_a_number_has_no_axes() -> None:
    assert (read(body(0.3)).shape, read(body(7))[()]) == ((), 7)


def test_what_has_a_default_may_be_left_out() -> None:
    found = Body(b'{"inputs": {"a": [1]}}', JSON, JSON).read(taking("a", "b", optional={"b"}), LIMIT)
    assert list(found) == ["a"]
    npy_body = binary.write_npy(np.ones(3))
    exchange = Body(npy_body, NPY, NPY)
    assert list(exchange.read(taking("a", "b", optional={"a"}), LIMIT)) == ["b"]
    assert list(exchange.read(taking("a", optional={"a"}), LIMIT)) == ["a"]
    with refused("unsupported-media-type", match="takes a, b: one"):
        exchange.read(taking("a", "b", "c", optional={"c"}), LIMIT)


def test_null_is_nan() -> None:
    assert np.isnan(read(body([1.0, None]))[1])


@pytest.mark.parametrize("depth", [33, 900])
def test_deep_lists_are_refused(depth: int) -> None:
    with refused("wrong-shape", match="nested deeper than 8"):
        read(b'{"inputs": {"a": ' + b"[" * depth + b"]" * depth + b"}}")


def test_a_literal_nan_is_explained() -> None:
    with refused("unreadable-body", match=r"column 22.*JSON has no NaN"):
        read(b'{"inputs": {"a": [1, NaN]}}')


@pytest.mark.parametrize("content", [b"[]", b'"a"', b'{"a": [1]}', b'{"inputs": [1]}'])
def test_another_document_is_unreadable(content: bytes) -> None:
    with refused("unreadable-body", match=r'expected \{"inputs"'):
        read(content)


def test_an_unknown_member_is_named() -> None:
    with refused("unreadable-body", match='no member "x"; there are'):
        read(b'{"inputs": {}, "x": 1}')


def test_inputs_are_the_models() -> None:
    with refused("wrong-input", match='"a" is missing; got "b"') as caught:
        read(body([1], name="b"))
    assert caught.value.where is not None
    assert caught.value.where.array == "a"
    with refused("wrong-input", match='no input "b"'):
        Body(b'{"inputs": {"a": [1], "b": [1]}}', JSON, JSON).read(taking("a"), LIMIT)


def coded(**change: object) -> bytes:
    return body({"shape": [2], "dtype": "float32", "base64": base64.b64encode(bytes(8)).decode()} | change)


@pytest.mark.parametrize(
    ("change", "problem", "pattern"),
    [
        ({"base64": "????"}, "unreadable-body", r"inputs\.a\.base64"),
        ({"base64": "é"}, "unreadable-body", r"inputs\.a\.base64"),
        ({"shape": [3]}, "unreadable-body", r"\[3\] of float32 takes 12 bytes, but base64 holds 8"),
        ({"shape": "2"}, "unreadable-body", r"inputs\.a\.shape"),
        ({"shape": ["2"]}, "unreadable-body", r"inputs\.a\.shape\.0: Input should be a valid integer"),
        ({"shape": [True, 2]}, "unreadable-body", r"inputs\.a\.shape\.0: Input should be a valid integer"),
        ({"shape": [-2, -1]}, "wrong-shape", "a: shape"),
        ({"shape": [1] * 8 + [2]}, "wrong-shape", "a: shape"),
        ({"dtype": "object"}, "wrong-dtype", '"object" is not read'),
        ({"dtype": "O"}, "wrong-dtype", '"O" is not read'),
        ({"extra": 1}, "unreadable-body", r"inputs\.a\.extra"),
        ({"dtype": "uint8", "shape": [8]}, None, ""),
    ],
)
def test_base64_says_what_is_wrong(change: dict[str, Any], problem: Any, pattern: str) -> None:
    if problem is None:
        assert read(coded(**change)).shape == (8,)
        return
    with refused(problem, match=pattern):
        read(coded(**change))


def test_the_limit_is_on_float32() -> None:
    value = {"shape": [1001], "dtype": "uint8", "base64": base64.b64encode(bytes(1001)).decode()}
    with refused("body-too-large", match="4004 bytes as float32"):
        Body(body(value), JSON, JSON).read(taking("a"), 4000)


def test_one_npy_holds_one_array() -> None:
    with refused("unsupported-media-type", match="takes a, b"):
        Body(b"", NPY, NPY).read(taking("a", "b"), LIMIT)
    with refused("not-acceptable", match="outputs are a, b"):
        Body(b"", NPY, NPY).write(taking("a"), {"a": np.ones(1, np.float32), "b": np.ones(1, np.float32)}, NETWORK)


@pytest.mark.parametrize(
    ("accept", "default", "chosen"),
    [
        (None, NPY, NPY),
        (None, JSON, JSON),
        ("*/*", NPY, NPY),
        ("application/*", JSON, JSON),
        (JSON, NPY, JSON),
        ("application/json;q=0.2, application/x-npy", JSON, NPY),
        ("application/x-npy;q=0, */*", NPY, JSON),
        ("text/html, application/json;q=0.5", NPY, JSON),
        ("APPLICATION/JSON ; Q=1", NPY, JSON),
    ],
)
def test_accept_chooses(accept: str | None, default: str, chosen: str) -> None:
    assert over_http.response_type(Headers({} if accept is None else {"accept": accept}), default) == chosen


def test_lines_of_a_header_are_one_list() -> None:
    def lines(name: str, *values: str) -> Headers:
        return Headers(raw=[(name.encode(), value.encode()) for value in values])

    assert over_http.response_type(lines("accept", "text/html", f"{binary.NPY};q=0.5", JSON), binary.NPY) == JSON
    with refused("unsupported-media-type", match='got "application/x-npy, application/json"'):
        over_http.request_type(lines("content-type", binary.NPY, JSON))


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "application/json;q=x", ""])
def test_nothing_acceptable(accept: str | None) -> None:
    with refused("not-acceptable"):
        over_http.response_type(Headers({"accept": accept}), JSON)


def test_the_request_states_its_type() -> None:
    assert over_http.request_type(Headers({"content-type": "Application/JSON; charset=utf-8"})) == JSON
    with refused("unsupported-media-type", match="application/x-npy or application/json"):
        over_http.request_type(Headers({"content-type": "text/plain"}))


def test_lists_of_unequal_lengths_are_refused_by_models_without_counts() -> None:
    """Sequences of other models are not padded; those on points are in `tests/serving/inference`."""
    body = {"coordinates": [[[0, 0]] * 3, [[0, 0]] * 2], "source": [[1, 2, 3], [4]]}
    with refused("wrong-shape"):
        json_arrays.read(json.dumps({"inputs": body}).encode(), ("coordinates", "source"), 1000)


@pytest.mark.parametrize("place", [4 * PIECE - 4, 4 * PIECE, 6 * PIECE])
def test_nothing_follows_the_padding_of_base64(place: int) -> None:
    """Also where a piece ends that is decoded by itself."""
    text = "A" * (8 * PIECE)
    coded = {"shape": [6 * PIECE], "dtype": "uint8", "base64": text}
    assert not Body(body(coded), JSON, JSON).read(taking("a"), 2**26)["a"].any()
    coded |= {"base64": f"{text[:place]}AA=={text[place + 4 :]}"}
    with refused("unreadable-body", match=r"inputs\.a\.base64"):
        Body(body(coded), JSON, JSON).read(taking("a"), 2**26)
