"""Request bodies as named arrays, and named arrays as response bodies, in the media type that the headers name.

A codec reads untrusted bytes: it checks sizes before it allocates. It knows nothing of a model but the names of its
inputs. Outputs in JSON are encoded as the inputs were, in nested lists or in base64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from serving import checks
from serving.codecs import binary, json_arrays
from serving.document import JSON
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray
    from starlette.datastructures import Headers

    from serving.quality import Quality


MULTIPART = "multipart/mixed"  # of frames, whose own media type it leaves open
MEDIA_TYPES = (binary.NPY, JSON, binary.SAFETENSORS)


def request_type(headers: Headers) -> str:
    """Return the media type of the body, one of `MEDIA_TYPES`, or refuse it (`unsupported-media-type`)."""
    check_uncompressed(headers)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise Problem(
            "unsupported-media-type",
            f'expected Content-Type {" or ".join(MEDIA_TYPES)} but got "{media_type[:64]}"',
            headers={"Accept-Post": ", ".join(MEDIA_TYPES)},
        )
    return media_type


def check_uncompressed(headers: Headers) -> None:
    """Refuse compressed bodies: arrays of floats hardly shrink, and the size is unknown before decompression."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        detail = f'Content-Encoding "{encoding[:32]}" is not read; send the body uncompressed'
        raise Problem("unsupported-media-type", detail)


def response_type(headers: Headers, default: str, others: Collection[str] = ()) -> str:
    """Return the media type that `Accept` prefers, or the default where it leaves the choice or is one of `others`."""
    accept = headers.get("accept", "*/*")
    if accept in {"*/*", default} or accept.strip().lower() in others:
        return default
    weights: dict[str, float] = {}
    for part in accept.split(",")[:32]:
        media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
        texts = [parameter[2:] for parameter in parameters if parameter.startswith("q=")] or ["1"]
        try:
            weights[media_range] = float(texts[0])
        except ValueError:
            weights[media_range] = 0.0
    order = [default, *(known for known in MEDIA_TYPES if known != default)]
    quality = {known: weights.get(known, weights.get("application/*", weights.get("*/*", 0.0))) for known in order}
    best = max(order, key=lambda known: quality[known])
    if quality[best] <= 0:
        raise Problem("not-acceptable", f'responses are {" or ".join(MEDIA_TYPES)}, not "{accept[:64]}"')
    return best


_SEVERAL = f"{JSON} or {binary.SAFETENSORS}"  # formats that hold more than one array


class Written(NamedTuple):
    """The body of a response, and the headers that say what is known about it."""

    body: bytes
    headers: Mapping[str, str]


class Body:
    """The body of a `/v1` request and the writer of its response: an `Exchange` of `serving.predict`.

    `base64`: whether arrays in JSON are base64, as they are in the request. `frames`: how many it asks for.
    `counts`: the points of every sample, where it has lists of unequal lengths; the response has such, too.
    """

    def __init__(self, content: bytes | bytearray, request_type: str, response_type: str) -> None:
        self.size, self._content = len(content), content
        self._request_type, self._response_type = request_type, response_type
        self.base64 = False
        self.frames: int | None = None
        self.counts: list[int] | None = None

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body by name; an .npy body holds the only one that is required."""
        if self._request_type == JSON:
            found = json_arrays.read(self._content, names, max_bytes, optional)
            arrays, self.base64, self.frames, self.counts = found
            return arrays
        if self._request_type == binary.SAFETENSORS:
            arrays = binary.read_safetensors(self._content, max_bytes)
            checks.names(arrays, names, optional)
            return arrays
        required = [name for name in names if name not in optional] or list(names)
        if len(required) != 1:
            detail = f"the model takes {', '.join(required)}: one .npy file cannot hold them, send {_SEVERAL}"
            raise Problem("unsupported-media-type", detail)
        return {required[0]: binary.read_npy(self._content, required[0], max_bytes)}

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Written:
        """Return the response."""
        headers = origin(model, version) | (quality.headers() if quality.known else {})
        if self._response_type == JSON:
            members: dict[str, dict[str, Any]] = {}  # `gradients.source` is the member `source` of `gradients`
            for path, array in outputs.items():
                role, _, name = path.rpartition(".")
                value: Any = json_arrays.encode(array) if self.base64 else array if array.ndim else float(array)
                if self.counts and not self.base64 and array.shape[1:2] == (max(self.counts),):
                    value = [np.ascontiguousarray(each[:count]) for each, count in zip(array, self.counts, strict=True)]
                members.setdefault(role or "outputs", {})[name] = value
            known = {"quality": quality.document()} if quality.known else {}
            return Written(_json({"model": model, "version": version, **members, **known}), headers)
        if self._response_type == binary.SAFETENSORS:
            about = {"model": model, "version": str(version), "solved_by": quality.solved_by}
            return Written(binary.write_safetensors({**outputs, **quality.lists}, about), headers)
        return Written(_only_npy(outputs, "outputs"), headers)


def origin(model: str, version: int) -> dict[str, str]:
    """Return headers that say which model and version responded, for bodies that have no room for it."""
    return {"Petrov-Model": model, "Petrov-Version": str(version)}


def write_example(
    inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]] | None, media_type: str
) -> bytes:
    """Return the body of an example: its inputs, and in JSON the true outputs, where they are known, beside them."""
    if media_type == JSON:
        return _json({"inputs": dict(inputs)} | ({} if outputs is None else {"outputs": dict(outputs)}))
    if media_type == binary.SAFETENSORS:
        return binary.write_safetensors(inputs, {})
    return _only_npy(inputs, "inputs")


def _json(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def _only_npy(named: Mapping[str, NDArray[Any]], role: str) -> bytes:
    if len(named) != 1:
        detail = f"the model's {role} are {', '.join(named)}: one .npy file cannot hold them, accept {_SEVERAL}"
        raise Problem("not-acceptable", detail)
    [array] = named.values()
    return binary.write_npy(array)


@dataclass(frozen=True)
class Arrays:
    """Inputs by name, single samples or batches, and the writer of outputs by name: an `Exchange` of `serving.predict`.

    For a derivative, `{"coefficient": …, "cotangents.solution": …}` returns `solution`, `gradients.coefficient` and
    `gradients.source`.
    """

    inputs: Mapping[str, NDArray[Any]]
    frames: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the inputs."""
        return sum(array.nbytes for array in self.inputs.values())

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the inputs."""
        del max_bytes  # what made the arrays has bounded them
        checks.names(self.inputs, names, optional)
        return dict(self.inputs)

    def write(
        self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality
    ) -> Mapping[str, NDArray[np.float32]]:
        """Return the outputs."""
        del model, version, quality
        return outputs
