"""Takes a request for samples of a problem, gives them as an HDF5 file, generated or published, and reads it back."""

from training.data.generate import Request, prepare
from training.data.store import Samples, grids, read

__all__ = ["Request", "Samples", "grids", "prepare", "read"]
