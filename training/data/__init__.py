"""Takes a request for samples of a problem, gives them as an HDF5 file, generated or published, and reads it back."""

from training.data.generate import Request, prepare
from training.data.store import Samples, deviation, grids, read, strides

__all__ = ["Request", "Samples", "deviation", "grids", "prepare", "read", "strides"]
