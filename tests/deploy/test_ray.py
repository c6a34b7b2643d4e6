"""Work over the nodes of a Ray cluster, of which one is killed in the middle: nothing is lost, and little repeated.

The nodes are real ones of Ray, in processes. What is run is what a user runs, with RAY_ADDRESS in its environment.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import httpx2
import numpy as np
import pytest
import zarr

from petrov_client._score_on_ray import PIECES
from tests.conftest import wait_until
from training import checkpoint
from training.data.generate import Request, prepare
from training.data.pools import ThisProcess
from training.problems.problem import PROBLEMS

# Some processes import torch, one after the other, on a busy machine.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]
#: A head without processors, and two nodes with one each. A dead node is noticed after a second and a half.
NODES = """
import sys
from ray.cluster_utils import Cluster

small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
checks = {"initial_delay_ms": 500, "period_ms": 500, "timeout_ms": 1000, "failure_threshold": 3}
system = {"_system_config": {f"health_check_{name}": value for name, value in checks.items()}}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small, **system})
nodes = [cluster.add_node(num_cpus=1, **small) for _ in range(2)]
print(f"ready {cluster.address}", flush=True)
for _ in sys.stdin:
    cluster.remove_node(nodes.pop(0), allow_graceful=False)
    nodes.append(cluster.add_node(num_cpus=1, **small))
    print("ready", flush=True)
cluster.shutdown()
"""

#: Samples are drawn slowly, and each is written down when it is begun.
SAMPLES = """
import sys, time
from dataclasses import replace
from pathlib import Path
from training.data.generate import Request, prepare
from training.problems.problem import PROBLEMS

problem, (folder, begun) = PROBLEMS["darcy"], sys.argv[1:]

def sample(seed, mesh):
    with open(begun, "a") as file:
        file.write(f"{seed.spawn_key}\\n")
    time.sleep(0.3)
    return problem.sample(seed, mesh)

if __name__ == "__main__":
    prepare(Request(replace(problem, sampler=sample), 15, train=12, test=3, seed=4), Path(folder), progress=False)
"""

PROBLEM = """
name = "line"
[data]
files = ["line.npz"]
validation = 8
test = 4
[inputs.k]
[outputs.u]
[axes.x]
boundary = "periodic"
points = "left"
"""
#: A race whose steps are counted, so that it ends with the same weights on any machine.
RACE = """
import sys
import tomllib
from pathlib import Path
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.fit.presets import recipe
from training.fit.run import train
from training.problems.problem_file import ProblemFile
from training.recipe import Candidate, changed

if __name__ == "__main__":
    folder, run = map(Path, sys.argv[1:])
    problem = ProblemFile.model_validate(tomllib.loads((folder / "line.toml").read_text()))
    small = ["channels=4", "heads=1", "feedforward=4", "layers=0", "spectral=1"]
    counted = ["fit.epochs=8", "fit.seconds=1e9", "fit.batch=4"]
    samples = SampleFile(prepare(problem, folder, folder), problem)
    found = changed(recipe(samples, "tiny"), [*(f"operator.{each}" for each in small), *counted])
    race = tuple(Candidate(name=f"{detail} channels", operator={"detail": detail}) for detail in (4, 2, 3))
    train(found.model_copy(update={"race": race}), run, folder)
"""

#: New samples of a calibration, some of them with numbers that vary, with the errors of a network without training.
CALIBRATION = """
import sys
from pathlib import Path
import numpy as np
from training.fit.run import workload
from training.recipes import find, read

small = ["data.mesh=128", "data.grids=[64]", "data.train=16", "data.validation=4", "data.test=12"]

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    work = workload(read(find("burgers-laptop"), small), folder, progress=False)
    network = work.network()
    work.fit_normalisers(network)
    found = work.renewed(8).calibration_samples(network)
    parts = [each for part in (found.fitted, found.calibration, found.test) for each in part]
    tensors = [one for each in parts for one in (*each.inputs, each.errors)]
    np.savez(folder / "found.npz", *[one.numpy() for one in tensors])
