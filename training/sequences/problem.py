"""What each sequence model answers, in words and limits: takes a problem by name, gives tokens, labels and lengths.

As `training.problems.problem` is for fields, this is the single source of the names on the wire for sequences:
tokens are
INT32 `[batch, length]` with 0 as padding behind them, and the answer is FP32 `[batch, label]` (or `[batch, length,
label]`), logits. A text becomes tokens by `SequenceProblem.encode`, and by nothing else than the pattern and the
vocabulary, so that any client can do it.
"""

from __future__ import annotations

import re
from string import ascii_lowercase
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

PADDING = "<pad>"
#: Padding, then the 256 bytes: byte b of a text in UTF-8 is token b + 1.
BYTES = (PADDING, *(f"<0x{byte:02X}>" for byte in range(256)))


class LengthLimits(BaseModel):
    """Tokens of a sequence: what is accepted, and the lengths that are measured, warmed and labelled in metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: PositiveInt
    maximum: PositiveInt
    declared: tuple[PositiveInt, ...]

    @model_validator(mode="after")
    def keep_order(self) -> LengthLimits:
        """Refuse limits that no sequence keeps."""
        if not all(self.minimum <= length <= self.maximum for length in (self.minimum, *self.declared)):
            raise ValueError(
                f"expected minimum <= declared <= maximum but got {self.minimum}, {self.declared}, {self.maximum}"
            )
        return self


class SequenceProblem(BaseModel):
    r"""A map from sequences of tokens to a label each, or to one for every token.

    Attributes:
        name: of the problem, in recipes and checkpoints.
        title: one line for lists.
        task: what is asked, in words.
        inputs: names of the input tensors: `("tokens",)`, or `("first", "second")` for a pair.
        output: name of the output tensor.
        vocabulary: word by token; token 0 is padding.
        pattern: regular expression whose matches are the words of a text, with white space between them; None where
            the tokens are the text's bytes in UTF-8 and the vocabulary is `BYTES`.
        labels: word by class.
        answer: `sequence` for logits `[batch, label]`, `token` for logits `[batch, length, label]`.
        length: limits of a sequence, each of a pair.
        distribution: what the network was trained on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    task: str
    inputs: tuple[str, ...] = ("tokens",)
    output: str = "logits"
    vocabulary: tuple[str, ...]
    pattern: str | None
    labels: tuple[str, ...]
    answer: Literal["sequence", "token"] = "sequence"
    length: LengthLimits
    distribution: str

    @model_validator(mode="after")
    def keep_words_apart(self) -> SequenceProblem:
        """Let every token and every class stand for one word."""
        if self.vocabulary[:1] != (PADDING,):
            raise ValueError(f"expected {PADDING!r} as token 0 but got {self.vocabulary[:1]}")
        if len({*self.vocabulary}) < len(self.vocabulary) or len({*self.labels}) < len(self.labels):
            raise ValueError("expected words and labels to be different from one another")
        if self.pattern is None and self.vocabulary != BYTES:
            raise ValueError("expected the vocabulary of bytes where no pattern cuts a text")
        return self

    def encode(self, text: str) -> list[int]:
        """Give the tokens of a text.

        Raises:
            ValueError: something in it is no word; the message names it and its place.
        """
        if self.pattern is None:
            return [byte + 1 for byte in text.encode()]
        numbers = {word: number for number, word in enumerate(self.vocabulary)}
        tokens, end = [], 0
        for match in re.finditer(self.pattern, text):
            self.refuse_rest(text, end, match.start())
            if match[0] not in numbers:
                raise ValueError(f"expected a word of the vocabulary at character {match.start()} but got {match[0]!r}")
            tokens.append(numbers[match[0]])
            end = match.end()
        self.refuse_rest(text, end, len(text))
        return tokens

    def refuse_rest(self, text: str, start: int, end: int) -> None:
        """Let there be nothing but white space between two words."""
        if rest := text[start:end].strip():
            place = text.index(rest, start)
            raise ValueError(
                f"expected words such as {self.vocabulary[1]!r} at character {place} but got {rest[:20]!r}"
            )


LISTOPS = SequenceProblem(
    name="listops",
    title="ListOps: the value of a nested expression",
    task=(
        "evaluate lists of digits and lists: [MIN and [MAX give the least and the greatest, [MED the median rounded "
        "down, [SM the sum modulo 10; ] closes a list, as in [MAX 2 9 [MIN 4 7 ] 0 ] which is 9"
    ),
    vocabulary=(PADDING, "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789"),
    pattern=r"\[(?:MIN|MAX|MED|SM)|\]|[0-9]",
    labels=(*"0123456789",),
    length=LengthLimits(minimum=1, maximum=2000, declared=(500, 1000, 2000)),
    distribution=(
        "random trees of depth up to 10 with 2 to 10 arguments a list, each a list with probability 1/4 (Long Range "
        "Arena's generator)"
    ),
)

TEXT = SequenceProblem(
    name="text",
    title="Text classification by bytes: is a film review favourable?",
    task="tell from the bytes of a film review whether its author liked the film",
    vocabulary=BYTES,
    pattern=None,
    labels=("negative", "positive"),
    length=LengthLimits(minimum=1, maximum=4000, declared=(1000, 2000, 4000)),
    distribution="film reviews in English",
)

MATCHING = SequenceProblem(
    name="matching",
    title="Document matching by bytes: do two texts belong together?",
    task="tell from the bytes of two texts whether they belong together",
    inputs=("first", "second"),
    vocabulary=BYTES,
    pattern=None,
    labels=("unrelated", "related"),
    length=LengthLimits(minimum=1, maximum=4000, declared=(1000, 2000, 4000)),
    distribution="documents in English",
)

MEMORISER = SequenceProblem(
    name="memoriser",
    title="Memoriser: labels learned by heart by one layer of rank-1 attention",
    task="tell the label of every word of one of the sequences that were learned by heart; for others it means nothing",
    vocabulary=(PADDING, *ascii_lowercase),
    pattern=r"[a-z]",
    labels=("red", "green", "blue", "yellow"),
    answer="token",
    length=LengthLimits(minimum=1, maximum=128, declared=(8, 32, 128)),
    distribution="random sets of letters, and a random label for every letter of each",
)

SEQUENCES: dict[str, SequenceProblem] = {problem.name: problem for problem in (LISTOPS, TEXT, MATCHING, MEMORISER)}
