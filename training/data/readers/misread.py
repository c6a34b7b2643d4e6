"""What `meshio` reads wrongly, loses or does not know, read right: files of VTK, and those of `numbered`."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from training.data.readers.numbered import library, read_abaqus_right, read_gmsh_right, replaced

OLD, NEW = "vtk._vtk_42", "vtk._vtk_51"  # modules of `meshio` for legacy files of VTK
#: Cells of VTK that are rectangles and boxes along the axes, by number: the type of `meshio`, and its order of nodes.
PIXELS = {8: ("quad", (0, 1, 3, 2)), 11: ("hexahedron", (0, 1, 3, 2, 4, 5, 7, 6))}
POLYHEDRON = 42
FACES = ("face_connectivity", "face_offsets", "polyhedron_to_faces", "polyhedron_offsets")  # of files of version 2.3
PACKERS = {None, "vtkZLibDataCompressor", "vtkLZMADataCompressor"}
GHOSTS = "vtkGhostType"
NO_CELLS = 1 | 8 | 32  # cells that other parts of a mesh have, too, or finer ones, or that are hidden
HELD = local()  # the root of the file that a reader of this thread has opened
WITHOUT_TYPE = {2, 4}  # several points, and lines of several segments, which no mesh of a domain is made of


@contextmanager
def read_right() -> Iterator[None]:
    """Let `meshio` read what it confuses, loses or does not know."""
    with _vtk(), read_gmsh_right(), read_abaqus_right():
        yield


# VTK


class _Types(dict[int, str]):
    """The types of `meshio` by VTK's numbers; `meshio` leaves out cells of others, and goes on."""

    def __missing__(self, number: Any) -> str:
        if number in WITHOUT_TYPE:
            raise KeyError(number)
        raise ValueError(
            f"it has cells of VTK's type {number}, which are not read: Triangulate or Tetrahedralize of ParaView makes "
            "triangles or tetrahedra of them"
        )