"""


class Nodes:
    """A cluster of Ray, in processes of its own."""

    def __init__(self, folder: Path) -> None:
        self.variables = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
        self.variables |= {"RAY_AUTH_TOKEN": secrets.token_hex(32), "OMP_NUM_THREADS": "1"}
        self._log = (folder / "nodes.txt").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-c", NODES],
            env=os.environ | self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.variables["RAY_ADDRESS"] = self._ready()

    def _ready(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ready"):
                return line.removeprefix("ready").strip()
        pytest.fail(Path(self._log.name).read_text()[-3000:])

    def kill_one(self) -> None:
        """Kill a node, and start another one."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._ready()

    def close(self) -> None:
        self._process.communicate(timeout=60)
        self._log.close()

    @contextmanager
    def running(self, *command: Any) -> Iterator[Path]:
        """Run Python, whose work is that of the cluster, and wait for its end; yield its log."""
        whole, log = [sys.executable, *map(str, command)], Path(self._log.name).with_name("command.txt")
        with log.open("w") as errors:
            process = subprocess.Popen(whole, env=os.environ | self.variables, stderr=errors)
        try:
            yield log
            assert process.wait(timeout=300) == 0, log.read_text()[-3000:]
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    if find_spec("ray") is None and "CI" not in os.environ:
        pytest.skip("ray is not installed: pip install --group bulk -c constraints.txt")
    found = Nodes(tmp_path_factory.mktemp("ray"))
    yield found
    found.close()


def test_a_killed_node_loses_no_sample_and_repeats_only_those_in_flight(nodes: Nodes, tmp_path: Path) -> None:
    begun = tmp_path / "begun.txt"
    with nodes.running("-c", SAMPLES, tmp_path / "ray", begun):
        wait_until(lambda: begun.exists() and len(begun.read_text().splitlines()) >= 4)
        nodes.kill_one()
    assert len(begun.read_text().splitlines()) <= 15 + 2  # one was computed, and one may have been on its way
    local = prepare(Request(PROBLEMS["darcy"], 15, train=12, test=3, seed=4), tmp_path, ThisProcess(), progress=False)
    with h5py.File(local) as expected, h5py.File(tmp_path / "ray" / local.name) as found:
        names: list[str] = []
        expected.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert len(names) >= 4
        for name in names:
            assert np.array_equal(expected[name], found[name], equal_nan=True), name


@pytest.mark.deep
def test_a_killed_node_changes_nothing_about_a_race(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    k = np.random.default_rng(0).standard_normal((44, 12))
    np.savez(tmp_path / "line.npz", k=k, u=k + np.roll(k, 1, axis=1))
    (tmp_path / "line.toml").write_text(PROBLEM)
    with nodes.running("-c", RACE, tmp_path, tmp_path / "ray") as log:
        wait_until(lambda: "race, round 1" in log.read_text(), 240)
        nodes.kill_one()
        here(RACE, monkeypatch, tmp_path, tmp_path / "local")
    found, expected = (checkpoint.load(tmp_path / name) for name in ("ray", "local"))
    assert found.card.race["rounds"] == expected.card.race["rounds"]
    for one, other in zip(found.operator.parameters(), expected.operator.parameters(), strict=True):
        assert one.equal(other)


def here(program: str, monkeypatch: pytest.MonkeyPatch, *arguments: Path) -> None:
    """Run a program in this process, which has imported what it needs."""
    monkeypatch.setattr(sys, "argv", ["", *map(str, arguments)])
    exec(program, {"__name__": "__main__"})  # noqa: S102 - our own


@pytest.mark.deep
def test_a_calibration_by_a_cluster_is_that_of_one_process(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nodes.running("-c", CALIBRATION, tmp_path / "ray"):
        here(CALIBRATION, monkeypatch, tmp_path / "local")
    found, expected = (np.load(tmp_path / name / "found.npz") for name in ("ray", "local"))
    assert len(expected) > 10
    for name in expected:
        assert np.array_equal(found[name], expected[name]), name


def test_a_killed_node_loses_no_field_of_a_bulk_prediction(
    nodes: Nodes, gateway: Any, blur: Any, tmp_path: Path
) -> None:
    fields = np.random.default_rng(8).uniform(3, 12, (2048, 16, 12)).astype(np.float32)
    source, target = tmp_path / "in.zarr", tmp_path / "out.zarr"
    zarr.open_group(source, mode="w").create_array("coefficient", data=fields, chunks=(100, 16, 12))
    kept, before = tmp_path / "out.zarr.partial", requests(gateway)
    command = ("score", "blur", source, target, "--url", gateway.url, "--in-flight", 1, "--no-progress")
    with nodes.running("-m", "petrov_client", *command):
        wait_until(lambda: len(list(kept.glob("*.safetensors"))) > 40)
        nodes.kill_one()
    found = zarr.open_group(target, mode="r")
    np.testing.assert_allclose(found["solution"][...], blur(fields), rtol=1e-5)
    assert (found.attrs["model"], found["solution"].attrs["units"]) == ("blur", "1")
    # What the dead node had sent, and the description, which every task requests.
    assert requests(gateway) - before <= 2048 / 8 + 1 + 2048 / 8 / PIECES + 2
    assert not kept.exists()


def requests(gateway: Any) -> float:
    """Return how many requests for the model a gateway has finished."""
    lines = httpx2.get(f"{gateway.url}/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("petrov_request_duration_seconds_count{") and '"blur"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)
