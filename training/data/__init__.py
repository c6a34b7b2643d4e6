"""Samples of a problem: an HDF5 file is filled with computed or published samples, and read back on coarser grids."""
