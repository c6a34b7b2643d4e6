"""Arrays whose stored numbers are not yet their values: packed integers, fill values, and records of several fields.

Conventions of netCDF (`scale_factor`, `add_offset`, `_FillValue`, `missing_value`) are met in HDF5 files, too, that
other programs wrote. Values that are missing become NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import LazyArray
from training.data.readers.layout import is_complex

MISSING = ("_FillValue", "missing_value")
PACKING = ("scale_factor", "add_offset")


def unpacked(one: LazyArray, attributes: Mapping[str, Any]) -> LazyArray:
    """Return an array of values by what its attributes say of the stored numbers."""
    if one.dtype.kind not in "fiu":
        return one
    said = {name: numbers(attributes[name]) for name in (*MISSING, *PACKING) if name in attributes}
    scaling = {name: said[name] for name in PACKING if name in said and said[name].size == 1}
    absent = np.array([value for name in MISSING for value in as_stored(said.get(name, ()), one.dtype)], one.dtype)
    if not scaling and not len(absent):
        return one
    kind = one.dtype if one.dtype.kind == "f" and not scaling else np.dtype(np.float64)

    def rows(start: int, stop: int) -> NDArray[Any]:
        stored = np.asarray(one.rows(start, stop))
        values = stored.astype(kind) * scaling.get("scale_factor", 1) + scaling.get("add_offset", 0)
        return np.where(np.isin(stored, absent), kind.type(np.nan), values.astype(kind))

    return replace(one, dtype=kind, rows=rows)


def as_stored(values: Iterable[Any], kind: np.dtype[Any]) -> list[Any]:
    """Return numbers in the type of an array, without those that no number of it can equal, such as NaN."""
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return [one for value in values if (one := kind.type(value)) == value or np.isfinite(one)]
    limits = np.iinfo(kind)
    return [
        int(value)
        for value in values
        if np.isfinite(value) and limits.min <= value <= limits.max and value == int(value)
    ]


def numbers(value: Any) -> NDArray[Any]:
    """Return an attribute that holds numbers as a line of them; an empty one for another attribute."""
    found = np.ravel(np.asarray(value))
    return found if found.dtype.kind in "fiu" else np.empty(0)


def without_records(arrays: Mapping[str, LazyArray]) -> dict[str, LazyArray]:
    """Return arrays of numbers in place of those of records, which have several fields: `data.k` for `k` of `data`."""
    found: dict[str, LazyArray] = {}
    for name, one in arrays.items():
        fields = one.dtype.fields
        if fields is None or is_complex(one):
            found[name] = one
            continue
        for field, (kind, *_) in fields.items():
            base, sides = kind.subdtype or (kind, ())
            label = f"{name}.{field}"
            rows = partial(_field, one, field)
            found[label] = LazyArray(label, (*one.shape, *sides), base, rows, shared=one.shared)
    return found if len(found) == len(arrays) else without_records(found)


def _field(one: LazyArray, field: str, start: int, stop: int) -> NDArray[Any]:
    return np.asarray(one.rows(start, stop))[field]
