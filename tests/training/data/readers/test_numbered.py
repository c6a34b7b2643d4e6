"""Meshes of Gmsh and Abaqus: data belong to the nodes and cells whose numbers they name, and parts are not confused."""

from __future__ import annotations

from pathlib import Path

import meshio
import numpy as np
import pytest
from numpy.typing import NDArray

from petrov_client._guards import guarded, read_any
from physics.numerics.cell_types import PYRAMID, WEDGE, Shape
from training.data.readers import ReadError, open_file
from training.data.readers.mesh import read_mesh
from training.data.readers.numbered import ORDER

POINTS = np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [1, 1, 0], [2, 1, 0]])
QUADS = np.array([[0, 1, 4, 3], [1, 2, 5, 4]])
LINES = np.array([[0, 1], [1, 2]])
NUMBERS = np.array([40, 7, 12, 3, 25, 31])  # of the nodes in a file


def gmsh(path: Path, *sections: str) -> None:
    """Write a mesh of two lines, numbered 1 and 2, and two quadrilaterals, 9 and 8, of nodes with the numbers above."""
    nodes = "".join(f"{number} {x} {y} {z}\n" for number, (x, y, z) in zip(NUMBERS, POINTS, strict=True))
    cells = [f"{1 + row} 1 2 1 1 {a} {b}\n" for row, (a, b) in enumerate(NUMBERS[LINES])]
    cells += [f"{9 - row} 3 2 1 1 {' '.join(map(str, each))}\n" for row, each in enumerate(NUMBERS[QUADS])]
    head = f"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n6\n{nodes}$EndNodes\n"
    path.write_text(head + "".join(("$Elements\n4\n", *cells, "$EndElements\n", *sections)))


def data(kind: str, name: str, values: dict[int, float], step: int = 0) -> str:
    """Return a section of data of nodes or cells by their numbers."""
    rows = "".join(f"{number} {value}\n" for number, value in values.items())
    return f'${kind}\n1\n"{name}"\n1\n{step / 10}\n3\n{step}\n1\n{len(values)}\n{rows}$End{kind}\n'


def test_data_of_gmsh_are_of_the_nodes_and_cells_that_they_name(tmp_path: Path) -> None:
    """`meshio` takes them in their order, and says nothing."""
    of_nodes = {int(NUMBERS[row]): 10.0 + row for row in (3, 5, 0, 1, 4, 2)}
    gmsh(tmp_path / "a.msh", data("NodeData", "T", of_nodes), data("ElementData", "E", {8: 80.0, 9: 90.0}))
    with open_file(tmp_path / "a.msh") as file:
        assert file.array("T").read()[0].tolist() == [10, 11, 12, 13, 14, 15]
        assert file.array("E").read()[0].tolist() == [90, 85, 80, 90, 85, 80]
    with guarded(tmp_path / "a.msh"):  # as the client reads it
        mesh = read_any(tmp_path / "a.msh")
    assert mesh.point_data["T"].tolist() == [10, 11, 12, 13, 14, 15]


def test_nodes_without_a_value_have_none(tmp_path: Path) -> None:
    gmsh(tmp_path / "a.msh", data("NodeData", "T", {7: 1.0}), data("NodeData", "T", {40: 2.0}))  # as of two partitions
    with open_file(tmp_path / "a.msh") as file:
        np.testing.assert_array_equal(file.array("T").read()[0], [2, 1, *[np.nan] * 4])


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        (data("NodeData", "T", {6: 1.0}), r"the data 'T' have a value of the node 6, which is not there"),
        (data("ElementData", "T", {3: 1.0}), r"the data 'T' have a value of the element 3, which is not there"),
        (data("NodeData", "T", {7: 1.0}) + data("NodeData", "T", {7: 1.0}, 2), r"it has 'T' at several steps, 0 and 2"),
    ],
)
def test_data_of_gmsh_that_no_field_is_made_of_are_refused(section: str, sentence: str, tmp_path: Path) -> None:
    gmsh(tmp_path / "a.msh", section)
    with pytest.raises(ReadError, match=rf"a\.msh: .*{sentence}"), open_file(tmp_path / "a.msh"):
        pass


