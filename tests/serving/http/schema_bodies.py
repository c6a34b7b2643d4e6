"""What JSON Schema cannot say of the gateway's bodies, for Schemathesis (`SCHEMATHESIS_HOOKS`): drawn here, sent there.

`.npy` files, safetensors and the bytes of `/v2`, some of them good, some nearly so, some nothing at all. The names of
models are strings in the document; those that are served are tried most of the time.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import schemathesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from serving.codecs import binary

MODELS = ["blur", "tally", "drift"]
INPUTS = ["coefficient", "tokens"]
LARGEST = 4096  # bytes of a body that is nothing


def fields() -> st.SearchStrategy[NDArray[Any]]:
    """Fields that `blur` takes, sequences that `tally` takes, and arrays that no model takes."""
    numbers = st.floats(1, 2, width=32)
    good = arrays.arrays("<f4", arrays.array_shapes(min_dims=2, max_dims=3, min_side=4, max_side=6), elements=numbers)
    sequences = arrays.arrays(
        "<i4", arrays.array_shapes(min_dims=1, max_dims=2, max_side=5), elements=st.integers(1, 3)
    )
    other = arrays.arrays(
        st.sampled_from(["<f4", "<i4"]), arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5)
    )
    return good | sequences | other


def damaged(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Draw a body that ends early, with some of its bytes changed."""

    def change(body: bytes, length: float, changes: dict[int, int]) -> bytes:
        changed = bytes(changes.get(offset, byte) for offset, byte in enumerate(body))
        return changed[: round(length * len(body))]

    offsets = st.dictionaries(st.integers(0, 200), st.integers(0, 255), max_size=3)
    return st.builds(change, whole, st.just(1.0) | st.floats(0, 1), offsets)


def as_npy(array: NDArray[Any]) -> bytes:
    """Draw a file of one array of floating-point numbers."""
    return binary.write_npy(array.astype(np.float32))


def as_safetensors(array: NDArray[Any], name: str) -> bytes:
    """Draw a file of one named array."""
    return binary.write_safetensors({name: array.astype(np.float32)}, {})


def as_inference(array: NDArray[Any], name: str) -> bytes:
    """Draw a request of `/v2` in JSON, sent as bytes."""
    datatype = {"f": "FP32", "i": "INT32"}[array.dtype.kind]
    tensor = {"name": name, "shape": array.shape, "datatype": datatype, "data": array.reshape(-1).tolist()}
    return json.dumps({"inputs": [tensor]}).encode()


def register(media_type: str, whole: st.SearchStrategy[bytes]) -> None:
    """Draw bodies of a media type from good ones, damaged ones and noise."""
    schemathesis.openapi.media_type(media_type, whole | damaged(whole) | st.binary(max_size=LARGEST))


register(binary.NPY, fields().map(as_npy))
register(binary.SAFETENSORS, st.builds(as_safetensors, fields(), st.sampled_from(INPUTS)))
register("application/octet-stream", st.builds(as_inference, fields(), st.sampled_from(INPUTS)))


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_load_schema(_: Any, raw_schema: dict[str, Any]) -> None:
    """Prefer the models that are served."""
    for path in raw_schema["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "model":
                    parameter["schema"] = {"anyOf": [{"enum": MODELS}, {"type": "string", "minLength": 1}]}
