"""The cells of meshes in the playground: what follows from them, and which are refused, as the client does it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
from playwright.sync_api import Error, Page

from petrov_client import InvalidInput
from petrov_client._cells import NUMBERS, distance, on_boundary
from tests.pipeline.test_playground_modules import CLOUD, READ, browser, modules  # noqa: F401  fixtures


def test_a_mesh_file_has_the_share_of_a_material_and_cells_of_its_own_points(
    modules: Page,  # noqa: F811  as above
    tmp_path: Path,
) -> None:
    share = {"name": "material_2", "axes": ["batch", "point"], "shape": [None, None]}
    card = CLOUD | {"inputs": [*CLOUD["inputs"], share]}
    points = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    for last in (3, 4):
        cells = [("triangle", np.array([[0, 1, 2], [0, 2, last]]))]
        meshio.Mesh(points, cells, cell_data={"Material": [np.array([2, 1])]}).write(tmp_path / "mine.vtu")
        request = ["mine.vtu", list((tmp_path / "mine.vtu").read_bytes()), card]
        if last == 3:
            assert modules.evaluate(READ, request)["material_2"] == [[4], [0.5, 1, 0.5, 0]]
        else:
            with pytest.raises(Error, match="its cells name point 4, counted from 0, of 4 points"):
                modules.evaluate(READ, request)


SIDE = np.linspace(0, 1, 5)
PLACES = np.stack(np.meshgrid(SIDE, SIDE), -1).reshape(-1, 2)
NUMBER = np.arange(25).reshape(5, 5)
QUADS = np.stack([NUMBER[:-1, :-1], NUMBER[:-1, 1:], NUMBER[1:, 1:], NUMBER[1:, :-1]], -1).reshape(-1, 4)
HALVES = np.concatenate([QUADS[:, [0, 1, 2]], QUADS[:, [0, 2, 3]]])
BOX = np.stack(np.meshgrid(SIDE[:2], SIDE[:2], SIDE[:3], indexing="ij"), -1).reshape(-1, 3)
BRICKS = np.array([[0, 6, 9, 3, 1, 7, 10, 4], [1, 7, 10, 4, 2, 8, 11, 5]])
TETRAHEDRA = BRICKS[0][[[0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6], [0, 7, 4, 6], [0, 4, 5, 6], [0, 5, 1, 6]]]
BY_ROWS = [0, 1, 3, 2, 4, 5, 7, 6]
MESHES: dict[str, tuple[np.ndarray, dict[str, np.ndarray], str]] = {
    "two types": (PLACES, {"quad": QUADS[:9], "triangle": np.concatenate([HALVES[9:16], HALVES[25:]])}, ""),
    "nodes of their own": (PLACES[HALVES.ravel()], {"triangle": np.arange(96).reshape(-1, 3)}, ""),
    "quadratic": (PLACES[NUMBER[:3, :3].ravel()], {"quad9": np.array([[0, 2, 8, 6, 1, 5, 7, 3, 4]])}, ""),
    "a point in no cell": (PLACES, {"quad": QUADS[1:]}, "point 0 is in no cell"),
    "row by row": (PLACES, {"quad": QUADS[:, BY_ROWS[:4]]}, "16 of 16 cells cross themselves"),
    "a few tangled": (PLACES, {"quad": np.concatenate([QUADS[:3, BY_ROWS[:4]], QUADS[3:]])}, ""),
    "a node twice": (PLACES, {"quad": np.vstack([QUADS[:-1], [18, 19, 24, 24]])}, "cell 15 has a node twice"),
    "a facet of three": (PLACES, {"triangle": np.concatenate([HALVES, [[0, 6, 20]]])}, "three cells share a facet"),
    "flat": (PLACES, {"triangle": np.concatenate([HALVES, [[0, 2, 1]]])}, "cell [0, 2, 1] on the boundary is flat"),
    "bricks": (BOX, {"hexahedron": BRICKS}, ""),
    "tetrahedra beside a brick": (BOX, {"hexahedron": BRICKS[1:], "tetra": TETRAHEDRA}, ""),
    "bricks row by row": (BOX, {"hexahedron": BRICKS[:, BY_ROWS]}, "2 of 2 cells cross themselves"),
}


@pytest.mark.parametrize("name", MESHES)
def test_the_boundary_of_a_mesh_is_that_of_the_client(
    modules: Page,  # noqa: F811  as above
    name: str,
) -> None:
    points, cells, fault = MESHES[name]
    dimensions = points.shape[1]
    rows = [(NUMBERS[dimensions][kind], row) for kind, nodes in cells.items() for row in nodes.tolist()]
    mesh = {
        "count": len(points),
        "points": np.pad(points, ((0, 0), (0, 3 - dimensions))).ravel().tolist(),
        "types": [kind for kind, _ in rows],
        "ends": np.cumsum([len(row) for _, row in rows]).tolist(),
        "nodes": [node for _, row in rows for node in row],
    }
    script = """async ([mesh, dimensions]) => {
      const { arraysOf } = await import("./playground/mesh.js");
      const typed = (value) => (Array.isArray(value) ? Float64Array.from(value) : value);
      const numbers = Object.entries(mesh).map(([key, value]) => [key, typed(value)]);
      const field = (name) => ({ name, axes: ["batch", "point"], shape: [null, null] });
      const lead = { name: "coordinates", axes: ["batch", "point", "component"], shape: [null, null, dimensions] };
      const card = { inputs: [lead, field("boundary"), field("distance")], outputs: [] };
      const { boundary, distance } = arraysOf({ ...Object.fromEntries(numbers), pointData: [], cellData: [] }, card);
      return [[...boundary.data], [...distance.data]];
    }"""

    def page() -> Any:
        return modules.evaluate(script, [mesh, dimensions])

    if fault:
        for error, found in ((InvalidInput, lambda: on_boundary(meshio.Mesh(points, cells), points)), (Error, page)):
            with pytest.raises(error, match=re.escape(fault)):
                found()
        return
    boundary, apart = page()
    expected = on_boundary(meshio.Mesh(points, cells), points)
    assert boundary == expected.tolist()
    np.testing.assert_allclose(apart, distance(points, expected), atol=1e-7)
