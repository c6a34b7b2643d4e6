"""Meshes of Gmsh and Abaqus, whose nodes and cells have numbers, read right where `meshio` confuses or loses them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

GMSH = ("gmsh._gmsh22", "gmsh._gmsh40", "gmsh._gmsh41")  # modules of `meshio` by versions of the format
#: The nodes of quadratic cells of Gmsh in the order of VTK, where `meshio` leaves them as they are.
ORDER = {
    "pyramid14": (*range(5), 5, 8, 10, 6, 7, 9, 11, 12, 13),
    "wedge18": (*range(6), 6, 9, 7, 12, 14, 13, 8, 10, 11, 15, 17, 16),
}
#: Cells of Abaqus by the number of their nodes: those on a plane, and those of heat in space.
FLAT = {3: "triangle", 4: "quad", 6: "triangle6", 8: "quad8"}
SOLID = {4: "tetra", 6: "wedge", 8: "hexahedron", 10: "tetra10", 15: "wedge15", 20: "hexahedron20"}
ELEMENTS = {
    **{
        f"{kind}{nodes}{end}": name
        for kind in ("CPS", "CPE", "CAX")
        for nodes, name in FLAT.items()
        for end in ("", "R")
    },
    **{f"{kind}{nodes}": name for kind in ("DC2D", "DCAX") for nodes, name in FLAT.items()},
    **{f"DC3D{nodes}": name for nodes, name in SOLID.items()},
}


@contextmanager
def replaced(owner: Any, **members: Any) -> Iterator[None]:
    """Give a module or a class other members for a while."""
    before = {name: getattr(owner, name) for name in members}
    for name, member in members.items():
        setattr(owner, name, member)
    try:
        yield
    finally:
        for name, member in before.items():
            setattr(owner, name, member)


def library(name: str) -> Any:
    """Return a module of `meshio`."""
    return importlib.import_module(f"meshio.{name}")


# Gmsh


@contextmanager
def read_gmsh_right() -> Iterator[None]:
    """Let `meshio` give data of Gmsh to the nodes and cells that they are of, by their numbers.

    It takes them in their order, and of several steps the last one.
    """
    with ExitStack() as stack:
        for name in GMSH:
            module = library(name)
            known: dict[str, Any] = {"left_out": {}, "steps": {}}  # of the file that is read
            replacements: dict[str, Any] = {
                "read_buffer": partial(_read_gmsh, known, module.read_buffer),
                "_read_nodes": partial(_nodes, known, module._read_nodes, int(name == GMSH[2])),  # noqa: SLF001
                "_read_data": partial(_data, known),
                "_fast_forward_to_end_block": partial(_skip, known, module._fast_forward_to_end_block),  # noqa: SLF001
            }
            if name == GMSH[0]:
                replacements["cell_data_from_raw"] = _split
            if name == GMSH[2]:
                replacements["_read_entities"] = partial(_entities, module._read_entities)  # noqa: SLF001
            cells = "_read_cells" if name == GMSH[0] else "_read_elements"
            replacements[cells] = partial(_elements, known, module, getattr(module, cells))
            stack.enter_context(replaced(module, **replacements))
        yield


def _read_gmsh(known: dict[str, Any], read: Callable[..., Any], *arguments: Any) -> Any:
    """Read a file after its header: what is left out of its data, and why, is `left_out` in the `info` of the mesh."""
    known.clear()
    known.update(left_out={}, steps={})
    mesh = read(*arguments)
    for block in mesh.cells:
        if block.type in ORDER:
            block.data = np.asarray(block.data)[:, ORDER[block.type]]
    if mesh.point_data.pop("gmsh:dim_tags", None) is not None:
        known["left_out"]["gmsh:dim_tags"] = "it says of which parts of the geometry the nodes are"
    mesh.info = {"left_out": known["left_out"]}
    return mesh


def _nodes(known: dict[str, Any], read: Callable[..., Any], first: int, *arguments: Any) -> Any:
    """Read the nodes of a file, and note their numbers, which `meshio` may have made to begin at 0 instead of 1."""
    found = read(*arguments)
    known["NodeData"] = np.asarray(found[1]).astype(np.int64) + first
    return found


def _entities(read: Callable[..., Any], *arguments: Any) -> Any:
    """Read the parts of the geometry, of which those without a physical group have the group 0, if any has one.

    Else `meshio` has groups of fewer blocks of cells than there are.
    """
    groups, *others = read(*arguments)
    some = any(each for of_dimension in groups for each in of_dimension.values())
    named = [{tag: each or [0] * some for tag, each in of_dimension.items()} for of_dimension in groups]
    return (tuple(named), *others)


def _elements(known: dict[str, Any], module: Any, read: Callable[..., Any], file: Any, *arguments: Any) -> Any:
    """Read the cells of a file, and note where their section is."""
    start = file.tell()
    found = read(file, *arguments)
    known["Elements"] = module, start, file.tell()
    return found


def _split(cells: list[tuple[str, Any]], data: dict[str, Any]) -> dict[str, list[Any]]:
    """Return data of all cells by blocks of these; `meshio` takes each block, a pair, for two cells."""
    ends = np.cumsum([len(nodes) for _, nodes in cells])[:-1]
    return {name: np.split(values, ends) for name, values in data.items()}


def _skip(known: dict[str, Any], skip: Callable[..., Any], file: Any, block: str) -> None:
    """Go on behind a section; note one that holds data which are not read."""
    if block == "ElementNodeData":
        start = file.tell()
        head = [file.readline().decode() for _ in range(2)]
        file.seek(start)
        name = head[1].strip().strip('"')
        known["left_out"][name] = "every cell has values of its own at its nodes: save it as $NodeData, or as .vtu"
    skip(file, block)


def _data(known: dict[str, Any], file: Any, kind: str, found: dict[str, Any], size: int, is_ascii: bool) -> None:
    """Read data of nodes or of cells `[number, (component)]`, NaN of those that they do not name.

    Raises:
        ValueError: They name others than there are, or there are several steps.
    """
    common = library("gmsh.common")
    texts, _, numbers = ([file.readline().decode() for _ in range(int(file.readline()))] for _ in range(3))
    name = (texts or [kind])[0].strip().strip('"')
    step, width, count = map(int, numbers[:3])
    if ("Elements" if kind == "ElementData" else kind) not in known:
        raise ValueError(f"the section ${kind} comes before what its values are of")
    if known["steps"].setdefault((kind, name), step) != step:
        raise ValueError(
            f"it has {name!r} at several steps, {known['steps'][kind, name]} and {step}: save a file for each, and a "
            "list .pvd of them"
        )
    if is_ascii:
        rows = common.np.fromfile(file, count=count * (1 + width), sep=" ").reshape(count, 1 + width)
        named, values = rows[:, 0].astype(np.int64), rows[:, 1:]
    else:
        rows = common.np.fromfile(file, [("number", "i4"), ("values", "f8", (width,))], count)
        named, values = rows["number"].astype(np.int64), rows["values"]
    common._fast_forward_to_end_block(file, kind)  # noqa: SLF001
    if kind == "ElementData":
        here, (module, start, end) = file.tell(), known["Elements"]
        file.seek(start)
        known[kind] = _numbers_of_cells(module, file.read(end - start), size, is_ascii=is_ascii)
        file.seek(here)
    order = np.argsort(known[kind])
    at = order[np.searchsorted(known[kind], named, sorter=order).clip(max=len(order) - 1)]
    if (strange := known[kind][at] != named).any():
        one = f"{kind[:-4].lower()} {named[strange.argmax()]}"
        raise ValueError(f"the data {name!r} have a value of the {one}, which is not there")
    whole = found.get(name, np.full((len(order), width), np.nan)).reshape(len(order), width)
    whole[at] = values
    found[name] = whole[:, 0] if width == 1 else whole


def _numbers_of_cells(module: Any, section: bytes, size: int, *, is_ascii: bool) -> Any:
    """Return the numbers of cells in the order of a section, which has them before their nodes."""
    common, nodes_of = library("gmsh.common"), library("_common").num_nodes_per_cell
    version = GMSH.index(module.__name__.removeprefix("meshio."))
    if is_ascii and not version:
        lines = section.split(b"\n")
        return np.array([int(line.split(maxsplit=1)[0]) for line in lines[1 : 1 + int(lines[0])]])
    words = np.array(section[: section.rindex(b"$End")].split() if is_ascii else [], np.int64)
    at = 0 if version or is_ascii else section.index(b"\n") + 1

    def take(count: int, kind: str) -> Any:
        nonlocal at
        some = words[at : at + count] if is_ascii else np.frombuffer(section, kind, count, at)
        at += count if is_ascii else some.nbytes
        return some.astype(np.int64)

    long = f"u{size if version == 2 else 8}"
    left = int(section[:at]) if not version else int(take(2 * version, long)[0])  # cells, or blocks of them
    found = []
    while left > 0:
        if version:
            kind, count, tags = int(take(3, "i4")[2]), int(take(1, long)[0]), 0
        else:
            kind, count, tags = take(3, "i4").tolist()
        width = 1 + tags + nodes_of[common._gmsh_to_meshio_type[kind]]  # noqa: SLF001
        found.append(take(count * width, "i4" if version < 2 else long).reshape(count, width)[:, 0])
        left -= 1 if version else count
    numbers = np.concatenate([np.empty(0, np.int64), *found])
    return numbers + (numbers.min(initial=1) == 0)  # in version 4.0 `meshio` writes cells from 0 on, and data from 1 on


# Abaqus


@contextmanager
def read_abaqus_right() -> Iterator[None]:
    """Let `meshio` know cells of plane strain, of axisymmetry and of heat, and nodes in several sections.

    It keeps the nodes of the last one, among which are those of other parts of a model.
    """
    abaqus = library("abaqus._abaqus")
    usual: Callable[..., Any] = abaqus._read_nodes  # noqa: SLF001
    sections: list[tuple[Any, dict[int, int]]] = []

    def nodes(file: Any) -> Any:
        points, numbers, line = usual(file)
        if sections:
            before, known = sections[-1]
            if twice := known.keys() & numbers.keys():
                raise ValueError(
                    f"it has two nodes of the number {min(twice)}, as models of several parts do: save their mesh as "
                    ".vtu, or as one part"
                )
            numbers = known | {number: at + len(before) for number, at in numbers.items()}
            points = np.concatenate([before, points])
        sections.append((points, numbers))
        return points, numbers, line

    def included(path: Any) -> Any:
        raise ValueError(f"it includes {path.name}, and no other file is read: write all of it in one file")

    types = ELEMENTS | abaqus.abaqus_to_meshio_type | {"C3D4H": "tetra"}
    with replaced(abaqus, _read_nodes=nodes, read=included, abaqus_to_meshio_type=types):
        yield
