"""A training on own data follows the processor time that it has used, whatever else the machine does."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from training.data.prepare import prepare
from training.fit.operator_workload import OperatorWorkload
from training.fit.run import finish, fit
from training.fit.run_folder import RunFolder, read_log
from training.fit.workload import Budget, Task
from training.operators.field import FieldConfig
from training.problems.problem_file import ProblemFile
from training.recipe import OF_PROBLEM_FILES, Fit, Recipe, changed

BATCHES = 4  # of an epoch
BUDGET = {"epochs": 100, "seconds": 10.0, "least": 5, "batch": 4, "learning_rate": 1e-2, "average": 0.5}


@pytest.fixture
def work(tmp_path: Path) -> OperatorWorkload:
    return workload(tmp_path)


def workload(tmp_path: Path, **data: object) -> OperatorWorkload:
    k = np.random.default_rng(0).standard_normal((20, 8))
    np.savez(tmp_path / "line.npz", k=k, u=k + 1)
    document = {"name": "line", "data": {"files": ["line.npz"], **data}, "inputs": {"k": {}}, "outputs": {"u": {}}}
    problem = ProblemFile.model_validate(document | {"axes": {"x": {}}})
    one: Any = {"input_components": (0,), "output_components": (0,)}
    scales: Any = {"input_scales": ("linear",), "output_scales": ("linear",)}
    sizes: Any = {"layers": 0, "detail": 4, "modes": 2, "spectral": 1}
    recipe = Recipe(
        model="line",
        preset="tiny",
        problem=problem,
        samples=prepare(problem, tmp_path, tmp_path).name,
        operator=FieldConfig(periodic=(False,), points=("cells",), working=(8,), **one, **scales, **sizes),
        fit=Fit(**OF_PROBLEM_FILES | BUDGET),
    )
    return OperatorWorkload(recipe, tmp_path)


def test_an_epoch_trains_on_two_samples_for_each_that_validates(tmp_path: Path) -> None:
    work = workload(tmp_path, validation=8)
    few = OperatorWorkload(changed(work.recipe, ["fit.share=0.4"]), tmp_path)
    assert (work.batch_sampler.steps, few.batch_sampler.steps) == (
        4,
        4,
    )  # 10 and 4 training samples, 16 of which are an epoch
    assert OperatorWorkload(changed(work.recipe, ["fit.share=0.4", "fit.least=3"]), tmp_path).batch_sampler.steps == 3


class Ticks:
    """A clock that advances by as much whenever it is read."""

    def __init__(self, second: float) -> None:
        self.second, self.now = second, 0.0

    def __call__(self) -> float:
        self.now += self.second
        return self.now


class Stepped(Task):
    """Its clock advances at each step, or is that of the processor; writes down the rates."""

    def __init__(self, work: OperatorWorkload, second: float | None = 1.0, last: int | None = None) -> None:
        network = work.network()
        work.fit_normalisers(network)
        super().__init__(network, work)
        if second is not None:
            self.budget.clock = Ticks(second)
        self.rates: list[float] = []
        self.last = last

    def on_train_batch_start(self, *arguments: Any) -> None:
        super().on_train_batch_start(*arguments)
        self.rates.append(self.optimizers().param_groups[0]["lr"])

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == self.last:
            raise KeyboardInterrupt


def trained(work: OperatorWorkload, folder: Path, task: Stepped, *, resume: bool = False) -> Stepped:
    folder.mkdir(exist_ok=True)
    run = RunFolder(folder)
    fit(task, work, run, run.open(work.recipe, resume=resume))
    return task


def test_a_training_ends_with_its_time_and_its_rate_follows_the_share(work: OperatorWorkload, tmp_path: Path) -> None:
    task = trained(work, tmp_path / "1", Stepped(work))
    assert len(task.rates) == 10  # a second each
    assert [float(row["share"]) for row in read_log(tmp_path / "1/metrics.csv")] == [0.4, 0.8, 1.0]
    faster = trained(work, tmp_path / "2", Stepped(work, second=0.5))
    assert len(faster.rates) == 20
    assert faster.rates[::2] == pytest.approx(task.rates, rel=1e-6)


def test_the_weights_that_are_kept_are_the_mean_ones_that_had_the_least_error(
    work: OperatorWorkload, tmp_path: Path
) -> None:
    """At a rate that does not fall the weights of a step are far from their mean, whose error is in the log."""
    changes = ["fit.seconds=40", "fit.learning_rate=0.1", "fit.div_factor=1", "fit.final_div_factor=1"]
    work.recipe = changed(work.recipe, changes)
    network = trained(work, tmp_path / "run", Stepped(work)).network.eval()
    [batch] = list(work.validation())
    with torch.inference_mode():
        found = float(work.scores(network, batch)[0]["relative_l2"])
    assert found == pytest.approx(min(float(row["relative_l2"]) for row in read_log(tmp_path / "run/metrics.csv")))


def test_a_slow_machine_makes_the_least_steps(work: OperatorWorkload, tmp_path: Path) -> None:
    task = trained(work, tmp_path / "run", Stepped(work, second=60.0))
    assert len(task.rates) == 5
    assert task.rates[-1] < task.rates[2]


def test_a_training_that_waits_for_the_processor_makes_its_steps(work: OperatorWorkload, tmp_path: Path) -> None:
    """It waits in every step, as on a busy machine; by the clock of the wall there was time for five steps."""
    work.recipe = changed(work.recipe, ["fit.seconds=0.5", "fit.least=1", "fit.epochs=100000"])

    class Waiting(Stepped):
        def on_train_batch_start(self, *arguments: Any) -> None:
            super().on_train_batch_start(*arguments)
            time.sleep(0.1)

    assert len(trained(work, tmp_path / "run", Waiting(work, second=None)).rates) > 5


def test_the_card_counts_the_epochs_that_the_time_allowed(work: OperatorWorkload, tmp_path: Path) -> None:
    task = trained(work, tmp_path / "run", Stepped(work))
    finish(work, task.network, RunFolder(tmp_path / "run"), {})
    assert json.loads((tmp_path / "run/card.json").read_text())["training"]["epochs"] == 3


def test_few_samples_end_with_the_epochs(work: OperatorWorkload, tmp_path: Path) -> None:
    work.recipe = changed(work.recipe, ["fit.epochs=3"])
    task = trained(work, tmp_path / "run", Stepped(work, second=1e-6))
    assert len(task.rates) == 3 * BATCHES
    assert task.budget.share == 1


def test_a_killed_training_continues_after_the_time_that_it_has_used(work: OperatorWorkload, tmp_path: Path) -> None:
    expected, folder = trained(work, tmp_path / "1", Stepped(work)), tmp_path / "2"
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trained(work, folder, Stepped(work, last=1))
    resumed = trained(work, folder, Stepped(work), resume=True)
    assert resumed.rates == expected.rates[BATCHES:]
    for one, other in zip(resumed.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one, other)
    assert trained(work, folder, Stepped(work), resume=True).rates == []  # it is complete


def test_the_share_never_falls() -> None:
    budget = Budget(steps=100, seconds=10.0, least=20, clock=iter([0.0, 0.0, 9.0, 30.0, 30.0]).__next__)
    budget.start()
    assert [budget.advance(step) for step in (1, 2, 10, 100)] == [0.01, 0.1, 0.5, 1.0]
