"""Cells of meshes of every type: the nodes on the boundary, weights that sum to the domain's measure, and cell data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
from meshio._vtk_common import vtk_to_meshio_type
from numpy.typing import NDArray

from physics.numerics import cell_types
from physics.numerics.cell_types import KINDS, normals, sizes
from physics.numerics.cells import boundary
from training.data.readers import DataFile, open_file
from training.data.readers.mesh_cells import known_cells

CUBE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]], float)
CORNERS = {
    "triangle": CUBE[:3],
    "quad": CUBE[:4],
    "tetra": CUBE[[0, 1, 3, 4]],
    "pyramid": np.concatenate([CUBE[:4], [[0.5, 0.5, 1]]]),
    "wedge": CUBE[[0, 1, 3, 4, 5, 7]],
    "hexahedron": CUBE,
}
MEASURE = {"triangle": 1 / 2, "quad": 1, "tetra": 1 / 6, "pyramid": 1 / 3, "wedge": 1 / 2, "hexahedron": 1}


def edges_of(shape: str) -> tuple[tuple[int, ...], ...]:
    """Return the ends of the edges of a shape by its name."""
    found: cell_types.Shape = getattr(cell_types, shape.upper())
    return found.edges


def opened(path: Path, mesh: meshio.Mesh) -> DataFile:
    mesh.write(path)
    with open_file(path) as file:
        return file  # whose arrays are in memory


def values(file: DataFile, name: str) -> NDArray[Any]:
    return np.asarray(file.array(name).read()[0])


def test_all_linear_and_quadratic_cells_of_vtk_are_known() -> None:
    strange = {"line3", "polygon", "pixel", "penta_prism", "hexa_prism"}
    mixed = {"quad6", "wedge12", "triangle7", "hexahedron24"}  # rare, and refused
    assert {name for number, name in vtk_to_meshio_type.items() if 5 <= number <= 34} - strange - mixed == {*KINDS} - {
        "pyramid14"
    }


@pytest.mark.parametrize("kind", ["wedge15", "pyramid13"])
def test_quadratic_cells_that_meshio_lacks_the_dimension_of_are_read(kind: str, tmp_path: Path) -> None:
    shape = kind.rstrip("0123456789")
    corners = CORNERS[shape]
    points = np.array([*corners, *(corners[[*edge]].mean(axis=0) for edge in edges_of(shape))])
    mesh = meshio.Mesh(points, [(kind, np.arange(len(points))[np.newaxis])])
    assert values(opened(tmp_path / "cell.vtu", mesh), "area").sum() == pytest.approx(MEASURE[shape], rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_sum_to_the_measure_and_facets_are_on_the_boundary(kind: str) -> None:
    shape, known = kind.rstrip("0123456789"), KINDS[kind]
    corners = CORNERS[shape]
    count = int(kind.removeprefix(shape) or len(corners))
    points = [*corners, *(corners[[*edge]].mean(axis=0) for edge in edges_of(shape))][:count]
    middles = {  # of facets
        node: corners[[*facet]].mean(axis=0)
        for facet, nodes in zip(known.facets, known.nodes, strict=True)
        for node in nodes
        if node >= len(points)
    }
    points += [middles[node] for node in sorted(middles)]
    inside = count - len(points)
    points += [corners.mean(axis=0)] * inside
    placed = np.array(points)[:, : 2 if shape in {"triangle", "quad"} else 3]
    mesh = known_cells(meshio.Mesh(placed, [meshio.CellBlock(kind, np.arange(count)[np.newaxis])]), placed)
    assert sizes(mesh, placed).sum() == pytest.approx(MEASURE[shape], rel=1e-6)
    marked = boundary(mesh, placed)
    assert marked.tolist() == [True] * (count - inside) + [False] * inside
    out = normals(mesh, placed, marked)
    assert out.sum(axis=0) == pytest.approx(0, abs=1e-12)
    far = normals(mesh, placed / 2**20 + 2**14, marked)
    assert far * 2.0 ** (20 * (placed.shape[1] - 1)) == pytest.approx(out, abs=1e-3)
    linear = known.facets == known.nodes  # the integral of the field x over the boundary, by the means of corners
    assert not linear or (out * placed).sum() == pytest.approx(MEASURE[shape] * placed.shape[1], rel=1e-6)


def box(side: int) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Return a box of hexahedra whose upper half is cut into wedges, as prism layers of a flow's mesh are."""
    at = np.arange(side**3).reshape(side, side, side)
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, side)] * 3, indexing="ij"), -1).reshape(-1, 3)
    hexahedra, wedges = [], []
    for a, b, c in np.ndindex(side - 1, side - 1, side - 1):
        low, high = ([at[a, b, z], at[a + 1, b, z], at[a + 1, b + 1, z], at[a, b + 1, z]] for z in (c, c + 1))
        if c < side // 2:
            hexahedra.append(low + high)
        else:
            wedges += [[*low[:3], *high[:3]], [low[0], *low[2:], high[0], *high[2:]]]
    return points, {"hexahedron": np.array(hexahedra), "wedge": np.array(wedges)}


