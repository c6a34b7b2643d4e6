"""A text in, tokens out; logits in, labels out: what a model of sequences says of its words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from petrov_client._exceptions import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

#: Fills sequences up, behind their words.
PADDING = 0


@dataclass(frozen=True)
class Choice:
    """The label that a model prefers, and the next best.

    Attributes:
        label: The most probable one.
        probability: Its own, by the model's reckoning: how sure it is, not how often it is right.
        runner_up: The next.
        runner_up_probability: Its own.
    """

    label: str
    probability: float
    runner_up: str
    runner_up_probability: float


@dataclass(frozen=True)
class Vocabulary:
    """How a text becomes tokens, and logits a label.

    Attributes:
        words: Word by token; token 0 is padding.
        pattern: Matches the words of a text, with white space between them; None where token b + 1 is the byte b of the
            text in UTF-8.
        labels: Word by class, the last axis of the logits.
        answer: What has a label: a whole "sequence", or every "token".
    """

    words: tuple[str, ...]
    pattern: str | None
    labels: tuple[str, ...]
    answer: str

    def encode(self, text: str) -> list[int]:
        """The tokens of one text.

        Raises:
            InvalidInput: Something in it is no word; the message names it and its place.
        """
        if self.pattern is None:
            return [byte + 1 for byte in text.encode(errors="surrogateescape")]
        tokens, end = [], 0
        for match in re.finditer(self.pattern, text):
            self._check_gap(text, end, match.start())
            if match[0] not in self._numbers:
                raise self._unknown(match[0], match.start())
            tokens.append(self._numbers[match[0]])
            end = match.end()
        self._check_gap(text, end, len(text))
        return tokens

    def decode(self, logits: npt.NDArray[Any]) -> Any:
        """The labels that logits `[…, label]` stand for, as a `Choice` or as lists of them in the shape of the rest.

        Raises:
            InvalidInput: The last axis is not the labels'.
        """
        if logits.shape[-1:] != (len(self.labels),):
            raise InvalidInput(f"expected logits with {len(self.labels)} labels as last axis but got {logits.shape}")
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True), dtype=np.float64)
        return self._chosen(weights / weights.sum(axis=-1, keepdims=True))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words) if number != PADDING}

    def _check_gap(self, text: str, start: int, end: int) -> None:
        """Nothing but white space stands between two words."""
        if rest := text[start:end].strip():
            raise self._unknown(rest.split()[0], text.index(rest, start))

    def _unknown(self, word: str, place: int) -> InvalidInput:
        known = " ".join(list(self._numbers)[:16])
        return InvalidInput(f'"{word[:32]}" at character {place} is no word of the model, which knows {known}')

    def _chosen(self, probabilities: npt.NDArray[np.float64]) -> Any:
        if probabilities.ndim > 1:
            return [self._chosen(row) for row in probabilities]
        first, second = (int(i) for i in np.argsort(-probabilities, kind="stable")[:2])
        return Choice(
            self.labels[first], float(probabilities[first]), self.labels[second], float(probabilities[second])
        )


def vocabulary(document: Mapping[str, Any]) -> Vocabulary:
    """Read a vocabulary as a card or a configuration of Triton has it.

    Raises:
        KeyError, TypeError, ValueError: The document is none.
    """
    try:
        pattern = None if document["pattern"] is None else re.compile(document["pattern"]).pattern
    except re.error as error:
        raise ValueError(f"the pattern of words is not readable: {error}") from error
    labels = tuple(str(label) for label in document["labels"])
    if len(labels) < 2:
        raise ValueError(f"expected at least two labels but got {labels}")
    words = tuple(str(word) for word in document["words"])
    return Vocabulary(words, pattern, labels, str(document["answer"]))
