"""Texts of the command line and their labels: as one sentence, as a table, or as CSV.

A text is one line. A model that labels sequences gives one row per text; a model that labels tokens, one per word.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from petrov_client import _files as files
from petrov_client._client import SyncPredictor
from petrov_client._errors import InvalidInput
from petrov_client._flow import Progress, reporting
from petrov_client._mesh_series import READ
from petrov_client._models import Example, ModelInfo
from petrov_client._vocabulary import PADDING

STANDARD = "-"
BYTE_ORDER_MARK = "\N{BYTE ORDER MARK}"  # with which editors of Windows begin a file in UTF-8
#: Suffixes of files that hold numbers, in words.
NUMBERS = " or ".join(sorted(files.ARRAYS | READ | {files.ZARR}))
Row = tuple[str, ...]


def predict(
    client: SyncPredictor, model: str, source: str, target: Path | None, version: int | None, progress: Progress
) -> None:
    """Print or write the labels of texts; all of them are checked before the first request."""
    texts = _texts(source)
    info = client.model(model)
    if info.vocabulary is None:
        raise ValueError(
            f'"{info.name}" takes numbers and no text: expected a file that ends in {NUMBERS} but got {source:.80}'
        )
    if target is not None and str(target) != STANDARD:
        files.check_output(target, frozenset({".csv"}))
    for number, text in enumerate(texts, start=1):
        try:
            info.encode(text)
        except InvalidInput as fault:
            prefix = f"line {number}: " if len(texts) > 1 else ""
            raise InvalidInput(f"{prefix}{fault}", where=fault.where) from None
    words = () if info.vocabulary is None or info.vocabulary.labelled == "sequence" else ("word",)
    columns = ("text", *words, "label", "probability", "runner_up", "runner_up_probability")
    rows = list(_rows(client, info, texts, version, progress))
    if target is not None and str(target) != STANDARD:
        with files.replacing(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as table:
            csv.writer(table, lineterminator="\n").writerows([columns, *rows])
    elif target is not None:
        csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *rows])
    elif len(rows) == 1:
        *_, label, probability, runner_up, second = rows[0]
        print(f"{label} with {float(probability):.1%}, then {runner_up} with {float(second):.1%}")  # noqa: T201
    else:
        Console().print(_table(columns, rows))


def example(info: ModelInfo, sample: Example) -> str:
    """Return the text of a sample, and its true labels on the next line where they are known."""
    known = info.vocabulary
    if known is None:
        raise InvalidInput(f'"{info.name}" takes numbers and no text: it has no vocabulary')
    tokens = sample.inputs[info.first_name]
    numbers = np.atleast_1d(sample.outputs.get("labels", np.empty(0, np.int32)))
    labels = [known.labels[number] for number in numbers[: int((tokens != PADDING).sum())]]  # behind is padding
    return "\n".join(filter(None, [known.text(tokens), " ".join(labels)]))


def _texts(source: str) -> list[str]:
    """Return the texts on standard input or in a file, or the text itself."""
    if source == STANDARD:
        return _lines(sys.stdin)
    if os.path.isfile(source):  # noqa: PTH113 - Path.is_file fails for a text that is too long to be a name
        try:
            with Path(source).open(encoding="utf-8") as file:
                return _lines(file)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"expected lines of text in {source}, or numbers in a file that ends in {NUMBERS}, but it holds bytes"
            ) from error
    return [source]


def _lines(file: TextIO) -> list[str]:
    lines = (line.removeprefix("" if number else BYTE_ORDER_MARK) for number, line in enumerate(file))
    return [text for line in lines if (text := line.strip())]


def _rows(
    client: SyncPredictor, info: ModelInfo, texts: list[str], version: int | None, progress: Progress
) -> Iterator[Row]:
    """Yield the rows; texts are sent in batches of the model's size, so that few need padding."""
    vocabulary = info.vocabulary.words if info.vocabulary else ()
    with reporting(progress, info.name, len(texts)) as advance:
        for start in range(0, len(texts), info.batch):
            part = texts[start : start + info.batch]
            found = info.decode(client.predict(info.name, info.encode(part), version=version))
            for text, chosen in zip(part, found, strict=True):
                words = [(vocabulary[token],) for token in info.encode(text)] if isinstance(chosen, list) else [()]
                choices = chosen if isinstance(chosen, list) else [chosen]
                for word, each in zip(words, choices, strict=False):  # behind is padding
                    numbers = f"{each.probability:.6f}", f"{each.runner_up_probability:.6f}"
                    yield text, *word, each.label, numbers[0], each.runner_up, numbers[1]
            advance(len(part))


def _table(columns: Row, rows: Iterable[Row]) -> Any:
    """Return a table of all rows, with long texts cut at their end."""
    drawn = Table()
    for column in columns:
        drawn.add_column(column.replace("_", " "), no_wrap=column == "text", overflow="ellipsis", max_width=60)
    for row in rows:
        drawn.add_row(*map(escape, row))
    return drawn
