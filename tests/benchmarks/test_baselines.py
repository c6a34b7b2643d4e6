"""The protocol between the benchmarks and the workers of their baselines, with a toy subject."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.baselines import environment
from benchmarks.baselines.interleaving import MEBIBYTE, Measured, Side, interleave
from benchmarks.baselines.process import Baseline, BaselineError
from benchmarks.baselines.published import DARCY
from benchmarks.baselines.worker import Worker
from training.recipes import recipe as config

TOY = "tests.benchmarks.toy_baseline:Toy"


def test_interleaved_sides_report_times_memory_and_outputs(tmp_path: Path) -> None:
    sides = [Side("heavy", TOY, arguments={"megabytes": 64}, keep_output=True), Side("light", TOY)]
    heavy, light = interleave(sides, 3, tmp_path)
    assert (heavy.name, heavy.facts, len(heavy.wall), len(light.processor)) == ("heavy", {"megabytes": 64}, 3, 3)
    assert 60 < heavy.memory < 100
    assert light.memory < 32
    assert (tmp_path / "0.npy").read_text() == "4"  # three rounds after one that is not counted
    assert not (tmp_path / "1.npy").exists()


def test_the_fault_of_a_subject_is_reported() -> None:
    with Baseline(TOY) as worker:
        worker.prepare(fault="raise")
        with pytest.raises(BaselineError, match="ValueError: no such grid"):
            worker.run(1)


def test_a_worker_that_exits_is_reported_with_its_last_output() -> None:
    with Baseline(TOY) as worker:
        worker.prepare(fault="die")
        with pytest.raises(BaselineError, match=r"ended with status 3 .*\na last message"):
            worker.run(1)


def test_a_malformed_request_is_an_error_reply() -> None:
    worker = Worker(dict)
    assert worker.reply("{").keys() == {"error"}
    assert worker.reply('{"do": "dance"}') == {"error": "KeyError: 'dance'"}


def test_ratios_are_those_of_the_medians_of_processor_time() -> None:
    slow = Measured("slow", (9.0, 9.0, 9.0), (4.0, 100.0, 3.0), 5 * MEBIBYTE, 2 * MEBIBYTE, {})
    fast = Measured("fast", (9.0, 9.0, 9.0), (2.0, 0.1, 2.0), 2 * MEBIBYTE, 2 * MEBIBYTE, {})
    assert fast.times(slow) == 2
    assert slow.memory == 3
    assert slow.document()["wall_seconds"] == 9


def test_an_environment_is_created_once_per_set_of_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setattr(environment, "REQUIREMENTS", tmp_path)
    pins, own = tmp_path / "toy.txt", tmp_path / "environments/toy"
    pins.write_text("# nothing\n")
    python = environment.interpreter("toy")
    done = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(own)
    mark = own / "mark"
    mark.touch()
    environment.interpreter("toy")
    assert mark.exists()


def test_the_published_sizes_are_the_recipes() -> None:
    operator = config.read_fields(config.find("darcy-paper")).operator.model_dump()
    sizes = tuple(operator[name][0] for name in ("grid", "down_middle", "tokens", "up_middle"))
    assert DARCY[141] == sizes
