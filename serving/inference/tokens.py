"""Sequences as they were read and the model's vocabulary in, an int32 batch that the model may be asked about out.

The card numbers the words of a text; 0 is padding. Padding stands behind the words, where no model sees it: anywhere
else it would be a word that is not there, so it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from serving.inference.location import first
from serving.problem_details import WrongDtype, WrongToken

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from serving.schemas import Tensor, Vocabulary


def checked(values: NDArray[Any], tensor: Tensor, vocabulary: Vocabulary, *, single: bool) -> NDArray[np.int32]:
    """Integers of any size as int32.

    Args:
        values: A batch of sequences.
        tensor: What the card says of them.
        vocabulary: The model's.
        single: Whether the caller sent one sequence.

    Raises:
        WrongDtype: Floating-point numbers or booleans, even where they are whole.
        WrongToken: A number outside the vocabulary, a sequence without a word, or padding in front of a word.
    """
    if values.dtype.kind not in "iu":
        raise WrongDtype(
            f"{tensor.name} holds {values.dtype.name}; expected integers, the numbers of words", array=tensor.name
        )
    _check_words(values, tensor, len(vocabulary.words), single=single)
    _check_padding(values, tensor, single=single)
    return np.ascontiguousarray(values, np.int32)


def _check_words(values: NDArray[Any], tensor: Tensor, size: int, *, single: bool) -> None:
    unknown = (values < 0) | (values >= size)
    if unknown.any():
        place = first(unknown, tensor.name, single=single)
        raise WrongToken(
            f"{place} is {values[place.index]}; the vocabulary has {size} words", array=tensor.name, index=place.shown
        )


def _check_padding(values: NDArray[Any], tensor: Tensor, *, single: bool) -> None:
    padding = values == 0
    misplaced = padding & np.logical_or.accumulate(~padding[:, ::-1], axis=1)[:, ::-1]
    misplaced[:, 0] |= padding[:, 0]
    if misplaced.any():
        place = first(misplaced, tensor.name, single=single)
        raise WrongToken(
            f"{place} is 0, which is padding and belongs behind the words", array=tensor.name, index=place.shown
        )