def test_the_boundary_of_a_box_of_hexahedra_and_wedges_is_its_surface(tmp_path: Path) -> None:
    points, cells = box(5)
    file = opened(tmp_path / "box.vtu", meshio.Mesh(points, cells, {"u": points[:, 0]}))
    surface = ((points == 0) | (points == 1)).any(axis=1)
    assert (values(file, "boundary") == surface).all()
    assert surface.sum() == 98
    assert values(file, "distance") == pytest.approx(np.minimum(points, 1 - points).min(axis=1), abs=1e-6)
    assert values(file, "area").sum() == pytest.approx(1, rel=1e-6)
    out = values(file, "boundary_normal")
    assert (out[surface] * points[surface]).sum() == pytest.approx(3, rel=1e-6)
    assert (out[~surface] == 0).all()
    assert (out[(points == 0.5).sum(axis=1) == 2][:, :].round(6) != 0).sum() == 6  # one component on each face


def test_cell_data_come_from_cells_of_the_mesh_s_own_dimension(tmp_path: Path) -> None:
    cells = [("line", [[0, 1], [1, 3], [3, 2], [2, 0]]), ("triangle", [[0, 1, 2], [1, 3, 2]])]
    points = [[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    mesh = meshio.Mesh(points, cells, {"u": np.arange(4.0)}, {"k": [np.zeros(4), np.full(2, 3.0)]})
    assert values(opened(tmp_path / "plate.vtu", mesh), "k").tolist() == [3, 3, 3, 3]  # the lines have 0


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ({"quad": [[0, 1, 4, 3]], "triangle": [[1, 2, 6], [6, 5, 4], [1, 6, 4]]}, ""),
        # The left cell has an edge from 1 to 4, the right ones meet in the node 7 on it.
        ({"quad": [[0, 1, 4, 3], [1, 2, 6, 7], [7, 6, 5, 4]]}, "node 7 hangs on an edge of another cell"),
        ({"line": [[0, 1]]}, "there are no cells"),
        ({"polygon": [[0, 1, 2, 5, 4, 3]]}, ""),
        ({"VTK_LAGRANGE_TRIANGLE": [[0, 1, 4]]}, "there are cells of the type VTK_LAGRANGE_TRIANGLE"),
    ],
)
def test_a_boundary_that_does_not_follow_from_the_cells_is_left_out(
    cells: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    points = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1], [2, 0.5], [1, 0.5]])
    mesh = meshio.Mesh(np.pad(points, [(0, 0), (0, 1)]), cells, {"u": points[:, 0]})
    mesh.write(tmp_path / "mesh.vtk")
    with open_file(tmp_path / "mesh.vtk") as file:
        assert ("boundary" in file.arrays) == ("area" in file.arrays) == (not sentence)
        assert sentence in " ".join(file.remarks)


def test_polygons_have_their_area_convex_or_not(tmp_path: Path) -> None:
    bracket = np.array([[0, 0, 0], [2, 0, 0], [2, 0.1, 0], [0.1, 0.1, 0], [0.1, 2, 0], [0, 2, 0]])
    file = opened(tmp_path / "bracket.vtk", meshio.Mesh(bracket, [("polygon", [[0, 1, 2, 3, 4, 5]])]))
    assert values(file, "area").sum() == pytest.approx(0.39)
    assert values(file, "boundary").all()


