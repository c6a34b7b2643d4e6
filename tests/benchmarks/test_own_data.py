"""The comparison on own data: its loop, its networks' surroundings, and the trainings that a later run continues."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.own_data import data, tables
from benchmarks.own_data.chart import draw
from benchmarks.own_data.comparison import FNO, PETROV, TITLES, UNET, Plan, best, candidates, finals, tunings
from benchmarks.own_data.loop import Samples, Settings, cycle, measure, order, train
from benchmarks.own_data.networks.channels import ChannelNetwork, count
from benchmarks.own_data.samples import Prepared
from benchmarks.own_data.solvers.random_fields import random_fields
from benchmarks.own_data.trainings import Candidate, Result, Results, Row, Training, complete
from training.data.own_samples import OwnSamples
from training.data.own_samples import prepare as prepare_samples
from training.problems.own.problem_file import read_problem_file

PROBLEM = """
name = "heat"
[data]
files = ["heat.npz"]
[inputs.k]
positive = true
[parameters.wind]
[outputs.temperature]
[axes.row]
boundary = "wall"
[axes.column]
boundary = "periodic"
"""


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    rng = np.random.default_rng(0)
    k, wind = 10 ** rng.uniform(-2, 2, (40, 12, 16)), rng.random(40)
    np.savez(tmp_path / "heat.npz", k=k, wind=wind, temperature=np.log(k) + wind[:, None, None])
    (tmp_path / "heat.toml").write_text(PROBLEM)
    problem = read_problem_file(tmp_path / "heat.toml")
    samples = OwnSamples(prepare_samples(problem, tmp_path, tmp_path), problem)
    return data.description(problem, samples, tmp_path / "heat.toml")


def row(title: str, error: float, *, split: str = "test", seed: int = 0, seconds: float = 9) -> Row:
    candidate = Candidate(network="fno", sizes={"modes": seed})
    training = Training(problem="heat", title=title, candidate=candidate, seconds=seconds, seed=seed, split=split)
    result = Result(error=error, standard_error=0.01, samples=7, parameters=1234, steps=50, epochs=5.0, seconds=9.1)
    return Row(training=training, result=result)


def test_every_problem_file_can_be_read() -> None:
    names = {read_problem_file(data.PROBLEMS / f"{name}.toml").name for name in data.NAMES}
    assert names == {*data.NAMES} - {"darcy"} | {"darcy_cells"}  # the name of a built-in problem is refused


def test_random_fields_are_smooth_across_the_ends_of_periodic_axes_only() -> None:
    fields = random_fields(50, (32, 32), (False, True), 3, 4, np.random.default_rng(0))
    assert np.allclose(fields.std(axis=(1, 2)), 1)
    jump = np.abs(fields[:, :, 0] - fields[:, :, -1]).mean(), np.abs(fields[:, 0] - fields[:, -1]).mean()
    inside = np.abs(np.diff(fields, axis=2)).mean()
    assert jump[0] < 2 * inside < jump[1]


def test_the_rate_rises_once_and_falls_once() -> None:
    rates = [cycle(share) for share in np.linspace(0, 1, 101)]
    assert int(np.argmax(rates)) == 15
    assert rates[15] == pytest.approx(1)
    assert rates[0] == rates[-1] == 1e-3


def test_every_epoch_holds_every_sample_once() -> None:
    batches = order(10, 4, seed=0)
    for _ in range(2):
        assert sorted(torch.cat([next(batches) for _ in range(3)]).tolist()) == list(range(10))


def test_the_loop_lowers_the_error_within_its_time() -> None:
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    samples, network = Samples([x], 2 * x + 1), nn.Linear(8, 8)
    before = measure(network, samples).mean()
    used = train(network, samples, Settings(learning_rate=0.05), seconds=0.5, seed=0)
    assert measure(network, samples).mean() < 0.1 * before
    assert used.seconds >= 0.5
    assert used.steps > 10


def test_networks_of_channels_see_logarithms_numbers_and_coordinates(prepared: Prepared) -> None:
    samples, _, _ = prepared.read()

    class Sees(nn.Module):
        def forward(self, channels: torch.Tensor) -> torch.Tensor:
            self.channels = channels
            return channels[:, :1]

    found = ChannelNetwork(Sees(), samples)
    output = found(*samples.inputs)
    channels = found.network.channels
    assert channels.shape == (32, count(samples), 12, 16)
    assert channels[:, :2].mean(dim=(0, 2, 3)).abs().max() < 1e-4
    assert torch.equal(channels[:, 1, 0, 0], channels[:, 1, 5, 7])
    assert torch.allclose(channels[0, 3, 2], (torch.arange(16) + 0.5) / 16)
    log = samples.inputs[0].log()
    assert torch.allclose(
        output, (log - log.mean()) / log.std() * samples.output.std() + samples.output.mean(), atol=1e-4
    )


def test_fno_and_unet_are_tuned_on_validation_samples_and_petrov_is_not(prepared: Prepared) -> None:
    document = asdict(prepared) | {"sides": (24, 32)}
    each = {title: tunings(Plan(), "heat", title, Prepared(**document)) for title in TITLES}
    assert {title for title, found in each.items() if found} == {FNO, UNET}
    assert {training.split for found in each.values() for training in found} == {"validation"}
    assert best([row(FNO, 0.2, seed=1), row(FNO, 0.1, seed=2)]).sizes == {"modes": 2}
    made = [*finals(Plan(seconds=(9, 3), seeds=2), {("heat", FNO): Candidate(network="fno")})]
    assert {training.split for training in made} == {"test"}
    assert [(training.seed, training.seconds) for training in made] == [(0, 9), (0, 3), (1, 9), (1, 3)]


def test_a_training_runs_in_a_process_of_its_own_once(prepared: Prepared, tmp_path: Path) -> None:
    [candidate] = candidates(PETROV, prepared)
    training = Training(problem="heat", title=PETROV, candidate=candidate, seconds=1, seed=0, split="test")
    file = tmp_path / "rows.json"
    [made] = complete([training], Results(file), {"heat": prepared})
    assert made.result.samples == 4
    assert made.result.seconds >= 1
    written = file.stat().st_mtime_ns
    assert [*complete([training], Results(file), {"heat": prepared})] == [made]
    assert file.stat().st_mtime_ns == written


def test_the_tables_show_losses_as_they_are(tmp_path: Path) -> None:
    rows = [row(FNO, 0.1, seed=0), row(FNO, 0.3, seed=1), row(PETROV, 0.25), row(FNO, 0.5, split="validation")]
    rows += [row(FNO, 0.9, seconds=3), row(PETROV, 0.8, seconds=3)]
    found = tables.tables(rows)
    assert [cells[:5] for cells in found["own-data"][1]] == [
        ("heat", FNO, "2.00e-01", "1.0e-02", "1.00"),
        ("heat", PETROV, "2.50e-01", "1.0e-02", "1.25"),
    ]
    assert found["own-data-tuning"][1] == [("heat", FNO, "modes 0", "5.00e-01", "1", "9")]
    assert tables.verdict(rows) == "at most FNO's error on 0 of 1 problems, at most 1.25 times it"
    draw(rows, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 1000
