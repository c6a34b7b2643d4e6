"""The programs that measure: their scores on small inputs, and what they train and compare."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from benchmarks import (
    compare,
    inversion,
    methods,
    networks,
    pictures,
    quality,
    rollouts,
    sizes,
    wire,
)
from benchmarks.harness import ResultFile
from physics import darcy, kuramoto_sivashinsky, navier_stokes
from physics.numerics.grid import axis, relative_l2
from physics.numerics.volumes import Linearised
from physics.posterior.sensors import Sensors, lattice
from serving.protocols.messages import ENVELOPE_BYTES
from tests import toy_points
from training import checkpoint, recipes
from training import recipe as config

DARCY = Path("checkpoints/darcy")
SHORT = ("data.train=40", "data.validation=10", "data.test=20", "fit.epochs=1", "fit.steps=2", "fit.batch=4")


def test_errors_and_times_are_those_of_the_method() -> None:
    fields = np.random.default_rng(0).random((3, 20)) + 1
    exact, rough = methods.rows("toy", "20", {"exact": lambda x: x, "large": lambda x: 1.1 * x}, fields, fields)
    assert (exact["error"], exact["fields"]) == (0.0, 3)
    assert rough["error"] == pytest.approx(0.1)
    assert rough["standard_error"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("points", methods.FINER)
def test_an_interface_between_the_points_is_reconstructed(points: int) -> None:
    """Half of 3 and half of 12, where the interface is a straight line: a finer grid knows where it is."""
    across = np.where(np.arange(421) < 213, 3.0, 12.0)[None].repeat(421, axis=0)  # between points of 85
    for fine in (across, across.T):
        truth, coarse = (darcy.restrict(each, 85) for each in (darcy.solve(fine), fine))
        solutions = darcy.solve(coarse), methods.reconstructed(coarse, points)
        plain, found = (float(relative_l2(each[None], truth[None])[0]) for each in solutions)
        assert found < 0.3 * plain


def test_a_constant_coefficient_has_no_interface() -> None:
    constant = np.full((85, 85), 6.0)
    plain = darcy.restrict(darcy.solve(np.full((421, 421), 6.0)), 85)
    assert relative_l2(methods.reconstructed(constant, 421)[None], plain[None]) < 1e-5


@pytest.mark.deep
def test_a_family_has_a_row_per_grid_and_no_bound_below_its_distance() -> None:
    operator = cast("Any", checkpoint.load_operator(DARCY).operator).double()
    field = darcy.restrict(quality.drawn("smooth log-normal", [1])[0][0], 29).astype(np.float32)
    exact, faces = darcy.solve(field.astype(float)), quality.means(quality.tensor(field))
    assert quality.distance(faces, exact.astype(np.float32)) < 1e-6
    assert quality.distance(faces, (1.01 * exact).astype(np.float32)) == pytest.approx(0.01, rel=1e-3)
    graphs = [quality.Graph.of(DARCY, name) for name in ("darcy", "darcy_refined")]

    def row(family: str) -> dict[str, Any]:
        return quality.row(family, 29, quality.drawn(family, [1, 2]), operator, graphs)

    found = row("3 / 12, as trained")
    assert (found["fields"], found["solved_by"]) == (2, {"network": 2, "refined": 0, "solver": 0})
    assert 1 <= found["closest"] <= found["loosest"] < 2
    assert found["covered"] in (0, 0.5, 1)
    for family, by in (("smooth log-normal", "refined"), ("contrast 10000", "solver")):
        found = row(family)
        assert found["solved_by"][by] == 2
        assert found["ratio"] == pytest.approx(1, abs=1e-3)
        assert found["closest"] >= 1
        assert found["covered"] is None


def test_an_inversion_is_scored_against_the_truth() -> None:
    case = inversion.Case(inversion.PRIORS[0], 1)
    values, deviation = case.measurements
    points = axis(inversion.POINTS)
    coarse = Sensors(lattice(8), points, points).observe(darcy.solve(case.truth)[None])[0]
    assert np.sqrt(np.square((values - coarse) / deviation).mean()) == pytest.approx(1.0, abs=0.3)
    row, summary = inversion.invert(case, inversion.CLASSICAL, Linearised, 0.003)
    far = np.linalg.norm(case.truth - np.median(case.truth)) / np.linalg.norm(case.truth)
    assert row["error"] < far / 2
    found = np.linalg.norm(summary["mean"] - case.truth) / np.linalg.norm(case.truth)
    assert row["error"] == pytest.approx(found, rel=1e-6)
    assert 0.7 < row["coverage"] < 1


@pytest.mark.parametrize("name", rollouts.SETTINGS)
def test_a_finer_setting_of_a_solver_has_a_smaller_error(name: str) -> None:
    rng, setting = np.random.default_rng(0), rollouts.SETTINGS[name]
    if name == "kuramoto_sivashinsky":
        start, numbers = kuramoto_sivashinsky.sample(rng, 2, frames=1, points=32)
        start = start[:, 0]
    else:
        start, numbers = navier_stokes.initial_vorticity(rng, 2, 32), np.full(2, 1e-2)
    truth = np.concatenate([start[:, None], setting.solve(start, 2, numbers, 0.1)], axis=1)
    coarse, fine = (
        rollouts.row(str(points), *rollouts.solved(setting, points, step, 2, start, numbers), truth)
        for points, step in ((16, 0.5), (24, 0.25))
    )
    assert fine["errors"][1] < coarse["errors"][1]
    assert coarse["milliseconds"] > 0


def test_a_solver_that_overflows_has_the_largest_error() -> None:
    truth = np.full((1, 2, 16), 1e6) * np.sin(2 * np.pi * np.arange(16) / 16)
    setting = rollouts.SETTINGS["kuramoto_sivashinsky"]
    frames = rollouts.solved(setting, 16, 1.0, 1, truth[:, 0], np.array([22.0]))
    assert rollouts.row("coarse", *frames, truth)["errors"] == [1000]


def test_a_row_has_the_standard_error_over_the_trajectories() -> None:
    truth = np.ones((2, 2, 4))
    found = rollouts.row("network", truth[:, 1:] * np.array([1.1, 1.3])[:, None, None], 0.02, truth)
    assert found["errors"] == [pytest.approx(0.2)]
    assert found["standard_errors"] == [pytest.approx(0.1)]
    assert found["milliseconds"] == 10


def test_fno_reads_the_trajectories_that_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first states, the frames after them, and the parameter; few of them, since the solver takes a minute."""
    name, made = "kuramoto_sivashinsky", rollouts.PROBLEMS["kuramoto_sivashinsky"]
    whole = made.require_trajectories()
    data = whole.file.data.model_copy(update={"validation": 1, "test": 2})
    few = replace(
        whole,
        file=whole.file.model_copy(update={"data": data}),
        draw=lambda seed: {key: each[:4] for key, each in whole.draw(seed).items()},
    )
    monkeypatch.setattr(rollouts, "PROBLEMS", {name: replace(made, trajectories=few)})
    asked = rollouts.fno_request(name, tmp_path, 60)
    rollouts.write_trajectories(name, tmp_path, Path(asked["file"]))
    samples, (states, length) = networks.trajectories(asked)
    truth, numbers = rollouts.trajectories(name, tmp_path, "test")
    assert np.array_equal(states.numpy(), truth)
    assert np.array_equal(length.numpy(), numbers)
    frames = states.shape[1] - 1
    assert len(samples.output) == len(samples.inputs[1]) == frames  # of the one that is trained on
    assert torch.equal(samples.inputs[0][1:], samples.output[:-1])


