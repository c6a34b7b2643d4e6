"""Numbers per sample as outputs, and as the only inputs: from the files to a trained checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from training import checkpoint
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.evaluation.measures import naive
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import recipe
from training.fit.run import train
from training.problems.problem_file import ProblemFile
from training.recipe import Recipe, changed
from training.report.collect import collect
from training.report.page import numbers, render

GRID: dict[str, Any] = {"row": {}, "column": {}}


def shapes(folder: Path) -> ProblemFile:
    """Return a problem of a field with its mean and deviation, also as one array in units far apart, and its double."""
    rng = np.random.default_rng(0)
    s = rng.random((60, 12, 12)) * rng.uniform(0.5, 2, (60, 1, 1))
    both = np.stack([1e6 * s.mean((1, 2)), 1e-6 * s.std((1, 2))], 1)
    np.savez(folder / "drag.npz", shape=s, drag=s.mean((1, 2)), both=both, twice=2 * s)
    outputs = {
        "drag": {"scalar": True, "units": "N"},
        "both": {"scalar": True, "components": ["mean", "deviation"]},
        "twice": {},
    }
    return problem("drag", inputs={"shape": {}}, outputs=outputs)


def waves(folder: Path) -> ProblemFile:
    """Return a problem of a field of three numbers, of which two come as one array, and of its integral."""
    rng = np.random.default_rng(0)
    a = rng.uniform([-1, 0, 0], [1, 3, 3], (60, 3))
    x, y = np.mgrid[0:1:12j, 0:1:16j]
    u = a[:, :1, None] * np.cos(a[:, 1:2, None] * x + a[:, 2:, None] * y)
    np.savez(
        folder / "waves.npz", size=a[:, 0], k=a[:, 1:], u=u, energy=np.square(u).mean((1, 2)), ends=u[:, 0, [0, -1]]
    )
    return problem(
        "waves",
        parameters={"size": {}, "k": {"components": ["x", "y"]}},
        outputs={
            "u": {},
            "energy": {"scalar": True, "units": "J"},
            "ends": {"scalar": True, "components": ["left", "right"], "units": "K"},
            "total": {"integral_of": "u", "factor": 2.0, "units": "N"},
        },
        data={"files": ["waves.npz"], "validation": 12},
    )


def clouds(folder: Path) -> ProblemFile:
    """Return a problem of points with a field, and its mean over the valid ones."""
    rng = np.random.default_rng(0)
    counts = rng.integers(30, 60, 40)
    xy, f = rng.random((40, 60, 2)), rng.random((40, 60)) + rng.random((40, 1))
    lift = np.array([f[sample, :count].mean() for sample, count in enumerate(counts)])
    np.savez(folder / "clouds.npz", xy=xy, f=f, n=counts, lift=lift, speed=rng.random((40, 2)))
    return problem(
        "clouds",
        axes=None,
        points={"coordinates": "xy", "counts": "n"},
        inputs={"f": {}},
        parameters={"speed": {"components": ["x", "y"]}},
        outputs={"lift": {"scalar": True}},
    )


def problem(name: str, **tables: Any) -> ProblemFile:
    document = {"name": name, "data": {"files": [f"{name}.npz"]}, "axes": GRID, **tables}
    return ProblemFile.model_validate({key: one for key, one in document.items() if one is not None})


def short(found: ProblemFile, folder: Path) -> Recipe:
    samples = SampleFile(prepare(found, folder, folder / "data"), found)
    return changed(recipe(samples, "tiny"), ["fit.epochs=4", "fit.seconds=1e9"])


@pytest.mark.parametrize("kind", [pytest.param(shapes, marks=pytest.mark.deep), waves, clouds])
def test_numbers_are_learned_and_measured_in_their_deviations(kind: Any, tmp_path: Path) -> None:
    found = kind(tmp_path)
    folder = train(short(found, tmp_path), tmp_path / "run", tmp_path / "data")
    made = checkpoint.load(folder)
    work = OperatorWorkload(made.recipe, tmp_path / "data")
    batch = work.batch(work.samples.split("test"))
    with torch.inference_mode():
        outputs = dict(zip(found.output_names, work.predictions(made.operator, batch), strict=True))
    for one, truth in zip(found.outputs, batch.outputs, strict=True):
        assert outputs[one.name].shape == truth.shape, one.name
    errors = work.measured(made.operator, [batch])["relative_l2"]
    without = work.errors(naive(work, batch), batch.outputs, batch.measure).numpy()
    assert errors.mean() < without.mean()
    assert made.card.errors[0]["relative_l2"] == pytest.approx(errors.mean(), rel=1e-3)
    report = collect(folder, tmp_path / "data")
    assert [one["output"] for one in numbers(report)["scalars"]] == [
        one.name for one in found.scalars for _ in one.components or ("",)
    ]
    assert [*made.card.scalars] == numbers(report)["scalars"]
    page = render(report)
    assert page.count("<h2>Numbers</h2>") == 1
    assert all(one.label in page for one in report.scalars)


def test_units_of_a_number_change_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    s = rng.random((40, 8, 8)).astype(np.float32)
    losses = []
    for factor in (1.0, 2.0**60):
        folder = tmp_path / str(factor)
        folder.mkdir()
        np.savez(folder / "drag.npz", shape=s, drag=factor * s.mean((1, 2)).astype(np.float64))
        found = problem("drag", inputs={"shape": {}}, outputs={"drag": {"scalar": True}})
        work = OperatorWorkload(short(found, folder), folder / "data")
        task = work.task()
        losses.append(work.loss(task.network, work.batch(range(8))).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert 0.1 < losses[0] < 10


def test_a_scalar_does_not_depend_on_padding_and_order(tmp_path: Path) -> None:
    found = clouds(tmp_path)
    work = OperatorWorkload(short(found, tmp_path), tmp_path / "data")
    network = work.task().network.eval()
    coordinates, f, counts, speed = work.batch(range(4)).inputs
    padded = [torch.cat([one, one.flip(1)], dim=1) for one in (coordinates, f)]
    order = torch.arange(counts.int().min().item() - 1, -1, -1)
    full = torch.full_like(counts, len(order))
    with torch.inference_mode():
        expected = network(coordinates, f, counts, speed)
        assert torch.allclose(network(*padded, counts, speed), expected, rtol=1e-5)
        first = network(coordinates, f, full, speed)
        assert torch.allclose(network(coordinates[:, order], f[:, order], full, speed), first, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"inputs": {"shape": {"scalar": True}}}, "inputs.shape.scalar: expected it of outputs"),
        ({"inputs": {}, "parameters": {}}, "inputs: expected at least one input or parameter"),
        ({"inputs": {}, "parameters": {"nu": {}}}, "expected a field among inputs and outputs"),
        ({"outputs": {"drag": {"scalar": True, "frame": 0}}}, "outputs.drag.frame: expected it of fields"),
        ({"symmetries": {"exact": ["negate"]}}, "negate: expected none with numbers per sample"),
        ({"parameters": {"nu": {"column": 0, "components": ["a"]}}}, "expected a column or components"),
        ({"inputs": {}, "parameters": {"grid": {}}, "outputs": {"u": {}}}, "expected another name than 'grid'"),
    ],
)
def test_what_no_problem_can_be_is_refused(change: dict[str, Any], expected: str) -> None:
    tables = {"inputs": {"shape": {}}, "outputs": {"drag": {"scalar": True}}} | change
    with pytest.raises(ValueError, match=expected):
        problem("drag", **tables)


def test_numbers_of_another_count_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "drag.npz", shape=np.ones((20, 8, 8)), drag=np.ones((20, 3)))
    for components, expected in ((), "one number per sample"), (("x", "y"), r"2 numbers per sample \(x, y\)"):
        table = {"scalar": True, "components": components}
        found = problem("drag", inputs={"shape": {}}, outputs={"drag": table})
        with pytest.raises(ValueError, match=rf"{expected}.* in 'drag' but found shape \(20, 3\)"):
            prepare(found, tmp_path, tmp_path / "data")
