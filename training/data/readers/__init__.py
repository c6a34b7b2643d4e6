"""Readers of the files in which people keep simulations, one layout per file."""

from training.data.readers.data_file import READERS, DataFile, LazyArray, ReadError, detect, meshes_in, open_file
from training.data.readers.layout import arranged, as_column, merged, of_tensors, time_first

__all__ = [
    "READERS",
    "DataFile",
    "LazyArray",
    "ReadError",
    "arranged",
    "as_column",
    "detect",
    "merged",
    "meshes_in",
    "of_tensors",
    "open_file",
    "time_first",
]
