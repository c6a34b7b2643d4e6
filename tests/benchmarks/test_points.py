"""The baselines on points: padding and order change nothing, they learn, and the meshes are what is said."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
import torch

from benchmarks import points
from benchmarks.loop import Samples, errors, measure, step
from benchmarks.tables import TABLES

BOX = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
ATTENTION = (points.TRANSOLVER, points.LINEAR, points.GNOT)


def samples(count: int, most: int = 30, padding: float = 0.0) -> Samples:
    """Draw clouds of 20 to `most` points, one field, and outputs that follow from it and the coordinates."""
    torch.manual_seed(0)
    coordinates, field = torch.rand(count, most, 2) * BOX[:, 1], torch.rand(count, most)
    counts = torch.randint(20, most + 1, (count,)).float()
    inputs = [coordinates, counts, field]
    valid = points.weights(inputs)
    output = torch.stack([field + coordinates[..., 0], 1 + coordinates[..., 1]], dim=2) * valid
    padded = [torch.where(valid > 0, coordinates, padding), counts, torch.where(valid[..., 0] > 0, field, padding)]
    return Samples(padded, output)


def network(title: str, training: Samples) -> Any:
    torch.manual_seed(1)
    return points.network_of({"network": title, "sizes": {}}, training, BOX).eval()


@pytest.mark.parametrize("title", [*ATTENTION, points.LRSA])
def test_padding_and_order_change_nothing(title: str) -> None:
    known, other = samples(4), samples(4, padding=0.7)
    model = network(title, known)
    found = model(*known.inputs)
    torch.testing.assert_close(model(*other.inputs), found)
    order = torch.randperm(20)
    first = [known.inputs[0][:, :20], torch.full((4,), 20.0), known.inputs[2][:, :20]]
    mixed = [first[0][:, order], first[1], first[2][:, order]]
    torch.testing.assert_close(model(*mixed), model(*first)[:, order], atol=1e-5, rtol=1e-4)
    assert (found * (1 - points.weights(known.inputs)) == 0).all()


@pytest.mark.deep
@pytest.mark.parametrize(
    "title",
    [points.LINEAR, *(pytest.param(each, marks=pytest.mark.deep) for each in ATTENTION if each != points.LINEAR)],
)
def test_a_network_learns_what_follows_from_field_and_place(title: str) -> None:
    data = samples(32)
    model = network(title, data)
    before = float(measure(model, data).mean())
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        step(model, optimiser, errors(model, points.cropped(data[torch.randint(32, (8,))])).mean())
    assert float(measure(model, data).mean()) < before / 2


def test_the_nearest_sample_of_a_training_sample_is_itself() -> None:
    data = samples(6)
    pictured = replace(data, inputs=[*data.inputs, points.images(data, BOX, (8, 8))])
    assert float(errors(network(points.FLOOR, pictured), pictured).max()) == 0.0


def test_images_interpolate_linear_fields_exactly_inside() -> None:
    ends = torch.linspace(0, 1, 5)
    places = torch.cartesian_prod(ends, 2 * ends)[None]
    data = Samples([places, torch.tensor([25.0]), places[..., 0] + 3 * places[..., 1]], places)
    [[field, distance]] = points.images(data, BOX, (9, 9))
    x, y = torch.meshgrid(torch.linspace(0, 1, 9), torch.linspace(0, 2, 9), indexing="ij")
    torch.testing.assert_close(field, x + 3 * y)
    assert float(distance.max()) == pytest.approx(math.hypot(0.125, 0.25))


def test_balls_solve_poissons_equation(tmp_path: Path) -> None:
    points.balls(tmp_path, 2)
    first, second = (meshio.read(tmp_path / f"{number:04}.vtu") for number in range(2))
    assert len(first.points) != len(second.points)
    values = np.asarray(first.point_data["solution"])
    assert (values == 0).sum() >= 200  # the surface
    assert np.abs(values).max() > 0


def test_bodies_have_vectors_that_baselines_see_by_component(tmp_path: Path) -> None:
    points.flows(tmp_path, 1)
    body = meshio.read(tmp_path / "0000.vtu")
    normal = torch.from_numpy(np.asarray(body.point_data["normal"], np.float32))[None]
    lengths = normal.norm(dim=2)  # of means of unit vectors
    assert 0.5 < float(lengths.min()) <= float(lengths.max()) < 1 + 1e-6
    places = torch.from_numpy(np.asarray(body.points, np.float32))[None]
    pressure = torch.from_numpy(np.asarray(body.point_data["pressure"], np.float32))[None, :, None]
    data = points.componentwise(Samples([places, torch.tensor([float(places.shape[1])]), normal], pressure))
    assert [tuple(each.shape[2:]) for each in data.inputs] == [(3,), (), (), (), ()]
    torch.testing.assert_close(torch.stack(data.inputs[2:], dim=2), normal)
    box = torch.stack([places[0].amin(dim=0), places[0].amax(dim=0)], dim=1)
    for title in (*ATTENTION, points.LRSA):
        found = points.network_of({"network": title, "sizes": {}}, data, box)(*data.inputs)
        assert found.shape == pressure.shape


def test_the_ratio_of_errors_is_paired() -> None:
    def row(title: str, found: list[float], seed: int) -> dict[str, Any]:
        training = {"problem": "stars", "title": title, "seconds": 300.0, "split": "test", "seed": seed}
        training |= {"candidate": {}}
        facts = {"error": float(np.mean(found)), "standard_error": 0.1, "epochs": 3, "parameters": 5}
        return {"training": training, "result": facts | {"errors": found}}

    halves = [row("GNOT", [0.2, 2.0, 1.0], 0), row("Petrov", [0.1, 1.0, 0.5], 0)]
    other, ours = TABLES["points"].cells({"rows": halves})
    assert (other[5], ours[5]) == ("0.50 ± 0.00", "")
