"""Samples on disk: the same whoever computes them and however often that was interrupted, with units and provenance."""

from __future__ import annotations

import copy
import dataclasses
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import get_args

import h5py
import numpy as np
import psutil
import pytest

from physics import darcy
from training.data import generate, views
from training.data.dataset import SampleGroup
from training.data.generate import Block, Request, Store, blocks, fill, missing, prepare
from training.data.new_file import new_hdf5
from training.data.pools import LocalPool, ThisProcess
from training.data.prepare import prepare as prepare_files
from training.data.views import Samples, read
from training.files import replacing
from training.messages import UserError
from training.problems.problem import PROBLEMS, Array
from training.problems.problem_file import ProblemFile

ROOT = Path(__file__).parents[3]
DARCY = Request(PROBLEMS["darcy"], mesh=61, train=6, test=3, seed=5)
BURGERS = Request(PROBLEMS["burgers"], mesh=512, train=2, test=1, seed=5)


@pytest.fixture(scope="module", autouse=True)
def no_published_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("DATA_PATH", raising=False)
        yield


@pytest.fixture(scope="module")
def darcy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(DARCY, tmp_path_factory.mktemp("darcy"), LocalPool(2), progress=False)


@pytest.fixture(scope="module")
def burgers_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(BURGERS, tmp_path_factory.mktemp("burgers"), LocalPool(1), progress=False)


def assert_equal(found: Samples, expected: Samples) -> None:
    assert found.inputs.tobytes() == expected.inputs.tobytes()
    assert found.outputs.tobytes() == expected.outputs.tobytes()


def test_a_darcy_sample_solves_its_equation_on_cell_centres(darcy_file: Path) -> None:
    samples = read(darcy_file, "test", 3, 61)
    assert samples.inputs.shape == samples.outputs.shape == (3, 61, 61)
    assert samples.inputs.dtype == samples.outputs.dtype == np.float32
    assert (samples.problem.name, samples.provenance) == ("darcy", "regenerated")
    for a, u in zip(samples.inputs, samples.outputs, strict=True):
        np.testing.assert_allclose(u, darcy.solve(a, wall=0.5 / 61), rtol=1e-6)


def test_a_burgers_sample_is_damped_and_keeps_its_mean(burgers_file: Path) -> None:
    samples = read(burgers_file, "train", 2, 512)
    assert samples.inputs.shape == (2, 512)
    assert (samples.outputs.std(axis=1) < samples.inputs.std(axis=1)).all()
    np.testing.assert_allclose(samples.outputs.mean(axis=1), samples.inputs.mean(axis=1), atol=1e-6)


def test_reading_strides_from_edge_to_edge_or_around_the_circle(darcy_file: Path, burgers_file: Path) -> None:
    fine, coarse = read(darcy_file, "train", 6, 61), read(darcy_file, "train", 4, 21)
    np.testing.assert_array_equal(coarse.inputs, fine.inputs[:4, ::3, ::3])
    np.testing.assert_array_equal(coarse.outputs, fine.outputs[:4, ::3, ::3])
    fine, coarse = read(burgers_file, "train", 2, 512), read(burgers_file, "train", 2, 128)
    np.testing.assert_array_equal(coarse.outputs, fine.outputs[:, ::4])


def test_a_sampler_and_a_user_write_what_one_reader_reads(darcy_file: Path, tmp_path: Path) -> None:
    solution = read(darcy_file, "train", 6, 61).outputs
    stored = SampleGroup(darcy_file, "train")
    numbers = np.array([3, 1, 3])
    np.testing.assert_array_equal(stored.pick("solution", numbers), solution[numbers])
    again = copy.copy(stored)  # as a process that reads batches has it
    coarse = [*again.fields("solution", range(1, 3), (slice(None, None, 3), slice(None, None, 2)))]
    np.testing.assert_array_equal(coarse, solution[1:3, ::3, ::2])
    assert stored.attributes["provenance"] == "regenerated"
    np.savez(tmp_path / "flow.npz", u=solution, v=-solution)
    document = {"name": "flow", "data": {"files": ["flow.npz"]}, "inputs": {"u": {}}, "outputs": {"v": {}}}
    problem = ProblemFile.model_validate(document | {"axes": {"row": {}, "column": {}}})
    prepared = SampleGroup(prepare_files(problem, tmp_path, tmp_path))
    np.testing.assert_array_equal(prepared.pick("v", numbers), -solution[numbers])
    assert (prepared.attributes["remarks"], stored.finished()) == ("", 6)
    for each in (stored, again, prepared):
        each.close()


def test_every_sample_is_another_one(darcy_file: Path) -> None:
    fields = [*read(darcy_file, "train", 6, 61).inputs, *read(darcy_file, "test", 3, 61).inputs]
    assert len({field.tobytes() for field in fields}) == 9


