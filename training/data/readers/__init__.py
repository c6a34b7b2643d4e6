"""Readers of the files in which people keep simulations, one layout per file."""

from training.data.readers.data_file import READERS, DataFile, LazyArray, ReadError, detect, meshes_in, open_file
from training.data.readers.layout import (
    TEST,
    VALIDATION,
    are_splits,
    arranged,
    as_column,
    as_components,
    in_order,
    is_complex,
    merged,
    of_tensors,
    real_part,
    samples_of,
    split_of,
    time_first,
)

__all__ = [
    "READERS",
    "TEST",
    "VALIDATION",
    "DataFile",
    "LazyArray",
    "ReadError",
    "are_splits",
    "arranged",
    "as_column",
    "as_components",
    "detect",
    "in_order",
    "is_complex",
    "merged",
    "meshes_in",
    "of_tensors",
    "open_file",
    "real_part",
    "samples_of",
    "split_of",
    "time_first",
]
