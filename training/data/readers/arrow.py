"""Tables of Arrow: Parquet, feather and the files of Hugging Face's datasets, read where pyarrow is installed.

A row is a sample, and a column of numbers, or of lists of one size in all rows, is an array `[sample, …]`. Tables with
columns of coordinates are clouds, as tables of text are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, feather, parquet

from training.data.readers.data_file import DataFile, LazyArray, damage_named
from training.data.readers.tables import of_columns

LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
INDEX = "__index_level_0__"  # of pandas
UNEVEN = "lists of other sizes in other rows, or of none: save them as groups of HDF5"


@contextmanager
def open_arrow(path: Path) -> Iterator[DataFile]:
    """Open a table."""
    with damage_named(path, "a table of Arrow"):
        found = table_of(path)
        arrays: dict[str, NDArray[Any]] = {}
        left_out: dict[str, str] = {}
        texts = {
            name: np.array(column.to_pylist()).astype(str)
            for name, column in zip(found.column_names, found.columns, strict=True)
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        }
        for name, column in zip(found.column_names, found.columns, strict=True):
            values, reason = dense(column)
            if values is None or name == INDEX:
                left_out[name] = reason or "the index of pandas"
            else:
                arrays[name] = values
        if all(values.ndim == 1 for values in arrays.values()):
            columns = {name: np.asarray(one, float) for name, one in arrays.items()}
            made = of_columns(path, "arrow", columns, left_out, texts)
        else:
            every = {name: LazyArray.of(name, values) for name, values in arrays.items()}
            made = DataFile(path, "arrow", every, samples="one row per sample", left_out=left_out, texts=texts)
    yield made


def table_of(path: Path) -> Any:
    """Read a table; `.arrow` files may be streams."""
    if path.suffix.lower() == ".parquet":
        return parquet.ParquetFile(path).read()  # of this file alone, whatever its folder is called
    if path.suffix.lower() == ".feather":
        return feather.read_table(path, memory_map=True)
    with pa.memory_map(str(path)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()


def dense(column: Any) -> tuple[NDArray[Any] | None, str]:
    """Return a column of numbers or of lists of one size as an array, or None and the reason why it is none."""
    values, shape = column.combine_chunks(), [len(column)]
    while True:
        values = getattr(values, "storage", values)  # of an extension such as the arrays of datasets
        if not any(fits(values.type) for fits in LISTS):  # maps and unions are nested, too
            break
        lengths = compute.unique(compute.list_value_length(values)).to_pylist()
        if len(lengths) != 1 or lengths[0] is None:
            return None, UNEVEN
        values, shape = values.flatten(), [*shape, lengths[0]]
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        if not pa.types.is_boolean(values.type):
            return None, f"a column of {values.type}"
        values = values.cast("int8")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape), ""
