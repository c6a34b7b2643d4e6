"""The networks that Petrov is compared with: their loop, their trainings, and what they learn."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from benchmarks import (
    compare,
    disturbed,
    loop,
    networks,
    own_data,
    rollouts,
    trajectories,
    transfer,
)
from benchmarks.commands import app
from benchmarks.harness import ResultFile
from benchmarks.loop import Samples, Settings
from benchmarks.networks import ChannelNetwork
from benchmarks.solvers import random_fields
from tests.benchmarks.test_programs import SHORT
from training import recipes
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.problems.problem_file import read_problem_file

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
def prepared(tmp_path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    k, wind = 10 ** rng.uniform(-2, 2, (40, 12, 16)), rng.random(40)
    np.savez(tmp_path / "heat.npz", k=k, wind=wind, temperature=np.log(k) + wind[:, None, None])
    file = tmp_path / "heat.toml"
    file.write_text(PROBLEM)
    problem = read_problem_file(file)
    return own_data.described(file, SampleFile(prepare(problem, tmp_path, tmp_path), problem))


def test_every_problem_file_can_be_read() -> None:
    names = {read_problem_file(own_data.PROBLEMS / f"{name}.toml").name for name in (*own_data.NAMES, "wind", "ks")}
    assert names == {*own_data.NAMES, "wind", "ks"} - {"darcy"} | {
        "darcy_cells"
    }  # a built-in problem's name is refused


# It is killed when it has learned for some seconds; how long it is slowed is all the same.
@pytest.mark.deep
@pytest.mark.parametrize(("way", "seconds"), [(disturbed.KILLED, 8.0), (disturbed.SLOWED, 0.4)])
def test_a_disturbed_training_ends_with_its_model(
    prepared: dict[str, Any], way: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(disturbed.__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    request = {"prepared": prepared, "way": way, "seconds": seconds, "seed": 0, "split": "test"}
    monkeypatch.setattr(disturbed, "fit_command", lambda *known: [*own_data.fit_command(*known), "--preset", "tiny"])
    found = disturbed.main(request)
    assert len(found["errors"]) == found["samples"] == 4
    assert 0 < found["error"] < 2


def test_random_fields_are_smooth_across_the_ends_of_periodic_axes_only() -> None:
    fields = random_fields(50, (32, 32), (False, True), 3, 4, np.random.default_rng(0))
    assert np.allclose(fields.std(axis=(1, 2)), 1)
    jump = np.abs(fields[:, :, 0] - fields[:, :, -1]).mean(), np.abs(fields[:, 0] - fields[:, -1]).mean()
    assert jump[0] < 2 * np.abs(np.diff(fields, axis=2)).mean() < jump[1]


def test_the_rate_rises_once_and_falls_once() -> None:
    rates = [loop.cycle(share) for share in np.linspace(0, 1, 101)]
    assert int(np.argmax(rates)) == 15
    assert (rates[0], rates[15], rates[-1]) == (1e-3, pytest.approx(1), 1e-3)


def test_every_epoch_holds_every_sample_once() -> None:
    batches = loop.order(10, 4, seed=0)
    for _ in range(2):
        assert sorted(torch.cat([next(batches) for _ in range(3)]).tolist()) == list(range(10))


def test_the_loop_lowers_the_error_within_its_time() -> None:
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    samples, network = Samples([x], 2 * x + 1), nn.Linear(8, 8)
    before = loop.measure(network, samples).mean()
    seconds, steps = loop.train(network, samples, Settings(learning_rate=0.05), seconds=0.5, seed=0)
    assert loop.measure(network, samples).mean() < 0.1 * before
    assert seconds >= 0.5
    assert steps > 10


@pytest.mark.deep
@pytest.mark.parametrize("axes", [1, pytest.param(2, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", ["factorised", "convnext"])
def test_networks_that_are_written_here_learn_a_derivative(name: str, axes: int) -> None:
    rng, sides = np.random.default_rng(0), (16, 24)[:axes]
    fields = random_fields(64, sides, (True,) * axes, 2, 4, rng)
    slope = np.roll(fields, -1, axis=-1) - np.roll(fields, 1, axis=-1)
    samples = Samples([torch.from_numpy(fields).float()], torch.from_numpy(slope).float())
    torch.manual_seed(0)
    network = networks.BASELINES[name](samples, **({"modes": 12} if name == "factorised" else {}))
    optimiser, before = torch.optim.AdamW(network.parameters(), lr=3e-3), loop.measure(network, samples).mean()
    for rows in itertools.islice(loop.order(64, 16, seed=0), 40):
        loop.step(network, optimiser, loop.errors(network, samples[rows]).mean())
    assert loop.measure(network, samples).mean() < 0.5 * before


def test_components_are_channels_and_count_alike_in_an_error() -> None:
    rng = torch.Generator().manual_seed(0)
    before = torch.randn((8, 6, 5, 2), generator=rng) * torch.tensor([1.0, 100.0])
    samples = loop.Samples([before, torch.arange(8.0)], before + torch.tensor([1.0, 3.0]), components=2)

    class Swaps(nn.Module):
        def forward(self, channels: torch.Tensor) -> torch.Tensor:
            assert channels.shape == (8, 5, 6, 5)
            return channels[:, [1, 0]]

    found = ChannelNetwork(Swaps(), samples)(*samples.inputs)
    mean, deviation = (each(before.flatten(0, 2)) for each in (lambda x: x.mean(0), lambda x: x.std(0)))
    expected = ((before - mean) / deviation).flip(-1) * deviation + mean + torch.tensor([1.0, 3.0])
    assert torch.allclose(found, expected, atol=1e-3)
    by_one = [loop.relative(found[..., each], samples.output[..., each], 1) for each in (0, 1)]
    assert torch.allclose(loop.relative(found, samples.output, 1, 2), torch.stack(by_one).mean(dim=0))


def test_networks_of_channels_see_logarithms_numbers_and_coordinates(prepared: dict[str, Any]) -> None:
    samples, _ = networks.fields({"prepared": prepared, "split": "test"})

    class Sees(nn.Module):
        def forward(self, channels: torch.Tensor) -> torch.Tensor:
            self.channels = channels
            return channels[:, :1]

    found = ChannelNetwork(Sees(), samples)
    output, channels = found(*samples.inputs), found.network.channels
    assert channels.shape == (32, 4, 12, 16)
    assert channels[:, :2].mean(dim=(0, 2, 3)).abs().max() < 1e-4
    assert torch.equal(channels[:, 1, 0, 0], channels[:, 1, 5, 7])
    assert torch.allclose(channels[0, 3, 2], (torch.arange(16) + 0.5) / 16)
    log = samples.inputs[0].log()
    expected = (log - log.mean()) / log.std() * samples.output.std() + samples.output.mean()
    assert torch.allclose(output, expected, atol=1e-4)


def test_all_but_petrov_are_tuned_on_validation_samples(prepared: dict[str, Any]) -> None:
    counts = {title: len(own_data.candidates(title, prepared | {"sides": [24, 32]})) for title in own_data.TITLES}
    others = {"FNO": 12, "factorised FNO": 6, "U-Net": 5, "ConvNeXt U-Net": 6}
    assert counts == others | {"Petrov": 1, "Petrov with AdamW": 1}
    rows = [
        {"training": own_data.training("heat", "FNO", {"n": n}, 9, 0, "validation"), "result": {"error": error}}
        for n, error in ((1, 0.2), (2, 0.1))
    ]
    assert own_data.best(rows, "heat", "FNO") == {"n": 2}
    assert own_data.best(rows, "heat", "Petrov") is None


def test_a_spectral_weight_is_a_matrix_per_wave_and_reads_as_before() -> None:
    weight = torch.randn(3, 4, 5, 2, dtype=torch.complex64)  # [input, output, *wave]
    kept = networks.WavesFirst(SimpleNamespace(shape=weight.shape, tensor=weight))
    assert kept.kept.shape == (10, 3, 8)
    part = (slice(None), slice(None), slice(1, 4), slice(None, 1))
    assert torch.equal(kept[part], weight[part])
    assert torch.equal(torch.view_as_real(weight[0, 1, 2, 1]), kept.kept[5, 0, 2:4])  # wave 2, 1 and output 1


def test_a_batch_is_moved_by_the_symmetries_that_are_named_here(
    prepared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(own_data.SYMMETRIES, "heat", ("flip_row",))
    samples, _ = networks.fields({"prepared": prepared, "split": "test"})
    moved = own_data.moved(prepared, seed=0)(samples)
    flipped = [torch.equal(new, old.flip(0)) for new, old in zip(moved.output, samples.output, strict=True)]
    assert 0 < sum(flipped) < len(flipped)
    for new, old, turned in zip(moved.inputs[0], samples.inputs[0], flipped, strict=True):
        assert torch.equal(new, old.flip(0) if turned else old)


def test_the_best_other_network_is_chosen_on_validation_samples() -> None:
    def row(title: str, n: int, error: float, split: str = "validation", problem: str = "heat") -> dict[str, Any]:
        return {"training": own_data.training(problem, title, {"n": n}, 9, 0, split), "result": {"error": error}}

    rows = [row("FNO", 1, 0.3), row("FNO", 2, 0.2), row("U-Net", 3, 0.25), row("Petrov", 4, 0.1)]
    rows += [row("U-Net", 3, 0.01, "test"), row("FNO", 2, 0.02, "test"), row("U-Net", 5, 0.01, problem="darcy")]
    assert own_data.best_other(rows, "heat") == ("FNO", {"n": 2})


@pytest.mark.deep
def test_a_training_runs_in_a_process_of_its_own_once(prepared: dict[str, Any], tmp_path: Path) -> None:
    settings = {"batch": 4, "learning_rate": 1e-3}
    candidate = {"network": "operator", "sizes": {"layers": 0}, "settings": settings}
    training = own_data.training("heat", "attention and spectral layers", candidate, 1, 0, "test") | {"samples": 16}
    file = tmp_path / "rows.json"
    [made] = own_data.complete([training], ResultFile(file), {"heat": prepared}, 1)
    assert made["result"]["samples"] == 4
    assert made["result"]["epochs"] == made["result"]["steps"] * candidate["settings"]["batch"] / 16
    assert made["result"]["seconds"] >= 1
    written = file.stat().st_mtime_ns
    assert [*own_data.complete([training], ResultFile(file), {"heat": prepared}, 1)] == [made]
    assert file.stat().st_mtime_ns == written


@pytest.mark.deep
def test_few_samples_are_learned_in_every_way_and_the_best_weights_are_kept(
    prepared: dict[str, Any], tmp_path: Path
) -> None:
    data = prepared | {"earlier": prepared, "coarse": prepared, "weights": str(tmp_path / "weights.safetensors")}
    settings, facts = {"batch": 1, "learning_rate": 2e-3}, {"seed": 0, "split": "test"}
    first = transfer.main(
        {"prepared": prepared, "settings": settings, "seconds": 1.0, "weights": data["weights"], **facts}
    )
    as_is = transfer.main({"way": transfer.AS_IS, "prepared": data, "seconds": 0.0, **facts})
    assert (as_is["error"], as_is["steps"]) == (first["error"], 0)
    for title in transfer.TITLES:
        [candidate, _] = transfer.candidates(title, 8, 1)
        found = transfer.main({"prepared": data, "seconds": 0.5, **candidate, **facts})
        assert found["samples"] == 4
        assert found["steps"] > 0
        assert found["seconds"] >= 0.5
        if title == transfer.EARLIER:
            assert found["error"] < 2 * first["error"]


def test_a_network_keeps_the_weights_of_the_least_error_on_samples_that_are_held_apart() -> None:
    class Grows(nn.Module):
        """Its error grows from step to step."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (1 - self.weight)

    training, held = (Samples([torch.ones(4, 8)], each * torch.ones(4, 8)) for each in (-5.0, 1.0))
    free, kept = Grows(), Grows()
    loop.train(free, training, Settings(batch=2), seconds=0.3, seed=0)
    loop.train(kept, training, Settings(batch=2), seconds=0.3, seed=0, held=held)
    assert float(free.weight.detach()) > 2 * float(kept.weight.detach()) > 0


