"""Files of any length: several gateways, and the same bytes after any interruption."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import httpx2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petrov_client import (
    Client,
    ConnectionFailed,
    InvalidInput,
    ModelInfo,
    RateLimited,
    Scored,
    TensorInfo,
    Unavailable,
    _score_on_ray,
    score,
)
from petrov_client._codecs import encode_npy as encode
from petrov_client._kept import Kept, Records
from petrov_client._quality import Options, columns
from petrov_client._score import write
from serving.settings import Settings
from tests import toy_fields, toy_gauges
from tests.conftest import Gateway, ready, wait_until

ROOT = Path(__file__).parents[2]
MEBIBYTE = 2**20
NPY = {"Content-Type": "application/x-npy"}
OUTPUTS = (TensorInfo("solution", ("batch", "row"), "1", "pressure"), TensorInfo("energy", ("batch",), "J", "energy"))
JOB: dict[str, str | int] = {"model": "toy", "version": 1}
KILLED_HALF_WAY = """
import os, sys
from petrov_client import score
model, source, target, url = sys.argv[1:]
score(model, source, target, [url], progress=lambda done, all: os.kill(os.getpid(), 9) if 2 * done > all else None)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """330 fields of 16 x 12, which is 42 requests, chunked and compressed as such files are."""
    fields = np.random.default_rng(8).uniform(3, 12, (330, 16, 12)).astype(np.float32)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("coefficient", data=fields, chunks=(50, 16, 12), compression="gzip")
    return tmp_path / "in.h5"


def fields(path: Path) -> np.ndarray[Any, Any]:
    with h5py.File(path) as file:
        [dataset] = file.values()
        return np.asarray(dataset[...])