def test_an_unknown_type_is_refused_before_any_training(tmp_path: Path) -> None:
    plan = compare.Plan(recipes.find("listops-tiny"), SHORT, ("softmax", "kernel-none"))
    with pytest.raises(config.RecipeError, match=r"operator\.classifier\.attention"):
        next(compare.compare(plan, ResultFile(None), tmp_path, tmp_path))


def test_a_command_without_work_does_not_import_torch() -> None:
    code = "import sys, benchmarks.commands; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.deep
def test_foreign_inputs_are_continued_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, flows = ("as trained", "fronts"), ("as trained", "patches")
    monkeypatch.setattr(quality, "LINES", {each: quality.LINES[each] for each in lines})
    monkeypatch.setattr(quality, "FLOWS", {each: quality.FLOWS[each] for each in flows})
    monkeypatch.setattr(quality, "FRAMES", 1)
    usual, front, calm, patches = quality.foreign(DARCY.parent, quick=True)
    for row in (usual, calm):
        assert row["continued"] == 0
        assert row["response"] == row["network"]
    for row in (front, patches):
        assert row["continued"] == row["fields"]
        assert row["response"] == row["method"] < row["network"] / 100


def test_every_large_body_is_nearly_as_large_as_it_may_be() -> None:
    largest, of_json, of_grpc = 2**23, 2**22, 2**21
    for name, body in wire.bodies(largest, of_json, of_grpc).items():
        limit = (
            of_json if body.headers.get("Content-Type") == "application/json" else largest if body.headers else of_grpc
        )
        if "typed" in name:
            limit = ENVELOPE_BYTES
        few = "one field" in name  # for many samples, which no body shows
        assert few or limit / 2 < len(body.content) < limit + 4096, name


def test_time_and_memory_are_those_of_a_process_for_each_number_of_points(tmp_path: Path) -> None:
    graph = tmp_path / "cloud.onnx"
    graph.write_bytes(toy_points._graph(2))
    rows = [*sizes.measure(graph, (1_000, 400_000))]
    assert [row["points"] for row in rows] == [1_000, 400_000]
    assert rows[1]["megabytes"] > rows[0]["megabytes"] + 1  # 400,000 sums and products are 4 MB
    pictures.sizes(rows, tmp_path / "sizes.png")
    assert (tmp_path / "sizes.png").stat().st_size > 10_000
