"""Meshes of meshio and pyvista as inputs and outputs, by their points, point data and cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import meshio
import numpy as np
import pytest
import typer

from petrov_client import InvalidInput, ModelInfo
from petrov_client import _files as files
from petrov_client._commands.options import check_exists
from petrov_client._inputs import check_input
from petrov_client._mesh_series import MESHES
from petrov_client._meshes import arrays_of, with_cells, with_outputs
from petrov_client._schema import COMPONENT, FramesInfo, GridInfo, TensorInfo
from physics.numerics import cells as known_cells
from physics.numerics.cell_types import TETRA as TETRAHEDRON
from physics.numerics.cell_types import Cells, normals, sizes
from tests.toy_meshes import write_stars
from training.data.readers import open_file

CUBE = np.stack(np.meshgrid(*[[0.0, 1.0, 3.0]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
CORNERS = ((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1))


def on_points(dimensions: int = 2, *more: TensorInfo) -> ModelInfo:
    coordinates = TensorInfo(
        "coordinates",
        ("batch", "point", COMPONENT),
        shape=(None, None, dimensions),
        components=("x", "y", "z")[:dimensions],
    )
    names = ("boundary", "distance", "source")
    fields = (TensorInfo(name, ("batch", "point"), shape=(None, None)) for name in names)
    grid = GridInfo(("point",), 4, 1000, (), "anywhere")
    return ModelInfo("stars", 1, (1,), (coordinates, *fields, *more), (), 8, grid=grid)


def cubes() -> meshio.Mesh:
    """Return eight hexahedra, whose one node in the middle is inside."""
    number = np.arange(27).reshape(3, 3, 3)
    cells = [[number[i + a, j + b, k + c] for a, b, c in CORNERS] for i, j, k in np.ndindex(2, 2, 2)]
    return meshio.Mesh(CUBE, {"hexahedron": np.asarray(cells)}, {"Source": np.arange(27.0)})


def test_boundary_and_distance_are_those_of_the_training(tmp_path: Path) -> None:
    write_stars(tmp_path / "stars", 1)
    cubes().write(tmp_path / "cubes.vtu")
    for path, dimensions in ((tmp_path / "stars/0000.vtu", 2), (tmp_path / "cubes.vtu", 3)):
        mesh = meshio.read(path)
        found = arrays_of(mesh, on_points(dimensions))
        with open_file(path) as file:
            for name in ("coordinates", "boundary", "distance"):
                np.testing.assert_allclose(found[name], file.array(name).read()[0], rtol=0, atol=1e-6)
    assert found["boundary"].sum() == 26
    assert found["source"][3] == 3


def test_lines_and_mixed_cells_count_as_in_the_training(tmp_path: Path) -> None:
    corners = np.stack(np.meshgrid([0.0, 1.0], [0.0, 1.0], [0.0, 1.0, 2.0], indexing="ij"), -1).reshape(-1, 3)
    points = np.concatenate([corners, [[0.5, 0.5, 3]]])
    cells = [
        ("line", [[2, 5]]),
        ("hexahedron", [[0, 3, 9, 6, 1, 4, 10, 7]]),
        ("wedge", [[1, 4, 10, 2, 5, 11], [1, 10, 7, 2, 11, 8]]),
        ("pyramid", [[2, 5, 11, 8, 12]]),
    ]
    mesh = meshio.Mesh(points, cells, {}, {"source": [np.zeros(1), np.ones(1), np.full(2, 2.0), np.full(1, 3.0)]})
    mesh.write(tmp_path / "mesh.vtu")
    found = arrays_of(mesh, on_points(3))
    with open_file(tmp_path / "mesh.vtu") as file:
        for name in ("boundary", "distance", "source"):
            assert found[name] == pytest.approx(file.array(name).read()[0], abs=1e-6)


def test_polygons_count_as_in_the_training(tmp_path: Path) -> None:
    """Two halves of a hexagon, pentagons that share its middle, and a triangle at a corner."""
    angle = np.arange(6) * np.pi / 3
    points = np.array([*np.stack([np.cos(angle), np.sin(angle), 0 * angle], 1), [2, 1, 0], [2, -1, 0], [0, 0, 0]])
    cells = [("polygon", [[0, 1, 2, 3, 8]]), ("triangle", [[0, 7, 6]]), ("polygon", [[0, 8, 3, 4, 5]])]
    mesh = meshio.Mesh(points, cells, {"source": points[:, 0]})
    mesh.write(tmp_path / "mesh.vtu")
    found = arrays_of(mesh, on_points())
    assert found["boundary"].tolist() == [1] * 8 + [0]
    with open_file(tmp_path / "mesh.vtu") as file:
        for name in ("boundary", "distance"):
            assert found[name] == pytest.approx(file.array(name).read()[0], abs=1e-6)


def test_a_mesh_in_another_plane_than_that_of_x_and_y_is_a_warning() -> None:
    """Its coordinates are two as those of the training meshes are, whichever plane these lie in."""
    points = np.array([[0.0, 5, 0], [1, 5, 0], [0, 5, 2]])
    mesh = meshio.Mesh(points, {"triangle": [[0, 1, 2]]}, {"source": np.zeros(3)})
    with pytest.warns(UserWarning, match=r'lies in the plane of x and z, which are taken for the axes that "stars"'):
        found = arrays_of(mesh, on_points())
    assert found["coordinates"].tolist() == [[0, 0], [1, 0], [0, 2]]
    mesh.points = points[:, [0, 2, 1]]
    arrays_of(mesh, on_points())


@pytest.mark.parametrize(
    ("dimensions", "cells", "named"),
    [
        (2, {"triangle": [[0, 1, 2]], "triangle7": [[1, 3, 2, 4, 5, 6, 7]]}, "triangle7"),
        (2, {5: [[0, 1, 2]], 3: [[0, 1]], 34: [[1, 3, 2, 4, 5, 6, 7]]}, "34"),
        (3, {"tetra": [[0, 1, 3, 9]], "wedge12": [[*range(12)]]}, "wedge12"),
        (3, {"triangle": [[0, 1, 2]]}, "none"),
    ],
)
def test_a_boundary_beside_cells_of_an_unknown_type_is_refused(dimensions: int, cells: Any, named: str) -> None:
    points = CUBE * ([1, 1, 0] if dimensions == 2 else [1, 1, 1])
    mesh: Any = SimpleNamespace(points=points, point_data={"source": CUBE[:, 0]}, cells_dict=cells)
    with pytest.raises(InvalidInput, match=f"but got {named}$"):
        arrays_of(mesh, on_points(dimensions))


def test_cells_of_two_sizes_beside_each_other_are_refused_as_in_the_training() -> None:
    points = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1], [2, 0.5], [1, 0.5]])
    source = {"source": points[:, 0]}
    mesh = meshio.Mesh(points, {"quad": [[0, 1, 4, 3], [1, 2, 6, 7], [7, 6, 5, 4]]}, source)
    with pytest.raises(InvalidInput, match="node 7 hangs on an edge of another cell"):
        arrays_of(mesh, on_points(2))


def test_nodes_that_hang_between_many_cells_are_found() -> None:
    """Two columns of quadrilaterals, those on the right half as high."""
    columns = [np.stack(np.meshgrid([x, x + 1], np.linspace(0, 9, rows + 1)), -1) for x, rows in ((0, 200), (1, 400))]
    points, owner = np.unique(np.concatenate([each.reshape(-1, 2) for each in columns]), axis=0, return_inverse=True)
    left, right = (each.reshape(-1, 2) for each in np.split(owner.ravel(), [402]))
    cells = np.concatenate([np.stack([*each[:-1].T, *each[1:, ::-1].T], axis=1) for each in (left, right)])
    mesh: Any = SimpleNamespace(points=points, point_data={"source": points[:, 0]}, cells_dict={9: cells})
    with pytest.raises(InvalidInput, match="hangs on an edge of another cell"):
        arrays_of(mesh, on_points(2))
    used, nodes = np.unique(cells[200:], return_inverse=True)
    data = {"source": points[used, 0]}
    alone: Any = SimpleNamespace(points=points[used], point_data=data, cells_dict={9: nodes.reshape(-1, 4)})
    assert arrays_of(alone, on_points(2))["boundary"].sum() == 802


def test_a_mesh_of_pyvista_has_cells_by_number() -> None:
    known = cubes()
    mesh: Any = SimpleNamespace(points=CUBE, point_data={"source": np.zeros(27)}, cells_dict={12: known.cells[0].data})
    assert arrays_of(mesh, on_points(3))["boundary"].sum() == 26


def test_point_data_of_the_mesh_come_before_what_cells_say() -> None:
    mesh: Any = SimpleNamespace(
        points=np.column_stack([CUBE[:, :2], 0 * CUBE[:, 0]]),
        point_data={"boundary": np.ones(27), "distance": np.ones(27), "source": np.ones(27), "Wind": np.ones((27, 3))},
    )
    wind = TensorInfo("wind", ("batch", "point", COMPONENT), shape=(None, None, 2), components=("x", "y"))
    mesh.point_data["Wind"][:, 2] = 0
    found = check_input(on_points(2, wind), mesh)
    assert found.single
    assert [each.tensor.name for each in found.inputs] == ["coordinates", "boundary", "distance", "source", "wind"]
    assert found.inputs[0].array.shape == found.inputs[4].array.shape == (27, 2)


def test_cell_data_are_means_at_the_points(tmp_path: Path) -> None:
    mesh = cubes()
    mesh = meshio.Mesh(mesh.points, mesh.cells, {}, {"source": [np.arange(8.0)]})
    mesh.write(tmp_path / "cubes.vtu")
    with open_file(tmp_path / "cubes.vtu") as file:
        expected = file.array("source").read()[0]
    np.testing.assert_allclose(arrays_of(mesh, on_points(3))["source"], expected, rtol=0, atol=1e-6)


def test_cell_data_of_polyhedra_are_means_at_the_points() -> None:
    faces = ([0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6], [3, 0, 4, 7])
    cells = [[np.array(each)[face] for face in faces] for each in cubes().cells_dict["hexahedron"]]
    mesh = meshio.Mesh(CUBE, [("polyhedron8", cells[:3]), ("hexahedron", cubes().cells_dict["hexahedron"][3:])])
    mesh.cell_data = {"source": [np.arange(3.0), np.arange(3.0, 8)]}
    without = replace(
        on_points(3), inputs=tuple(one for one in on_points(3).inputs if one.name in {"coordinates", "source"})
    )
    expected = meshio.Mesh(CUBE, cubes().cells, {}, {"source": [np.arange(8.0)]})
    found = [arrays_of(each, without)["source"] for each in (mesh, expected)]
    np.testing.assert_array_equal(*found)


def test_regions_and_discontinuous_elements_are_those_of_the_training(tmp_path: Path) -> None:
    mesh = cubes()
    cells = mesh.cells_dict["hexahedron"]
    own = meshio.Mesh(
        mesh.points[cells.ravel()], {"hexahedron": np.arange(64).reshape(8, 8)}, {}, {"rock": [np.arange(8) // 4 + 1]}
    )
    fields = [TensorInfo(f"rock_{number}", ("batch", "point"), shape=(None, None)) for number in (1, 2, 3)]
    for one in (own, meshio.Mesh(mesh.points, mesh.cells, {}, own.cell_data)):
        one.write(tmp_path / "rocks.vtu")
        found = arrays_of(one, on_points(3, *fields))
        with open_file(tmp_path / "rocks.vtu") as file:
            for name, key in {"boundary": "boundary", **{f"rock_{each}": f"rock={each}" for each in (1, 2, 3)}}.items():
                np.testing.assert_allclose(found[name], file.array(key).read()[0], rtol=0, atol=1e-6, err_msg=name)
        assert 0 < found["rock_1"].mean() < 1


NUMBER = TensorInfo("drag", ("batch",), shape=(None,), scalar=True)
NUMBERS = TensorInfo("modes", ("batch", "component"), shape=(None, 27), scalar=True)
UNDECLARED = TensorInfo("modes", ("batch", "axis1"), shape=(None, 27))  # as a plain Triton has it
HEAT, FLUX = (TensorInfo(name, ("batch", "point"), shape=(None, None)) for name in ("heat", "flux"))


def test_outputs_are_point_data_of_a_copy() -> None:
    mesh = cubes()
    outputs = {"heat": np.ones((1, 27)), "flux": np.ones((27, 3)), "drag": np.array([2.0])}
    made = with_outputs(mesh, outputs, (HEAT, FLUX, NUMBER))
    assert made.point_data["drag"].tolist() == [2.0] * 27
    assert (made.point_data["heat"].shape, made.point_data["flux"].shape) == ((27,), (27, 3))
    assert "heat" not in mesh.point_data


@pytest.mark.parametrize("suffix", sorted(MESHES))
def test_every_mesh_file_that_is_written_is_one_file_with_the_outputs(tmp_path: Path, suffix: str) -> None:
    path, mesh = tmp_path / f"out{suffix}", meshio.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], {"triangle": [[0, 1, 2]]})
    outputs = {"u": np.array([1, 2, 4], np.float32), "stress": np.arange(9, dtype=np.float32).reshape(3, 3)}
    tensors = [
        TensorInfo("u", ("batch", "point")),
        TensorInfo("stress", ("batch", "point", COMPONENT), shape=(None, None, 3), components=("xx", "yy", "xy")),
    ]
    files.check_holds(path, tensors)
    files.write(path, outputs, tensors, mesh)
    info = replace(on_points(), inputs=(on_points().inputs[0], *tensors))
    with files.opened(path, info) as found:
        for name, values in outputs.items():
            np.testing.assert_array_equal(found.arrays[name], values)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_what_a_mesh_file_does_not_hold_is_named(tmp_path: Path) -> None:
    velocity = TensorInfo("velocity", ("batch", "point", COMPONENT), components=("x", "y"))
    with pytest.raises(ValueError, match=r'such as \.vtu for the components of "velocity" but got .*out\.msh'):
        files.check_holds(tmp_path / "out.msh", [velocity])
    pentagon = meshio.Mesh(np.eye(5, 3), [("polygon", [[0, 1, 2, 3, 4]])])
    outputs, scalar = {"u": np.zeros(5, np.float32)}, TensorInfo("u", ("batch", "point"))
    with pytest.raises(ValueError, match=r"expected cells and data that such a file holds in .*out\.msh but: "):
        files.write(tmp_path / "out.msh", outputs, [scalar], pentagon)
    assert not [*tmp_path.iterdir()]


def test_a_surface_of_vtk_is_read_as_the_training_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "plate.VTP"
    path.write_text(POLYDATA)
    with files.opened(path, on_points()) as found, open_file(path) as file:
        for name in ("coordinates", "boundary", "distance", "source"):
            np.testing.assert_array_equal(found.arrays[name], file.array(name).read()[0])
        assert found.arrays["source"].tolist() == [1, 2, 2, 1, 3]
    meshio.write(tmp_path / "plate.xmf", meshio.Mesh(np.eye(3), {"triangle": [[0, 1, 2]]}), data_format="XML")
    with (
        pytest.raises(InvalidInput, match="expected points in 2 dimensions"),
        files.opened(tmp_path / "plate.xmf", on_points()),
    ):
        pass


POLYDATA = """<?xml version="1.0"?>
<VTKFile type="PolyData" version="1.0" byte_order="LittleEndian"><PolyData>
<Piece NumberOfPoints="5" NumberOfPolys="2">
<CellData><DataArray type="Float64" Name="source" format="ascii">1 3</DataArray></CellData>
<Points><DataArray type="Float64" NumberOfComponents="3" format="ascii">0 0 0 1 0 0 1 1 0 0 1 0 2 2 0
</DataArray></Points>
<Polys><DataArray type="Int64" Name="connectivity" format="ascii">0 1 2 3 1 4 2</DataArray>
<DataArray type="Int64" Name="offsets" format="ascii">4 7</DataArray></Polys>
</Piece></PolyData></VTKFile>"""


@pytest.mark.parametrize("tensor", [NUMBERS, UNDECLARED])
def test_as_many_numbers_as_points_are_no_field(tensor: TensorInfo) -> None:
    made = with_outputs(cubes(), {"modes": np.arange(27.0)}, (tensor,))
    assert made.point_data["modes"].shape == (27, 27)
    assert (made.point_data["modes"] == np.arange(27.0)).all()


@pytest.mark.parametrize(
    ("info", "mesh", "sentence"),
    [
        (on_points(2), cubes(), "expected points in 2 dimensions"),
        (on_points(3), meshio.Mesh(CUBE, [], {"source": CUBE[:, 0]}), "expected cells of the types tetra, "),
        (
            ModelInfo("heat", 1, (1,), (TensorInfo("k", ("batch", "row")),), (), 8),
            cubes(),
            "whose inputs are on a grid",
        ),
    ],
)
def test_meshes_that_do_not_fit_are_refused(info: ModelInfo, mesh: meshio.Mesh, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        check_input(info, mesh)


SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]])
TRIANGLES = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
TETRA = CUBE[[0, 1, 3, 9]]
QUADRATIC = np.array([*TETRA, *(TETRA[[*edge]].mean(axis=0) for edge in TETRAHEDRON.edges)])
WEIGHED = TensorInfo("area", ("batch", "point"), shape=(None, None))


@pytest.mark.parametrize(
    ("points", "cells"),
    [
        (SQUARE, TRIANGLES),
        (SQUARE + 2.0**27, TRIANGLES),
        (SQUARE[:4], np.array([[0, 1, 2, 3]])),
        (np.array([[0, 0], [2, 0], [2, 1], [1, 2], [0, 1]]), np.array([[0, 1, 2, 3, 4]])),
        (QUADRATIC, np.arange(10)[None]),
        (CUBE, cubes().cells_dict["hexahedron"]),
    ],
    ids=["triangles", "far triangles", "quadrilateral", "pentagon", "tetra10", "hexahedra"],
)
def test_what_follows_from_cells_is_what_the_service_derives(points: Any, cells: Any) -> None:
    dimensions = points.shape[1]
    normal = TensorInfo("boundary_normal", ("batch", "point", COMPONENT), components=("x", "y", "z")[:dimensions])
    info = on_points(dimensions, WEIGHED, normal)
    known = Cells.of(cells, dimensions)
    marked = known_cells.boundary(known, points)
    padded = np.pad(cells, [(1, 2), (0, 0)], constant_values=-1)
    two = with_cells({"coordinates": np.stack([points] * 2), "cells": cells}, info)
    each = with_cells({"coordinates": np.stack([points] * 2), "cells": [cells, padded]}, info)
    one = with_cells({"coordinates": points.tolist(), "cells": padded.tolist()}, info)
    for found in (one, *({name: array[i] for name, array in many.items()} for many in (two, each) for i in (0, 1))):
        np.testing.assert_array_equal(found["boundary"], marked)
        np.testing.assert_allclose(found["distance"], known_cells.distance(points, marked), atol=1e-6)
        np.testing.assert_allclose(found["area"], sizes(known, points), rtol=1e-6)
        expected = normals(known, points, marked)
        np.testing.assert_allclose(found["boundary_normal"], expected, atol=1e-6)


def test_area_and_normals_follow_from_the_cells_of_a_mesh_that_may_share_no_points(tmp_path: Path) -> None:
    normal = TensorInfo("boundary_normal", ("batch", "point", COMPONENT), components=("x", "y", "z"))
    mesh = cubes()
    own = mesh.cells_dict["hexahedron"].ravel()
    apart = meshio.Mesh(mesh.points[own], {"hexahedron": np.arange(64).reshape(8, 8)}, {"Source": np.arange(64.0)})
    for each in (mesh, apart):
        found = arrays_of(each, on_points(3, WEIGHED, normal))
        assert found["area"].sum() == pytest.approx(27)
        each.write(tmp_path / "cubes.vtu")
        with open_file(tmp_path / "cubes.vtu") as file:
            trained = file.array("boundary_normal").read()[0]
        assert found["boundary_normal"] == pytest.approx(trained, abs=1e-6)
    assert found["boundary_normal"][np.unique(own, return_index=True)[1]].sum(axis=0) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("passed", "where", "sentence"),
    [
        ({"cells": [[0, 1, -1], [0, 1, 4]]}, "cells[0,2]", "expected points 0 to 4 but got -1"),
        ({"cells": [[-1] * 3, [0, 1, 9]]}, "cells[1,2]", "expected points 0 to 4 but got 9"),
        ({"cells": [[0, 1, 1], [1, 2, 4]]}, "cells", "cell 0 has a node twice"),
        ({"cells": [*TRIANGLES, [4, 1, 0]]}, "cells", "two cells have the same nodes"),
        ({"cells": [*TRIANGLES, [1, 4, 3]]}, "cells", "three cells share a facet"),
        ({"cells": [[0, 1, 3, 2], [1, 0, 2, 3], [0, 1, 4, 3]]}, "cells", "2 of 3 cells cross themselves: expected"),
        ({"cells": [[0, 1, 2], [0, 1]]}, "cells", "expected"),
        ({"cells": np.zeros((0, 3), int)}, "cells", "expected cells of 3 nodes or more"),
        ({"cells": TRIANGLES.astype(float)}, "cells", "expected whole numbers"),
        ({"cells": 3}, "cells", "expected"),
        ({"cells": None}, "cells", "expected"),
        ({"cells": TRIANGLES, "coordinates": np.zeros((5, 4))}, "coordinates", "expected"),
        ({"cells": TRIANGLES, "coordinates": np.full((5, 2), np.nan)}, "coordinates", "expected finite"),
        ({"cells": TRIANGLES, "coordinates": [SQUARE, SQUARE[:4]]}, "coordinates", "expected an array"),
        ({"cells": TRIANGLES, "coordinates": "abc"}, "coordinates", "expected an array"),
        ({"cells": TRIANGLES, "counts": [1, 2, 3]}, "counts", "expected a whole number"),
        ({"cells": TRIANGLES, "counts": [np.nan]}, "counts", "expected a whole number"),
        ({"cells": TRIANGLES, "boundary": SQUARE[:, 0], "distance": SQUARE[:, 0]}, "cells", "are passed already"),
    ],
)
def test_wrong_cells_are_refused_with_their_place(passed: dict[str, Any], where: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        with_cells({"coordinates": SQUARE, **passed}, on_points(2))
    assert str(caught.value.where).startswith(where)


def heat(history: int) -> ModelInfo:
    """Describe a model of trajectories on points of a plane."""
    axes = ("batch", "history", "point") if history > 1 else ("batch", "point")
    state = TensorInfo("start", axes, shape=(None, *([history] if history > 1 else []), None))
    outputs = (TensorInfo("heat", ("batch", "frame", "point"), shape=(None, None, None)),)
    info = on_points(2, state)
    frames = FramesInfo(0.1, history, ("start",), 4, 100)
    inputs = tuple(one for one in info.inputs if one.name != "source")
    return replace(info, inputs=inputs, outputs=outputs, frames=frames)


def write_steps(folder: Path, listed: str = "run.pvd") -> Path:
    """Write three steps of heat on four triangles, a point that no cell has, and a list of them in another order."""
    points = np.column_stack([np.concatenate([SQUARE, [[9, 9]]]), np.zeros(6)])
    for step in range(3):
        data = {"heat": np.arange(6.0) + 10 * step}
        meshio.Mesh(points, {"triangle": TRIANGLES}, data).write(folder / f"step_{step}.vtu")
    entries = "".join(f'<DataSet timestep="{0.1 * step}" file="step_{step}.vtu"/>' for step in (2, 0, 1))
    (folder / listed).write_text(f'<VTKFile type="Collection"><Collection>{entries}</Collection></VTKFile>')
    return folder / listed


def test_a_list_of_meshes_is_a_start_by_its_last_ones(tmp_path: Path) -> None:
    source = write_steps(tmp_path)
    for history, steps in ((1, 20), (2, [[10], [20]])):
        with files.opened(source, heat(history)) as found:
            assert found.arrays["start"] == pytest.approx(np.arange(5) + np.array(steps))
            assert found.arrays["boundary"].tolist() == [1, 1, 1, 1, 0]
            assert found.loose == 1
            assert len(found.mesh.points) == 5
            assert check_input(heat(history), found.arrays).inputs[0].shape == (5, 2)
    with files.opened(tmp_path / "step_2.vtu", heat(1)) as found:
        assert found.arrays["start"] == pytest.approx(np.arange(5) + 20)


def test_xdmf_with_steps_is_a_start_by_its_last_ones(tmp_path: Path) -> None:
    with meshio.xdmf.TimeSeriesWriter(tmp_path / "run.xdmf", data_format="XML") as writer:
        writer.write_points_cells(np.column_stack([SQUARE, np.zeros(5)]), {"triangle": np.asarray(TRIANGLES)})
        for step in range(3):
            writer.write_data(0.1 * step, point_data={"heat": np.arange(5.0) + 10 * step})
    for history, steps in ((1, 20), (2, [[10], [20]])):
        with files.opened(tmp_path / "run.xdmf", heat(history)) as found:
            assert found.arrays["start"] == pytest.approx(np.arange(5) + np.array(steps))
            assert found.time == pytest.approx(0.2)
            assert not found.unused  # the state has the name of its output
    (tmp_path / "run.xdmf").write_text("<Xdmf><Domain>")
    with pytest.raises(ValueError, match="expected a mesh in"), files.opened(tmp_path / "run.xdmf", heat(1)):
        pass


def forced(history: int = 1, **per_frame: str) -> ModelInfo:
    """Describe a model of trajectories with inputs that change in time, by when each step sees them."""
    info = heat(history)
    axes, shape = ("batch", "frame", "point"), (None, None, None)
    more = tuple(TensorInfo(name, axes, shape=shape, per_frame=when) for name, when in per_frame.items())
    return replace(info, inputs=(*info.inputs, *more))


def test_a_list_of_meshes_is_a_start_by_its_first_ones_where_all_have_a_forcing(tmp_path: Path) -> None:
    points = np.column_stack([SQUARE, np.zeros(5)])
    for step in range(4):
        data = {"heat": np.full(5, 10.0 + step), "load": np.full(5, 1.0 * step), "late": np.full(5, 1.0 * step)}
        meshio.Mesh(points, {"triangle": TRIANGLES}, data).write(tmp_path / f"step_{step}.vtu")
    entries = "".join(f'<DataSet timestep="{5 + step / 10:.1f}" file="step_{step}.vtu"/>' for step in range(4))
    source = tmp_path / "run.pvd"
    source.write_text(f'<VTKFile type="Collection"><Collection>{entries}</Collection></VTKFile>')
    cases: tuple[tuple[ModelInfo, int | None, list[float], dict[str, list[float]]], ...] = (
        (forced(load="start"), None, [10], {"load": [0, 1, 2, 3]}),
        (forced(load="start", late="end"), None, [10], {"load": [0, 1, 2], "late": [1, 2, 3]}),
        (forced(2, load="start"), 2, [10, 11], {"load": [1, 2]}),
    )
    for info, frames, states, loads in cases:
        with files.opened(source, info, frames=frames) as found:
            assert np.reshape(found.arrays["start"], (-1, 5))[:, 0].tolist() == states
            for name, values in loads.items():
                assert found.arrays[name].shape == (len(values), 5)
                assert found.arrays[name][:, 0].tolist() == values
            assert found.time == pytest.approx(5 + (len(states) - 1) / 10)
            assert not {*loads} & {*found.mesh.point_data}  # which would be those of the start in every frame
            assert check_input(info, found.arrays).frames == len(next(iter(loads.values())))
    with files.opened(tmp_path / "step_2.vtu", forced(load="end"), frames=6) as found:  # one value for all frames
        assert found.arrays["load"].tolist() == [[2.0] * 5] * 6
    sentence = 'expected "load" for 4 frames but the meshes of .* have them for 3: --frames 3 is the most'
    with pytest.raises(ValueError, match=sentence), files.opened(source, forced(load="end"), frames=4):
        pass
    last = meshio.read(tmp_path / "step_3.vtu")
    meshio.Mesh(last.points + 1, last.cells, last.point_data).write(tmp_path / "step_3.vtu")
    with files.opened(source, forced(load="start"), frames=3) as found:  # the last mesh is not needed
        assert found.arrays["load"][:, 0].tolist() == [0, 1, 2]
    sentence = "expected one mesh in all frames of .* but 3 frames on it has other points"
    with pytest.raises(ValueError, match=sentence), files.opened(source, forced(load="start")):
        pass
    last.write(tmp_path / "step_3.vtu")
    bare = meshio.read(tmp_path / "step_1.vtu")
    del bare.point_data["load"]
    bare.write(tmp_path / "step_1.vtu")
    sentence = 'expected "load" at all points of every mesh of'
    with pytest.raises(ValueError, match=sentence), files.opened(source, forced(load="start")):
        pass


def test_steps_of_xdmf_have_meshes_of_their_own_or_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where meshio writes the HDF5 file
    source = tmp_path / "run.xdmf"
    with meshio.xdmf.TimeSeriesWriter(source) as writer:
        writer.write_points_cells(np.column_stack([SQUARE, np.zeros(5)]), {"triangle": np.asarray(TRIANGLES)})
        for step in range(3):
            writer.write_data(0.1 * step, point_data={"heat": np.arange(5.0) + 10 * step})
    with files.opened(source, heat(3)) as found:
        assert found.arrays["start"][:, 0].tolist() == [0, 10, 20]
    text = source.read_text()
    own = text[text.index("<Geometry") : text.index("</Geometry>")] + "</Geometry>"
    own += text[text.index("<Topology") : text.index("</Topology>")] + "</Topology>"
    with h5py.File(source.with_suffix(".h5"), "a") as file:
        file["moved"] = np.column_stack([SQUARE + 1, np.zeros(5)])
    last = text.rindex("<Attribute")
    moved = text[:last] + own.replace("run.h5:/data0", "run.h5:/moved") + text[last:]
    first = text.index("<Grid", text.index("Temporal"))
    several = text[:first] + '<Grid GridType="Collection" CollectionType="Temporal"/>' + text[first:]
    sizes = text.replace("Dimensions", "Sizes")  # an error of another type than ReadError in meshio
    for damaged, sentence in (
        (moved, "expected one mesh in all frames but the points of frame 0 are others than the last ones"),
        (several, "expected one collection of steps in .*, with all functions, but there are several"),
        (sizes, "but it cannot be read"),
    ):
        source.write_text(damaged)
        with pytest.raises((ValueError, InvalidInput), match=sentence), files.opened(source, heat(2)):
            pass


def test_frames_of_a_mesh_are_no_data_of_its_points(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"for the frames of .heat.*`petrov rollout` writes"):
        files.check_holds(tmp_path / "out.vtu", heat(1).outputs)
    with pytest.raises(typer.BadParameter, match=r"such as a list .pvd of meshes, but .* is a folder"):
        check_exists(tmp_path)
    mesh = meshio.Mesh(SQUARE, {"triangle": TRIANGLES}, {"start": np.arange(5.0)})
    frames = np.arange(15.0).reshape(3, 5)
    assert check_input(heat(1), mesh).shown({"heat": frames}) is frames


def test_a_start_that_is_none_is_refused(tmp_path: Path) -> None:
    source = write_steps(tmp_path)
    mesh = meshio.read(tmp_path / "step_1.vtu")
    with pytest.raises(InvalidInput, match=r"point 5 is in no cell: expected cells of all 6 points; `remove_orphaned"):
        arrays_of(mesh, heat(1))
    meshio.Mesh(mesh.points + 1, mesh.cells, mesh.point_data).write(tmp_path / "step_1.vtu")
    outside = source.with_name("outside.pvd")
    outside.write_text(source.read_text().replace("step_1.vtu", "../step_1.vtu"))
    unnamed = source.with_suffix(".series")
    unnamed.write_text('{"files": ["step_1.vtu"]}')
    for info, path, sentence in (
        (heat(1), unnamed, r"expected a list of meshes in .*run.series but: "),
        (heat(2), source, "expected one mesh in all frames but the points of frame 0 are others"),
        (heat(4), source, "expected a list .pvd of at least 4 meshes, which"),
        (heat(2), tmp_path / "step_1.vtu", 'of at least 2 meshes, which "stars" starts from, but got one mesh'),
        (on_points(2), source, "which computes no trajectories"),
        (heat(1), outside, "lists '../step_1.vtu': expected mesh files beside it or in folders below"),
    ):
        with pytest.raises((ValueError, InvalidInput), match=sentence), files.opened(path, info):
            pass