def test_a_file_is_computed_into_a_file(gateway: Any, blur: Any, source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    done = score("blur", source, tmp_path / "out.h5", [gateway.url], progress=lambda *count: seen.append(count))
    assert done == Scored(tmp_path / "out.h5", {"solution": (330, 16, 12)}, 330)
    np.testing.assert_allclose(fields(done.path), blur(fields(source)), rtol=1e-5)
    assert seen[-1] == (330, 330)
    with h5py.File(done.path) as file:
        assert dict(file["solution"].attrs) == {"units": "1", "meaning": "smoothed permeability"}
        job = {name: file.attrs[name] for name in ("model", "version", "input_shape", "fields_per_request")}
    assert job == {"model": "blur", "version": 1, "input_shape": "330 x 16 x 12", "fields_per_request": 8}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.h5", "out.h5"]


def test_a_killed_job_resumes_to_the_same_bytes(gateway: Any, source: Path, tmp_path: Path) -> None:
    whole = score("blur", source, tmp_path / "whole.h5", [gateway.url]).path.read_bytes()
    script = [sys.executable, "-c", KILLED_HALF_WAY, "blur", source, tmp_path / "out.h5", gateway.url]
    assert subprocess.run(script, check=False).returncode == -9
    assert not (tmp_path / "out.h5").exists()
    command = [sys.executable, "-m", "petrov_client", "score", "blur", source, tmp_path / "out.h5", "--in-flight", "2"]
    environment = os.environ | {"PETROV_URL": gateway.url}
    done = subprocess.run(map(str, command), env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [earlier] = re.findall(r"\((\d+) computed earlier\)", done.stdout)
    assert 165 < int(earlier) < 330
    assert "330/330" in done.stderr
    assert (tmp_path / "out.h5").read_bytes() == whole
    assert not (tmp_path / "out.h5.partial").exists()


@pytest.mark.parametrize("group", [None, "test"])
def test_a_group_of_datasets_becomes_a_file_of_datasets(gateway: Any, tmp_path: Path, group: str | None) -> None:
    inputs = toy_fields.samples(20, (12, 9))
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for name, array in ({"truth": inputs["density"]} | inputs).items():
            file[f"{group or '/'}/{name}"] = array
        file["train/density"] = inputs["density"]
    arguments = ("drift", tmp_path / "in.h5", tmp_path / "out.h5", [gateway.url])
    done = score(*arguments, dataset=group)
    assert list(done.shapes.items()) == [("moved", (20, 12, 9)), ("flux", (20, 2, 12, 9))]
    with h5py.File(done.path) as file:
        for name, expected in toy_fields.compute(**inputs).items():
            np.testing.assert_allclose(file[name][...], expected, rtol=1e-5)
        assert file.attrs["input_shape"] == "density 20 x 12 x 9, velocity 20 x 2 x 12 x 9, time 20"
    assert score(*arguments, dataset=group).computed == 0


def test_a_parameter_is_part_of_the_job(gateway: Any, tmp_path: Path) -> None:
    inputs = toy_fields.samples(9, (12, 9)) | {"time": np.full(9, 0.5, np.float32)}
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["density"], file["velocity"] = inputs["density"], inputs["velocity"]
    arguments = ("drift", tmp_path / "in.h5", tmp_path / "out.h5", [gateway.url])
    done = score(*arguments, parameters={"time": 0.5})
    with h5py.File(done.path) as file:
        np.testing.assert_allclose(file["moved"][...], toy_fields.compute(**inputs)["moved"], rtol=1e-5)
    with pytest.raises(ValueError, match="belongs to another job: input_sha256"):
        score(*arguments, parameters={"time": 1.5})


def test_a_task_of_a_cluster_has_the_parameters_of_the_call(gateway: Gateway, tmp_path: Path) -> None:
    inputs = toy_fields.samples(3, (6, 9))
    np.savez(tmp_path / "in.npz", density=inputs["density"], velocity=inputs["velocity"])
    with Client(gateway.url) as client:
        info = client.model("drift")
    job = _score_on_ray.Job(
        info=info,
        source=str(tmp_path / "in.npz"),
        dataset=None,
        parameters={"time": 0.5},
        options=Options(),
        patience=1.0,
        urls=(gateway.url,),
        api_key="a secret",
        root_certificates=None,
        in_flight=1,
        folder=str(tmp_path),
    )
    assert "a secret" not in repr(job)
    _score_on_ray.compute(replace(job, api_key=None), [0])
    expected = toy_fields.compute(**inputs | {"time": np.full(3, 0.5, np.float32)})
    np.testing.assert_allclose(Records(tmp_path).read(0)["moved"], expected["moved"], rtol=1e-5)


def test_intervals_of_numbers_are_in_the_file(tmp_path: Path) -> None:
    drag = TensorInfo("drag", ("batch",), "N", "drag", scalar=True)
    info = ModelInfo("wing", 1, (1,), (), (drag,), 8, quality=("error_estimate.drag", "novelty"))
    arrays = {name: np.arange(3, dtype=np.float32) for name in ("drag", *info.quality)}
    with Kept(tmp_path / "out.h5", JOB) as kept:
        kept.add(0, arrays)
        shapes = write(kept, [slice(0, 3)], (*info.outputs, *columns(info)), JOB)
    assert shapes == dict.fromkeys(arrays, (3,))
    assert [*Scored(tmp_path / "out.h5", shapes, 3).quality] == ["error_estimate.drag", "novelty"]


def test_what_is_known_about_errors_is_in_the_file(gateway: Any, gauged: np.ndarray[Any, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", gauged)
    arguments = ("gauge", tmp_path / "in.npy", tmp_path / "out.h5", [gateway.url])
    done = score(*arguments)
    assert done.shapes == {"solution": (20, 8, 9)} | dict.fromkeys(toy_gauges.QUALITY, (20,))
    for name, values in toy_gauges.quality(gauged).items():
        np.testing.assert_allclose(done.quality[name], values, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="belongs to another job: outside: expected solve but found answer"):
        score(*arguments, outside="solve")


@contextmanager
def gateway_process(chosen: Settings) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a gateway that may be killed."""
    fields = json.loads(chosen.model_dump_json(exclude_defaults=True))
    environment = os.environ | {f"PETROV_{name.upper()}": str(value) for name, value in fields.items()}
    command = [sys.executable, "-m", "serving", "gateway", "--triton", chosen.triton_address]
    url = f"http://{chosen.host}:{chosen.port}"
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            wait_until(lambda: ready(url))
            yield process, url
        finally:
            process.kill()


def computed(url: str) -> int:
    """Return the number of fields that a gateway has computed so far."""
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("petrov_fields_total{"))


def test_a_killed_gateways_share_goes_to_the_other(
    gateway: Any, free_ports: Any, blur: Any, source: Path, tmp_path: Path
) -> None:
    port, grpc_port = free_ports(2)
    shares: list[int] = []
    with gateway_process(gateway.settings.model_copy(update={"port": port, "grpc_port": grpc_port})) as (process, url):

        def kill(done: int, _: int) -> None:
            if not shares and done > 100 and (share := computed(url) - warm):  # on a busy machine it begins late
                shares.append(share)
                process.kill()
                process.wait()

        with Client(
            url
        ) as client:  # its first prediction is slow: the other gateway would compute everything meanwhile
            client.predict("blur", np.ones((16, 12)))
        warm = computed(url)
        done = score("blur", source, tmp_path / "out.h5", [url, gateway.url], progress=kill)
    assert done.computed == 330
    assert 0 < shares[0] < 330
    np.testing.assert_allclose(fields(done.path), blur(fields(source)), rtol=1e-5)


def test_a_gateway_that_is_missing_is_skipped(gateway: Any, closed_port: str, source: Path, tmp_path: Path) -> None:
    assert score("blur", source, tmp_path / "out.h5", [f"http://{closed_port}", gateway.url]).computed == 330
    with pytest.raises(ConnectionFailed):
        score("blur", source, tmp_path / "other.h5", [f"http://{closed_port}"])


def test_memory_holds_a_few_pieces(gateway: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.full((600, 64, 64), 3, np.float32))  # 9 MiB, and as many of outputs
    tracemalloc.start()
    score("blur", tmp_path / "in.npy", tmp_path / "out.h5", [gateway.url])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * MEBIBYTE  # of the client and of the gateway, which runs in a thread here


def test_a_job_that_is_stopped_at_once_leaves_nothing(gateway: Any, source: Path, tmp_path: Path) -> None:
    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score("blur", source, tmp_path / "out.h5", [gateway.url], progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["in.h5"]


def test_the_differences_of_jobs_are_named(gateway: Any, source: Path, tmp_path: Path) -> None:
    def broken(done: int, _: int) -> None:
        if done:
            raise OSError("out of paper")

    out = tmp_path / "out.h5"
    with pytest.raises(OSError, match="out of paper"):
        score("blur", source, out, [gateway.url], progress=broken)
    with pytest.raises(ValueError, match="model: expected blur_torchscript but found blur"):
        score("blur_torchscript", source, out, [gateway.url])
    other = fields(source)
    other[329, 0, 0] += 1
    np.save(tmp_path / "other.npy", other)
    with pytest.raises(
        ValueError, match=r"input_sha256: expected .* but found .*\. Repeat that job, or remove the file"
    ) as caught:
        score("blur", tmp_path / "other.npy", out, [gateway.url])
    assert "version" not in str(caught.value)
    assert score("blur", source, out, [gateway.url]).computed < 330
    assert score("blur", source, out, [gateway.url]).computed == 0
    with pytest.raises(ValueError, match="input_sha256"):
        score("blur", tmp_path / "other.npy", out, [gateway.url])


def test_one_process_at_a_time(gateway: Any, source: Path, tmp_path: Path) -> None:
    with (
        Kept(tmp_path / "out.h5", JOB),
        pytest.raises(ValueError, match="another process has opened"),
    ):
        score("blur", source, tmp_path / "out.h5", [gateway.url])


def test_what_is_no_batch_is_refused(gateway: Any, source: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((9, 9)))
    with pytest.raises(InvalidInput, match="one field"):
        score("blur", tmp_path / "one.npy", tmp_path / "out.h5", [gateway.url])
    with pytest.raises(ValueError, match=r'expected a dataset or group "nothing" in .* but found "coefficient"'):
        score("blur", source, tmp_path / "out.h5", [gateway.url], dataset="nothing")
    with pytest.raises(ValueError, match=r"ends in \.zarr or \.hdf5 or \.h5"):
        score("blur", source, tmp_path / "out.npy", [gateway.url])
    with pytest.raises(ValueError, match="expected gateways"):
        score("blur", source, tmp_path / "out.h5", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.h5", "one.npy"]


@dataclass(frozen=True)
class Scripted:
    """A service with fixed replies, and a job of two fields."""

    service: Any
    folder: Path

    def run(self, **options: Any) -> Scored:
        np.save(self.folder / "in.npy", np.ones((2, 3, 4)))
        address = f"http://{self.service.address}"
        return score("toy", self.folder / "in.npy", self.folder / "out.h5", [address], in_flight=1, **options)


@pytest.fixture
def scripted(http_service: Any, description: Callable[..., Any], tmp_path: Path) -> Scripted:
    http_service.replies = {
        "/v1/models/toy": [description()],
        "/v1/models/toy/versions/2/predict": [(200, NPY, encode(np.full((2, 3, 4), 5, np.float32)))],
    }
    return Scripted(http_service, tmp_path)


def test_temporary_faults_are_repeated(scripted: Scripted) -> None:
    predict = scripted.service.replies["/v1/models/toy/versions/2/predict"]
    predict[:0] = [(503, {"Retry-After": "0"}, b""), (429, {"Retry-After": "0"}, b""), (504, {}, b"")]
    assert scripted.run(api_key="k").shapes == {"solution": (2, 3, 4)}
    assert (fields(scripted.folder / "out.h5") == 5).all()
    assert {headers["authorization"] for _, _, headers in scripted.service.seen} == {"Bearer k"}


HOUR = {"Retry-After": "3600"}


@pytest.mark.parametrize(
    ("reply", "fault"),
    [((503, {}, b""), Unavailable), ((429, {}, b""), RateLimited), ((503, HOUR, b""), Unavailable)],
)
def test_a_lasting_fault_ends_the_job(scripted: Scripted, reply: Any, fault: type[Exception]) -> None:
    scripted.service.replies["/v1/models/toy/versions/2/predict"] = [reply]
    with pytest.raises(fault):
        scripted.run(patience=0.05)
    assert [path.name for path in scripted.folder.iterdir()] == ["in.npy"]


def test_other_weights_with_the_same_version_are_detected(scripted: Scripted) -> None:
    status, headers, body = scripted.service.replies["/v1/models/toy"][0]

    def described(checksum: str) -> tuple[int, dict[str, str], bytes]:
        certificate = {"artefact": {"sha256": checksum}}
        return status, headers, json.dumps(json.loads(body) | {"certificate": certificate}).encode()

    scripted.service.replies["/v1/models/toy"] = [described("a"), described("a"), described("b")]
    scripted.service.replies["/v1/models/toy/versions/2/predict"].insert(0, (503, {"Retry-After": "0"}, b""))
    with pytest.raises(ValueError, match=r"another version 2 .* expected artefact a but found b"):
        scripted.run()


def test_the_file_is_still_claimed_when_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, seen = Path.replace, list[Path]()

    def observed(path: Path, target: Path) -> Path:
        if target == tmp_path / "out.h5":
            seen.append(path)
            with pytest.raises(ValueError, match="another process has opened"):
                Kept(tmp_path / "out.h5", JOB)
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", observed)
    with Kept(tmp_path / "out.h5", JOB) as kept:
        kept.add(0, {"solution": np.ones((2, 3), np.float32)})
        write(kept, [slice(0, 2)], OUTPUTS[:1], JOB)
    assert len(seen) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5"]


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(6)), breaks=st.sets(st.integers(0, 5)))
def test_any_order_and_any_breaks_leave_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], breaks: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("partial")
    straight, broken = folder / "straight.h5", folder / "broken.h5"
    written(straight, [list(range(6))])
    parts = np.split(np.array(order), sorted(breaks))
    written(broken, [part.tolist() for part in parts])
    assert broken.read_bytes() == straight.read_bytes()


def written(path: Path, sessions: list[list[int]]) -> None:
    """Write six pieces of a batch of eleven in several sessions; the last one finishes."""
    outputs = {"solution": np.arange(33, dtype=np.float32).reshape(11, 3), "energy": np.arange(11, dtype=np.float32)}
    pieces = [slice(start, min(start + 2, 11)) for start in range(0, 11, 2)]
    before: set[int] = set()
    for numbers in sessions:
        with Kept(path, JOB) as kept:
            assert kept.done == before
            for number in numbers:
                kept.add(number, {name: array[pieces[number]] for name, array in outputs.items()})
            before |= set(numbers)
            if len(before) == len(pieces):
                write(kept, pieces, OUTPUTS, JOB)
    with h5py.File(path) as file:
        assert {name: dataset[...].tolist() for name, dataset in file.items()} == {
            name: array.tolist() for name, array in outputs.items()
        }


@settings(max_examples=20, deadline=None)
@given(kept=st.floats(0, 1))
def test_a_piece_that_was_cut_short_is_computed_again(tmp_path_factory: pytest.TempPathFactory, kept: float) -> None:
    folder = tmp_path_factory.mktemp("partial")
    with Kept(folder / "out.h5", JOB) as found:
        for number in range(2):
            found.add(number, {"solution": np.ones((2, 3), np.float32)})
    left = folder / "out.h5.partial" / "0.safetensors"
    os.truncate(left, int(kept * (left.stat().st_size - 1)))
    with Kept(folder / "out.h5", JOB) as found:
        assert (found.done, found.damaged) == ({1}, {0})
