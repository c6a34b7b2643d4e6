"""Check sequences of tokens against a model's vocabulary.

The card numbers the tokens of a text; 0 is padding. Padding belongs behind the tokens, where the model ignores it;
anywhere else it would be read as a token, so it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from serving.errors import Problem
from serving.inference.location import first

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from serving.catalogue.card import Tensor, Vocabulary


def checked(values: NDArray[Any], tensor: Tensor, vocabulary: Vocabulary, *, single: bool) -> NDArray[np.int32]:
    """Return integers of any size as int32.

    Args:
        values: A batch of sequences `[B, L]`.
        tensor: Their description in the card.
        vocabulary: The model's vocabulary.
        single: Whether the caller sent one sequence.

    Returns:
        The batch `[B, L]`, C-contiguous.

    Raises:
        Problem: wrong-dtype: Floating-point numbers or booleans, even where they are whole.
        Problem: wrong-token: A number outside the vocabulary, a sequence without a token, or padding in front of a
            token.
    """
    if values.dtype.kind not in "iu":
        raise Problem(
            "wrong-dtype",
            f"{tensor.name} holds {values.dtype.name}; expected integers, the numbers of words",
            array=tensor.name,
        )
    _check_range(values, tensor, len(vocabulary.words), single=single)
    _check_padding(values, tensor, single=single)
    return np.ascontiguousarray(values, np.int32)


def _check_range(values: NDArray[Any], tensor: Tensor, size: int, *, single: bool) -> None:
    unknown = (values < 0) | (values >= size)
    if unknown.any():
        location = first(unknown, tensor.name, single=single)
        raise Problem(
            "wrong-token",
            f"{location} is {values[location.index]}; the vocabulary has {size} words",
            array=tensor.name,
            index=location.shown,
        )


def _check_padding(values: NDArray[Any], tensor: Tensor, *, single: bool) -> None:
    padding = values == 0
    misplaced = padding & np.logical_or.accumulate(~padding[:, ::-1], axis=1)[:, ::-1]
    misplaced[:, 0] |= padding[:, 0]
    if misplaced.any():
        location = first(misplaced, tensor.name, single=single)
        raise Problem(
            "wrong-token",
            f"{location} is 0, which is padding and belongs behind the words",
            array=tensor.name,
            index=location.shown,
        )
