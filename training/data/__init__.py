"""Samples of a problem: an HDF5 file is filled with computed or published samples, and read back on coarser grids."""

from training.data.fields import Samples, deviation, grids, read
from training.data.generated import Request, prepare
from training.data.pools import ALL_CORES, LocalPool, Pool, RayPool

__all__ = [
    "ALL_CORES",
    "LocalPool",
    "Pool",
    "RayPool",
    "Request",
    "Samples",
    "deviation",
    "grids",
    "prepare",
    "read",
]
