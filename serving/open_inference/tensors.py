"""The protocol's rules for tensors, whichever way they travel: their data types, their names, what is never offered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from serving.codecs import formats as arrays
from serving.problem_details import InvalidParameter, WrongDtype, WrongInput

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

FLOAT32 = "FP32"
DATATYPES: Mapping[str, np.dtype[Any]] = {
    FLOAT32: np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    **{f"INT{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
}
_SHARED_MEMORY = "shared_memory_region"


def dtype(datatype: str, name: str) -> np.dtype[Any]:
    """The NumPy type of a tensor that is read.

    Raises:
        WrongDtype: It is none of `DATATYPES`.
    """
    if datatype not in DATATYPES:
        raise WrongDtype(
            f'{name}: datatype "{datatype[:32]}" is not read; send {" or ".join(DATATYPES)}', array=name[:64]
        )
    return DATATYPES[datatype]


def check_inputs(sent: Sequence[str], names: Sequence[str]) -> None:
    """Exactly the inputs of the model, each once.

    Raises:
        WrongInput: One is missing, unknown or sent twice.
    """
    arrays.check_names(sent, names)
    if len(sent) > len(names):
        raise WrongInput(f"{len(sent)} inputs for {len(names)} names: one is sent twice", array=names[0])


def check_outputs(asked: Sequence[str], names: Sequence[str]) -> None:
    """Some outputs of the model, each once.

    Raises:
        InvalidParameter: One is unknown or asked for twice.
    """
    for name in asked:
        if name not in names:
            raise InvalidParameter(f'there is no output "{name[:64]}"; the model answers {", ".join(names)}')
    if len(set(asked)) < len(asked):
        raise InvalidParameter("an output is asked for twice")


def check_parameters(parameters: Collection[str], name: str) -> None:
    """Nothing that would need Triton's own ports or another kind of model.

    Raises:
        InvalidParameter: Shared memory, or classes.
    """
    if _SHARED_MEMORY in parameters:
        raise InvalidParameter(f"{name[:64]}: shared memory is not offered here; send the data themselves")
    if "classification" in parameters:
        raise InvalidParameter(f"{name[:64]}: fields have no classes; ask without classification")
