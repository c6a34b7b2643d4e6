"""The words and labels of a sequence model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._errors import InvalidInput

#: The token that fills a sequence up, behind its words.
PADDING = 0


@dataclass(frozen=True)
class Choice:
    """The most probable label, and the second.

    Attributes:
        label: The most probable label.
        probability: Its probability by the model (softmax); it is not calibrated.
        runner_up: The second most probable label.
        runner_up_probability: Its probability.
    """

    label: str
    probability: float
    runner_up: str
    runner_up_probability: float


@dataclass(frozen=True)
class Vocabulary:
    """The map of texts to tokens, and of logits to labels.

    Attributes:
        words: The words by token; token 0 is padding.
        pattern: Matches the words of a text, with white space between them; None where token b + 1 is the byte b of the
            text in UTF-8.
        labels: The labels by class, the last axis of the logits.
        labelled: What has a label: a whole "sequence", or every "token".
    """

    words: tuple[str, ...]
    pattern: str | None
    labels: tuple[str, ...]
    labelled: str

    def encode(self, text: str) -> list[int]:
        """Return the tokens of one text.

        Raises:
            InvalidInput: It holds an unknown word; the message names the word and its position.
        """
        if self.pattern is None:
            return [byte + 1 for byte in text.encode(errors="surrogateescape")]
        tokens, end = [], 0
        for match in (*re.finditer(self.pattern, text), None):
            start = len(text) if match is None else match.start()
            if rest := text[end:start].strip():  # only white space is between two words
                raise self._unknown(rest.split()[0], text.index(rest, end))
            if match is not None:
                if match[0] not in self._numbers:
                    raise self._unknown(match[0], start)
                tokens.append(self._numbers[match[0]])
                end = match.end()
        return tokens

    def text(self, tokens: npt.NDArray[np.int32]) -> str:
        """Return the text of one sequence of tokens; `encode` gives them back, without padding."""
        numbers = [int(number) for number in tokens if number != PADDING]
        if self.pattern is None:
            return bytes(number - 1 for number in numbers).decode(errors="surrogateescape")
        return " ".join(self.words[number] for number in numbers)

    def decode(self, logits: npt.NDArray[Any]) -> Any:
        """Return the labels of logits `[…, label]`: a `Choice`, or nested lists of them in the shape of the other axes.

        Raises:
            InvalidInput: The last axis has another length than the labels.
        """
        if logits.shape[-1:] != (len(self.labels),):
            raise InvalidInput(f"expected logits with {len(self.labels)} labels as last axis but got {logits.shape}")
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True), dtype=np.float64)
        return self._chosen(weights / weights.sum(axis=-1, keepdims=True))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words) if number != PADDING}

    def _unknown(self, word: str, position: int) -> InvalidInput:
        known = " ".join(list(self._numbers)[:16])
        return InvalidInput(
            f'"{word[:32]}" at character {position} is not in the vocabulary, which begins with {known}'
        )

    def _chosen(self, probabilities: npt.NDArray[np.float64]) -> Any:
        if probabilities.ndim > 1:
            return [self._chosen(row) for row in probabilities]
        first, second = (int(i) for i in np.argsort(-probabilities, kind="stable")[:2])
        return Choice(
            self.labels[first], float(probabilities[first]), self.labels[second], float(probabilities[second])
        )
