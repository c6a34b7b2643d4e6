"""A folder of series of meshes becomes a served model, whose rollouts are series of meshes again.

They start from two frames, so that the start is a series, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import meshio
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from numpy.typing import NDArray
from playwright.sync_api import Browser, expect
from safetensors.numpy import load, save
from typer.testing import CliRunner

from export.__main__ import app as exporting
from petrov_client import Client, GrpcClient
from petrov_client._commands.cli import app as petrov
from tests.conftest import Gateway, RunService
from tests.pipeline.conftest import command
from tests.pipeline.test_playground import Visit, browser  # noqa: F401  a fixture
from tests.toy_meshes import cooling, write_series
from training.commands import app
from training.data.readers import open_file
from training.problems.problem_file import read_problem_file

# A training, an export and a start of Triton, on a busy machine.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]
MODEL, FRAMES = "runs_tiny", 5
FORMATS = 'formats=["onnx", "torchscript"]'
PIXELS = "canvas => canvas.toDataURL()"
TIMED = """<UnstructuredGrid><FieldData><DataArray type="Float64" Name="TimeValue" NumberOfTuples="1" format="ascii">%g
</DataArray></FieldData>"""
SAFETENSORS = {"Content-Type": "application/vnd.safetensors"}
FIELDS = ("boundary", "distance", "heat_first", "rate")
Sample = dict[str, "NDArray[np.float32]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("series")
    write_series(made / "runs", cooling(40, FRAMES))
    drawn = CliRunner().invoke(app, ["describe", str(made / "runs")], catch_exceptions=False).stdout
    text = drawn[drawn.index("# ") :].replace("validation = 0.1", "validation = 10")
    text = text.replace("history = 1", "history = 2")
    (made / "runs.toml").write_text(text)
    return made


@pytest.fixture(scope="module")
def gateway(folder: Path, run_service: RunService) -> Iterator[Gateway]:
    """Train, export and serve with the commands that a person types."""
    options = ["--no-amounts", "--preset", "tiny", "--out", folder / MODEL, "--data", folder / "data"]
    command(app, "fit", folder / "runs.toml", *options, "--set", "fit.seconds=2", "--set", FORMATS)
    command(exporting, folder / MODEL, "--repository", folder / "model_repository")
    with run_service(folder / "model_repository") as found:
        yield found


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[Sample]:
    """Read two of the meshes, of unequal size, as a request has them."""
    found = []
    for number in (0, 1):
        with open_file(folder / f"runs/run-{number:02}/out_0.vtu") as file:
            arrays = {name: file.array(name).read()[0] for name in ("coordinates", "boundary", "distance", "rate")}
        steps = (meshio.read(folder / f"runs/run-{number:02}/out_{step}.vtu") for step in (0, 1))
        heat = np.stack([np.asarray(step.point_data["heat"], np.float32) for step in steps])
        found.append(arrays | {"heat_first": heat})
    assert len({len(one["rate"]) for one in found}) == 2
    return found


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[Client]:
    with Client(gateway.url) as made:
        yield made


@pytest.fixture(scope="module")
def expected(client: Client, samples: list[Sample]) -> list[NDArray[np.float32]]:
    """Return the rollouts of ten frames of both samples, each alone."""
    return [client.rollout(MODEL, one, 10) for one in samples]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def padded(samples: list[Sample]) -> dict[str, NDArray[np.float32]]:
    """Return samples as batches, padded with NaN, with their counts."""
    counts = np.asarray([len(one["rate"]) for one in samples], np.float32)
    most = int(counts.max())

    def longer(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        axis = int(name == "heat_first")  # behind that of the frames
        added = [(0, most - side if at == axis else 0) for at, side in enumerate(values.shape)]
        return np.pad(values, added, constant_values=np.nan)

    found = {name: np.stack([longer(name, one[name]) for one in samples]) for name in samples[0]}
    return {name: np.ascontiguousarray(each, np.float32) for name, each in found.items()} | {"counts": counts}


def test_the_draft_and_the_card_say_what_changes_in_time(gateway: Gateway, folder: Path) -> None:
    problem = read_problem_file(folder / "runs.toml")
    assert problem.data.files == (f"{folder}/runs/*/out.pvd",)
    card = httpx2.get(f"{gateway.url}/v1/models/{MODEL}", timeout=60).json()["card"]
    assert {one["name"]: one["axes"] for one in card["outputs"]} == {"heat": ["batch", "frame", "point"]}
    assert card["frames"]["states"] == ["heat_first"]
    assert [row["frame"] for row in card["rollout"]] == [1, 2, 3]
    assert all(row["error_estimate"] > 0 for row in card["rollout"])
    assert card["differentiable"] == ["vjp", "jvp"]


def test_lists_of_unequal_meshes_have_as_many_frames(
    gateway: Gateway, samples: list[Sample], expected: list[NDArray[np.float32]]
) -> None:
    inputs = {name: [one[name].tolist() for one in samples] for name in samples[0]}
    url = f"{gateway.url}/v1/models/{MODEL}/predict"
    response = httpx2.post(url, json={"inputs": inputs, "frames": 3}, timeout=60)
    assert response.status_code == 200, response.text
    found = response.json()
    for values, one in zip(found["outputs"]["heat"], expected, strict=True):
        close(values, one[:3])
    assert np.shape(found["quality"]["error_estimate"]) == (2, 3)
    arrays = padded(samples)
    response = httpx2.post(f"{url}?frames=10", content=save(arrays), headers=SAFETENSORS, timeout=60)
    assert response.status_code == 200, response.text
    for values, one in zip(load(response.content)["heat"], expected, strict=True):
        close(values[:, : one.shape[1]], one)
        assert not values[:, one.shape[1] :].any()


def test_cells_stand_for_what_follows_from_them(
    gateway: Gateway, folder: Path, samples: list[Sample], expected: list[NDArray[np.float32]]
) -> None:
    url = f"{gateway.url}/v1/models/{MODEL}/predict"
    triangles = [meshio.read(folder / f"runs/run-{number:02}/out_0.vtu").cells_dict["triangle"] for number in (0, 1)]
    names = [name for name in samples[0] if name not in {"boundary", "distance"}]
    inputs = {name: [one[name].tolist() for one in samples] for name in names}
    body: dict[str, Any] = {"inputs": inputs, "cells": [each.tolist() for each in triangles], "frames": 3}
    response = httpx2.post(url, json=body, timeout=60)
    assert response.status_code == 200, response.text
    for values, one in zip(response.json()["outputs"]["heat"], expected, strict=True):
        close(values, one[:3])
    sent = {name: np.ascontiguousarray(samples[0][name]) for name in names} | {"cells": triangles[0].astype(np.int32)}
    found = load(httpx2.post(f"{url}?frames=3", content=save(sent), headers=SAFETENSORS, timeout=60).content)
    close(found["heat"], expected[0][:3])
    tensors = [
        {"name": name, "datatype": "INT32" if name == "cells" else "FP32", "shape": each.shape, "data": each.tolist()}
        for name, each in {**{name: one[np.newaxis] for name, one in sent.items()}, "cells": sent["cells"]}.items()
    ]
    v2 = {"inputs": tensors, "parameters": {"frames": 3}}
    response = httpx2.post(f"{gateway.url}/v2/models/{MODEL}/infer", json=v2, timeout=60)
    assert response.status_code == 200, response.text
    close(response.json()["outputs"][0]["data"], expected[0][:3].ravel())
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{gateway.settings.grpc_port}") as plain:
        named = [triton_grpc.InferInput(one["name"], one["shape"], one["datatype"]) for one in tensors]
        for tensor in named:
            name = tensor.name()
            value = sent[name] if name == "cells" else np.float32(sent[name])[np.newaxis]
            tensor.set_data_from_numpy(np.ascontiguousarray(value))
        close(plain.infer(MODEL, named, parameters={"frames": 3}).as_numpy("heat")[0], expected[0][:3])
    alone = {**body, "cells": [body["cells"][0], [cell for cell in body["cells"][1] if 0 not in cell]]}
    refused = httpx2.post(url, json=alone, timeout=60).json()
    assert refused["detail"].startswith("cells[1] has the point 0 in no cell; expected cells of all")
    body["cells"][1][2][0] = 1000
    refused = httpx2.post(url, json=body, timeout=60).json()
    assert refused["detail"].startswith("cells[1] names the point 1000 in cell 2; expected 0 to")
    del body["cells"]
    assert 'input "boundary" is missing' in httpx2.post(url, json=body, timeout=60).json()["detail"]
    with Client(gateway.url) as client:
        one = {name: samples[0][name] for name in names}
        close(client.rollout(MODEL, one | {"cells": triangles[0]}, 3), expected[0][:3])


def test_a_rollout_goes_on_behind_what_has_arrived(
    client: Client, samples: list[Sample], expected: list[NDArray[np.float32]]
) -> None:
    frames = client.rollout_stream(MODEL, samples[0], 10)
    first = [next(frames) for _ in range(3)]
    frames.close()
    rest = [*client.rollout_stream(MODEL, samples[0], 10, earlier=first)]
    close(np.stack(first + rest), expected[0])
    together = {name: np.nan_to_num(each) for name, each in padded(samples).items()}
    whole, quality = client.rollout(MODEL, together, 10, quality=True)
    for values, one in zip(whole, expected, strict=True):
        close(values[:, : one.shape[1]], one)
    assert quality.error_estimate is not None
    assert quality.error_estimate.shape == (2, 10)


def test_grpc(gateway: Gateway, samples: list[Sample], expected: list[NDArray[np.float32]]) -> None:
    with GrpcClient(f"127.0.0.1:{gateway.settings.grpc_port}") as grpc:
        close(grpc.rollout(MODEL, samples[1], 10), expected[1])
        found = grpc.rollout(MODEL, {name: np.nan_to_num(each) for name, each in padded(samples).items()}, 4)
    for values, one in zip(found, expected, strict=True):
        close(values[:, : one.shape[1]], one[:4])


def test_gradients_by_the_start_and_the_points(client: Client, samples: list[Sample]) -> None:
    one = {name: values[np.newaxis] for name, values in samples[0].items()}
    cotangent = np.zeros((1, 2, len(samples[0]["rate"])), np.float32)
    cotangent[0, 1, 4] = 1
    _, found = client.vjp(MODEL, one, {"heat": cotangent})
    for name, index in (("heat_first", (0, 1, 4)), ("coordinates", (0, 4, 0))):
        ends = []
        for sign in (-1, 1):
            moved = one[name].copy()
            moved[index] += 1e-2 * sign
            ends.append(client.rollout(MODEL, one | {name: moved}, 2)[0, 1, 4])
        assert found[name][index] == pytest.approx((ends[1] - ends[0]) / 2e-2, rel=0.2, abs=0.02), name


def test_torchscript_computes_the_same_frames(
    client: Client, samples: list[Sample], expected: list[NDArray[np.float32]]
) -> None:
    for one, frames in zip(samples, expected, strict=True):
        close(client.rollout(f"{MODEL}_torchscript", one, 10), frames)


def test_a_series_of_meshes_goes_on_as_another_one(
    gateway: Gateway, folder: Path, expected: list[NDArray[np.float32]], tmp_path: Path
) -> None:
    source, target = folder / "runs/run-01/start.pvd", tmp_path / "cooled.pvd"
    steps = "".join(f'<DataSet timestep="{0.02 * step}" file="out_{step}.vtu"/>' for step in (1, 0))
    source.write_text(f'<VTKFile type="Collection"><Collection>{steps}</Collection></VTKFile>')
    arguments = ["rollout", MODEL, str(source), str(target), "--frames", "10", "--url", gateway.url]
    done = CliRunner().invoke(petrov, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    with open_file(target) as file:
        close(file.array("heat").read()[0], expected[1])
        assert file.coordinates["time"] == pytest.approx(0.02 * np.arange(2, 12))  # behind the last mesh of the start
    known, frame = meshio.read(source.with_name("out_1.vtu")), meshio.read(tmp_path / "cooled_frames/frame_10.vtu")
    np.testing.assert_array_equal(frame.cells_dict["triangle"], known.cells_dict["triangle"])
    close(frame.point_data["heat"], expected[1][-1])
    again = CliRunner().invoke(petrov, [*arguments[:5], "2", *arguments[6:]], catch_exceptions=False)
    assert again.exit_code == 0, again.output
    assert [path.name for path in sorted((tmp_path / "cooled_frames").iterdir())] == ["frame_1.vtu", "frame_2.vtu"]
    (tmp_path / "cooled_frames/notes.txt").write_text("mine")
    refused = CliRunner().invoke(petrov, arguments)
    assert refused.exit_code != 0
    assert "expected a new folder" in str(refused.exception or "") + refused.output
    arguments[2], arguments[3] = str(source.with_name("out_1.vtu")), str(tmp_path / "other.pvd")
    refused = CliRunner().invoke(petrov, arguments)
    assert (
        'list .pvd of at least 2 meshes, which "runs_tiny" starts from' in str(refused.exception or "") + refused.output
    )


def test_the_playground_plays_a_mesh(gateway: Gateway, folder: Path, browser: Browser) -> None:  # noqa: F811  as above
    visit = Visit(browser, gateway.url)
    visit.page.click("#tab-python")
    visit.choose(MODEL)
    visit.page.click("#sample-after")
    visit.settled("from the truth")
    first = visit.surface("prediction").evaluate(PIXELS)
    expect(visit.page.locator("#frame-shown")).to_have_text("1 of 3, time 0.02")
    expect(visit.page.locator("#solver-row")).to_be_hidden()  # there is none on points
    visit.page.click("#play")
    expect(visit.page.locator("#frame-shown")).to_have_text("3 of 3, time 0.06")
    assert visit.surface("prediction").evaluate(PIXELS) != first
    visit.picture("mesh-frames")
    visit.page.set_input_files("#file", [folder / f"runs/run-03/out_{step}.vtu" for step in (1, 0)])
    expect(visit.page.locator("#trust")).to_contain_text("own")
    sent, shown = visit.archive("#download-input"), visit.download("#download-output")
    assert shown.shape == (3, len(sent["coordinates"]))
    heat = [meshio.read(folder / f"runs/run-03/out_{step}.vtu").point_data["heat"] for step in (0, 1)]
    close(sent["heat_first"], heat)
    for step, time in ((0, 3), (1, 3.2)):  # as ParaView writes them
        text = (folder / f"runs/run-03/out_{step}.vtu").read_text().replace("<UnstructuredGrid>", TIMED % time)
        (folder / f"timed_{step}.vtu").write_text(text)
    visit.page.set_input_files("#file", [folder / f"timed_{step}.vtu" for step in (0, 1)])
    expect(visit.page.get_by_role("alert")).to_contain_text("at 3 and 3.2 are 0.2 apart; expected 0.02")
    visit.context.close()
    assert (visit.errors, visit.foreign) == ([], [])