def test_polyhedra_are_cells_by_their_faces(tmp_path: Path) -> None:
    """Two halves of a cube, one of them below the node in its middle, as cells of OpenFOAM are."""
    points = np.concatenate([CUBE * [1, 1, 0.5], CUBE[4:]])  # layers at 0, 1/2 and 1
    cells = []
    for low in (0, 4):
        a, b = [low + node for node in range(4)], [low + 4 + node for node in range(4)]
        sides = [[a[i], a[(i + 1) % 4], b[(i + 1) % 4], b[i]] for i in range(4)]
        cells.append([np.array(face) for face in (a, b, *sides)])
    mesh = meshio.Mesh(points, [("polyhedron8", cells)], {"u": points[:, 2]}, {"k": [[1.0, 3.0]]})
    file = opened(tmp_path / "cube.vtu", mesh)
    assert values(file, "area") == pytest.approx([1 / 16] * 4 + [1 / 8] * 4 + [1 / 16] * 4)
    assert values(file, "k") == pytest.approx([1] * 4 + [2] * 4 + [3] * 4)
    assert values(file, "boundary").all()


def test_nodes_of_discontinuous_elements_lie_on_the_boundary_of_the_domain_alone(tmp_path: Path) -> None:
    """Every triangle has nodes of its own, as elements DG1 of FEniCS: none of its edges is shared by number."""
    side = np.linspace(0, 1, 4)
    points = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    low = [4 * row + column for row in range(3) for column in range(3)]
    triangles = np.array([[[n, n + 1, n + 5], [n, n + 5, n + 4]] for n in low]).reshape(-1, 3)
    own = np.pad(points[triangles.ravel()], [(0, 0), (0, 1)])
    mesh = meshio.Mesh(own, [("triangle", np.arange(len(own)).reshape(-1, 3))], {"u": own[:, 0]})
    file = opened(tmp_path / "dg.vtu", mesh)
    edge = ((own[:, :2] == 0) | (own[:, :2] == 1)).any(axis=1)
    assert (values(file, "boundary") == edge).all()
    assert (values(file, "distance")[edge] == 0).all()
    assert values(file, "area").sum() == pytest.approx(1)


def test_parts_of_a_domain_that_are_not_joined_are_named(tmp_path: Path) -> None:
    """As of a decomposed case, and of meshes that were appended to one another; a crack looks alike."""
    left = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 2, 0], [0, 2, 0]])
    points, cells = np.concatenate([left, left + np.array([1, 0, 0])]), np.array([[0, 1, 2, 3], [3, 2, 4, 5]])
    parts = meshio.Mesh(points, {"quad": np.concatenate([cells, cells + 6])}, {"u": points[:, 0]})
    _, to = np.unique(points, axis=0, return_inverse=True)
    whole = meshio.Mesh(np.unique(points, axis=0), {"quad": to.ravel()[parts.cells[0].data]}, {})
    [remark] = opened(tmp_path / "parts.vtu", parts).remarks
    assert remark.startswith("2 facets lie on others that they share no nodes with, and count as boundary")
    assert not opened(tmp_path / "whole.vtu", whole).remarks


def test_arrays_that_some_pieces_of_a_surface_lack_are_left_out_by_name(tmp_path: Path) -> None:
    piece = POLYDATA[POLYDATA.index("<Piece") : POLYDATA.index("</PolyData>")]
    other = piece.replace('Name="p"', 'Name="T"').replace("0 0 0 1 0 1", "5 0 0 6 0 1")
    (tmp_path / "pieces.vtp").write_text(POLYDATA.replace("</PolyData>", f"{other}</PolyData>"))
    with open_file(tmp_path / "pieces.vtp") as file:
        assert file.left_out == dict.fromkeys(["T", "p"], "not all of the file's 2 pieces have it")
        assert len(values(file, "k")) == 10


