"""Samples of a problem: an HDF5 file is filled with computed or published samples, and read back on coarser grids."""

from training.data.fields import Samples, deviation, grids, read
from training.data.store import ALL_CORES, LocalPool, Pool, RayPool, Request, prepare

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
