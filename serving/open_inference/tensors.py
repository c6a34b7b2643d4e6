"""The protocol's rules for tensors over HTTP and gRPC: data types, names, and parameters that are not offered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from serving.codecs.names import check_names
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from serving.quality import Quality

FLOAT32 = "FP32"
DATATYPES: Mapping[str, np.dtype[Any]] = {
    FLOAT32: np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    **{f"INT{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
}
_SHARED_MEMORY = "shared_memory_region"


def dtype(datatype: str, name: str) -> np.dtype[Any]:
    """Return the NumPy type of a datatype.

    Raises:
        Problem: wrong-dtype: The datatype is none of `DATATYPES`.
    """
    if datatype not in DATATYPES:
        raise Problem(
            "wrong-dtype",
            f'{name}: datatype "{datatype[:32]}" is not read; send {" or ".join(DATATYPES)}',
            array=name[:64],
        )
    return DATATYPES[datatype]


def check_inputs(sent: Sequence[str], names: Sequence[str], optional: Collection[str] = ()) -> None:
    """Check that a request has the inputs of the model and no others, each once.

    Args:
        sent: The names in the request.
        names: Inputs and parameters of the model.
        optional: Those that a request may leave out.

    Raises:
        Problem: wrong-input: One is missing, unknown or sent twice.
    """
    check_names(sent, names, optional)
    if repeated := [name for name in names if sent.count(name) > 1]:
        raise Problem("wrong-input", f'the input "{repeated[0]}" is sent twice', array=repeated[0])


def results(outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> dict[str, NDArray[np.float32]]:
    """Return the outputs, and `[B, 1]` for each number that is known about them, `[B, frame]` of trajectories."""
    return {**outputs, **{name: array.reshape(len(array), -1) for name, array in quality.numbers.items()}}


def about(quality: Quality) -> dict[str, str]:
    """Return the parameters of a response: what computed the outputs, and the samples that failed."""
    failed = {} if quality.failed is None else {"failed": ",".join(map(str, np.flatnonzero(quality.failed)))}
    return {"solved_by": quality.solved_by, **failed} if quality.known else {}


def check_outputs(requested: Sequence[str], names: Sequence[str]) -> None:
    """Check that a request names only outputs of the model, each once.

    Raises:
        Problem: invalid-parameter: One is unknown or named twice.
    """
    for name in requested:
        if name not in names:
            raise Problem("invalid-parameter", f'there is no output "{name[:64]}"; the model has {", ".join(names)}')
    if len(set(requested)) < len(requested):
        raise Problem("invalid-parameter", "an output is requested twice")


def check_parameters(parameters: Collection[str], name: str) -> None:
    """Refuse parameters that would need Triton's own ports or another kind of model.

    Raises:
        Problem: invalid-parameter: Shared memory or classification is requested.
    """
    if _SHARED_MEMORY in parameters:
        raise Problem("invalid-parameter", f"{name[:64]}: shared memory is not offered here; send the data themselves")
    if "classification" in parameters:
        raise Problem(
            "invalid-parameter", f"{name[:64]}: the outputs have no classes; send no parameter classification"
        )