@pytest.mark.parametrize("kind", ["NodeData", "ElementData"])
def test_data_before_a_mesh_are_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.msh").write_text(f"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n{data(kind, 'T', {1: 1.0})}")
    with pytest.raises(ReadError, match=rf"the section \${kind} comes before"), open_file(tmp_path / "a.msh"):
        pass


def test_what_is_not_read_of_gmsh_s_data_is_named(tmp_path: Path) -> None:
    gmsh(tmp_path / "a.msh", '$ElementNodeData\n1\n"stress"\n1\n0\n3\n0\n1\n1\n8 4 1 2 3 4\n$EndElementNodeData\n')
    with open_file(tmp_path / "a.msh") as file:
        assert file.left_out["stress"].startswith("every cell has values of its own at its nodes")
    meshio.Mesh(POINTS, {"quad": QUADS}).write(tmp_path / "b.msh", file_format="gmsh")
    with open_file(tmp_path / "b.msh") as file:
        assert [*file.left_out] == ["gmsh:dim_tags"]


@pytest.mark.parametrize("version", ["2.2", "4.0", "4.1"])
def test_data_of_cells_are_read_in_every_version(version: str, tmp_path: Path) -> None:
    fields = {"E": [np.array([30.0, 50])], "V": [np.arange(10.0, 16).reshape(2, 3)]}
    mesh = meshio.Mesh(POINTS, {"quad": QUADS}, {"T": POINTS[:, 0]}, fields)
    meshio.gmsh.write(tmp_path / "a.msh", mesh, version, binary=True)
    found = read_mesh(tmp_path / "a.msh")
    assert found.point_data["T"].tolist() == POINTS[:, 0].tolist()
    for name, [values] in fields.items():
        assert found.cell_data[name][0].tolist() == values.tolist()


def test_data_of_cells_of_several_blocks_are_read_in_version_2(tmp_path: Path) -> None:
    """`meshio` takes every block for two cells."""
    blocks = [("line", LINES[:1]), ("quad", QUADS[:1]), ("triangle", np.array([[1, 2, 5], [1, 5, 4], [0, 1, 4]]))]
    fields = [np.array([1.0]), np.array([2.0]), np.array([3.0, 4, 5])]
    meshio.gmsh.write(tmp_path / "a.msh", meshio.Mesh(POINTS, blocks, {}, {"E": fields}), "2.2", binary=True)
    found = read_mesh(tmp_path / "a.msh")
    assert [each.tolist() for each in found.cell_data["E"]] == [each.tolist() for each in fields]


def test_physical_groups_of_some_parts_alone_are_read(tmp_path: Path) -> None:
    """As Gmsh writes them where all cells are saved; `meshio` has data of fewer blocks than there are then."""
    text = """$MeshFormat\n4.1 0 8\n$EndMeshFormat
$Entities\n0 1 1 0\n1 0 0 0 2 0 0 0 0\n1 0 0 0 2 1 0 1 5 0\n$EndEntities
$Nodes\n1 6 1 9\n2 1 0 6\n1\n2\n9\n4\n5\n6\n0 0 0\n1 0 0\n2 0 0\n0 1 0\n1 1 0\n2 1 0\n$EndNodes
$Elements\n2 4 1 7\n1 1 1 2\n1 1 2\n2 2 9\n2 1 3 2\n7 1 2 5 4\n4 2 9 6 5\n$EndElements\n"""
    fields = data("NodeData", "T", {9: 2.0, 1: 0.0, 2: 1.0, 4: 3.0, 5: 4.0, 6: 5.0})
    (tmp_path / "a.msh").write_text(text + fields + data("ElementData", "E", {4: 40.0, 7: 70.0}))
    with open_file(tmp_path / "a.msh") as file:
        assert file.array("gmsh:physical=5").read()[0].tolist() == [1] * 6
        assert file.array("T").read()[0].tolist() == [0, 1, 2, 3, 4, 5]
        assert file.array("E").read()[0].tolist() == [70, 55, 40, 70, 55, 40]