@contextmanager
def _vtk() -> Iterator[None]:
    """Let `meshio` read appended bytes, empty arrays, pixels and voxels, polyhedra beside others, and files with texts.

    Of several pieces, it keeps the cells of the last one. It gives polyhedra the data of others. Of legacy files of
    version 5.1, those of VTK since 2020, it does not read structured grids, and of older ones no data of polygons.
    """
    vtu, common, old, new = (library(name) for name in ("vtu._vtu", "_vtk_common", OLD, NEW))
    types = _Types({**common.vtk_to_meshio_type, **{number: name for number, (name, _) in PIXELS.items()}})
    sides = old.vtk_type_to_numnodes.copy()
    sides[[*PIXELS]] = [len(order) for _, order in PIXELS.values()]
    usual: Callable[..., Any] = common.vtk_to_meshio_order

    def order(number: Any, dtype: Any = int) -> Any:
        return np.array(PIXELS[number][1], dtype) if number in PIXELS else usual(number, dtype)

    inflated = vtu.VtuReader.read_compressed_binary

    def blocks(reader: Any, data: str, dtype: Any) -> Any:
        _check_packer(reader.compression)
        width = vtu.vtu_to_numpy_type[reader.header_type].itemsize
        count = base64.b64decode(data[: 4 * -(-width // 3)])[:width]
        return inflated(reader, data, dtype) if any(count) else np.empty(0, dtype)

    usual_data = vtu.VtuReader.read_data

    def values(reader: Any, item: Any) -> Any:  # texts are only among the field data
        return np.empty(0, "U1") if item.get("type") == "String" else usual_data(reader, item)

    checked, translated = new._check_mesh, old.translate_cells  # noqa: SLF001

    def of_pieces(starts: Any, cells: Any, data: Any) -> Any:
        filled = (piece for piece in zip(starts, cells, data, strict=True) if np.size(piece[1]["types"]))
        each = [_cells(int(start), own, few) for start, own, few in filled]
        names = [name for name in each[0][1] if all(name in found for _, found in each)] if each else []
        joined = {name: [block for _, found in each for block in found[name]] for name in names}
        return [block for blocks_of_piece, _ in each for block in blocks_of_piece], joined

    def with_offsets(info: Any) -> None:
        checked(info)
        if info.offsets is None:  # the cells of a structured grid are as in older files, their number of nodes first
            nodes = info.connectivity.reshape(len(info.types), -1)[:, 1:]
            info.connectivity, info.offsets = nodes.ravel(), np.arange(1, len(nodes) + 1) * nodes.shape[1]

    def translate(connectivity: Any, kinds: Any, data: Any) -> Any:
        if not (kinds == common.meshio_to_vtk_type["polygon"]).any():
            return translated(connectivity, kinds, data)
        heads, at = [], 0
        for _ in kinds:
            heads.append(at)
            at += 1 + int(connectivity[at])
        return common.vtk_cells_from_data(
            np.delete(connectivity[:at], heads), np.cumsum(connectivity[heads]), kinds, data
        )

    with (
        replaced(common, vtk_to_meshio_type=types, vtk_to_meshio_order=order),
        replaced(
            old,
            vtk_to_meshio_type=types,
            vtk_to_meshio_order=order,
            vtk_type_to_numnodes=sides,
            translate_cells=translate,
        ),
        replaced(new, _check_mesh=with_offsets),
        replaced(vtu, _parse_raw_binary=_root_of, _organize_cells=of_pieces),
        replaced(vtu.VtuReader, __init__=_opened(vtu), read_compressed_binary=blocks, read_data=values),
    ):
        yield


def _opened(vtu: Any) -> Callable[..., None]:
    """Return what opens a `.vtu` file of version 2, too, which is one of 1.0 but for its ghosts and polyhedra."""
    usual = vtu.VtuReader.__init__

    def opened(reader: Any, path: str) -> None:
        try:
            root = ET.parse(path).getroot()  # noqa: S314  expat bounds and ignores entities
        except ET.ParseError:  # appended bytes are no XML
            root = _root_of_raw(path)
        _check_packer(root.get("compressor"))
        if root.get("version", "").startswith("2."):
            root.set("version", "1.0")
        HELD.root = root
        usual(reader, os.devnull)  # which is no XML

    return opened


def _cells(start: int, cells: Any, data: Any) -> tuple[list[Any], dict[str, list[Any]]]:
    """Return the cells of a piece of a `.vtu` file, whose points are counted from `start` on, and their data by name.

    Raises:
        ValueError: Cells have no nodes, or polyhedra no faces.
    """
    if "connectivity" not in cells:
        raise ValueError("its cells have no connectivity")
    block, common = library("_mesh").CellBlock, library("_vtk_common")
    kinds, offsets, nodes = (np.ravel(cells[name]) for name in ("types", "offsets", "connectivity"))
    solid = kinds == POLYHEDRON
    counts = np.diff(offsets, prepend=0)
    few: dict[str, list[Any]] = {}
    own = []
    if not solid.all():
        own, few = common.vtk_cells_from_data(
            nodes[: counts.sum()][np.repeat(~solid, counts)],
            np.cumsum(counts[~solid]),
            kinds[~solid],
            {name: values[~solid] for name, values in data.items()},
        )
    found = [block(each.type, each.data + start) for each in own]
    if solid.any():
        faces = _polyhedra(cells, solid)
        sizes = np.array([len(np.unique(np.concatenate(each))) for each in faces])
        for size in np.unique(sizes):
            some = np.flatnonzero(sizes == size)
            found.append(block(f"polyhedron{size}", [[face + start for face in faces[at]] for at in some]))
            for name, values in data.items():
                few.setdefault(name, []).append(values[solid][some])
    return found, few


def _polyhedra(cells: Any, solid: Any) -> list[list[Any]]:
    """Return the faces of the polyhedra among some cells.

    Raises:
        ValueError: They are not there.
    """
    if {"faces", "faceoffsets"} <= {*cells}:
        return [_faces(each) for each in _parts(cells["faces"], np.ravel(cells["faceoffsets"])[solid])]
    if {*FACES} - {*cells}:
        raise ValueError("it has polyhedra whose faces are not there")
    nodes, ends, numbers, of_cells = (cells[name] for name in FACES)
    faces = _parts(nodes, ends)
    if np.size(numbers) and not 0 <= np.min(numbers) <= np.max(numbers) < len(faces):
        raise ValueError(f"its polyhedra have other faces than 0 to {len(faces) - 1}")
    own = [each for each, is_solid in zip(_parts(numbers, of_cells), solid, strict=True) if is_solid]
    return [[np.asarray(faces[number], np.int64) for number in each] for each in own]


def _parts(values: Any, ends: Any) -> list[Any]:
    """Divide numbers where parts of them end."""
    line = np.ravel(ends).tolist()
    return [np.ravel(values)[first:last] for first, last in zip((0, *line[:-1]), line, strict=True)]


def _faces(stored: Any) -> list[Any]:
    """Return the nodes of the faces of a polyhedron, of which their number, and that of the nodes of each, come first.

    Raises:
        ValueError: There are others than that.
    """
    found, at = [], 1
    for _ in range(int(stored[0]) if len(stored) else 0):
        count = int(stored[at]) if at < len(stored) else -1
        found.append(np.asarray(stored[at + 1 : at + 1 + count], np.int64))
        at += 1 + count
        if len(found[-1]) != count:
            break
    if not found or at != len(stored):
        raise ValueError("the faces of its polyhedra are not as many as it says")
    return found


def _check_packer(name: str | None) -> None:
    """Refuse arrays that are packed in a way that `meshio` does not know.

    Raises:
        ValueError: They are.
    """
    if name not in PACKERS:
        raise ValueError(f"its arrays are packed by {name}: save it with ZLib or LZMA, or without a compressor")


def without_ghosts(mesh: Any) -> Any:
    """Return a mesh of VTK without ghosts, cells that other parts have, too, or that are hidden, and their marks."""
    if GHOSTS not in {*mesh.point_data, *mesh.cell_data}:
        return mesh
    marks = mesh.cell_data.get(GHOSTS, [np.zeros(len(block.data), int) for block in mesh.cells])
    kept = {number: np.flatnonzero((np.ravel(each).astype(int) & NO_CELLS) == 0) for number, each in enumerate(marks)}
    count = sum(map(len, marks)) - sum(map(len, kept.values()))
    kept = {number: own for number, own in kept.items() if len(own)}
    cells = []
    for number, own in kept.items():
        block = mesh.cells[number]
        is_array = isinstance(block.data, np.ndarray)  # and no polyhedra
        cells.append((block.type, block.data[own] if is_array else [block.data[at] for at in own]))
    data = {
        name: [np.asarray(blocks[number])[own] for number, own in kept.items()]
        for name, blocks in mesh.cell_data.items()
        if name != GHOSTS
    }
    said = {GHOSTS: f"it marks ghosts, of which {count} cells are left out"}
    left_out = (mesh.info or {}).get("left_out", {}) | said
    on_points = {name: values for name, values in mesh.point_data.items() if name != GHOSTS}
    found = library("_mesh").Mesh(mesh.points, cells, on_points, data, field_data=mesh.field_data)
    found.info = {**(mesh.info or {}), "left_out": left_out}
    return found


def _root_of(path: str) -> ET.Element:
    """Return the root that a reader has opened, or that of an XML file of VTK whose arrays are appended as bytes."""
    found: ET.Element = HELD.__dict__.pop("root") if path == os.devnull else _root_of_raw(path)
    return found


def _root_of_raw(path: str) -> ET.Element:
    """Return the root of an XML file of VTK whose arrays are appended as bytes, with each of them in its own element.

    `meshio` looks for arrays by offsets that it has changed for others already, and may find another array.

    Raises:
        ValueError: It is no such file, or an array ends behind it.
    """
    content = Path(path).read_bytes()
    start, stop = content.find(b">", content.find(b"<AppendedData")) + 1, content.rfind(b"</AppendedData>")
    if b"<AppendedData" not in content or stop < start:
        raise ValueError(f"it is no file of {Path(path).suffix.removeprefix('.')}")
    root = ET.fromstring(content[:start] + content[stop:])  # noqa: S314  expat bounds and ignores entities
    data = content[content.index(b"_", start) + 1 : stop]
    big, width = root.get("byte_order") == "BigEndian", 8 if root.get("header_type") == "UInt64" else 4

    def number(at: int) -> int:
        return int.from_bytes(data[at : at + width], "big" if big else "little")

    for item in (each for each in root.iter("DataArray") if each.get("format") == "appended"):
        at = int(item.get("offset", ""))
        heads, end = width, at + width + number(at)
        if root.get("compressor"):  # the number of blocks, two sizes of a whole one, and the sizes of all packed ones
            heads = (3 + number(at)) * width if number(at) else width
            if at + heads > len(data):
                raise ValueError(f"the array {item.get('Name')!r} ends behind the file")
            end = at + heads + sum(number(at + place) for place in range(3 * width, heads, width))
        if end > len(data):
            raise ValueError(f"the array {item.get('Name')!r} ends behind the file")
        parts = (data[at : at + heads], data[at + heads : end])
        item.text = "".join(base64.b64encode(part).decode() for part in parts)
        item.set("format", "binary")
    for appended in root.findall("AppendedData"):
        root.remove(appended)
    return root
