"""Exodus files, as MOOSE and Cubit write them: a mesh in blocks of cells, and fields of nodes and cells in every step.

They are netCDF, read by xarray. Cells of several blocks have their numbers as the cell data `block`. Nodes of quadratic
cells come in the order of VTK.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import xarray
from numpy.typing import NDArray

from training.data.readers.data_file import ReadError, damage_named
from training.data.readers.hdf5 import is_netcdf4
from training.data.readers.hdf5 import opened as opened_hdf5

KINDS = {
    "TRI": ("triangle", 3),
    "QUA": ("quad", 4),
    "SHE": ("quad", 4),
    "TET": ("tetra", 4),
    "HEX": ("hexahedron", 8),
    "WED": ("wedge", 6),
    "PYR": ("pyramid", 5),
    "BAR": ("line", 2),
    "BEA": ("line", 2),
    "TRU": ("line", 2),
    "EDG": ("line", 2),
    "SPH": ("vertex", 1),
    "CIR": ("vertex", 1),
}
"""The kind of cells, and the number of their corners, by how the names of types begin."""
ORDER = {
    "hexahedron20": (*range(12), *range(16, 20), *range(12, 16)),
    "hexahedron27": (*range(12), *range(16, 20), *range(12, 16), 23, 24, 25, 26, 21, 22, 20),
    "wedge15": (*range(9), 12, 13, 14, 9, 10, 11),
}
"""The nodes of quadratic cells in the order of VTK."""


@contextmanager
def opened(path: Path) -> Iterator[xarray.Dataset]:
    """Open a file.

    Raises:
        ReadError: It is no netCDF file, or holds no mesh.
    """
    if is_netcdf4(path, "an Exodus file"):
        with opened_hdf5(path):
            pass  # it refuses what lies in other files
    with damage_named(path, "an Exodus file"):
        data = xarray.open_dataset(path, decode_times=False, mask_and_scale=False, cache=False)
    with data:
        if not {"coordx", "coord"} & {*data.variables}:
            raise ReadError(f"{path}: expected an Exodus file but it has no coordinates of nodes")
        yield data


def times_of(path: Path) -> tuple[float, ...]:
    """Return the times of the steps of a file; none where it has a mesh alone."""
    with opened(path) as data:
        return tuple(map(float, data["time_whole"].values)) if "time_whole" in data else ()


def meshes_of(path: Path) -> Iterator[meshio.Mesh]:
    """Read the mesh of a file with the fields of every step, one after the other; once where there are no steps."""
    with opened(path) as data, damage_named(path, "an Exodus file"):
        points = coordinates(data)
        blocks = [name for name in map("connect{}".format, range(1, len(data.variables))) if name in data]
        cells = [block(data[name]) for name in blocks]
        numbers = data["eb_prop1"].values if "eb_prop1" in data else np.arange(1, len(data.variables))
        own = [numbers[int(name.removeprefix("connect")) - 1] for name in blocks]  # a block without cells has none
        still = {"block": [np.full(len(each), number) for (_, each), number in zip(cells, own, strict=True)]}
        for step in range(max(1, data.sizes.get("time_step", 0))):
            of_cells = dict(cell_data(data, blocks, step))
            made = meshio.Mesh(
                points, cells, dict(point_data(data, step)), of_cells | (still if len(cells) > 1 else {})
            )
            some = (name for name in names_of(data, "elem") if name not in of_cells)
            made.info = {"left_out": dict.fromkeys(some, "not every block of cells has it")}
            yield made


def coordinates(data: xarray.Dataset) -> NDArray[np.float64]:
    """Return the coordinates of the nodes `[node, dimension]`."""
    if "coord" in data:
        return np.asarray(data["coord"].values, np.float64).T
    along = [data[name].values for name in ("coordx", "coordy", "coordz") if name in data]
    return np.stack(along, axis=-1).astype(np.float64)


def block(connect: xarray.DataArray) -> tuple[str, NDArray[np.int64]]:
    """Return the cells of a block: their type by meshio's name, and their nodes, which the file counts from 1.

    Raises:
        ValueError: The type is not known.
    """
    said, count = str(connect.attrs.get("elem_type", "")).upper(), connect.shape[1]
    if said[:3] not in KINDS:
        raise ValueError(f"{connect.name} has cells of the type {said or 'none'}, which is not known")
    name, corners = ("triangle", 3) if said[:3] == "SHE" and count in {3, 6} else KINDS[said[:3]]
    kind = name if count == corners else f"{name}{count}"
    nodes = connect.values.astype(np.int64) - 1
    return kind, nodes[:, ORDER[kind]] if kind in ORDER else nodes


def names_of(data: xarray.Dataset, kind: str) -> list[str]:
    """Return the names of the fields of nodes (`nod`) or of cells (`elem`)."""
    stored = data[f"name_{kind}_var"].values if f"name_{kind}_var" in data else ()
    return [text(each) for each in stored]


def text(name: Any) -> str:
    """Return a name, which is bytes, or an array of letters, without its padding."""
    joined = b"".join(np.ravel(name).tolist()) if isinstance(name, np.ndarray) else name
    found = joined.decode(errors="replace") if isinstance(joined, bytes) else str(joined)
    return re.split("\0", found)[0].strip()


def point_data(data: xarray.Dataset, step: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Return the fields of nodes of a step by name."""
    for number, name in enumerate(names_of(data, "nod"), start=1):
        if "vals_nod_var" in data:  # of old files
            yield name, data["vals_nod_var"][step, number - 1].values
        elif f"vals_nod_var{number}" in data:
            yield name, data[f"vals_nod_var{number}"][step].values


def cell_data(data: xarray.Dataset, blocks: list[str], step: int) -> Iterator[tuple[str, list[NDArray[Any]]]]:
    """Return the fields of cells of a step by name, those that all blocks have."""
    for number, name in enumerate(names_of(data, "elem"), start=1):
        stored = [f"vals_elem_var{number}eb{each.removeprefix('connect')}" for each in blocks]
        if all(each in data for each in stored):
            yield name, [data[each][step].values for each in stored]