POLYDATA = """<?xml version="1.0"?>
<VTKFile type="PolyData" version="1.0" byte_order="LittleEndian"><PolyData>
<Piece NumberOfPoints="5" NumberOfPolys="2">
<PointData><DataArray type="Float64" Name="p" format="ascii">0 2 4 6 8</DataArray></PointData>
<CellData><DataArray type="Float64" Name="k" format="ascii">1 3</DataArray></CellData>
<Points><DataArray type="Float64" NumberOfComponents="3" format="ascii">0 0 0 1 0 1 1 1 2 0 1 3 2 2 4
</DataArray></Points>
<Polys><DataArray type="Int64" Name="connectivity" format="ascii">0 1 2 3 1 2 4</DataArray>
<DataArray type="Int64" Name="offsets" format="ascii">4 7</DataArray></Polys>
</Piece></PolyData></VTKFile>"""


def test_a_surface_in_space_has_points_and_data_and_no_boundary(tmp_path: Path) -> None:
    (tmp_path / "car.VTP").write_text(POLYDATA)
    with open_file(tmp_path / "car.VTP") as file:
        assert values(file, "coordinates")[:, 2].tolist() == [0, 1, 2, 3, 4]
        assert values(file, "p").tolist() == [0, 2, 4, 6, 8]
        assert values(file, "k").tolist() == [1, 2, 2, 1, 3]
        assert file.arrays.keys() == {"coordinates", "p", "k"}
        assert "the cells are those of a surface in space" in file.remarks[0]


def test_strips_of_triangles_are_triangles_and_every_cell_has_its_own_data(tmp_path: Path) -> None:
    """Cell data are those of the points, lines, polygons and strips, in this order."""
    strip = """<Strips><DataArray type="Int64" Name="connectivity" format="ascii">0 1 3 2</DataArray>
<DataArray type="Int64" Name="offsets" format="ascii">4</DataArray></Strips>"""
    lines = """<Lines><DataArray type="Int64" Name="connectivity" format="ascii">0 1 2</DataArray>
<DataArray type="Int64" Name="offsets" format="ascii">3</DataArray></Lines>"""
    head, polygons = POLYDATA[: POLYDATA.index("<Polys>")], "</Piece></PolyData></VTKFile>"
    plane = head.replace("0 0 0 1 0 1 1 1 2 0 1 3 2 2 4", "0 0 0 1 0 0 1 1 0 0 1 0 2 2 0")
    (tmp_path / "plate.vtp").write_text(
        plane.replace('NumberOfPolys="2"', 'NumberOfLines="1"') + lines + strip + polygons
    )
    with open_file(tmp_path / "plate.vtp") as file:
        assert values(file, "k").tolist() == [3, 3, 3, 3]  # of the strip; the line has 1
        assert values(file, "boundary").tolist() == [1, 1, 1, 1]
        assert file.remarks == ("1 of 5 points are in no cell, and left out",)
        assert values(file, "area").sum() == pytest.approx(1)
    (tmp_path / "wire.vtp").write_text(POLYDATA.replace("Polys>", "Lines>").replace("OfPolys", "OfLines"))
    with open_file(tmp_path / "wire.vtp") as file:
        assert values(file, "k") == pytest.approx([1, 5 / 3, 2, 1, 3])


def test_points_that_no_cell_has_are_left_out_with_their_values(tmp_path: Path) -> None:
    """Such as the centre of an arc and the corner of a frame, which a line of the boundary leads to."""
    points = np.array([[9, 9], [0, 0], [1, 0], [5, 5], [0, 1], [1, 1]], float)
    cells = [("triangle", [[1, 2, 4], [2, 5, 4]]), ("line", [[1, 2], [2, 3]])]
    data = {"t": np.arange(6.0)}
    for name in ("plate.vtu", "run.xdmf"):
        if name == "plate.vtu":
            meshio.Mesh(np.column_stack([points, np.zeros(6)]), cells, data).write(tmp_path / name)
        else:
            with meshio.xdmf.TimeSeriesWriter(tmp_path / name, data_format="XML") as writer:
                writer.write_points_cells(points, [("triangle", np.array(cells[0][1]))])
                for step in range(2):
                    writer.write_data(step, {"t": step + data["t"]})
        with open_file(tmp_path / name) as file:
            assert values(file, "coordinates") == pytest.approx(points[[1, 2, 4, 5]])
            assert np.atleast_2d(values(file, "t"))[-1] - (name == "run.xdmf") == pytest.approx([1, 2, 4, 5])
            assert values(file, "boundary").tolist() == [1, 1, 1, 1]
            assert file.remarks == ("2 of 6 points are in no cell, and left out",)
