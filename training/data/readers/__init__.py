"""Readers of the files in which people keep simulations, one layout per file."""

from training.data.readers.data_file import READERS, DataFile, LazyArray, ReadError, detect, meshes_in, open_file
from training.data.readers.layout import (
    arranged,
    as_column,
    as_components,
    is_complex,
    merged,
    of_tensors,
    real_part,
    time_first,
)

__all__ = [
    "READERS",
    "DataFile",
    "LazyArray",
    "ReadError",
    "arranged",
    "as_column",
    "as_components",
    "detect",
    "is_complex",
    "merged",
    "meshes_in",
    "of_tensors",
    "open_file",
    "real_part",
    "time_first",
]
