"""Takes a word from outside and those that are known, gives it back, or an error that lists them."""

from __future__ import annotations

from collections.abc import Iterable


def known(word: str, words: Iterable[str], noun: str) -> str:
    """Give `word` if it is one of `words`.

    Raises:
        ValueError: it is not; the message names it and them.
    """
    if word not in (choices := list(words)):
        raise ValueError(f"expected {noun} to be one of {', '.join(choices)} but got {word!r}")
    return word
