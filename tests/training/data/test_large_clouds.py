"""Large clouds: memory does not grow with the number of samples, a step sees some points, and parts equal the whole."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
import torch

from tests.toy_meshes import cooling, write_series
from training.data import dataset
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.data.readers import ReadError, mesh, open_file, recent
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import recipe
from training.operators import points as operators
from training.problems.problem_file import ProblemFile

SIDE = 64  # points along an edge of a square
FIELD = 4 * SIDE**2  # bytes of a field
TENSORS = 9  # of a sample: two coordinates, boundary, distance and area, two components of normals, and two fields


def write(folder: Path, count: int) -> ProblemFile:
    """Write squares of `SIDE` x `SIDE` points with two fields each."""
    folder.mkdir()
    across = np.arange(SIDE) / (SIDE - 1)
    points = np.stack([*np.meshgrid(across, across), np.zeros((SIDE, SIDE))], axis=-1).reshape(-1, 3)
    corner = (np.arange(SIDE - 1)[:, None] * SIDE + np.arange(SIDE - 1)).ravel()
    quads = np.stack([corner, corner + 1, corner + SIDE + 1, corner + SIDE], axis=1)
    for number in range(count):
        rng = np.random.default_rng(number)
        source = rng.random(len(points)) + points @ rng.random(3)
        moved = points * [1 + number / count, 1, 1]
        meshio.Mesh(moved, {"quad": quads}, {"f": source, "u": 2 * source}).write(folder / f"{number:03}.vtu")
    return ProblemFile.model_validate(
        {
            "name": "squares",
            "data": {"files": [str(folder / "*.vtu")], "validation": 1, "test": 1},
            "inputs": {"boundary": {}, "distance": {}, "f": {}},
            "outputs": {"u": {}},
            "points": {"weights": "area"},
        }
    )


def most_memory(call: Callable[[], Any]) -> int:
    """Return the most bytes that are allocated at a time during a call, beyond those before."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1000)  # or what has been read waits for the collector
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)


@pytest.mark.deep
def test_memory_does_not_grow_with_the_number_of_mesh_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent.RECENT, "most", TENSORS * FIELD)
    most = {}
    for count, name in ((4, "first"), (4, "few"), (16, "many")):  # the first time modules are imported, too
        problem = write(tmp_path / name, count)
        most[name] = most_memory(partial(prepare, problem, tmp_path, tmp_path / f"{name}-data"))
    # That of twelve more samples is twelve times as much; what is known of a file has the size of some fields here.
    assert most["many"] - most["few"] < 6 * TENSORS * FIELD
    assert not recent.RECENT.held


def test_what_is_read_again_is_what_was_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent.RECENT, "most", 0)
    write(tmp_path / "squares", 2)
    write_series(tmp_path / "runs", cooling(2, 3))
    for pair in (sorted(tmp_path.glob("squares/*")), sorted(tmp_path.glob("runs/*/out.pvd"))):
        with open_file(pair[0]) as one, open_file(pair[1]) as other:
            known = {name: each.read() for name, each in one.arrays.items()}
            for name, each in other.arrays.items():  # which takes the place of the first one
                each.read()
                np.testing.assert_array_equal(one.arrays[name].read(), known[name])
            pair[0].write_bytes(pair[0].read_bytes() + b" ")
            other.arrays["coordinates"].read()
            with pytest.raises(ReadError, match="expected a file that stays as it is, but it was changed"):
                one.arrays["coordinates"].read()


def test_files_of_one_mesh_share_what_follows_from_its_cells(tmp_path: Path) -> None:
    points = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 0.0]])
    cells = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
    for name, some, end in (("a", cells, 0.0), ("b", cells, 1.0), ("c", cells[[0, 1, 3]], 2.0)):
        used = np.unique(some)
        data = {"f": points[used, 0] + end}
        meshio.Mesh(points[used], {"triangle": np.searchsorted(used, some)}, data).write(tmp_path / f"{name}.vtu")
    meshio.Mesh(points, {"triangle": cells[:3]}, {"f": points[:, 0]}).write(tmp_path / "d.vtu")  # no cell below
    held, edges = [], []
    for name in "abcd":
        with open_file(tmp_path / f"{name}.vtu") as file:
            [following] = mesh.FOLLOWING.held.values()
            held.append(following)
            edges.append(file.array("boundary").read()[0].tolist())
            assert file.array("f").read()[0].min() == {"b": 1, "c": 2}.get(name, 0)
    assert held[0] is held[1]
    assert edges == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]


@pytest.fixture
def work(tmp_path: Path) -> OperatorWorkload:
    """Return the workload of twelve squares, of whose points a step sees a hundred."""
    problem = write(tmp_path / "squares", 12)
    samples = SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem)
    found = recipe(samples, "tiny")
    fit = found.fit.model_copy(update={"points": 100, "batch": 4})
    return OperatorWorkload(found.model_copy(update={"fit": fit}), tmp_path / "data")


def test_a_step_holds_no_whole_cloud(work: OperatorWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "IN_MEMORY", 0)
    rng, chosen = np.random.default_rng(0), np.arange(4)
    work.draw(chosen, rng, 0.5)
    # Which one whole sample has, of four. Threads that other tests have left may allocate during a call, not in each.
    assert min(most_memory(lambda: work.draw(chosen, rng, 0.5)) for _ in range(3)) < TENSORS * FIELD
    coordinates, *_, f, counts = (batch := work.draw(chosen, rng, 0.5)).inputs
    assert coordinates.shape == (4, 100, 2)
    assert (counts == 100).all()
    assert batch.share is not None
    assert batch.share.numpy() == pytest.approx(100 / SIDE**2)
    assert batch.measure is not None
    assert batch.measure.shape == (4, 100)
    torch.testing.assert_close(batch.outputs[0], 2 * f)
    whole = work.samples.read(work.rows[chosen])
    for sample, (values, at) in enumerate(zip(f.numpy(), coordinates.numpy(), strict=True)):
        index = [int(np.flatnonzero(whole["f"][sample] == value)[0]) for value in values]
        assert index == sorted({*index})
        np.testing.assert_array_equal(whole["coordinates"][sample][index], at)


@torch.inference_mode()
def test_an_evaluation_in_parts_equals_the_whole(work: OperatorWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    network = work.task().network.eval()
    [expected] = work.batches("validation")
    whole, errors = work.predictions(network, expected)[0], work.measured(network, work.batches("test"))
    monkeypatch.setattr(operators, "PART", 1000)
    [found] = work.predictions(network, expected)
    assert (found - whole).abs().max() < 1e-6 * whole.abs().max()
    for name, each in work.measured(network, work.batches("test")).items():
        assert each == pytest.approx(errors[name], rel=1e-5)
