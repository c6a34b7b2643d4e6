"""The .npy reader: it reads what NumPy writes, and refuses whatever else is sent."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from serving.codecs import binary
from serving.errors import Problem
from tests.refusals import refused

LIMIT = 2**20
numbers = st.sampled_from([f"{order}{kind}" for order in "<>" for kind in ("f2", "f4", "f8", "i2", "i8", "u4")])
dtypes = st.one_of(numbers, st.sampled_from(["i1", "u1", "?"]))
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7))


def saved(array: NDArray[Any], version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


@given(arrays, st.booleans(), st.sampled_from([(1, 0), (2, 0), (3, 0)]))
def test_reads_what_numpy_writes(array: NDArray[Any], fortran: bool, version: tuple[int, int]) -> None:
    array = np.asfortranarray(array) if fortran else array
    read = binary.read_npy(saved(array, version), "a", LIMIT)
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@given(arrays)
def test_numpy_reads_what_it_writes(array: NDArray[Any]) -> None:
    written = binary.write_npy(array)
    assert written == saved(np.asarray(array, order="C"))


def test_is_a_view_of_the_body() -> None:
    body = saved(np.ones((3, 4), "<f4"))
    assert not binary.read_npy(body, "a", LIMIT).flags.owndata


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(Problem):
        binary.read_npy(noise, "a", LIMIT)


@given(st.integers(0, 127), st.binary(min_size=1, max_size=8))
def test_a_damaged_file_is_read_or_refused(position: int, damage: bytes) -> None:
    body = bytearray(saved(np.ones((3, 4), "<f4")))
    body[position : position + len(damage)] = damage
    with contextlib.suppress(Problem):
        binary.read_npy(body, "a", LIMIT)


@given(st.text(st.characters(codec="ascii"), max_size=300))
def test_a_strange_header_is_refused(text: str) -> None:
    header = text.encode()
    body = npy_format.MAGIC_PREFIX + b"\x01\x00" + len(header).to_bytes(2, "little") + header
    with pytest.raises(Problem):
        binary.read_npy(body, "a", LIMIT)


def test_truncated_at_any_offset_is_unreadable() -> None:
    body = saved(np.ones((3, 4), "<f4"))
    for end in range(len(body)):
        with refused("unreadable-body", match="a: "):
            binary.read_npy(body[:end], "a", LIMIT)


def test_trailing_bytes_are_unreadable() -> None:
    with refused("unreadable-body", match=r"shape \[3, 4\] of float32 takes 48 bytes, but the \.npy file holds 49"):
        binary.read_npy(saved(np.ones((3, 4), "<f4")) + b"x", "a", LIMIT)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.array([[{}]], object), "pickle"),
        (np.ones(3, complex), "complex"),
        (np.array(["a"]), "strings"),
        (np.array([b"a"]), "byte strings"),
        (np.ones(3, np.longdouble), "not portable"),
        (np.zeros(3, "M8[s]"), "dates"),
        (np.zeros(3, "V4"), "records"),
        (np.zeros(3, [("x", "<f4"), ("y", "<f4")]), "structured"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*metadata")
def test_other_types_are_refused_by_name(array: NDArray[Any], kind: str) -> None:
    with refused("wrong-dtype", match=kind):
        binary.read_npy(saved(array), "a", LIMIT)


def test_a_pickle_is_not_opened() -> None:
    with refused("unreadable-body", match="the magic string is not correct"):
        binary.read_npy(pickle.dumps(np.ones(3)), "a", LIMIT)


def header(text: str) -> bytes:
    return npy_format.MAGIC_PREFIX + b"\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "shape",
    [
        "(3)",
        "3",
        "(1e3,)",
        "[3]",
        "(99999999999999999999,)",
        "((3,),)",
        "(3,,)",
        "'3'",
        "(" + "9" * 5000 + ",)",
    ],
)
def test_a_shape_that_is_none_is_unreadable(shape: Any) -> None:
    with refused("unreadable-body"):
        binary.read_npy(header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"), "a", LIMIT)


@pytest.mark.parametrize("shape", ["(-1, 3)", "(-1, -3)", "(True, 3)", "(3, True)"])
def test_a_shape_that_no_field_has_is_refused_as_it_was_sent(shape: str) -> None:
    with refused("wrong-shape", match=re.escape(f"a: shape [{shape[1:-1]}] is not the shape of a field")):
        binary.read_npy(header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}") + bytes(12), "a", LIMIT)


def test_an_error_names_no_object_of_python() -> None:
    with refused("unreadable-body", match=r"header bytes: malformed node or string on line 1$"):
        binary.read_npy(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2**9, 3)}"), "a", LIMIT)


def test_a_shape_allocates_nothing() -> None:
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999, 999999999999)}"
    with refused("unreadable-body", match=r"takes more than 10\^18 bytes, but the \.npy file holds 0"):
        binary.read_npy(header(text), "a", LIMIT)


def test_ranks_are_bounded() -> None:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1, ' * 9})}}"
    with refused("wrong-shape", match=r"1, 1\] is not the shape of a field"):
        binary.read_npy(header(text) + bytes(4), "a", LIMIT)


def test_a_long_header_is_refused_before_it_is_read() -> None:
    body = npy_format.MAGIC_PREFIX + b"\x02\x00" + (2**31).to_bytes(4, "little")
    with refused("unreadable-body", match=r"not an \.npy file of at most 10000 header bytes: EOF"):
        binary.read_npy(body, "a", LIMIT)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("filling", [" ", "1 ", "1,", "(", "[", "]", "] ", "'", "'a': ", "'a': 1, "])
def test_no_header_takes_long(filling: str) -> None:
    for opening in ("{'shape': (1", "{'descr': [", "{", "{'shape': ("):
        with pytest.raises(Problem):
            binary.read_npy(header((opening + filling * 10_000)[:9_990] + "x}"), "a", LIMIT)


def test_the_limit_is_on_float32() -> None:
    with refused("body-too-large", match="4004 bytes as float32"):
        binary.read_npy(saved(np.ones(1001, "u1")), "a", 4000)
