"""Files as VTK, ParaView and PyVista write them: appended bytes, several pieces, pixels, and structured grids."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from physics.numerics.cell_types import HEXAHEDRON, WEDGE, Shape
from tests.drafts import described
from training.data.readers import ReadError, open_file

X, Y, Z = (each.ravel(order="F") for each in np.mgrid[0:4, 0:3, 0:2].astype(np.float64))
BOX = np.stack([X, 2 * Y, 3 * Z], axis=1)
"""Points of 3 x 2 x 1 boxes of the volume 6, x first."""
TYPES = {np.dtype("f8"): "Float64", np.dtype("i8"): "Int64", np.dtype("u1"): "UInt8"}


def corners(points: int) -> NDArray[np.int64]:
    """Return the nodes of the pixels (4) or voxels (8) of the points, as VTK counts them."""
    first = np.array([i + 4 * j for j in range(2) for i in range(3)])
    plane = np.stack([first, first + 1, first + 4, first + 5], axis=1)
    return plane if points == 4 else np.concatenate([plane, plane + 12], axis=1)


def packed(values: NDArray[np.generic], compressor: str) -> bytes:
    """Return an array as VTK appends it: the number of its bytes, or the numbers and sizes of its blocks, before it."""
    data = values.tobytes()
    if not compressor:
        return np.uint64(len(data)).tobytes() + data
    if not data:
        return np.uint64(0).tobytes()
    block = zlib.compress(data)
    return np.array([1, len(data), 0, len(block)], np.uint64).tobytes() + block


def xml(path: Path, kind: str, parts: dict[str, dict[str, NDArray[np.generic]]], counts: str, mode: str) -> None:
    """Write a file of one piece, its arrays appended as bytes (`raw`) or in their elements (`binary`)."""
    compressor = ' compressor="vtkZLibDataCompressor"' if mode.endswith("zlib") else ""
    text, appended = "", b""
    for part, arrays in parts.items():
        text += f"<{part}>"
        for name, values in arrays.items():
            width = f' NumberOfComponents="{values.shape[1]}"' if values.ndim > 1 else ""
            data = packed(values, compressor)
            head = len(data) if not compressor else 8 * (4 if values.size else 1)
            inline = "".join(base64.b64encode(each).decode() for each in ((data[:head]), data[head:]))
            place = (
                f'appended" offset="{len(appended)}"/>' if mode.startswith("raw") else f'binary">{inline}</DataArray>'
            )
            text += f'<DataArray type="{TYPES[values.dtype]}" Name="{name}"{width} format="{place}'
            appended += data
        text += f"</{part}>"
    head = f'<?xml version="1.0"?><VTKFile type="{kind}" version="1.0" byte_order="LittleEndian" header_type="UInt64"'
    whole = f"{head}{compressor}><{kind}><Piece {counts}>{text}</Piece></{kind}>".encode()
    if mode.startswith("raw"):
        whole += b'<AppendedData encoding="raw">\n_' + appended + b"\n</AppendedData>"
    path.write_bytes(whole + b"</VTKFile>")


@pytest.mark.parametrize("mode", ["raw", "raw zlib", "binary", "binary zlib"])
def test_appended_arrays_are_those_of_their_names_however_many_have_one_size(mode: str, tmp_path: Path) -> None:
    """Of five arrays of a multiple of three bytes, `meshio` takes the fourth for the third, and the third for it."""
    points = np.concatenate([BOX, BOX + 100])[:26]
    fields = {name: np.arange(26.0) * (1 + number) for number, name in enumerate("abcdefgh")}
    cells = {"connectivity": np.arange(26), "offsets": np.arange(1, 27), "types": np.ones(26, np.uint8)}
    parts = {"PointData": fields, "CellData": {}, "Points": {"Points": points}, "Cells": cells}
    xml(tmp_path / "a.vtu", "UnstructuredGrid", parts, 'NumberOfPoints="26" NumberOfCells="26"', mode)
    with open_file(tmp_path / "a.vtu") as file:
        assert np.array_equal(file.array("coordinates").read()[0], points)
        for name, values in fields.items():
            assert np.array_equal(file.array(name).read()[0], values), name


@pytest.mark.parametrize("mode", ["raw", "raw zlib", "binary zlib"])
def test_parts_of_a_surface_may_be_empty_and_packed(mode: str, tmp_path: Path) -> None:
    none = {"connectivity": np.empty(0, np.int64), "offsets": np.empty(0, np.int64)}
    nodes = corners(4)[:, [0, 1, 3, 2]]
    parts = {
        "PointData": {"k": X[:12]},
        "CellData": {"c": np.arange(6.0)},
        "Points": {"Points": BOX[:12]},
        **dict.fromkeys(("Verts", "Lines", "Strips"), none),
        "Polys": {"connectivity": nodes.ravel(), "offsets": np.arange(4, 28, 4)},
    }
    xml(tmp_path / "a.vtp", "PolyData", parts, 'NumberOfPoints="12" NumberOfPolys="6"', mode)
    with open_file(tmp_path / "a.vtp") as file:
        assert np.array_equal(file.array("k").read()[0], X[:12])
        assert file.array("area").read().sum() == 12
        assert file.array("c").read()[0, 0] == 0


def test_pieces_are_one_mesh(tmp_path: Path) -> None:
    """`meshio` keeps the cells of the last one, whose points alone would be left."""
    points = {"Points": {"Points": BOX[:12]}, "PointData": {"k": X[:12]}, "CellData": {"c": np.arange(6.0)}}
    cells = {"connectivity": corners(4).ravel(), "offsets": 4 * np.arange(1, 7), "types": np.full(6, 8, np.uint8)}
    counts = 'NumberOfPoints="12" NumberOfCells="6"'
    xml(tmp_path / "a.vtu", "UnstructuredGrid", {**points, "Cells": cells}, counts, "binary")
    text = (tmp_path / "a.vtu").read_text()
    piece = text[text.index("<Piece") : text.index("</UnstructuredGrid>")]
    here, beside = (base64.b64encode(packed(BOX[:12] + offset, "")).decode() for offset in np.diag([0, 10, 0])[:2])
    other = piece.replace(here, beside)
    (tmp_path / "a.vtu").write_text(text.replace(piece, piece + other))
    with open_file(tmp_path / "a.vtu") as file:
        assert np.array_equal(file.array("k").read()[0], np.tile(X[:12], 2))
        assert file.array("coordinates").read()[0, 12].tolist() == [0, 10]
        assert file.array("area").read().sum() == 24
        assert file.array("c").read()[0, [0, 12]].tolist() == [0, 0]


def test_appended_arrays_that_end_behind_the_file_are_named(tmp_path: Path) -> None:
    points = {"Points": {"Points": BOX}, "Cells": {"connectivity": np.arange(24), "offsets": np.arange(1, 25)}}
    xml(tmp_path / "a.vtu", "UnstructuredGrid", points, 'NumberOfPoints="24" NumberOfCells="24"', "raw")
    whole = (tmp_path / "a.vtu").read_bytes()
    end = whole.rindex(b"\n</AppendedData>")
    (tmp_path / "a.vtu").write_bytes(whole[: end - 40] + whole[end:])
    sentence = r"a\.vtu: .*the array 'offsets' ends behind the file"
    with pytest.raises(ReadError, match=sentence), open_file(tmp_path / "a.vtu"):
        pass


@pytest.mark.parametrize("nodes", [4, 8])
@pytest.mark.parametrize("suffix", ["vtu", "4.2.vtk", "5.1.vtk"])
def test_pixels_and_voxels_are_rectangles_and_boxes(nodes: int, suffix: str, tmp_path: Path) -> None:
    path, number, points = tmp_path / f"a.{suffix}", {4: 8, 8: 11}[nodes], BOX[: 3 * nodes]
    if suffix == "vtu":
        cells = {"connectivity": corners(nodes).ravel(), "offsets": nodes * np.arange(1, 7)}
        parts = {
            "PointData": {"k": X[: len(points)]},
            "CellData": {"c": np.arange(6.0)},
            "Points": {"Points": points},
            "Cells": {**cells, "types": np.full(6, number, np.uint8)},
        }
        counts = f'NumberOfPoints="{len(points)}" NumberOfCells="6"'
        xml(path, "UnstructuredGrid", parts, counts, "binary")
    else:
        legacy(path, suffix[:3], nodes, number, points)
    with open_file(path) as file:
        area = file.array("area").read()
        assert area.sum() == pytest.approx({4: 12, 8: 36}[nodes])
        assert area[0, 0] == pytest.approx({4: 2 / 4, 8: 6 / 8}[nodes])  # a node in the corner has its cell's share
        assert file.array("c").read()[0, :4].tolist() == [0, 0.5, 1.5, 2]


def legacy(path: Path, version: str, nodes: int, number: int, points: NDArray[np.float64]) -> None:
    """Write a legacy file of pixels or voxels."""
    cells = corners(nodes).tolist()
    lines = "\n".join(" ".join(map(str, each)) for each in cells)
    old = f"CELLS 6 {6 * (nodes + 1)}\n" + "\n".join(f"{nodes} {' '.join(map(str, each))}" for each in cells)
    starts = " ".join(map(str, range(0, 7 * nodes, nodes)))
    new = f"CELLS 7 {6 * nodes}\nOFFSETS vtktypeint64\n{starts}\nCONNECTIVITY vtktypeint64\n{lines}"
    path.write_text(
        f"# vtk DataFile Version {version}\na\nASCII\nDATASET UNSTRUCTURED_GRID\nPOINTS {len(points)} double\n"
        + "\n".join(" ".join(map(str, point)) for point in points)
        + f"\n{old if version == '4.2' else new}\nCELL_TYPES 6\n"
        + f"{number}\n" * 6
        + "CELL_DATA 6\nSCALARS c double 1\nLOOKUP_TABLE default\n0 1 2 3 4 5\n"
    )


@pytest.mark.parametrize("version", ["3.0", "5.1"])
@pytest.mark.parametrize("kind", ["STRUCTURED_POINTS", "STRUCTURED_GRID", "RECTILINEAR_GRID"])
def test_structured_grids_of_legacy_files_are_meshes(kind: str, version: str, tmp_path: Path) -> None:
    where = {
        "STRUCTURED_POINTS": "ORIGIN 0 0 0\nSPACING 1 2 3",
        "STRUCTURED_GRID": "POINTS 24 double\n" + "\n".join(" ".join(map(str, point)) for point in BOX),
        "RECTILINEAR_GRID": "X_COORDINATES 4 double\n0 1 2 3\nY_COORDINATES 3 double\n0 2 4\n"
        "Z_COORDINATES 2 double\n0 3",
    }
    path = tmp_path / "a.vtk"
    path.write_text(
        f"# vtk DataFile Version {version}\na\nASCII\nDATASET {kind}\nDIMENSIONS 4 3 2\n{where[kind]}\n"
        f"POINT_DATA 24\nSCALARS k double 1\nLOOKUP_TABLE default\n{' '.join(map(str, X + 10 * Z))}\n"
    )
    with open_file(path) as file:
        assert np.array_equal(file.array("coordinates").read()[0], BOX)
        assert np.array_equal(file.array("k").read()[0], X + 10 * Z)
        assert file.array("area").read().sum() == pytest.approx(36)


def polyhedra(path: Path, solid: tuple[int, ...], version: str = "1.0") -> None:
    """Write a row of two boxes below two prisms, with the numbers 10 and 20; cells that are named are polyhedra."""
    faced = list[list[int]]()
    sides = list[int]()  # how many faces there are behind each cell
    points, cells = list[tuple[int, ...]](), list[tuple[int, list[int], Shape]]()
    for x in range(2):
        box = [(x + a, b, c) for c in range(2) for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))]
        prism = [(x + a, b, c) for b in range(2) for a, c in ((0, 1), (1, 1), (0, 2))]
        points += [each for each in dict.fromkeys((*box, *prism)) if each not in points]
        cells += [(12, [points.index(each) for each in box], HEXAHEDRON)]
        cells += [(13, [points.index(each) for each in prism], WEDGE)]
    faces, ends = list[int](), list[int]()
    for number, (_, nodes, shape) in enumerate(cells):
        if number in solid:
            faces += [
                len(shape.facets),
                *(each for facet in shape.facets for each in (len(facet), *(nodes[n] for n in facet))),
            ]
            faced += [[nodes[n] for n in facet] for facet in shape.facets]
        sides.append(len(faced))
        ends.append(len(faces) if number in solid else -1)
    types = [42 if number in solid else kind for number, (kind, _, _) in enumerate(cells)]
    new = {
        "face_connectivity": np.array([node for each in faced for node in each], np.int64),
        "face_offsets": np.cumsum([len(each) for each in faced], dtype=np.int64),
        "polyhedron_to_faces": np.arange(len(faced)),
        "polyhedron_offsets": np.array(sides),
    }
    old = {"faces": np.array(faces, np.int64), "faceoffsets": np.array(ends, np.int64)}
    parts = {
        "CellData": {"c": np.array([10.0, 20, 10, 20])},
        "Points": {"Points": np.array(points, np.float64)},
        "Cells": {
            "connectivity": np.concatenate([nodes for _, nodes, _ in cells]),
            "offsets": np.cumsum([len(nodes) for _, nodes, _ in cells]),
            "types": np.array(types, np.uint8),
            **(new if version == "2.3" else old),
        },
    }
    xml(path, "UnstructuredGrid", parts, f'NumberOfPoints="{len(points)}" NumberOfCells="4"', "binary")
    path.write_text(path.read_text().replace('Grid" version="1.0"', f'Grid" version="{version}"'))


@pytest.mark.parametrize("version", ["1.0", "2.3"])
@pytest.mark.parametrize("solid", [(0, 1, 2, 3), (1, 3), (0,), ()])
def test_polyhedra_have_their_own_data_also_beside_other_cells(
    solid: tuple[int, ...], version: str, tmp_path: Path
) -> None:
    """`meshio` sorts the data of polyhedra by their numbers of nodes, and not the polyhedra.

    Those of version 2.3, which VTK writes since 9.4, have faces of their own.
    """
    polyhedra(tmp_path / "a.vtu", solid, version)
    with open_file(tmp_path / "a.vtu") as file:
        points, values = file.array("coordinates").read()[0], file.array("c").read()[0]
        assert {*values[points[:, 2] == 0]} == {10}
        assert {*values[points[:, 2] == 2]} == {20}
        assert file.array("area").read().sum() == pytest.approx(3)


@pytest.mark.parametrize(("version", "name"), [("1.0", "faces"), ("2.3", "face_offsets")])
def test_faces_of_polyhedra_that_are_not_there_are_named(version: str, name: str, tmp_path: Path) -> None:
    polyhedra(tmp_path / "a.vtu", (0, 1, 2, 3), version)
    text = (tmp_path / "a.vtu").read_text()
    (tmp_path / "a.vtu").write_text(text.replace(f'Name="{name}"', 'Name="others"'))
    with pytest.raises(ReadError, match="it has polyhedra whose faces are not there"), open_file(tmp_path / "a.vtu"):
        pass
    (tmp_path / "a.vtu").write_text(text.replace('Name="connectivity"', 'Name="others"'))
    with pytest.raises(ReadError, match="its cells have no connectivity"), open_file(tmp_path / "a.vtu"):
        pass


@pytest.mark.parametrize("suffix", ["vtu", "vtp"])
def test_ghosts_are_no_cells(suffix: str, tmp_path: Path) -> None:
    """Those of a parallel run repeat cells of other parts, and their marks were an input."""
    marks = np.array([0, 0, 0, 0, 1, 32], np.uint8)
    nodes = corners(4)[:, [0, 1, 3, 2]]
    parts = {
        "PointData": {"k": X[:12], "vtkGhostType": np.zeros(12, np.uint8)},
        "CellData": {"c": np.arange(6.0), "vtkGhostType": marks},
        "Points": {"Points": BOX[:12]},
    }
    cells = {"connectivity": nodes.ravel(), "offsets": np.arange(4, 28, 4)}
    kind, part = {"vtu": ("UnstructuredGrid", "Cells"), "vtp": ("PolyData", "Polys")}[suffix]
    types = {"types": np.full(6, 9, np.uint8)} if suffix == "vtu" else {}
    counts = f'NumberOfPoints="12" NumberOf{part}="6"'
    xml(tmp_path / f"a.{suffix}", kind, {**parts, part: {**cells, **types}}, counts, "raw zlib")
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(path.read_bytes().replace(b'" version="1.0"', b'" version="2.2"'))
    with open_file(path) as file:
        assert file.array("area").read().sum() == 8
        assert file.array("k").read()[0].tolist() == np.delete(X[:12], [10, 11]).tolist()
        assert file.array("c").read().max() == 3
        assert file.left_out == {"vtkGhostType": "it marks ghosts, of which 2 cells are left out"}


def test_a_grid_that_paraview_has_sampled_has_a_domain(tmp_path: Path) -> None:
    y, x = (each.ravel() for each in np.mgrid[0:6.0, 0:7.0])
    for number in range(3):
        marks = {"vtkValidPointMask": (y > 0).astype(np.uint8), "vtkGhostType": 2 * (y == 0).astype(np.uint8)}
        fields = {"k": x, "u": x * y + number}
        parts = {"PointData": {**fields, **marks}, "CellData": {"vtkGhostType": np.zeros(30, np.uint8)}}
        xml(tmp_path / f"a{number}.vti", "ImageData", parts, 'Extent="0 6 0 5 0 0"', "binary")
    text = described(tmp_path, "*.vti", "u")
    assert 'key = "vtkValidPointMask"  # guess: vtkValidPointMask is 1 inside the domain' in text
    assert "# left out: vtkGhostType: it marks ghosts" in text
    assert "inputs.vtk" not in text


def test_a_compressor_that_is_not_known_is_named(tmp_path: Path) -> None:
    for suffix, kind in (("vtu", "UnstructuredGrid"), ("vtp", "PolyData"), ("vti", "ImageData")):
        parts = {"Points": {"Points": BOX}, "PointData": {"k": X}, "CellData": {}}
        path = tmp_path / f"a.{suffix}"
        xml(path, kind, parts, 'NumberOfPoints="24" NumberOfCells="0" Extent="0 3 0 2 0 1"', "binary zlib")
        path.write_text(path.read_text().replace("vtkZLibDataCompressor", "vtkLZ4DataCompressor"))
        with pytest.raises(ReadError, match=r"packed by vtkLZ4DataCompressor: save it with ZLib"), open_file(path):
            pass


@pytest.mark.parametrize("given", [".", "*.vtu"])
def test_parts_of_a_mesh_are_no_samples(given: str, tmp_path: Path) -> None:
    for number in range(4):
        polyhedra(tmp_path / f"run_{number // 2}_{number % 2}.vtu", ())
    for run in range(2):
        pieces = "".join(f'<Piece Source="run_{run}_{number}.vtu"/>' for number in range(2))
        kind = "PUnstructuredGrid"
        (tmp_path / f"run_{run}.pvtu").write_text(f'<VTKFile type="{kind}"><{kind}>{pieces}</{kind}></VTKFile>')
    with pytest.raises(ReadError, match=r"run_0\.pvtu: .* run_0_0\.vtu and run_0_1\.vtu are parts of one"):
        described(tmp_path, given)


def test_cells_of_a_type_that_is_not_known_are_not_left_out(tmp_path: Path) -> None:
    """`meshio` leaves them out, so that the boundary goes around them."""
    points = {"Points": {"Points": BOX[:12]}, "CellData": {"c": np.arange(2.0)}}
    strip, square = [0, 4, 1, 5, 2, 6, 3, 7], [4, 5, 9, 8]
    cells = {"connectivity": np.array(strip + square), "offsets": np.array([8, 12])}
    for kind in (6, 4):  # a strip of triangles, and a line of segments, which the domain is not made of
        parts = {**points, "Cells": {**cells, "types": np.array([kind, 9], np.uint8)}}
        xml(tmp_path / "a.vtu", "UnstructuredGrid", parts, 'NumberOfPoints="12" NumberOfCells="2"', "binary")
        if kind == 4:
            with open_file(tmp_path / "a.vtu") as file:
                assert file.array("c").read()[0].tolist() == [1] * 4
            continue
        sentence = r"it has cells of VTK's type 6, which are not read"
        with pytest.raises(ReadError, match=sentence), open_file(tmp_path / "a.vtu"):
            pass


def test_polygons_of_legacy_files_have_their_data(tmp_path: Path) -> None:
    for number, name in ((7, "polygons"), (9, "squares")):
        legacy(tmp_path / f"{name}.vtk", "4.2", 4, number, BOX[:12])
        text = (tmp_path / f"{name}.vtk").read_text()
        for a, b, c, d in corners(4).tolist():
            text = text.replace(f"4 {a} {b} {c} {d}", f"4 {a} {b} {d} {c}")
        (tmp_path / f"{name}.vtk").write_text(text)
    with open_file(tmp_path / "polygons.vtk") as file, open_file(tmp_path / "squares.vtk") as other:
        for name in ("c", "area"):
            assert file.array(name).read().tolist() == other.array(name).read().tolist()


def test_points_without_cells_are_a_cloud(tmp_path: Path) -> None:
    none = {"connectivity": np.empty(0, np.int64), "offsets": np.empty(0, np.int64), "types": np.empty(0, np.uint8)}
    parts = {"Points": {"Points": BOX}, "PointData": {"k": X}, "Cells": none}
    xml(tmp_path / "a.vtu", "UnstructuredGrid", parts, 'NumberOfPoints="24" NumberOfCells="0"', "binary")
    with open_file(tmp_path / "a.vtu") as file:
        assert file.array("k").read()[0].tolist() == X.tolist()
