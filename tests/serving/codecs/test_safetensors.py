"""The safetensors format: malformed headers, the gateway's limits, and the format on `/v1`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, BinaryIO, cast

import httpx2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from safetensors.numpy import load, save

from serving.codecs import binary
from serving.document import JSON
from serving.errors import Problem
from serving.protocols.v1 import Body
from serving.quality import Quality
from tests.conftest import Gateway
from tests.refusals import refused
from tests.serving.conftest import Toy
from tests.toy_fields import taking

LIMIT = 2**20
MEDIA = {"Content-Type": binary.SAFETENSORS}
numbers = hnp.arrays(
    st.sampled_from(["?", "<f2", "<f4", "<f8", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8"]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
names = st.text(min_size=1, max_size=5).filter(lambda name: name != "__metadata__")


def file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(begin: int, end: int, shape: list[Any] | None = None, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


ENTRY = json.dumps(entry(0, 4)).encode()


@given(st.dictionaries(names, numbers, max_size=4))
def test_what_the_library_writes_is_read(tensors: dict[str, NDArray[Any]]) -> None:
    found = binary.read_safetensors(save(tensors, metadata={"format": "np"}), LIMIT)
    assert set(found) == set(tensors)
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@given(st.dictionaries(names, hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4)), max_size=4))
def test_what_is_written_the_library_reads(tensors: dict[str, NDArray[np.float32]]) -> None:
    written = binary.write_safetensors(tensors, {"model": "m"})
    assert int.from_bytes(written[:8], "little") % 8 == 0
    found = load(written)
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array)


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for body in (noise, file(noise)):
        try:
            assert binary.read_safetensors(body, LIMIT) == {}
        except Problem:
            continue


def test_truncated_at_any_offset_is_unreadable() -> None:
    body = save({"a": np.ones((3, 4), np.float32), "b": np.ones(5)})
    for end in range(len(body)):
        with refused("unreadable-body"):
            binary.read_safetensors(body[:end], LIMIT)


@pytest.mark.parametrize(
    ("body", "problem", "pattern"),
    [
        (b"", "unreadable-body", "ends within its header"),
        (file({}, length=2**63), "unreadable-body", "9223372036854775808 bytes long; the limit is 65536"),
        (file(b" " * 70_000), "unreadable-body", "70000 bytes long"),
        (file({}, length=99), "unreadable-body", "ends within its header of 99 bytes"),
        (file(b"[" * 65_536), "unreadable-body", "header is not JSON"),
        (file([1]), "unreadable-body", "header is no object"),
        (
            file(b'{"a":%b,"a":%b}' % (ENTRY, ENTRY), bytes(4)),
            "unreadable-body",
            'the JSON has "a" twice in one object',
        ),
        (file({"a": 1}), "unreadable-body", "header of a: Input should be an object$"),
        (file({"a": {"dtype": "F32", "shape": [1]}}), "unreadable-body", r"header of a\.data_offsets: Field required"),
        (
            file({"a": entry(0, 4, ["1"])}, bytes(4)),
            "unreadable-body",
            r"a\.shape\.0: Input should be a valid integer",
        ),
        (file({"a": entry(0, 4, [-1])}, bytes(4)), "unreadable-body", "greater than or equal to 0"),
        (file({"a": entry(0, 4, [True])}, bytes(4)), "unreadable-body", "a valid integer"),
        (file({"a": entry(0, 4, [1.0])}, bytes(4)), "unreadable-body", "a valid integer"),
        (file({"a": entry(0, 4, [2**64])}, bytes(4)), "unreadable-body", "a valid integer"),
        (file({"a": entry(0, 4, [2**62, 2**62])}, bytes(4)), "unreadable-body", r"more than 10\^18 bytes"),
        (file({"a": entry(0, 4, [2])}, bytes(4)), "unreadable-body", "takes 8 bytes, but its part of the file holds 4"),
        (
            file({"a": entry(0, 8)}, bytes(4)),
            "unreadable-body",
            "a: data_offsets 0 and 8; .* no more than 4",
        ),
        (file({"a": entry(4, 0, [])}, bytes(4)), "unreadable-body", "a: data_offsets 4 and 0; expected 0"),
        (file({"a": entry(4, 8)}, bytes(8)), "unreadable-body", "a: data_offsets 4 and 8; expected 0"),
        (
            file({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)),
            "unreadable-body",
            "b: .* 4 and 12; expected 8",
        ),
        (
            file({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)),
            "unreadable-body",
            "b: .* 8 and 12; expected 4",
        ),
        (
            file({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4)),
            "unreadable-body",
            "b: .* 0 and 4; expected 4",
        ),
        (file({"a": entry(0, 4)}, bytes(9)), "unreadable-body", "5 bytes follow the last tensor"),
        (file({"a": entry(0, 4, [1] * 9)}, bytes(4)), "wrong-shape", "not the shape of a field"),
        (file({"a": entry(0, 0, [0, 2**63])}), "wrong-shape", "not the shape of a field"),
        (file({"a": entry(0, 4, [2], "BF16")}, bytes(4)), "wrong-dtype", 'a: dtype "BF16" is not read'),
        (file({"a": entry(0, 4, [4], "F8_E4M3")}, bytes(4)), "wrong-dtype", '"F8_E4M3" is not read'),
        (file({"a": entry(0, 1, [2], "F4")}, bytes(1)), "wrong-dtype", '"F4" is not read'),
        (file({"a": entry(0, 1001, [1001], "U8")}, bytes(1001)), "body-too-large", "4004 bytes as float32"),
    ],
)
def test_a_malformed_header_is_refused_by_name(body: bytes, problem: str, pattern: str) -> None:
    with refused(problem, match=pattern):
        binary.read_safetensors(body, 4000)


def test_several_inputs_and_outputs_go_in_one_file() -> None:
    sent = {"a": np.ones((2, 3), np.float32), "b": np.zeros((2, 3))}
    exchange = Body(bytearray(save(sent)), binary.SAFETENSORS, binary.SAFETENSORS)
    found = exchange.read(taking("b", "a"), LIMIT)
    for name, array in sent.items():
        np.testing.assert_array_equal(found[name], array)
    outputs = {"u": np.ones(2, np.float32), "v": np.zeros(3, np.float32)}
    written = load(exchange.write(taking("a"), outputs, Quality({}, np.zeros(1, np.bool_))).body)
    assert {name: array.shape for name, array in written.items()} == {"u": (2,), "v": (3,)}
    with refused("wrong-input", match='"c" is missing; got "a", "b"'):
        exchange.read(taking("a", "b", "c"), LIMIT)
    with refused("wrong-input", match='no input "b"'):
        exchange.read(taking("a"), LIMIT)


@pytest.mark.parametrize("shape", [(25, 31), (11, 25, 31)])
def test_a_model_predicts_from_a_file(gateway: Gateway, toy: Toy, shape: tuple[int, ...]) -> None:
    path = f"{gateway.url}/v1/models/{toy.name}/predict"
    array = np.random.default_rng(7).uniform(3, 12, shape)
    response = httpx2.post(path, content=save({"coefficient": array}), headers=MEDIA)
    assert (response.status_code, response.headers["content-type"]) == (200, binary.SAFETENSORS)
    np.testing.assert_allclose(load(response.content)["solution"], toy.output(array), rtol=1e-5)
    listed = httpx2.post(path, content=save({"coefficient": array}), headers={**MEDIA, "Accept": JSON})
    np.testing.assert_allclose(np.array(listed.json()["outputs"]["solution"]), toy.output(array), rtol=1e-5)


def test_a_bad_file_is_a_problem(gateway: Gateway, toy: Toy) -> None:
    path = f"{gateway.url}/v1/models/{toy.name}/predict"
    response = httpx2.post(path, content=save({"coefficient": -np.ones((25, 25))}), headers=MEDIA)
    assert (response.status_code, response.json()["type"]) == (422, "urn:petrov:problem:non-positive")
    assert response.headers["content-type"] == "application/problem+json"


def test_an_example_comes_as_a_file(gateway: Gateway, toy: Toy) -> None:
    url = f"{gateway.url}/v1/models/{toy.name}/example?grid=25"
    found = load(httpx2.get(url, headers={"Accept": binary.SAFETENSORS}).content)
    assert found["coefficient"].shape == (25, 25)


def test_one_sample_of_a_file_is_read_and_nothing_else(tmp_path: Path) -> None:
    fields, labels = np.arange(60, dtype=np.float32).reshape(4, 3, 5), np.arange(4, dtype=np.int32)
    path = tmp_path / "examples.safetensors"
    path.write_bytes(save({"u": fields, "label": labels}))
    with path.open("rb", buffering=0) as file:
        reader = Counted(file)
        found, count = binary.read_sample(cast("BinaryIO", reader), 2)
    assert count == 4
    np.testing.assert_array_equal(found["u"], fields[2])
    assert found["label"] == 2
    assert reader.read_bytes == path.stat().st_size - 3 * (fields[0].nbytes + labels[0].nbytes)


class Counted:
    """A file that counts the bytes that are read."""

    def __init__(self, file: BinaryIO | io.FileIO) -> None:
        self._file, self.read_bytes = file, 0
        self.seek, self.fileno = file.seek, file.fileno

    def read(self, count: int) -> bytes:
        found = self._file.read(count) or b""
        self.read_bytes += len(found)
        return found


@pytest.mark.parametrize(
    "content",
    [
        b"damaged",
        file({}),
        file(b"{"),
        file({"a": entry(0, 8, [])}, bytes(8)),
        file({"a": entry(0, 8, [0, 2])}, bytes(8)),
        file({"a": entry(0, 8, [3])}, bytes(8)),
        file({"a": entry(0, 8, [2], "F3")}, bytes(8)),
        file({"a": entry(0, 8, [2])}, bytes(7)),
        file({"a": entry(0, 2**60, [2**58])}, bytes(8)),
    ],
)
def test_a_file_that_holds_no_samples_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "examples.safetensors"
    path.write_bytes(content)
    with path.open("rb") as found, pytest.raises((Problem, ValueError, KeyError)):
        binary.read_sample(found, 0)
