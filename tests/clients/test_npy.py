"""The bounded reader of `.npy` responses: it accepts what the writer writes, and nothing else."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from petrov_client import InvalidResponse
from petrov_client._codecs import decode_npy as decode
from petrov_client._codecs import encode_npy as encode

SHAPES = arrays.array_shapes(min_dims=1, max_dims=5, max_side=6)


def saved(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@given(arrays.arrays(np.float32, SHAPES))
def test_what_is_written_is_read_bit_for_bit(array: Any) -> None:
    read = decode(encode(array))
    assert read.shape == array.shape
    assert read.tobytes() == array.tobytes()


@given(arrays.arrays(np.float32, SHAPES))
def test_numpy_reads_what_is_written(array: Any) -> None:
    np.testing.assert_array_equal(np.load(io.BytesIO(encode(array)), allow_pickle=False), array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_format_is_read(version: tuple[int, int]) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array(  # type: ignore[no-untyped-call]  # NumPy leaves it untyped
        buffer, np.ones((2, 3), np.float32), version=version
    )
    assert decode(buffer.getvalue()).shape == (2, 3)


@given(arrays.arrays(np.float32, SHAPES), st.data())
def test_a_cut_or_lengthened_body_is_refused(array: Any, data: st.DataObject) -> None:
    body = encode(array)
    cut = data.draw(st.integers(0, len(body) - 1))
    for broken in (body[:cut], body + body[:cut] + b"\0"):
        with pytest.raises(InvalidResponse):
            decode(broken)


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(InvalidResponse):
        decode(noise)


@given(st.binary(max_size=200), st.sampled_from([1, 2, 3]))
def test_noise_in_the_header_is_refused(noise: bytes, version: int) -> None:
    width = 2 if version == 1 else 4
    with pytest.raises(InvalidResponse):
        decode(b"\x93NUMPY" + bytes([version, 0]) + len(noise).to_bytes(width, "little") + noise)


@pytest.mark.parametrize(
    "array",
    [
        np.ones((2, 3)),
        np.ones((2, 3), ">f4"),
        np.ones((2, 3), np.int32),
        np.asfortranarray(np.ones((2, 3), np.float32)),
        np.ones((0, 3), np.float32),
        np.zeros(3, [("x", "<f4")]),
    ],
    ids=["float64", "big-endian", "int32", "Fortran order", "empty", "structured"],
)
def test_other_arrays_are_refused(array: Any) -> None:
    with pytest.raises(InvalidResponse):
        decode(saved(array))


def test_a_pickle_is_refused() -> None:
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + pickle.dumps([print])
    with pytest.raises(InvalidResponse, match="C order"):
        decode(body)


def test_an_enormous_declared_shape_allocates_nothing() -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999, 999999999), }\n"
    with pytest.raises(InvalidResponse, match="bytes for shape"):
        decode(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(16))


def test_a_long_header_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidResponse, match="expected 4000000000 bytes got 64"):
        decode(b"\x93NUMPY\x02\x00" + (4_000_000_000).to_bytes(4, "little") + b" " * 64)
