"""Exodus files: steps, blocks of cells, and quadratic cells whose nodes come in another order."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray

from petrov_client import ModelInfo
from petrov_client._mesh_series import of_meshes
from physics.numerics.cell_types import HEXAHEDRON, KINDS
from tests.toy_meshes import write_exodus
from training.data.readers import ReadError, open_file
from training.data.readers.exodus import ORDER
from training.data.readers.mesh import exodus_meshes

MODEL = ModelInfo("heat", 1, (1,), (), (), 8)
SQUARES = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1]])
CUBE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]], float)


@pytest.mark.parametrize("engine", ["scipy", "h5netcdf"])
def test_steps_are_a_series_and_blocks_are_regions(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "run.e"
    write_exodus(path, SQUARES, {"QUAD4": [[0, 1, 2, 3]], "QUAD": [[1, 4, 5, 2]]}, 3, engine)
    with open_file(path) as file:
        assert file.format == "series"
        assert list(file.coordinates["time"]) == [0, 1, 2]
        assert file.array("temp").read()[0] == pytest.approx(np.arange(3)[:, None] * SQUARES[:, 0])
        assert file.array("heat").read()[0, :, 0].tolist() == [0, 1, 2]
        assert file.array("block=10").read()[0] == pytest.approx([1, 0.5, 0.5, 1, 0, 0])
        assert file.array("area").read().sum() == pytest.approx(2)


def test_a_block_without_cells_leaves_the_numbers_of_others_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "run.e"
    write_exodus(path, SQUARES, {"QUAD4": [[0, 1, 2, 3]], "QUAD": [[1, 4, 5, 2]]}, 1, "scipy")
    with xarray.open_dataset(path) as data:
        found = data.load()
    parts = {name: name.replace("2", "3") for name in map(str, found.variables) if re.search("connect2|eb2", name)}
    found = found.drop_vars(["eb_prop1", "vals_elem_var1eb1"]).rename(parts)
    found["eb_prop1"] = ("num_el_blk", np.array([10, 20, 30], np.int32))
    found.to_netcdf(tmp_path / "empty.e", engine="scipy")
    with open_file(tmp_path / "empty.e") as file:
        assert file.regions["block"] == {10, 30}
        assert file.left_out == {"heat": "not every block of cells has it"}


def test_one_step_is_a_mesh_and_another_type_is_named(tmp_path: Path) -> None:
    write_exodus(tmp_path / "one.exo", SQUARES, {"QUAD4": [[0, 1, 2, 3], [1, 4, 5, 2]]}, 1, "scipy")
    with open_file(tmp_path / "one.exo") as file:
        assert (file.format, file.array("temp").shape) == ("mesh", (1, 6))
    write_exodus(tmp_path / "odd.exo", SQUARES, {"NFACED": [[0, 1, 2, 3]]}, 1, "scipy")
    with pytest.raises(ReadError, match=r"odd\.exo: .*connect1 has cells of the type NFACED"):
        next(exodus_meshes(tmp_path / "odd.exo"))
    xarray.Dataset({"x": ("n", np.ones(3))}).to_netcdf(tmp_path / "none.e", engine="scipy")
    with pytest.raises(ReadError, match="no coordinates of nodes"), open_file(tmp_path / "none.e"):
        pass


def test_nodes_in_the_middle_of_edges_come_in_the_order_of_vtk(tmp_path: Path) -> None:
    middles = np.array([CUBE[[*edge]].mean(axis=0) for edge in HEXAHEDRON.edges])
    points = np.concatenate([CUBE, middles])
    exodus = np.argsort(ORDER["hexahedron20"])  # its nodes, where those of VTK are 0 to 19
    write_exodus(tmp_path / "cube.e", points, {"HEX20": [exodus.tolist()]}, 1, "scipy")
    assert next(exodus_meshes(tmp_path / "cube.e")).cells[0].data.tolist() == [[*range(20)]]
    with open_file(tmp_path / "cube.e") as file:
        assert file.array("area").read().sum() == pytest.approx(1)


def test_nodes_of_complete_quadratic_wedges_come_in_the_order_of_vtk() -> None:
    """Exodus has the middles of the edges along the wedge before those of its top, and then those of its sides."""
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]])
    edges = ((0, 1), (1, 2), (2, 0), (0, 3), (1, 4), (2, 5), (3, 4), (4, 5), (5, 3))
    middles = [corners[[*each]].mean(axis=0) for each in (*edges, (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5))]
    placed = np.concatenate([corners, middles])[[*ORDER["wedge18"]]]
    kind = KINDS["wedge18"]
    for facet, nodes in zip(kind.facets, kind.nodes, strict=True):
        own = [np.mean(placed[[one, other]], axis=0) for one, other in zip(facet, (*facet[1:], facet[0]), strict=True)]
        own += [placed[[*facet]].mean(axis=0)] * (len(facet) == 4)
        assert sorted(map(tuple, own)) == sorted(map(tuple, placed[[*nodes[len(facet) :]]]))


def test_numbers_of_a_step_are_named(tmp_path: Path) -> None:
    write_exodus(tmp_path / "a.e", SQUARES, {"QUAD4": [[0, 1, 2, 3], [1, 4, 5, 2]]}, 2, "scipy")
    with xarray.open_dataset(tmp_path / "a.e") as data:
        found = data.load()
    found["name_glo_var"] = ("num_glo_var", np.array([b"drag"]))
    found["vals_glo_var"] = (("time_step", "num_glo_var"), np.ones((2, 1)))
    found.to_netcdf(tmp_path / "b.e", engine="scipy")
    with open_file(tmp_path / "b.e") as file:
        assert file.left_out["drag"].startswith("it is a number of the whole step")


def test_damage_is_named_by_what_it_is(tmp_path: Path) -> None:
    """A client and a training say the same of a file."""
    path, squares = tmp_path / "run.e", {"QUAD4": [[0, 1, 2, 3], [1, 4, 5, 2]]}
    far, below = ({"QUAD4": [[0, 1, 2, 3], [1, 4, 5, node]]} for node in (7, -1))
    for cells, content, sentence in (
        (far, b"", r"cells of the type quad name point 7, counted from 0, of 6 points"),
        (below, b"", r"cells of the type quad name point -1, counted from 0, of 6 points"),
        (squares, b"a text", r"it is neither HDF5 nor netCDF"),
    ):
        write_exodus(path, SQUARES, cells, 1, "scipy")
        path.write_bytes(content or path.read_bytes())
        with pytest.raises(ReadError, match=rf"run\.e: .*{sentence}"), open_file(path):
            pass
        with pytest.raises(ValueError, match=rf"a mesh in .*run\.e but it cannot be read \(.*{sentence}"):
            of_meshes(path, MODEL, None)
    (tmp_path / "big.nc").write_bytes(b"CDF\5")
    with pytest.raises(ReadError, match="CDF-5, which is not read: convert it, nccopy"), open_file(tmp_path / "big.nc"):
        pass
