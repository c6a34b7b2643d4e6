"""The harness: sides in other processes, the order of interleaved calls, and rows that a later run continues."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pytest

from benchmarks import harness
from benchmarks.harness import REQUIREMENTS, BaselineError, ResultFile, Worker, interleave, mean, timed
from benchmarks.own_data import facts_of

TOY = "tests.benchmarks.toy_subject:Toy"


def test_a_worker_computes_in_another_process_and_says_how_long() -> None:
    with Worker(TOY, factor=2.0) as worker:
        output, seconds = worker(np.arange(3.0), np.ones(3))
        assert np.array_equal(output, [[0, 2, 4], [2, 2, 2]])
        assert seconds > 0


def test_processor_seconds_of_a_command_are_those_of_its_process() -> None:
    before = harness.children_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    assert harness.children_seconds() > before
    training = {"epochs": 7, "seconds": 60.0, "fields": 100}
    assert facts_of(training, 33.33) == {"epochs": 7, "wall_seconds": 60.0, "command_seconds": 33.3}


def test_the_fault_of_a_subject_is_reported() -> None:
    with Worker(TOY, fault="raise") as worker, pytest.raises(BaselineError, match="ValueError: no such grid"):
        worker(np.ones(1))


def test_a_worker_that_exits_is_reported_with_its_last_output() -> None:
    with Worker(TOY, fault="die") as worker, pytest.raises(BaselineError, match=r"(?s)status 3: .*a last message"):
        worker(np.ones(1))


def test_every_side_meets_every_input_in_each_round_and_the_first_side_changes() -> None:
    order, clock = [], itertools.count(1)

    def side(name: str) -> harness.Side:
        def call(field: np.ndarray) -> tuple[np.ndarray, float]:
            order.append(name + str(int(field[0])))
            return field, float(next(clock))

        return call

    found = interleave({"a": side("a"), "b": side("b")}, [(np.array([n]),) for n in (1, 2)], rounds=2, warm=False)
    assert order == ["a1", "b1", "b2", "a2", "a1", "b1", "b2", "a2"]
    assert [each.tolist() for each in found["a"].outputs] == [[1], [2]]
    assert found["a"].times == [1, 4, 5, 8]
    assert found["a"].seconds == 4.5


def test_a_function_is_timed_by_the_processor() -> None:
    output, seconds = timed(lambda field: np.linalg.inv(field @ field.T + np.eye(400)))(np.ones((400, 400)))
    assert output.shape == (400, 400)
    assert seconds > 0


def test_a_single_error_has_no_standard_error() -> None:
    assert mean(np.array([2.0])) == (2.0, None)
    assert mean(np.array([1.0, 3.0])) == (2.0, pytest.approx(1.0))


def test_an_environment_is_created_once_per_set_of_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setattr(harness, "REQUIREMENTS", tmp_path)
    (tmp_path / "toy.txt").write_text("# nothing\n")
    python = harness.interpreter("toy")
    done = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path / "environments/toy")
    mark = tmp_path / "environments/toy/mark"
    mark.touch()
    harness.interpreter("toy")
    assert mark.exists()


def test_rows_are_kept_and_those_of_other_facts_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    kept = ResultFile(file, points=85)
    kept.add({"error": 0.1})
    assert ResultFile(file, points=85).rows == [{"error": 0.1}]
    with pytest.raises(ValueError, match="expected rows of"):
        ResultFile(file, points=141)


def test_rows_of_several_threads_are_all_kept(tmp_path: Path) -> None:
    kept = ResultFile(tmp_path / "rows.json")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: kept.add({"number": number}), range(200)))
    assert sorted(row["number"] for row in ResultFile(tmp_path / "rows.json").rows) == [*range(200)]


def test_a_quick_run_changes_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "docs")
    monkeypatch.setattr(harness, "QUICK_RESULTS", tmp_path / "quick")
    harness.write("toy", [{"a": 1}], quick=True, source=1)
    assert not (tmp_path / "docs").exists()
    harness.write("toy", [{"a": 2}], quick=False)
    assert harness.read("toy")["rows"] == [{"a": 2}]
    assert json.loads((tmp_path / "quick/toy.json").read_text())["run"] == "quick"


OTHERS = "import benchmarks.networks, benchmarks.points, benchmarks.trajectories, benchmarks.mesh_trajectories"
LITSERVE = (
    "from benchmarks import servers; from training.checkpoint import load_operator; load_operator(servers.CHECKPOINT)"
)


@pytest.mark.parametrize(
    ("environment", "program"),
    [
        ("own_data", f"{OTHERS}, physics.darcy"),
        ("neuralop", "import benchmarks.networks, benchmarks.worker"),
        ("exponax", "import benchmarks.solvers"),
        ("litserve", LITSERVE),
    ],
    ids=lambda each: each.split()[0],
)
def test_programs_need_the_packages_of_their_environment_alone(environment: str, program: str) -> None:
    pinned = (REQUIREMENTS / f"{environment}.txt").read_text().splitlines()
    installed = {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in pinned}
    ours = {"petrov", "petrov-client"}
    missing = [
        package
        for package, projects in packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", each).lower() for each in projects} & (installed | ours)
    ]
    without = f"import sys; sys.modules.update(dict.fromkeys({missing}))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", f"{without}; {program}"], check=True)
