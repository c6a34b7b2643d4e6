"""Files of JSON: an array for every number and every list of numbers, or a sample for each of several objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named
from training.data.readers.tables import refuse_duplicates
from training.data.readers.texts import opened_text


@contextmanager
def open_json(path: Path) -> Iterator[DataFile]:
    """Open a file of one JSON object, or of a JSON object per line or per element of a list, each of them a sample."""
    with damage_named(path, "JSON"):
        with opened_text(path) as file:
            text = file.read()
        by_line = path.suffix.lower() in {".jsonl", ".ndjson"}
        lines = [line for line in text.splitlines() if line.strip()] if by_line else [text]
        every = [json.loads(line, object_pairs_hook=partial(unique, path)) for line in lines]
        content: Any = every if by_line else every[0]
        several = isinstance(content, list)
        objects: list[Any] = content if several else [content]
        if not objects or not all(isinstance(each, dict) for each in objects):
            raise ReadError(f"{path}: expected a JSON object of numbers by name, or several of them")
        found = [unique(path, [*numbers(each)]) for each in objects]
        arrays, left_out = {}, {}
        for name in dict.fromkeys(name for each in found for name in each):
            first = found[0].get(name)
            values = [one for each in found if (one := each.get(name)) is not None]
            if first is None or len({one.shape for one in values}) > 1 or len(values) < len(found):
                left_out[name] = "it is no number or list of numbers of one size" + " in every sample" * several
            else:
                arrays[name] = LazyArray.of(name, np.stack(values) if several else first, setting=not several)
        texts = {
            name: np.array([each[name] for each in objects])
            for name in (objects[0] if several else ())
            if all(isinstance(each.get(name), str) for each in objects)
        }
    said = "one JSON object per sample" if several else ""
    yield DataFile(path, "json", arrays, samples=said, left_out=left_out, texts=texts)


def unique(path: Path, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values of an object by their names, each of which it has once."""
    refuse_duplicates(path, [name for name, _ in pairs], "keys")
    return dict(pairs)


def numbers(values: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, NDArray[Any] | None]]:
    """Return the arrays of an object and of those in it, by their names; None for what holds no numbers."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{start}{name}/")
            continue
        try:
            found = np.asarray(value)
            if found.dtype.kind == "O" and all(one is None or isinstance(one, float | int) for one in found.flat):
                found = found.astype(float)  # NaN, which JSON has no number for, as pandas writes it
        except ValueError:  # lists of unequal lengths
            found = np.asarray(None)
        yield f"{start}{name}", found if found.dtype.kind in "fiub" else None
