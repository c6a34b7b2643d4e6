"""The comparison on trajectories on meshes: its solvers, and a step of every network."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import j0, jn_zeros

from benchmarks import mesh_solvers as solvers
from benchmarks import mesh_trajectories as program
from benchmarks.loop import Settings
from benchmarks.loop import step as make_step
from benchmarks.mesh_networks import GridNetwork, Meshes
from benchmarks.tables import TABLES
from physics.stars import assembled, cool, mesh

SIZES: dict[str, dict[str, Any]] = {program.TRANSOLVER: {}, program.MESHGRAPHNET: {"width": 8, "steps": 2}}


def disc(rings: int) -> tuple[Any, Any, Any]:
    """Return the mesh of the unit disc."""
    points, triangles, radius = mesh(np.random.default_rng(0), (rings, rings))
    return points * (radius / np.maximum(np.linalg.norm(points, axis=1), 1e-9))[:, None], triangles, radius


def test_the_slowest_heat_of_a_disc_decays_as_that_of_bessel() -> None:
    points, triangles, radius = disc(10)
    [zero] = jn_zeros(0, 1)
    start, times = j0(zero * radius), np.array([0.1, 0.3])
    found = cool(points, triangles, start, radius > 1 - 1e-9, times)
    for heat, time in zip(found, times, strict=True):
        assert np.abs(heat - np.exp(-(zero**2) * time) * start).max() < 0.02 * np.exp(-(zero**2) * time)


def test_a_dye_turns_with_the_wind_of_a_disc_and_none_is_lost() -> None:
    points, triangles, radius = disc(12)
    start = np.exp(-((points[:, 0] - 0.4) ** 2 + points[:, 1] ** 2) / 0.08)
    step, turned = 0.05, np.pi / 3  # radians of a turn after ten frames: each node is then where another one was
    stream = -turned / 20 / step * radius**2  # whose curl is a rigid turn
    moved = solvers.drifted(points, triangles, stream, 0.03, start, step, 10)
    still = solvers.drifted(points, triangles, 0 * stream, 0.03, start, step, 10)
    _, M = assembled(points, triangles)
    assert np.ptp(M.sum(axis=0) @ moved.T) < 1e-10 * M.sum()
    c, s = np.cos(turned), np.sin(turned)
    back = points @ np.array([[c, -s], [s, c]])  # where every point was
    nearest = np.linalg.norm(back[:, None] - points, axis=2).argmin(axis=1)
    assert np.linalg.norm(moved[-1] - still[-1][nearest]) < 0.05 * np.linalg.norm(still[-1])
    assert np.linalg.norm(moved[-1] - still[-1]) > 0.5 * np.linalg.norm(still[-1])
    wind = solvers.at_nodes(points, triangles, stream)
    inner = radius < 0.9
    rigid = 2 * turned / 20 / step * np.stack([-points[:, 1], points[:, 0]], axis=1)
    assert np.linalg.norm((wind - rigid)[inner]) < 0.05 * np.linalg.norm(rigid[inner])


@pytest.mark.parametrize(("side", "most"), [(9, 1e-2), (17, 1e-3)])
def test_vortices_of_taylor_and_green_decay_as_they_should(side: int, most: float) -> None:
    ends = np.linspace(0, 1, side)
    points = np.stack(np.meshgrid(ends, ends, indexing="ij"), axis=2).reshape(-1, 2)
    triangles = solvers.Delaunay(points).simplices.astype(np.int64)
    viscosity, step = 0.02, 0.01

    def exact(places: Any, time: float) -> Any:
        x, y = np.pi * places
        fall = np.exp(-2 * np.pi**2 * viscosity * time)
        return fall * np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)])

    flow = solvers.Flow(points, triangles, viscosity, step)
    start = exact(flow.places, -step)  # the first of the steps ahead makes the flow at 0
    found = flow.run(start, lambda time: exact(flow.places, time), 10, 3)
    assert found.shape == (4, side**2, 2)
    for number, velocity in enumerate(found):
        truth = exact(points.T, step * (solvers.AHEAD + 10 * number)).T
        assert np.linalg.norm(velocity - truth) < most * np.linalg.norm(truth)


def test_flows_have_a_hole_and_keep_their_walls() -> None:
    rng = np.random.default_rng(4)
    points, triangles = solvers.with_hole(np.array([0.5, 0.45]), 0.15, rng)
    area = solvers.slopes(points, triangles)[1].sum()
    assert area == pytest.approx(1 - np.pi * 0.15**2, abs=5e-3)
    assert len(np.unique(triangles)) == len(points)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Meshes:
    folder = tmp_path_factory.mktemp("meshes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solvers, "RINGS", (3, 4))
        patch.setattr(solvers, "FRAMES", 4)
        return program.read(solvers.write("drift", folder, 6), "drift")


@pytest.mark.parametrize("title", SIZES)
def test_a_network_steps_and_learns(title: str, toy: Meshes) -> None:
    torch.manual_seed(0)
    step = program.built(title, SIZES[title], toy)
    known = replace(toy, known=step.network.of_meshes(toy))
    before, _ = program.measure(partial(program.rollout, step), known, 4)
    optimiser = Settings(learning_rate=1e-2).build_optimiser(step)
    for number in range(12):
        chosen, kind = torch.arange(number % 4, 24, 4), ("squares", "relative")[number % 2]
        make_step(step, optimiser, program.objective(step, known, chosen, kind, 1e-3))
    after, finite = program.measure(partial(program.rollout, step.eval()), known, 6)
    assert before.shape == after.shape == (6, 4)
    assert after.mean() < before.mean()
    assert finite == 6


@pytest.mark.parametrize("title", SIZES)
def test_padding_changes_nothing(title: str, toy: Meshes) -> None:
    torch.manual_seed(0)
    step = program.built(title, SIZES[title], toy).eval()
    known = replace(toy, known=step.network.of_meshes(toy))
    counts = toy.weight.sum(dim=1).long().flatten()
    assert len(counts.unique()) > 1
    least = int(counts.argmin())
    with torch.inference_mode():
        together, alone = step(known.states[:, 0], known), known[slice(least, least + 1)]
        apart = step(alone.states[:, 0], alone)
    torch.testing.assert_close(together[least, : counts[least]], apart[0], atol=1e-5, rtol=1e-4)
    assert not together[least, counts[least] :].any()


def test_a_grid_reads_linear_fields_exactly(toy: Meshes) -> None:
    network = GridNetwork.__new__(GridNetwork)
    torch.nn.Module.__init__(network)
    places = toy.coordinates[toy.weight[:, :, 0] > 0]
    network.side, network.low, network.high = 9, places.amin(dim=0), places.amax(dim=0)
    ends = torch.linspace(-1, 1, 9)
    network.places = torch.stack(torch.meshgrid(ends, ends, indexing="ij"))
    corners, shares, distance = network.of_meshes(toy)
    nodes = network.low + (network.places.flatten(1).T + 1) / 2 * (network.high - network.low)
    values = toy.coordinates.gather(1, corners.flatten(1)[:, :, None].expand(-1, -1, 2)).unflatten(1, corners.shape[1:])
    found = (values * shares[..., None]).sum(dim=2)
    inside = (shares > 1e-6).sum(dim=2) > 1
    assert inside.sum() > 50
    torch.testing.assert_close(found[inside], nodes.expand_as(found)[inside], atol=1e-5, rtol=0)
    nearest = (
        torch.cdist(nodes.expand_as(found), toy.coordinates).masked_fill(toy.weight.mT <= 0, torch.inf).amin(dim=2)
    )
    torch.testing.assert_close(distance, nearest)


def test_keeping_the_first_frame_is_measured_by_every_frame(toy: Meshes) -> None:
    errors, finite = program.measure(program.still, toy, 4)
    truth = toy.states[2]
    expected = (truth[3] - truth[0]).norm() / truth[3].norm()
    assert errors[2, 2] == pytest.approx(float(expected), rel=1e-5)
    assert finite == 6


def test_the_noise_is_chosen_at_the_rate_that_was_chosen_before() -> None:
    tried: list[dict[str, Any]] = []

    def trained(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
        tried.extend(candidates)
        wrong = [(each["settings"]["learning_rate"] != 3e-3) + (each["noise"] != 2e-2) for each in candidates]
        return [{"result": {"error": each}} for each in wrong]

    chosen = program.tuned(program.MESHGRAPHNET, trained)
    assert (chosen["settings"]["learning_rate"], chosen["noise"]) == (3e-3, 2e-2)
    assert len({str(each) for each in tried}) == 3  # of two rates and two levels
    assert program.tuned(program.PETROV, trained) == {"network": "petrov"}


def test_ratios_are_paired() -> None:
    def row(title: str, errors: list[float], seed: int, **facts: Any) -> dict[str, Any]:
        training: dict[str, Any] = {"problem": "heat", "title": title, "seconds": 150.0, "split": "test", "seed": seed}
        training["candidate"] = {"frames": 500}
        found = dict.fromkeys(("1", "10", "50"), errors)
        return {"training": training, "result": {"errors": found, "finite": 3, "samples": 3, **facts}}

    rows = [row(program.STILL, [0.2, 2.0, 1.0], 0), row("Petrov", [9.0, 9.0, 9.0], 0, parameters=7)]
    rows[1]["training"]["candidate"] = {"frames": 50}  # rolled out again below
    rows += [row("Petrov", [0.1, 1.0, 0.5], seed, parameters=7) for seed in (0, 1)]
    still, ours = TABLES["mesh-trajectories"].cells({"rows": rows})
    assert (still[2], still[7], still[9]) == ("", "0.50 ± 0.00", "3 of 3 for 500 frames")
    assert (ours[2], ours[6:9], ours[10]) == ("150", ("2", "", ""), "7")