@pytest.mark.parametrize("axes", [1, 2])
def test_smooth_fields_are_carried_to_a_coarser_grid_and_back(axes: int) -> None:
    x = 2 * np.pi * np.arange(24) / 24
    line = np.stack([np.sin(3 * x), np.cos(2 * x) + 1])
    fields = line if axes == 1 else line[:, :, None] * line[:, None]
    coarse = rollouts.carried(fields, 16, axes)
    np.testing.assert_allclose(rollouts.carried(coarse, 24, axes), fields, atol=1e-12)
    frames = np.stack([fields, 2 * fields], axis=1)
    np.testing.assert_allclose(rollouts.carried(frames, 16, axes)[:, 1], 2 * coarse, atol=1e-12)


def test_trajectories_in_the_layout_of_the_well_are_those_that_the_other_networks_read(tmp_path: Path) -> None:
    fields = np.random.default_rng(0).standard_normal((40, 3, 4, 6)).astype(np.float32)
    np.savez(tmp_path / "vorticity.npz", vorticity=fields)
    data = trajectories.prepared("vorticity", tmp_path)
    problem = read_problem_file(Path(data["problem"]))
    samples = SampleFile(prepare(problem, tmp_path, tmp_path), problem)
    asked = {"file": data["file"], "state": data["state"], "parameter": None, "held": [trajectories.HELD] * 2}
    for split in ("validation", "test"):
        training, [held] = networks.trajectories(asked | {"split": split})
        rows = samples.split(split)
        assert np.array_equal(held.numpy(), samples.file["vorticity"][rows.start : rows.stop])
    assert len(training) == 2 * len(samples.split("train"))


