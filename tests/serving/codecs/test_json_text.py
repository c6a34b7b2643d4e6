"""Long JSON is parsed and written in pieces, and is the same JSON."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from serving.codecs import json_arrays, json_text
from serving.codecs.json_text import LongList, parsed, written
from serving.errors import Problem
from serving.inputs import offload
from tests.refusals import refused

numbers = st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
arrays = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=1, max_dims=4, max_side=7), elements=st.floats(-9, 9, width=16)
)
whole = hnp.arrays(np.int64, hnp.array_shapes(min_dims=1, max_dims=4, max_side=7), elements=st.integers(-9, 10**6))
objects = st.dictionaries(
    st.text(max_size=3), st.text(max_size=9) | numbers | st.lists(st.text(max_size=2)), max_size=3
)


@pytest.fixture(scope="module", autouse=True)
def short_pieces() -> Any:
    """Have every text of some bytes be a long one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PIECE": 24, "_SHORT_LIST": 8, "_SHORT_LISTS": 16, "_NUMBERS": 5}.items():
            patch.setattr(json_text, name, value)
        yield


def read(text: bytes, name: str = "a") -> Any:
    return json_arrays.nested(parsed(text)[name], name)


def filled(value: Any) -> Any:
    """Return a document with lists in the place of long ones."""
    if isinstance(value, LongList):
        return json.loads(value.text[value.start : value.end])
    if isinstance(value, dict):
        return {name: filled(each) for name, each in value.items()}
    return [filled(each) for each in value] if isinstance(value, list) else value


@settings(deadline=None, max_examples=40)  # a large example has thousands of pieces
@given(arrays | whole, objects, st.sampled_from([None, 1]))
def test_long_lists_are_the_arrays_that_they_say(array: NDArray[Any], beside: Any, indent: int | None) -> None:
    document = {"x": beside, "a": array.tolist(), "y": [beside, {"z": array.tolist()}]}
    text = json.dumps(document, indent=indent).encode()
    found = read(text)
    assert found.dtype.kind == array.dtype.kind
    np.testing.assert_array_equal(found, array)
    assert filled(parsed(text)) == document


def test_integers_before_others_become_floats() -> None:
    values = [*range(20), 0.5, *range(20), None]
    found = read(json.dumps({"a": values}).encode())
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.array(values, np.float64))


@pytest.mark.parametrize(
    ("change", "index"),
    [
        (lambda rows: rows[7].append(1), [7]),
        (lambda rows: rows[7].pop(), [7]),
        (lambda rows: rows.__setitem__(7, 3), [7]),
        (lambda rows: rows[7].__setitem__(1, [1]), [7, 1]),
        (lambda rows: rows[7].__setitem__(slice(2, 3), [True]), [7, 2]),
    ],
)
@pytest.mark.parametrize("columns", [3, 40])
def test_a_fault_is_found_where_it_is(change: Any, index: list[int], columns: int) -> None:
    """In rows that are shorter than a piece, or longer."""
    rows: list[Any] = [[0.5] * columns for _ in range(12)]
    change(rows)
    with pytest.raises(Problem) as caught:
        read(json.dumps({"a": rows}).encode())
    assert caught.value.kind in {"wrong-shape", "wrong-dtype"}
    assert caught.value.where is not None
    assert caught.value.where.index == index


@given(st.integers(0, 400), st.sampled_from([b"", b",", b"[", b"]", b"{", b'"', b" 1 ", b"x", b"}"]))
def test_damaged_text_is_refused_as_orjson_does(position: int, damage: bytes) -> None:
    good = json.dumps({"a": [[0.5] * 9 for _ in range(9)], "b": {"c": "text"}, "d": list(range(9))}).encode()
    text = good[:position] + damage + good[position + 1 :]
    try:
        expected = orjson.loads(text)
    except orjson.JSONDecodeError:
        expected = None
    try:
        found: Any = parsed(text)
        if expected is None:  # it is seen where the list is converted
            lists = [each for each in found.values() if isinstance(each, LongList)]
            for each in lists:
                json_arrays.nested(each, "a")
            raise AssertionError(text)
        assert filled(found) == expected
    except Problem:
        assert expected is None, text


plain = st.dictionaries(
    st.sampled_from(["a", ":", 'b"', "\\", ""]), numbers | st.sampled_from(["c:", '":', "\\"]), max_size=3
)
nested = st.recursive(plain, lambda inner: st.lists(inner, min_size=1) | st.dictionaries(st.text(max_size=2), inner))


@settings(max_examples=30)
@given(nested, st.sampled_from([None, 1]))
def test_names_that_differ_are_read(document: Any, indent: int | None) -> None:
    assert filled(parsed(json.dumps(document, indent=indent).encode())) == document


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": 2, "a": 1}',
        r'{"a": 1, "\u0061": 2}',
        '{"b": ":", "c": [["x", {"a": {"a": 1}, "a": 3}]]}',
        '{"a": [[1, 2, 3], [4, 5, 6], [7, 8, 9]], "b": "", "a": [[1, 2, 3], [4, 5, 6]]}',
    ],
)
def test_a_name_twice_in_one_object_is_refused(text: str) -> None:
    with refused("unreadable-body", match='the JSON has "a" twice in one object'):
        parsed(text.encode())


def test_the_search_for_names_is_short() -> None:
    with refused("unreadable-body", match="more than 4096 strings"):
        parsed(b'["a:"%b]' % (b',"a:"' * 5000))


def test_an_outline_has_few_parts() -> None:
    for part in (b'"",', b"{},", b"[{}],", b'"\\"",'):
        with refused("unreadable-body", "more than 4096 strings"):
            parsed(b'{"a": ["",' + part * 5000 + b"1]}")


def test_text_in_quotes_is_no_list() -> None:
    document = {'"[{': "]" * 40, "b": '\\"[1,2,3', "c": "\\\\", "a": [1.5] * 30}
    assert filled(parsed(json.dumps(document).encode())) == document


def test_a_list_ends_in_its_own_member() -> None:
    with refused("wrong-dtype", "the list at byte 6 has a string at byte"):
        parsed(b'{"a": [' + b"1," * 30 + b'"x"]}')
    with refused("unreadable-body", "a list does not end at line 1"):
        parsed(b'{"a": [' + b"1," * 30 + b"1}")


def test_lists_of_nothing_end_the_parsing() -> None:
    with refused("wrong-shape", r"a\[0\] is empty"):
        read(b'{"a": [' + b"[]," * 300 + b"[]]}")


def test_no_piece_is_long() -> None:
    found = parsed(b'{"a": [' + b"[1,2]," * 300 + b"[1,2]]}")["a"]
    lengths = [len(piece) for piece in found.pieces()]
    assert sum(lengths) == 301
    assert max(lengths) < 10
    assert found.items(3) == [[1, 2]] * 3


@given(arrays)
def test_arrays_are_written_in_pieces(array: NDArray[Any]) -> None:
    found = {"model": "m", "outputs": {"a": array, "b": array[..., ::2].copy()}, "c": [array, np.float32(2)]}
    expected = {"model": "m", "outputs": {"a": array, "b": found["outputs"]["b"]}, "c": [array, 2.0]}
    assert written(found) == orjson.dumps(expected, option=orjson.OPT_SERIALIZE_NUMPY)


async def test_what_is_large_is_decoded_beside_the_event_loop() -> None:
    assert await offload(100, threading.current_thread) is threading.main_thread()
    assert await offload(2**20, threading.current_thread) is not threading.main_thread()
