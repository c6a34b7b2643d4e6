"""The description of a sequence problem: tokens, labels and lengths.

It is the single source of the names on the wire: tokens are INT32 `[batch, length]`, padded by 0 at the end, and the
output holds FP32 logits `[batch, label]` or `[batch, length, label]`. The pattern and the vocabulary alone decide how a
text becomes tokens, so any client can do what `SequenceDescription.encode` does.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

PADDING = "<pad>"
#: Padding, then the 256 bytes: byte b of a text in UTF-8 is token b + 1.
BYTES = (PADDING, *(f"<0x{byte:02X}>" for byte in range(256)))


class LengthLimits(BaseModel):
    """Tokens of a sequence: the limits, and the declared lengths that are measured, warmed and named in metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: PositiveInt
    maximum: PositiveInt
    declared: tuple[PositiveInt, ...]

    @model_validator(mode="after")
    def keep_order(self) -> LengthLimits:
        """Require minimum <= declared <= maximum."""
        if not all(self.minimum <= length <= self.maximum for length in (self.minimum, *self.declared)):
            raise ValueError(
                f"expected minimum <= declared <= maximum but got {self.minimum}, {self.declared}, {self.maximum}"
            )
        return self


class SequenceDescription(BaseModel):
    r"""A map from sequences of tokens to a label each, or to one for every token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # name in recipes and checkpoints
    title: str  # one line for lists
    task: str  # what the network does, in words
    # Names of the input tensors: `("tokens",)`, or `("first", "second")` for a pair.
    inputs: tuple[str, ...] = ("tokens",)
    output: str = "logits"  # name of the output tensor
    vocabulary: tuple[str, ...]  # text of each token; token 0 is padding
    # Regular expression whose matches are the tokens of a text, with white space between them; None where the tokens
    # are the text's bytes in UTF-8 and the vocabulary is `BYTES`.
    pattern: str | None
    labels: tuple[str, ...]  # name of each class
    # `sequence` for logits `[batch, label]`, `token` for logits `[batch, length, label]`.
    answer: Literal["sequence", "token"] = "sequence"
    length: LengthLimits  # limits of a sequence, of each of a pair
    distribution: str  # what the network was trained on

    @model_validator(mode="after")
    def expect_distinct_names(self) -> SequenceDescription:
        """Require padding as token 0, and one name for every token and every class."""
        if self.vocabulary[:1] != (PADDING,):
            raise ValueError(f"expected {PADDING!r} as token 0 but got {self.vocabulary[:1]}")
        if len({*self.vocabulary}) < len(self.vocabulary) or len({*self.labels}) < len(self.labels):
            raise ValueError("expected the vocabulary and the labels to be different from one another")
        if self.pattern is None and self.vocabulary != BYTES:
            raise ValueError("expected the vocabulary of bytes where there is no pattern")
        return self

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text.

        Raises:
            ValueError: A part of the text is no token; the message names it and its position.
        """
        if self.pattern is None:
            return [byte + 1 for byte in text.encode()]
        numbers = {entry: number for number, entry in enumerate(self.vocabulary)}
        tokens, end = [], 0
        for match in re.finditer(self.pattern, text):
            self.expect_space(text, end, match.start())
            if match[0] not in numbers:
                raise ValueError(
                    f"expected a token of the vocabulary at character {match.start()} but got {match[0]!r}"
                )
            tokens.append(numbers[match[0]])
            end = match.end()
        self.expect_space(text, end, len(text))
        return tokens

    def expect_space(self, text: str, start: int, end: int) -> None:
        """Require white space alone between two tokens, from the end of one to the start of the other."""
        if rest := text[start:end].strip():
            position = text.index(rest, start)
            raise ValueError(
                f"expected tokens such as {self.vocabulary[1]!r} at character {position} but got {rest[:20]!r}"
            )
