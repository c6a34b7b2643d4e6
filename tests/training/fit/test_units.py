"""The unit of a field decides nothing: losses, errors, statistics and reports of values near 1e20 are those near 1."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import zarr
from scipy.io import savemat
from typer.testing import CliRunner

from training.calibration.statistics import InputStatistics
from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.evaluation.measures import Measures
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import recipe
from training.losses import LOSSES, Batch, training_loss
from training.problems.problem_file import ProblemFile, read_problem_file
from training.problems.sections import DataError
from training.recipe import Fit
from training.report.verdict import baselines

SCALES = (1e20, 1e-21, 1e30, 1e-30)
LINE: dict[str, Any] = {
    "name": "dipoles",
    "data": {"files": ["dipoles.npz"]},
    "inputs": {"q": {}},
    "outputs": {"p": {}},
    "axes": {"x": {}},
}


def waves(*shape: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    x = np.linspace(0, 2 * np.pi, shape[-1], endpoint=False)
    lead = (*shape[:-1], 1)
    return np.asarray(sum(rng.standard_normal(lead) * np.sin(k * x + rng.uniform(0, 6, lead)) for k in (1, 2, 3)))


def work(folder: Path, **changes: object) -> OperatorWorkload:
    problem = ProblemFile.model_validate(LINE | changes)
    samples = SampleFile(prepare(problem, folder, folder / "data"), problem)
    return OperatorWorkload(recipe(samples, "tiny"), folder / "data", progress=False)


def figures(found: OperatorWorkload) -> dict[str, Any]:
    """Return what a training and its report compute, with the weights that a network begins with."""
    network = found.network()
    found.fit_normalisers(network)
    network.eval()
    batch = found.batch(found.rows[:8])
    loss = found.loss(network, batch)
    loss.backward()
    slopes = [each.grad.norm() for each in network.parameters() if each.grad is not None]
    batches = list(found.batches("test"))
    return {
        "loss": loss.item(),
        "slope": torch.stack(slopes).norm().item(),
        "score": found.measured(network, [batch])["relative_l2"].mean(),
        **found.measured(network, batches),
        **baselines(found),
    }


@pytest.mark.parametrize("scale", SCALES)
def test_fields_of_any_unit_are_learned_and_measured_alike(scale: float, tmp_path: Path) -> None:
    values = waves(40, 64)
    found = []
    for factor in (1.0, scale):
        np.savez(tmp_path / "dipoles.npz", q=factor * values, p=2 * factor * values)
        found.append(figures(work(tmp_path)))
    for name, expected in found[0].items():
        np.testing.assert_allclose(found[1][name], expected, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("scale", SCALES[:2])
def test_trajectories_of_any_unit_are_measured_alike(scale: float, tmp_path: Path) -> None:
    values, found = waves(24, 6, 32), []
    moving = {"time": {"step": 0.1}, "inputs": {"initial": {"key": "p"}}}
    for factor in (1.0, scale):
        np.savez(tmp_path / "dipoles.npz", p=factor * values)
        made = work(tmp_path, **moving)
        network = made.network()
        made.fit_normalisers(network)
        found.append(Measures.of(made, network.eval(), "test"))
    np.testing.assert_allclose(found[1].persistence, found[0].persistence, rtol=1e-3)
    for name, expected in found[0].errors.items():
        np.testing.assert_allclose(found[1].errors[name], expected, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("scale", SCALES)
def test_a_loss_and_its_gradient_depend_on_no_unit(scale: float) -> None:
    prediction, truth = torch.randn(3, 8, 8, generator=torch.manual_seed(0)), torch.randn(3, 8, 8) + 2
    losses, slopes = [], []
    for factor in (1.0, scale):
        found = (factor * prediction).requires_grad_()
        loss = training_loss(found, factor * truth, h1=0.1)
        loss.backward()
        losses.append(loss.item())
        slopes.append(factor * found.grad if found.grad is not None else None)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("scale", [*SCALES, 1e-22])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("gamma", [0.0, 0.1])
def test_the_weighted_loss_and_its_gradient_depend_on_no_unit(scale: float, axes: int, gamma: float) -> None:
    draw, shape = torch.manual_seed(0), (3, *(8,) * axes)
    prediction, truth = (torch.randn(shape, generator=draw) for _ in range(2))
    slope = torch.randn(shape if axes == 1 else (*shape, 2), generator=draw)
    fit, losses, slopes = Fit(epochs=1, batch=3, learning_rate=1e-3, gamma=gamma), [], []
    for factor in (1.0, scale):
        found = (factor * prediction).requires_grad_()
        batch = Batch([], [factor * (truth + 2)], gradients=factor * slope if gamma else None)
        loss = LOSSES["weighted"].compute([found], batch, fit)
        loss.backward()
        losses.append(loss.item())
        slopes.append(factor * found.grad if found.grad is not None else None)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_constant_inputs_of_any_unit_have_the_same_statistics(scale: float) -> None:
    found = []
    for factor in (1.0, scale):
        statistics = InputStatistics((False,), periodic=(False,))
        statistics.fit([torch.full((5, 16), 3 * factor)])
        found.append(statistics([torch.full((1, 16), 4 * factor)]))
    torch.testing.assert_close(found[1], found[0])


def test_an_offset_that_float32_does_not_resolve_is_named_and_taken_out(tmp_path: Path) -> None:
    q, order = waves(40, 64), np.random.default_rng(0).permutation(40)
    np.savez(tmp_path / "acoustic.npz", q=q, p=101325 + 0.005 * q, seconds=1.7e9 + 1e3 * order, T=300 + q)
    done = CliRunner().invoke(app, ["describe", str(tmp_path / "acoustic.npz"), "--outputs", "p"])
    lines = {line.partition("  #")[0]: line for line in done.stdout.splitlines()}
    assert "numbers of float32 are 0.0078 apart: 0.39 of what varies is lost" in lines["offset = 101325.0"]
    assert sum(line.startswith("offset") for line in lines) == 2  # of p and of seconds
    (tmp_path / "acoustic.toml").write_text(done.stdout)
    problem = read_problem_file(tmp_path / "acoustic.toml")
    samples = SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem)
    found = samples.read(range(40))
    np.testing.assert_allclose(found["p"], 0.005 * q, atol=1e-8)
    np.testing.assert_allclose(found["seconds"] - found["seconds"][0], 1e3 * (order - order[0]), rtol=1e-6)
    assert samples.file.attrs["remarks"] == ""
    assert samples.described["p"].meaning == "p, minus 101325"


def test_a_file_without_the_offset_is_remarked(tmp_path: Path) -> None:
    q = waves(40, 64)
    np.savez(tmp_path / "dipoles.npz", q=q, p=101325 + 0.005 * q)
    found = work(tmp_path).samples.file.attrs["remarks"]
    assert "p: it varies by 0.0057 about 101325, where" in found
    assert "0.39 of what varies is lost; `offset = 101325` in the table of p" in found
    np.savez(tmp_path / "dipoles.npz", q=q, p=101325 + 1e-5 * q)
    with pytest.raises(DataError, match=r"101325 everywhere: nothing to learn \(it varies by .* `offset = 101325`"):
        work(tmp_path)


@pytest.mark.parametrize("name", ["wave.npz", "wave.h5", "wave.mat", "new.mat", "wave.zarr"])
def test_complex_numbers_are_two_components_or_refused_and_never_cut(name: str, tmp_path: Path) -> None:
    c = waves(20, 8, 8)
    fields = {"q": c, "p": c * np.exp(1j * c)}
    if name.endswith("npz"):
        np.savez(tmp_path / name, **fields)
    elif name == "wave.mat":
        savemat(tmp_path / name, fields, do_compression=True)
    elif name.endswith("zarr"):
        for key, values in fields.items():
            zarr.open_group(tmp_path / name, mode="a").create_array(key, data=values)
    else:
        with h5py.File(tmp_path / name, "w") as file:
            for key, values in fields.items():
                parts = np.rec.fromarrays([values.T.real, values.T.imag], names="real,imag")
                file[key] = parts if name == "new.mat" and key == "p" else values.T
    draft = CliRunner().invoke(app, ["describe", str(tmp_path / name), "--outputs", "p"], catch_exceptions=False).stdout
    assert 'complex = "components"' in draft
    (tmp_path / "wave.toml").write_text(re.sub(r"  # guess:.*", "", draft).replace('sample = "last"\n', ""))
    problem = read_problem_file(tmp_path / "wave.toml")
    assert problem["p"].components == ("real", "imaginary")
    found = SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem).read(
        range(20 if name != "wave.h5" else 8)
    )
    size = np.hypot(found["p"][:, 0], found["p"][:, 1])
    np.testing.assert_allclose(size, np.abs(found["q"]), rtol=1e-4, atol=1e-6)
    with pytest.raises(DataError, match=r"'p' holds .*expected real numbers"):
        work(tmp_path, axes={"x": {}, "y": {}}, data={"files": [name]})
    parts = {"inputs": {"q": {"complex": "components"}}, "outputs": {"p": {"complex": "components"}}}
    with pytest.raises(DataError, match=r"'q' holds .*expected complex numbers"):
        work(tmp_path, axes={"x": {}, "y": {}}, data={"files": [name]}, **parts)
