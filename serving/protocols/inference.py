"""What both transports of the Open Inference Protocol share, REST (`open_inference`) and gRPC (`grpc`).

These are the tensors of a request and of its response, and the parameters of a request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schema.card import Card
from serving import cells
from serving.codecs import binary, json_arrays
from serving.codecs.binary import Buffer
from serving.codecs.json_text import PIECE
from serving.errors import Problem
from serving.protocols import over_http
from serving.protocols.metadata import FLOAT32, unknown
from serving.quality import Policy, Quality

DATATYPES: Mapping[str, np.dtype[Any]] = {
    FLOAT32: np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    **{f"INT{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
}
#: Parameters of a request that clients of the protocol send of their own accord, and that change no response here.
WITHOUT_EFFECT = {
    "binary_data_output",
    "content_type",
    "priority",
    "sequence_end",
    "sequence_id",
    "sequence_start",
    "triton_enable_empty_final_response",
}
#: Those of an input and of an output; over gRPC they change nothing, either.
OF_INPUTS, OF_OUTPUTS = frozenset({"binary_data_size", "content_type"}), frozenset({"binary_data", "content_type"})
#: What Triton's own clients may ask for, and why it is refused.
NOT_OFFERED = {
    "shared_memory_region": "shared memory is not offered here; send the data themselves",
    "classification": "the outputs have no classes; send no parameter classification",
}


class Sent(NamedTuple):
    """A tensor of a request, with its data as bytes or as lists of numbers, in a member that error messages name."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: Buffer | list[Any] | None
    member: str

    def array(self, max_bytes: int) -> NDArray[Any]:
        """Return the values in their shape, which is checked before its sizes are multiplied."""
        name, shape = self.name, self.shape
        if self.datatype not in DATATYPES:
            detail = f'{name}: datatype "{self.datatype[:32]}" is not read; send {" or ".join(DATATYPES)}'
            raise Problem("wrong-dtype", detail, array=name[:64])
        dtype = DATATYPES[self.datatype]
        if isinstance(self.data, bytes | bytearray | memoryview):
            return binary.view(self.data, dtype, shape, name, max_bytes, self.member)
        values = json_arrays.nested(self.data, name)
        if values.size * 4 > max_bytes:
            detail = f"{name}: {values.size} numbers take more than {max_bytes} bytes as float32"
            raise Problem("body-too-large", detail)
        if values.size != binary.count(shape, name):
            detail = f"{name}: {self.member} has {values.size} numbers, not those of shape {str(list(shape))[:256]}"
            raise Problem("wrong-shape", detail, array=name)
        if dtype.kind == "f":
            values = json_arrays.as_floats(values)
        elif not _are_whole(values.reshape(-1), np.iinfo(dtype)):
            detail = f"{name}: {self.member} has numbers that are no {self.datatype}"
            raise Problem("wrong-dtype", detail, array=name)
        return binary.shaped(values, shape, name)


def _are_whole(values: NDArray[Any], limits: np.iinfo[Any]) -> bool:
    pieces = (values[start : start + PIECE] for start in range(0, len(values), PIECE))
    return all(((limits.min <= each) & (each <= limits.max) & (each == np.rint(each))).all() for each in pieces)


def read(
    inputs: Sequence[Any], outputs: Sequence[Any], sent: Iterable[Sent], card: Card, max_bytes: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a request that has the inputs of the model and names none but its outputs, each once.

    Inputs and outputs have `name` and `parameters`, as either transport has them; `sent` are the inputs with their
    data, which is looked at once the names are right.
    """
    names, requested = [each.name for each in inputs], [each.name for each in outputs]
    cells.check_names(names, card)
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise Problem("wrong-input", f'the input "{repeated[0]}" is sent twice', array=repeated[0])
    for name in requested:
        if name not in card.result_names:
            known = ", ".join(card.result_names)
            raise Problem("invalid-parameter", f'there is no output "{name[:64]}"; the model has {known}')
    if len(set(requested)) < len(requested):
        raise Problem("invalid-parameter", "an output is requested twice")
    _check_parameters(inputs, OF_INPUTS)
    _check_parameters(outputs, OF_OUTPUTS)
    return {each.name: each.array(max_bytes) for each in sent}


def _check_parameters(tensors: Sequence[Any], known: Collection[str]) -> None:
    """Refuse parameters of tensors that are not offered, or that have no meaning."""
    for tensor in tensors:
        for parameter, reason in NOT_OFFERED.items():
            if parameter in tensor.parameters:
                raise Problem("invalid-parameter", f"{tensor.name[:64]}: {reason}")
        for parameter in tensor.parameters:
            if parameter not in known:
                listed = ", ".join(sorted(known))
                detail = f'{tensor.name[:64]}: there is no parameter "{parameter[:32]}"; there are {listed}'
                raise Problem("unknown-parameter", detail)


def results(
    card: Card, outputs: Mapping[str, NDArray[np.float32]], quality: Quality, requested: Sequence[Any]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    """Return the requested outputs, or all of them if none is named, and the parameters of the response.

    What is known about the outputs is `[B, 1]` by name, `[B, frame]` of trajectories, and NaN where it is requested and
    not known, as of a classical solution; what computed them, and the samples that failed, are parameters.
    """
    found: dict[str, NDArray[np.float32]] = {
        **outputs,
        **{name: array.reshape(len(array), -1) for name, array in quality.numbers.items()},
    }
    if missing := {each.name for each in requested} - found.keys():
        found |= unknown(card, missing, outputs, len(quality.by))
    shown = {name: np.ascontiguousarray(found[name], "<f4") for name in [each.name for each in requested] or found}
    parameters: dict[str, str] = {"solved_by": quality.solved_by} if quality.known else {}
    if quality.failed is not None:
        parameters["failed"] = ",".join(map(str, np.flatnonzero(quality.failed)))
    return shown, parameters


def policy(parameters: Mapping[str, Any], query: Mapping[str, str]) -> Policy:
    """Return the policy that the parameters of a request and a query describe, each of which one of them has.

    A parameter that has no meaning is refused (`unknown-parameter`), as one of a query is: it would do nothing.
    """
    texts = dict(query)
    for name, value in parameters.items():
        if name in over_http.POLICY:
            if name in query:
                raise Problem("invalid-parameter", f"{name}: expected one value but got several")
            texts[name] = str(value) if isinstance(value, str | bool | int | float) else "null, a list or an object"
        elif name != "timeout" and name not in WITHOUT_EFFECT:
            known = ", ".join(sorted(over_http.POLICY | {"timeout"}))
            raise Problem("unknown-parameter", f'parameters: there is no "{name[:32]}"; there are {known}')
    return over_http.policy(texts)


def seconds(timeout: object) -> float | None:
    """Return the time that the parameter `timeout` of a request leaves, in microseconds as in Triton; 0 is none."""
    if type(timeout) is not int or timeout < 0:
        detail = f"timeout: expected a whole number of microseconds but got {str(timeout)[:32]}"
        raise Problem("invalid-parameter", detail)
    return timeout / 1e6 if timeout else None
