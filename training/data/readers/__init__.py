"""Readers of the files in which people keep simulations, one layout per file."""

from training.data.readers.data_file import READERS, DataFile, LazyArray, ReadError, detect, meshes_in, open_file

__all__ = ["READERS", "DataFile", "LazyArray", "ReadError", "detect", "meshes_in", "open_file"]
