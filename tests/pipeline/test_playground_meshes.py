"""The playground with models on points: meshes of the user, boundaries that are moved, and points in space."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import meshio
import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, expect
from scipy.spatial import Delaunay, cKDTree

from petrov_client import Client
from petrov_client._cells import KNOWN, NUMBERS
from tests import toy_points
from tests.conftest import Gateway, RunService
from tests.pipeline.test_playground import ROOT, Visit, browser  # noqa: F401  a fixture

pytestmark = pytest.mark.deep

PLATE, BALL, SHEET = "plate", "ball", "sheet"
SIDE = 101  # of the sheet, which has 20,000 triangles
PIXELS = "canvas => canvas.toDataURL()"


def sheet() -> NDArray[np.float32]:
    across, up = np.meshgrid(np.linspace(0, 2, SIDE), np.linspace(0, 1, SIDE))
    return np.stack([across, up], axis=-1).reshape(1, -1, 2).astype(np.float32)


@pytest.fixture(scope="module")
def service(
    browser: Browser,  # noqa: F811  as above
    tmp_path_factory: pytest.TempPathFactory,
    run_service: RunService,
) -> Iterator[Gateway]:
    """Serve the released plates; `make test` has installed them."""
    assert browser.is_connected()
    repository = tmp_path_factory.mktemp("meshes") / "model_repository"
    shutil.copytree(ROOT / "model_repository" / PLATE, repository / PLATE)
    ball = np.random.default_rng(0).standard_normal((2, 3000, 3))
    ball *= np.array([1, 0.6, 0.4]) / np.linalg.norm(ball, axis=2, keepdims=True)
    toy_points.add(repository, BALL, ball.astype(np.float32))
    toy_points.add(repository, SHEET, sheet())
    with run_service(repository) as gateway:
        yield gateway


@pytest.fixture
def person(service: Gateway, browser: Browser) -> Iterator[Visit]:  # noqa: F811  as above
    visit = Visit(browser, service.url)
    visit.page.click("#tab-python")
    yield visit
    visit.context.close()
    assert (visit.errors, visit.foreign) == ([], [])


def opened(person: Visit, model: str) -> dict[str, NDArray[Any]]:
    """Open a model and return the arrays of its first test sample."""
    person.choose(model)
    person.page.click("#sample")
    person.settled("from the truth")
    return person.archive("#download-input")


def at(sent: dict[str, NDArray[Any]], point: int) -> tuple[float, float]:
    """Return where a point is in a picture, which has a margin of 4 % of the longer side."""
    low, high = sent["coordinates"].min(axis=0), sent["coordinates"].max(axis=0)
    margin = 0.04 * (high - low).max()
    across, up = (sent["coordinates"][point] - low + margin) / (high - low + 2 * margin)
    return float(across), float(1 - up)


def rightmost_of_the_hole(sent: dict[str, NDArray[Any]]) -> int:
    x, y = sent["coordinates"].T
    return int(np.where((sent["boundary"] == 1) & (np.abs(x) < 0.49) & (np.abs(y) < 0.49), x, -1).argmax())


def test_a_point_of_the_boundary_is_dragged_and_the_prediction_follows(person: Visit, service: Gateway) -> None:
    before = opened(person, PLATE)
    point = rightmost_of_the_hole(before)
    start = at(before, point)
    person.drag(start, (start[0] + 0.06, start[1] - 0.04))
    expect(person.page.locator("#trust")).to_contain_text("own")
    expect(person.panel("difference").first).to_be_hidden()
    expect(person.panel("classical").first).to_be_hidden()
    person.picture("plate-moved")
    after = person.archive("#download-input")
    step = (after["coordinates"] - before["coordinates"])[point]
    assert step == pytest.approx([0.06 * 1.08, 0.04 * 1.08], abs=0.004)
    away = np.linalg.norm(before["coordinates"] - before["coordinates"][point], axis=1)
    moves = np.linalg.norm(after["coordinates"] - before["coordinates"], axis=1)
    assert moves.argmax() == point
    assert not moves[away > 0.4].any()
    np.testing.assert_array_equal(after["boundary"], before["boundary"])
    nearest, _ = cKDTree(after["coordinates"][after["boundary"] == 1]).query(after["coordinates"])
    np.testing.assert_allclose(after["distance"], nearest, atol=1e-6)
    expect(person.sentence).not_to_contain_text("truth")
    shown = person.download("#download-output")
    with Client(service.url) as client:
        np.testing.assert_array_equal(shown, client.predict(PLATE, after))
    person.page.click("#undo")
    np.testing.assert_array_equal(person.archive("#download-input")["coordinates"], before["coordinates"])


def test_a_drag_far_from_the_boundary_moves_nothing(person: Visit) -> None:
    before = opened(person, PLATE)
    person.page.locator("#size").fill("5")
    person.drag((0.2, 0.2), (0.3, 0.3))
    np.testing.assert_array_equal(person.archive("#download-input")["coordinates"], before["coordinates"])


def test_a_point_is_moved_with_the_keyboard_alone(person: Visit) -> None:
    before = opened(person, PLATE)
    person.surface().focus()
    for key in ("Space", "Space", "ArrowRight", "ArrowRight", "ArrowUp"):
        person.page.keyboard.press(key)
    expect(person.page.locator("#undo")).to_be_enabled()
    point = int(np.flatnonzero(before["boundary"] == 1)[1])
    step = (person.archive("#download-input")["coordinates"] - before["coordinates"])[point]
    assert step == pytest.approx([2 * 0.02 * 1.08, 0.02 * 1.08], rel=1e-3)


def test_the_components_of_vectors_have_their_names(person: Visit) -> None:
    opened(person, PLATE)
    person.picture("plate")
    shown = person.page.locator("[data-role=prediction] h2").all_inner_texts()
    assert shown == ["Stress, xx", "Stress, yy", "Stress, xy"]
    assert person.page.locator("[data-role=input] h2").all_inner_texts() == ["Mesh"]
    for role, number in (("input", 0), ("prediction", 2), ("difference", 1)):
        axes = person.panel(role).nth(number).locator(".axis").all_inner_texts()
        assert [axis.split("\n") for axis in axes] == [
            ["\N{MINUS SIGN}0.54", "y", "0.54"],
            ["\N{MINUS SIGN}0.54", "x", "0.54"],
        ], role
    assert "in units of the traction on the sides" in person.panel("prediction").first.inner_text()
    assert person.page.locator("#points-label").is_hidden()
    assert person.page.locator("#tools").get_by_role("button", name="Fill").count() == 0


def plate_mesh(service: Gateway) -> tuple[meshio.Mesh, dict[str, NDArray[Any]]]:
    """Return a test sample as a mesh without `boundary` and `distance`, which follow from its cells, and its arrays."""
    sample = httpx2.get(f"{service.url}/v1/models/{PLATE}/example?index=2").json()
    arrays = {name: np.asarray(values) for name, values in {**sample["inputs"], **sample["outputs"]}.items()}
    points = arrays["coordinates"]
    triangles = Delaunay(points).simplices
    edge = arrays["boundary"] == 1
    triangles = triangles[~(edge[triangles].all(axis=1) & (np.abs(points[triangles]).max(axis=(1, 2)) < 0.45))]
    flat = np.column_stack([points, np.zeros(len(points))])
    return meshio.Mesh(flat, {"triangle": triangles}, {"Stress": arrays["stress"]}), arrays


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"binary": False}, id="ascii", marks=pytest.mark.deep),
        pytest.param({"compression": None}, id="base64", marks=pytest.mark.deep),
        pytest.param({}, id="zlib"),
    ],
)
def test_a_mesh_file_is_uploaded_with_its_truth(
    person: Visit, service: Gateway, tmp_path: Path, options: dict[str, Any]
) -> None:
    opened(person, PLATE)
    mesh, arrays = plate_mesh(service)
    mesh.write(tmp_path / "mine.vtu", **options)
    person.page.set_input_files("#file", tmp_path / "mine.vtu")
    expect(person.page.locator("#trust")).to_contain_text("own")
    person.settled("from the truth")
    sent = person.archive("#download-input")
    np.testing.assert_array_equal(sent["coordinates"], arrays["coordinates"].astype(np.float32))
    with Client(service.url) as client:
        expected = client.predict(PLATE, meshio.read(tmp_path / "mine.vtu")).point_data["stress"]
    np.testing.assert_allclose(person.download("#download-output"), expected, atol=1e-5)
    person.picture("plate-uploaded")


def test_a_file_of_paraview_is_uploaded(person: Visit) -> None:
    """Write the numbers as ParaView does: raw bytes behind the document."""
    opened(person, SHEET)
    points = np.column_stack([np.random.default_rng(0).random((9, 2)), np.zeros(9)])
    heat = np.arange(9.0)
    parts = [points.tobytes(), heat.tobytes()]
    raw = b"".join(np.uint64(len(part)).tobytes() + part for part in parts)
    array = '<DataArray type="Float64" Name="{}" NumberOfComponents="{}" format="appended" offset="{}"/>'
    head = (
        '<?xml version="1.0"?><VTKFile type="UnstructuredGrid" byte_order="LittleEndian" header_type="UInt64">'
        '<UnstructuredGrid><Piece NumberOfPoints="9" NumberOfCells="0">'
        f"<PointData>{array.format('Heat', 1, 8 + len(parts[0]))}</PointData><CellData/>"
        f"<Points>{array.format('Points', 3, 0)}</Points><Cells/></Piece></UnstructuredGrid>"
        '<AppendedData encoding="raw">\n_'
    )
    content = head.encode() + raw + b"\n</AppendedData></VTKFile>"
    person.page.set_input_files("#file", {"name": "mine.vtu", "mimeType": "", "buffer": content})
    expect(person.page.locator("#trust")).to_contain_text("own")
    sent = person.archive("#download-input")
    np.testing.assert_array_equal(sent["heat"], heat)
    np.testing.assert_allclose(sent["coordinates"], points[:, :2], rtol=1e-6)


def test_files_that_are_no_mesh_of_the_model_are_refused(person: Visit, service: Gateway, tmp_path: Path) -> None:
    opened(person, PLATE)
    mesh, _ = plate_mesh(service)
    bare, solid = meshio.Mesh(mesh.points, {}), meshio.Mesh(np.random.default_rng(0).random((20, 3)), {})
    wrong = meshio.Mesh(mesh.points, mesh.cells, {"stress": np.zeros(len(mesh.points))})
    cases = [(bare, "it has neither data boundary nor cells"), (solid, "its points are in 3 dimensions; expected 2")]
    mixed = meshio.Mesh(mesh.points, {"triangle": mesh.cells[0].data, "polygon": [[0, 1, 2, 3, 4]]})
    cases.append((mixed, "its cells of VTK's types 7 are unknown"))
    points = np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [1, 1, 0], [2, 1, 0], [2, 0.5, 0], [1, 0.5, 0]])
    hanging = meshio.Mesh(points, {"quad": [[0, 1, 4, 3], [1, 2, 6, 7], [7, 6, 5, 4]]})
    cases.append((hanging, "its node 7 hangs on an edge of another cell"))
    for each, part in [*cases, (wrong, "its data stress have 1 components; expected 3")]:
        each.write(tmp_path / "mine.vtu")
        person.page.set_input_files("#file", tmp_path / "mine.vtu")
        expect(person.page.get_by_role("alert")).to_contain_text(part)
    for name, part in (
        ("mine.vtu", "this is not a VTU file"),
        ("mine.stl", "expected a file .vtu, .npz or .safetensors"),
    ):
        person.page.set_input_files("#file", {"name": name, "mimeType": "", "buffer": b"solid"})
        expect(person.page.get_by_role("alert")).to_contain_text(part)


def test_the_page_knows_the_facets_that_the_client_knows(person: Visit) -> None:
    page = person.page.evaluate("async () => (await import(new URL('playground/cells.js', document.baseURI))).FACETS")
    for dimensions, numbers in NUMBERS.items():
        kinds = {number: KNOWN[dimensions][number] for number in numbers.values() if number != -1}
        listed = {str(number): (kind.facets, kind.nodes) for number, kind in kinds.items()}
        assert page[str(dimensions)] == json.loads(json.dumps(listed))


def test_points_stay_where_inputs_follow_from_them_that_the_page_does_not_derive(person: Visit) -> None:
    code = """async (names) => {
      const cards = await import(new URL('playground/card.js', document.baseURI));
      const lead = { name: cards.COORDINATES, axes: ["batch", "point", "component"], shape: [null, null, 2] };
      return names.map((name) => cards.bendable({ inputs: [lead, { name, axes: ["batch", "point"] }] }));
    }"""
    found = person.page.evaluate(code, ["boundary", "distance", "source", "area", "boundary_normal"])
    assert found == [True, True, True, False, False]


def test_twenty_thousand_triangles_are_moved(person: Visit) -> None:
    before = opened(person, SHEET)
    assert len(before["coordinates"]) == SIDE**2
    person.drag(at(before, SIDE**2 - 1), (0.8, 0.3))
    expect(person.page.locator("#trust")).to_contain_text("own")
    person.picture("sheet-moved")
    after = person.archive("#download-input")
    shown, expected = person.archive("#download-output"), toy_points.compute(**{k: v[None] for k, v in after.items()})
    for name, values in expected.items():
        np.testing.assert_allclose(shown[name], values[0], rtol=1e-5, atol=1e-6)


def test_points_in_space_are_turned_and_uploaded(person: Visit, tmp_path: Path) -> None:
    arrays = opened(person, BALL)
    person.picture("ball")
    before = [person.surface(role).evaluate(PIXELS) for role in ("input", "prediction", "classical")]
    person.drag((0.4, 0.5), (0.6, 0.6))
    person.page.wait_for_timeout(1000)  # a turn is drawn in the next frame
    after = [person.surface(role).evaluate(PIXELS) for role in ("input", "prediction", "classical")]
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert "from the truth" in person.sentence.inner_text()  # a turn changes no input
    np.testing.assert_array_equal(person.archive("#download-input")["coordinates"], arrays["coordinates"])
    person.surface("prediction").focus()
    person.page.keyboard.press("ArrowLeft")
    person.page.wait_for_timeout(1000)
    assert person.surface().evaluate(PIXELS) != after[0]
    own = {"coordinates": arrays["coordinates"][:50], "heat": arrays["heat"][:50]}
    np.savez(tmp_path / "mine.npz", **own)
    person.page.set_input_files("#file", tmp_path / "mine.npz")
    expect(person.page.locator("#trust")).to_contain_text("own")
    np.testing.assert_array_equal(person.archive("#download-input")["heat"], own["heat"])


@pytest.mark.parametrize("model", [pytest.param(PLATE, marks=pytest.mark.deep), BALL])
def test_it_fits_a_phone(service: Gateway, browser: Browser, model: str) -> None:  # noqa: F811  as above
    person = Visit(browser, service.url, viewport={"width": 320, "height": 640}, color_scheme="dark", has_touch=True)
    person.choose(model)
    person.settled("from the truth")
    person.picture(f"phone-{model}")
    assert person.page.evaluate("document.documentElement.scrollWidth") == 320
    for about in person.panel("difference").locator(".about").all():
        assert about.evaluate("element => element.scrollWidth - element.clientWidth") <= 0  # not cut off
    assert re.search(r'application "[^"]+(turn|move) it', person.page.locator("body").aria_snapshot())
    person.context.close()
    assert (person.errors, person.foreign) == ([], [])
