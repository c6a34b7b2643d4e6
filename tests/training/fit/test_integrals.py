"""Numbers that are integrals of an output: what a problem file may say, their values in the data and in a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.fit.test_scalars import problem, short
from training import checkpoint
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.fit.operator_workload import OperatorWorkload
from training.fit.run import train
from training.problems.problem_file import ProblemFile
from training.recipe import changed

ROWS = {"row": {"length": 2.0, "points": "nodes"}, "column": {"length": 3.0, "boundary": "periodic"}}
CELLS = {"row": {"length": 2.0}, "column": {"length": 3.0, "points": "nodes"}}


def wing(folder: Path, samples: int = 40) -> ProblemFile:
    """Return a problem of a pressure and a velocity with integrals over the domain, ends, a region and a component."""
    rng = np.random.default_rng(0)
    x, y = np.mgrid[0:1:9j, 0:1:8j]
    a = rng.uniform(0.5, 2, (samples, 1, 1))
    where = (np.abs(x - rng.random((samples, 1, 1))) < 0.3).astype(float)
    p, u = a * (1 + x) * np.cos(y), np.stack([a * x, a + y * np.ones_like(a)], 1)
    np.savez(folder / "wing.npz", f=a * x * y, where=where, p=p, u=u)
    outputs: dict[str, Any] = {
        "drag": {"integral_of": "p", "over": ["where"], "factor": -2.0, "units": "N"},
        "total": {"integral_of": "p"},
        "flux": {"integral_of": "u", "components": ["x", "y"], "over": "row.end"},
        "through": {"integral_of": "u.y", "over": "boundary"},
        "p": {},
        "u": {"components": ["x", "y"]},
    }
    return problem("wing", axes=ROWS, inputs={"f": {}, "where": {}}, outputs=outputs)


def read(found: ProblemFile, folder: Path) -> dict[str, Any]:
    samples = SampleFile(prepare(found, folder, folder / "data"), found)
    return {name: samples.file[name][:] for name in found.stored}


def test_the_data_have_integrals_of_the_fields(tmp_path: Path) -> None:
    values = read(wing(tmp_path), tmp_path)
    p, u, where = values["p"], values["u"], values["where"]
    row = np.array([0.5, *[1] * 7, 0.5]) * 2 / 8
    assert values["total"] == pytest.approx(np.einsum("sij,i->s", p, row) * 3 / 8, rel=1e-5)
    assert values["drag"] == pytest.approx(-2 * np.einsum("sij,i->s", p * where, row) * 3 / 8, rel=1e-5)
    assert values["flux"] == pytest.approx(u[:, :, -1].sum(-1) * 3 / 8, rel=1e-5)
    assert values["through"] == pytest.approx((u[:, 1, 0] + u[:, 1, -1]).sum(-1) * 3 / 8, rel=1e-5)


def test_ends_of_cells_lie_half_a_cell_beyond_them(tmp_path: Path) -> None:
    x, y = np.mgrid[0.25:1.75:4j, 0:3:5j]
    a = np.random.default_rng(0).uniform(1, 2, (10, 1, 1))
    np.savez(tmp_path / "line.npz", f=a * np.ones_like(x), p=a * (3 * x + y))
    outputs = {
        "p": {},
        "end": {"integral_of": "p", "over": ["row.end"]},
        "start": {"integral_of": "p", "over": "row.start"},
    }
    values = read(problem("line", axes=CELLS, inputs={"f": {}}, outputs=outputs), tmp_path)
    assert values["end"] == pytest.approx(a[:, 0, 0] * (3 * 2.0 * 3 + 4.5), rel=1e-5)
    assert values["start"] == pytest.approx(a[:, 0, 0] * 4.5, rel=1e-5)


def test_a_network_returns_the_integrals_of_what_it_predicts_on_any_grid(tmp_path: Path) -> None:
    found = wing(tmp_path)
    work = OperatorWorkload(short(found, tmp_path), tmp_path / "data")
    network = work.task().network.eval()
    with torch.inference_mode():
        for sides in (9, 8), (13, 6):
            f, where = torch.rand(3, *sides), torch.rand(3, *sides)
            outputs = dict(zip(found.output_names, network(f, where), strict=True))
            np.savez(tmp_path / "wing.npz", f=f, where=where, p=outputs["p"], u=outputs["u"])
            again = found.model_copy(update={"data": found.data.model_copy(update={"validation": 1, "test": 1})})
            expected = read(again, tmp_path)
            for name, values in outputs.items():
                assert values.numpy() == pytest.approx(expected[name], rel=1e-4, abs=1e-5), name


def clouds(folder: Path) -> ProblemFile:
    """Return a problem of points with the force on a boundary, whose normals have the length of what they measure."""
    rng = np.random.default_rng(0)
    counts = rng.integers(30, 60, 40)
    xy, normal, area = rng.random((40, 60, 2)), rng.normal(size=(40, 60, 2)), rng.random((40, 60))
    p = rng.uniform(1, 2, (40, 1)) * xy[..., 0]
    np.savez(folder / "clouds.npz", xy=xy, area=area, normal=normal, n=counts, p=p)
    return problem(
        "clouds",
        axes=None,
        points={"coordinates": "xy", "counts": "n", "weights": "area"},
        inputs={"area": {}, "normal": {"components": ["x", "y"]}},
        outputs={
            "p": {},
            "lift": {"integral_of": "p", "over": "normal.y", "factor": -1.0},
            "mean": {"integral_of": "p"},
        },
    )


def test_on_points_an_input_says_what_every_point_measures(tmp_path: Path) -> None:
    found = clouds(tmp_path)
    values = read(found, tmp_path)
    valid = np.arange(60) < values["counts"][:, None]
    assert values["lift"] == pytest.approx(-(values["p"] * values["normal"][..., 1] * valid).sum(1), rel=1e-4, abs=1e-5)
    assert values["mean"] == pytest.approx((values["p"] * values["area"] * valid).sum(1), rel=1e-5)
    work = OperatorWorkload(short(found, tmp_path), tmp_path / "data")
    network, batch = work.task().network.eval(), work.batch(range(4))
    with torch.inference_mode():
        outputs = dict(zip(found.output_names, network(*batch.inputs), strict=True))
    _, area, normal, counts = batch.inputs
    inside = torch.arange(area.shape[1]) < counts[:, None]
    lift = -(outputs["p"] * normal[..., 1] * inside).sum(1)
    assert outputs["lift"].numpy() == pytest.approx(lift.numpy(), rel=1e-4, abs=1e-5)


def test_a_step_that_sees_some_points_has_the_integrals_of_the_exact_field(tmp_path: Path) -> None:
    found = clouds(tmp_path)
    work = OperatorWorkload(changed(short(found, tmp_path), ["fit.points=20"]), tmp_path / "data")
    batch = work.draw(np.arange(4), np.random.default_rng(0), 0.5)
    _, area, normal, _ = batch.inputs
    p = batch.outputs[0]
    assert p.shape == (4, 20)
    exact = [p, -(p * normal[..., 1]).sum(1), (p * area).sum(1)]
    shares = 20 / work.samples.read(work.rows[np.arange(4)])["counts"]
    lift, mean = (pair[:2] for pair in work.scalar_pairs(exact, batch))
    assert lift[0].numpy() == pytest.approx(lift[1].numpy(), abs=1e-5)
    assert mean[0].numpy() == pytest.approx(mean[1].numpy(), rel=1e-5)
    assert mean[1].numpy() == pytest.approx((p * area).sum(1).numpy() / shares, rel=1e-5)


def test_an_integral_of_a_masked_field_is_one_over_the_domain(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    u = rng.uniform(1, 2, (20, 8, 8))
    u[:, :3, :3] = np.nan
    np.savez(tmp_path / "holes.npz", f=rng.random((20, 8, 8)), u=u)
    found = problem("holes", inputs={"f": {}}, outputs={"u": {}, "heat": {"integral_of": "u"}}, mask={"nan": "u"})
    assert read(found, tmp_path)["heat"] == pytest.approx(np.nansum(u, (1, 2)) / 64, rel=1e-5)


def test_a_number_of_the_file_that_is_another_integral_is_remarked(tmp_path: Path) -> None:
    own = read(wing(tmp_path), tmp_path)["total"]
    arrays = dict(np.load(tmp_path / "wing.npz"))
    for factor, remarks in (1.0, 0), (1.5, 1):
        np.savez(tmp_path / "wing.npz", **arrays, measured=factor * own)
        found = problem(
            "wing", axes=ROWS, inputs={"f": {}}, outputs={"p": {}, "total": {"integral_of": "p", "key": "measured"}}
        )
        assert read(found, tmp_path)["total"] == pytest.approx(factor * own)
        samples = SampleFile(prepare(found, tmp_path, tmp_path / "data"), found)
        said = samples.file.attrs["remarks"]
        assert said.count("total of the files is not the integral of p over domain") == remarks, said


def test_trained_and_exported_it_is_the_integral_of_the_field(tmp_path: Path) -> None:
    found = wing(tmp_path)
    folder = train(short(found, tmp_path), tmp_path / "run", tmp_path / "data")
    made = checkpoint.load(folder)
    assert [one["output"] for one in made.card.scalars] == ["drag", "total", "flux", "flux", "through"]
    assert made.description["drag"].meaning == "drag, the integral of p over where, times -2"
    assert made.description["total"].meaning == "total, the integral of p over domain"


@pytest.mark.parametrize(
    ("drag", "more", "expected"),
    [
        ({"integral_of": "q"}, {}, r"outputs.drag.integral_of: expected an output that is a field \(p\) but got 'q'"),
        ({"integral_of": "p.x"}, {}, "expected a component of p"),
        ({"integral_of": "p", "over": "hull"}, {}, "one of domain, boundary, row.start, row.end, column.start"),
        ({"integral_of": "p", "components": ["x"]}, {}, "outputs.drag: expected no components, as p has"),
        ({"scalar": True, "factor": 2.0}, {}, "outputs.drag: expected over and factor with integral_of only"),
        ({"integral_of": "p"}, {"outputs": {"p": {"offset": 3.0}}}, "expected no offset of p"),
        (
            {"integral_of": "p", "over": "boundary"},
            {"inputs": {"boundary": {}}},
            "'boundary' is the grid's",
        ),
        ({"integral_of": "p", "over": "row.end"}, {"symmetries": {"exact": ["flip_row"]}}, "expected no symmetries"),
        (
            {"integral_of": "p", "over": "row.end"},
            {"mask": {"key": "m"}},
            "expected the domain or inputs",
        ),
        ({"integral_of": "p"}, {"axes": None, "points": {"coordinates": "xy"}}, "says what every point measures"),
        ({"integral_of": "p", "over": ["row.end", "row.end"]}, {}, "expected every part once but got row.end, row.end"),
        ({"integral_of": "p", "over": ["boundary", "row.end"]}, {}, "expected every part once"),
        ({"integral_of": "p", "over": ["f", "f"]}, {}, "expected every part once"),
        (
            {"integral_of": "p", "over": ["domain", "row.end"]},
            {},
            "expected the domain or ends of it but got domain, row.end",
        ),
        ({"integral_of": "p", "over": []}, {}, "expected what it is taken over"),
        (
            {"integral_of": "p", "over": ["domain", "area"]},
            {"axes": None, "points": {"coordinates": "xy", "weights": "area"}, "inputs": {"area": {}}},
            "expected every part once but got domain, area",
        ),
    ],
)
def test_what_no_integral_can_be_is_refused(drag: dict[str, Any], more: dict[str, Any], expected: str) -> None:
    tables = {"inputs": {"f": {}}} | more
    tables["outputs"] = {"p": {}} | tables.get("outputs", {}) | {"drag": drag}
    with pytest.raises(ValueError, match=expected):
        problem("drag", **tables)
