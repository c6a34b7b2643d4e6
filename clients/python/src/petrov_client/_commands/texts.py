"""Texts of the command line and their labels: as one sentence, as a table, or as CSV.

A text is one line. A model that labels sequences gives one row per text; a model that labels tokens, one per word.
"""

from __future__ import annotations

import csv
import os
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from rich.markup import escape
from rich.table import Table

from petrov_client._errors import InvalidInput
from petrov_client._files import replacing
from petrov_client._flow import reporting
from petrov_client._models import PADDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from petrov_client._client import SyncPredictor
    from petrov_client._flow import Progress
    from petrov_client._models import Choice, Example, ModelInfo

STANDARD = "-"
Row = tuple[str, ...]


def read(source: str) -> list[str]:
    """Return the texts of an argument: the lines of standard input (`-`), those of a file, or the argument itself."""
    if source == STANDARD:
        return _lines(sys.stdin)
    if os.path.isfile(source):  # noqa: PTH113 - Path.is_file fails for a text that is too long to be a name
        with Path(source).open(encoding="utf-8") as file:
            return _lines(file)
    return [source]


def check(info: ModelInfo, texts: list[str]) -> None:
    """Check all texts before the first request.

    Raises:
        InvalidInput: A text does not fit the vocabulary; the message names its line.
    """
    for number, text in enumerate(texts, start=1):
        try:
            info.encode(text)
        except InvalidInput as fault:
            prefix = f"line {number}: " if len(texts) > 1 else ""
            raise InvalidInput(f"{prefix}{fault}", where=fault.where) from None


def predict(
    client: SyncPredictor, info: ModelInfo, texts: list[str], version: int | None, progress: Progress
) -> Iterator[Row]:
    """Yield the rows of the table; texts are sent in batches of the model's size, so that few need padding.

    Args:
        client: The client.
        info: The model.
        texts: The texts.
        version: A version of the model; the newest if None.
        progress: True for a progress bar, or a function of (texts done, texts in all).
    """
    with reporting(progress, info.name, len(texts)) as advance:
        for start in range(0, len(texts), info.batch):
            part = texts[start : start + info.batch]
            choices = info.decode(client.predict(info.name, info.encode(part), version=version))
            yield from chain.from_iterable(map(_rows, part, choices, _words(info, part)))
            advance(len(part))


def example(info: ModelInfo, sample: Example) -> str:
    """Return the text of a sample, and its true labels on the next line where they are known."""
    known = info.vocabulary
    if known is None:
        raise InvalidInput(f'"{info.name}" takes numbers and no text: it has no vocabulary')
    tokens = sample.inputs[info.first_name]
    numbers = np.atleast_1d(sample.outputs.get("labels", np.empty(0, np.int32)))
    labels = [known.labels[number] for number in numbers[: int((tokens != PADDING).sum())]]  # behind is padding
    return "\n".join(filter(None, [known.text(tokens), " ".join(labels)]))


def header(info: ModelInfo) -> Row:
    """Return the names of the columns."""
    words = () if info.vocabulary is None or info.vocabulary.labelled == "sequence" else ("word",)
    return ("text", *words, "label", "probability", "runner_up", "runner_up_probability")


def sentence(row: Row) -> str:
    """Return one row as a sentence."""
    *_, label, probability, runner_up, second = row
    return f"{label} with {float(probability):.1%}, then {runner_up} with {float(second):.1%}"


def table(columns: Row, rows: Iterable[Row]) -> Table:
    """Return a table of all rows, with long texts cut at their end."""
    drawn = Table()
    for column in columns:
        drawn.add_column(column.replace("_", " "), no_wrap=column == "text", overflow="ellipsis", max_width=60)
    for row in rows:
        drawn.add_row(*map(escape, row))
    return drawn


def write(target: Path, columns: Row, rows: Iterable[Row]) -> None:
    """Write all rows as CSV, to a file or, for `-`, to standard output.

    Args:
        target: The file, or `-`.
        columns: The names of the columns.
        rows: The rows.

    Raises:
        OSError: The file cannot be written.
    """
    if str(target) == STANDARD:
        _write(sys.stdout, columns, rows)
        return
    with replacing(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        _write(file, columns, rows)


def _write(file: TextIO, columns: Row, rows: Iterable[Row]) -> None:
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(rows)


def _lines(file: TextIO) -> list[str]:
    return [text for line in file if (text := line.strip())]


def _words(info: ModelInfo, texts: list[str]) -> list[list[str]]:
    """Return the words of each text."""
    known = info.vocabulary.words if info.vocabulary else ()
    return [[known[token] for token in info.encode(text)] for text in texts]


def _rows(text: str, choices: Any, words: list[str]) -> list[Row]:
    if not isinstance(choices, list):
        return [(text, *_cells(choices))]
    return [(text, word, *_cells(choice)) for word, choice in zip(words, choices, strict=False)]  # behind is padding


def _cells(choice: Choice) -> Row:
    return choice.label, f"{choice.probability:.6f}", choice.runner_up, f"{choice.runner_up_probability:.6f}"