def test_a_rollout_that_overflows_has_the_largest_error() -> None:
    truth = torch.ones(2, 3, 4)
    frames = truth * torch.tensor([1.1, 1.0, torch.inf])[:, None]
    assert trajectories.figures(frames, truth)["errors"] == [pytest.approx(0.1, rel=1e-3), 0, loop.LOST]


@pytest.mark.parametrize("name", rollouts.SETTINGS)
def test_fno_is_trained_on_the_splits_of_the_problem_file(name: str, tmp_path: Path) -> None:
    asked = rollouts.fno_request(name, tmp_path, 60)
    assert asked["held"] == {"kuramoto_sivashinsky": [32, 32], "navier_stokes": [16, 24]}[name]


def test_the_comparison_trains_the_missing_rows_on_the_same_samples(tmp_path: Path) -> None:
    plan = compare.Plan(recipes.find("listops-tiny"), SHORT, ("softmax", "kernel-aoglu3"))
    assert {recipe.data.seed for recipe in plan.recipes().values()} == {1127802}
    file = tmp_path / "rows.json"
    kept = ResultFile(file, recipe=plan.recipe.stem, overrides=list(SHORT))
    known = {"attention": "softmax", "seed": 1127802, "metric": "accuracy", "score": 0.5, "parameters": 1}
    kept.add(known | {"step_milliseconds": 1.0, "peak_megabytes": 1.0})
    arguments = ["compare", "listops-tiny", "--attention", "softmax,kernel-aoglu3", "--json", str(file)]
    folders = ["--out", str(tmp_path / "runs"), "--data", str(tmp_path)]
    done = CliRunner().invoke(app, [*arguments, *folders, *(part for each in SHORT for part in ("--set", each))])
    assert done.exit_code == 0, done.output
    first, trained = ResultFile(file, recipe=plan.recipe.stem, overrides=list(SHORT)).rows
    assert first["score"] == 0.5
    assert (trained["attention"], trained["seed"], trained["metric"]) == ("kernel-aoglu3", 1127802, "accuracy")
    assert len(trained["curve"]) == 1
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["listops-tiny-kernel-aoglu3-1127802"]