def test_the_file_says_what_its_numbers_are(darcy_file: Path, burgers_file: Path) -> None:
    with h5py.File(darcy_file) as file:
        assert dict(file["train/solution"].attrs) == {"units": "1", "meaning": "pressure"}
        expected = {
            "problem": "darcy",
            "seed": 5,
            "mesh": 61,
            "version": generate.VERSION,
            "provenance": "regenerated",
        }
        assert expected.items() <= dict(file.attrs).items()
        assert "(i + 1/2)/61" in file.attrs["points"]
        assert "div" in file.attrs["equation"]
        assert file["test/coefficient"].chunks == (1, 61, 61)
    with h5py.File(burgers_file) as file:
        assert set(file["test"]) == {"initial", "final", "done"}
        assert file.attrs["viscosity"] == 0.01


def test_more_samples_extend_the_file_and_change_none(tmp_path: Path, darcy_file: Path) -> None:
    shorter = dataclasses.replace(DARCY, train=2, test=1)
    path = prepare(shorter, tmp_path, LocalPool(1), progress=False)
    assert_equal(read(path, "train", 2, 61), read(darcy_file, "train", 2, 61))
    assert prepare(DARCY, tmp_path, LocalPool(1), progress=False) == path
    for split, count in (("train", 6), ("test", 3)):
        assert_equal(read(path, split, count, 61), read(darcy_file, split, count, 61))
    before = path.read_bytes()
    prepare(shorter, tmp_path, LocalPool(1), progress=False)
    assert path.read_bytes() == before


def test_a_killed_generation_goes_on_to_the_same_file(tmp_path: Path) -> None:
    request = Request(PROBLEMS["darcy"], mesh=61, train=150, test=4, seed=6)
    code = (
        "from pathlib import Path; from training.data.generate import *; from training.data.pools import LocalPool; "
        "from training.problems.problem import PROBLEMS; "
        f"prepare(Request(PROBLEMS['darcy'], 61, train=150, test=4, seed=6), Path({str(tmp_path)!r}), LocalPool(2))"
    )
    program = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    path = tmp_path / "darcy-61-seed6.h5"
    wait_for(lambda: path.exists() and done(path, "train") > 5)
    workers = psutil.Process(program.pid).children(recursive=True)
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert 5 < done(path, "train") < 150
    assert not psutil.wait_procs(workers, timeout=20)[1]
    resumed, fresh = (
        prepare(request, folder, LocalPool(2), progress=False) for folder in (tmp_path, tmp_path / "fresh")
    )
    assert resumed == path
    assert_equal(read(resumed, "train", 150, 61), read(fresh, "train", 150, 61))
    assert_equal(read(resumed, "test", 4, 61), read(fresh, "test", 4, 61))


def test_processes_that_share_blocks_of_trajectories_make_the_same_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    states = {"u": rng.standard_normal((100, 3, 16)), "length": rng.uniform(20, 30, 100)}
    solver = PROBLEMS["kuramoto_sivashinsky"].require_trajectories()
    made = dataclasses.replace(solver, draw=lambda _: states, follow=dict)  # which processes have without an import
    shared, alone = (
        generate.trajectories(made, tmp_path / pool.__class__.__name__, pool, progress=False)
        for pool in (LocalPool(2), ThisProcess())
    )
    assert shared.read_bytes() == alone.read_bytes()
    with h5py.File(shared) as file:
        np.testing.assert_array_equal(file["u"], states["u"].astype(np.float32))


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def done(path: Path, split: views.Split) -> int:
    with closing(SampleGroup(path, split)) as stored:
        return stored.finished()


def test_a_file_being_filled_may_be_read_as_far_as_it_is(tmp_path: Path) -> None:
    path, field = tmp_path / "darcy.h5", np.ones((1, 61, 61), dtype=np.float32)
    store = Store("darcy", path, {"train": 3, "test": 2}, {"problem": "darcy", "provenance": "regenerated"})

    def work(block: Block) -> dict[str, Array]:
        if block.start:
            assert read(path, "test", 1, 61).inputs.mean() == 3
            assert missing(path, blocks("test", 2, 1)) == [block]
            with pytest.raises(ValueError, match=r"expected 2 samples in test of .* but 1 are there"):
                read(path, "test", 2, 61)
        return {"coefficient": 3 * field, "solution": field}

    fill(store, blocks("test", 2, 1), work, ThisProcess(), progress=False)
    assert read(path, "test", 2, 61).outputs.mean() == 1