@pytest.mark.parametrize(("kind", "shape", "number"), [("pyramid14", PYRAMID, 14), ("wedge18", WEDGE, 13)])
def test_nodes_of_complete_quadratic_cells_of_gmsh_come_in_the_order_of_vtk(
    kind: str, shape: Shape, number: int, tmp_path: Path
) -> None:
    tops: dict[str, NDArray[np.float64]] = {
        "pyramid14": np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]]),
        "wedge18": np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]]),
    }
    corners = tops[kind]
    # The edges of Gmsh are those of pairs of corners in their order, and so are the quadrilaterals, in its own.
    edges = sorted(tuple(sorted(edge)) for edge in shape.edges)
    quads = {"pyramid14": [(0, 1, 2, 3)], "wedge18": [(0, 1, 4, 3), (0, 2, 5, 3), (1, 2, 5, 4)]}[kind]
    points = np.concatenate([corners, [corners[[*each]].mean(axis=0) for each in (*edges, *quads)]])
    nodes = "".join(f"{row} {' '.join(map(str, point))}\n" for row, point in enumerate(points.tolist(), start=1))
    cell = f"1 {number} 2 1 1 {' '.join(map(str, range(1, len(points) + 1)))}"
    (tmp_path / "a.msh").write_text(
        f"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n{len(points)}\n{nodes}$EndNodes\n"
        f"$Elements\n1\n{cell}\n$EndElements\n"
    )
    block = read_mesh(tmp_path / "a.msh").cells[0]
    assert block.type == kind
    assert sorted(ORDER[kind]) == [*range(len(points))]
    placed = points[block.data[0]]
    for at, edge in enumerate(shape.edges, start=len(corners)):
        assert placed[at].tolist() == corners[[*edge]].mean(axis=0).tolist()
    middles = [facet for facet in shape.facets if len(facet) == 4]
    for at, facet in enumerate(middles, start=len(corners) + len(shape.edges)):
        assert placed[at].tolist() == corners[[*facet]].mean(axis=0).tolist()


def nodes_of(points: NDArray[np.float64], first: int) -> str:
    return "*Node\n" + "".join(f"{first + row}, {x}, {y}, {z}\n" for row, (x, y, z) in enumerate(points))


def cells_of(kind: str = "S4R") -> str:
    rows = (f"{1 + row}, {', '.join(map(str, each + 1))}\n" for row, each in enumerate(QUADS))
    return f"*Element, type={kind}\n{''.join(rows)}"


def test_parts_of_abaqus_are_refused_and_sections_of_nodes_joined(tmp_path: Path) -> None:
    """`meshio` gives the cells of all parts the nodes of the last one."""
    path = tmp_path / "a.inp"
    path.write_text(nodes_of(POINTS, 1) + cells_of() + nodes_of(POINTS + 9, 1) + cells_of())
    with (
        pytest.raises(ReadError, match=r"it has two nodes of the number 1, as models of several parts do"),
        open_file(path),
    ):
        pass
    path.write_text(nodes_of(POINTS[:4], 1) + nodes_of(POINTS[4:], 5) + cells_of("CPE4"))
    with open_file(path) as file:
        assert file.array("coordinates").read()[0].tolist() == POINTS[:, :2].tolist()
        assert file.array("area").read().sum() == 2
    (tmp_path / "other.inp").write_text(nodes_of(POINTS, 1))
    path.write_text("*INCLUDE, INPUT=other.inp\n" + cells_of())
    with pytest.raises(ReadError, match=r"it includes other\.inp, and no other file is read"), open_file(path):
        pass