def test_a_failed_replacement_leaves_the_file_whole(tmp_path: Path, darcy_file: Path) -> None:
    path = tmp_path / darcy_file.name
    path.write_bytes(darcy_file.read_bytes())
    with pytest.raises(OSError, match="disk is full"), replacing(path) as aside:
        write_half(aside)
    assert path.read_bytes() == darcy_file.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_two_processes_replace_a_file_each_with_the_whole_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own = tmp_path / "card.json", os.getpid()
    with replacing(path) as first:
        first.write_text("the first")
        monkeypatch.setattr(os, "getpid", lambda: own + 1)
        with replacing(path) as second:
            second.write_text("the second, which is longer")
        assert path.read_text() == "the second, which is longer"
    assert path.read_text() == "the first"
    assert [*tmp_path.iterdir()] == [path]


def test_what_a_killed_process_left_of_a_file_is_removed(tmp_path: Path) -> None:
    path, left, written = tmp_path / "k[1].h5", tmp_path / ".k[1].h5.1.part", tmp_path / ".k[1].h5.2.part"
    left.touch()
    written.touch()
    os.utime(left, (0, 0))
    with replacing(path) as aside:
        aside.touch()
    assert {*tmp_path.iterdir()} == {path, written}
    with new_hdf5(path) as file:  # of samples, which no other process writes
        file["u"] = [1.0]
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("size", [400, 5000])  # bytes: of a head of a file alone, or of some samples, too
def test_samples_that_a_quota_has_no_room_for_are_an_error_that_leaves_no_file(tmp_path: Path, size: int) -> None:
    k, u = np.random.default_rng(0).standard_normal((2, 40, 64))
    np.savez(tmp_path / "line.npz", k=k, u=u)
    document = {"data": {"files": ["line.npz"]}, "inputs": {"k": {}}, "outputs": {"u": {}}, "axes": {"x": {}}}
    problem = ProblemFile.model_validate({"name": "line", **document})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(UserError, match=r"own-line-\w+\.h5: expected to write all samples but: File too large"):
            prepare_files(problem, tmp_path, tmp_path / "data")
        with pytest.raises(UserError, match=r"expected to write all samples but: File too large"):
            prepare(BURGERS, tmp_path / "data", ThisProcess(), progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [*(tmp_path / "data").glob("*.h5*.part"), *(tmp_path / "data").glob("*.h5")]


def write_half(path: Path) -> None:
    path.write_text("half a file")
    raise OSError("the disk is full")


def test_a_file_of_another_seed_or_version_is_refused(tmp_path: Path, darcy_file: Path) -> None:
    for name, value in (("seed", 9), ("version", 0), ("mesh", 85)):
        path = tmp_path / darcy_file.name
        path.write_bytes(darcy_file.read_bytes())
        with h5py.File(path, "r+") as file:
            file.attrs[name] = value
        with pytest.raises(ValueError, match=f"expected {name} .* but found {value} in"):
            prepare(DARCY, tmp_path, progress=False)


def test_impossible_grids_and_requests_are_named(darcy_file: Path) -> None:
    with pytest.raises(
        ValueError, match=r"cannot stride 61 points of darcy to 20; possible are \[2, 3, 4, 5, 6, 7, 11"
    ):
        read(darcy_file, "train", 1, 20)
    with pytest.raises(ValueError, match="expected 7 samples in train"):
        read(darcy_file, "train", 7, 61)
    with pytest.raises(ValueError, match="no negative number"):
        Request(PROBLEMS["darcy"], 61, -1, 1, 1)


def test_validation_samples_come_after_the_training_samples_of_the_same_stream(
    tmp_path: Path, darcy_file: Path
) -> None:
    divided = dataclasses.replace(DARCY, train=4, validation=2)
    path = prepare(divided, tmp_path, LocalPool(1), progress=False)
    stream, validation = read(darcy_file, "train", 6, 61), read(path, "validation", 2, 61, after=4)
    np.testing.assert_array_equal(validation.inputs, stream.inputs[4:])
    np.testing.assert_array_equal(validation.outputs, stream.outputs[4:])
    with pytest.raises(ValueError, match=r"expected 3 samples in validation of .* but 2 are there"):
        read(path, "validation", 3, 61, after=4)


@pytest.mark.parametrize(("split", "after"), [("validation", 0), ("train", 4), ("test", 4)])
def test_only_validation_samples_come_after_others(darcy_file: Path, split: views.Split, after: int) -> None:
    with pytest.raises(ValueError, match=f"expected the number of training samples .* but got {after} for {split}"):
        read(darcy_file, split, 1, 61, after=after)


def test_the_stored_streams_are_the_generated_ones() -> None:
    assert set(views.STREAM_OF.values()) == set(generate.STREAMS)
    assert set(views.STREAM_OF) == set(get_args(views.Split))
