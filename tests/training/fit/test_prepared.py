"""A user's file becomes a trained checkpoint that needs the file no more."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from training import checkpoint
from training.calibration import CalibratedOperator
from training.calibration.fitting import with_errors
from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import READ_AS, checksum, prepare
from training.fit import run_folder
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import PRESETS, fitting, network, recipe
from training.fit.run import train
from training.fit.run_folder import RunFolder
from training.fit.start import ProblemRun, problem_run
from training.fit.workload import Task
from training.messages import typed
from training.operators import build
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataError
from training.recipe import Fit, Recipe, RecipeError, changed

SIDES = (12, 16)


def problem(**changes: object) -> ProblemFile:
    document: dict[str, object] = {
        "name": "heat",
        "data": {"files": ["heat.h5"]},
        "inputs": {"k": {"positive": True}, "f": {"components": ["x", "y"]}},
        "parameters": {"wind": {}},
        "outputs": {"temperature": {"key": "T"}},
        "axes": {"row": {"boundary": "wall"}, "column": {"boundary": "periodic", "length": 2.0}},
    }
    return ProblemFile.model_validate(document | changes)


@pytest.fixture
def samples(tmp_path: Path) -> SampleFile:
    rng = np.random.default_rng(0)
    k = 10 ** rng.uniform(-2, 2, (40, *SIDES))
    f, wind = rng.standard_normal((40, 2, *SIDES)), rng.random(40)
    with h5py.File(tmp_path / "heat.h5", "w") as file:
        file["k"], file["f"], file["wind"] = k, f, wind
        file["T"] = np.log(k) + f[:, 0] + wind[:, None, None] + 3
    chosen = problem()
    return SampleFile(prepare(chosen, tmp_path, tmp_path / "data"), chosen)


def short(samples: SampleFile) -> Recipe:
    """Return the tiny preset with a fixed number of epochs, whatever else the machine does."""
    return changed(recipe(samples, "tiny"), ["fit.epochs=6", "fit.seconds=1e9"])


@pytest.mark.parametrize("setting", ["noise=0.1", "unroll=[2]", "through=false"])
def test_settings_that_steady_fields_would_not_follow_are_refused(samples: SampleFile, setting: str) -> None:
    with pytest.raises(RecipeError, match=r"fit\..*: expected (it|them) of trajectories"):
        changed(recipe(samples, "tiny"), [f"fit.{setting}"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('symmetries=["flip_row"]', r"fit.symmetries: expected none with vector fields \(f\)"),
        ('symmetries=["flip_x"]', "fit.symmetries: expected some of .* but got flip_x"),
        ("points=8", "fit.points: expected it of samples that have points of their own"),
    ],
)
def test_settings_that_the_problem_cannot_have_are_refused_before_a_training(
    samples: SampleFile, tmp_path: Path, setting: str, message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        train(changed(short(samples), [f"fit.{setting}"]), tmp_path / "run", samples.path.parent)


def test_the_h1_loss_of_a_vector_takes_differences_along_the_grid_alone(tmp_path: Path) -> None:
    f, u = np.random.default_rng(0).standard_normal((2, 20, 2, *SIDES))
    np.savez(tmp_path / "heat.npz", f=f, u=u + np.array([0.0, 100.0])[:, None, None])
    vector = {"components": ["x", "y"]}
    chosen = problem(data={"files": ["heat.npz"]}, inputs={"f": vector}, parameters={}, outputs={"u": vector})
    work = OperatorWorkload(
        changed(recipe(SampleFile(prepare(chosen, tmp_path, tmp_path / "data"), chosen), "tiny"), ["fit.h1=1.0"]),
        tmp_path / "data",
    )
    network, batch = work.network(), work.batch(range(4))
    with torch.no_grad():
        found, [truth] = network(*batch.inputs), batch.outputs
        l2 = (found - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
        rough = [
            torch.cat([each.diff(dim=axis).flatten(1) for axis in (2, 3)], dim=1) for each in (found - truth, truth)
        ]
        expected = (l2 + rough[0].norm(dim=1) / rough[1].norm(dim=1)).mean()
        assert work.loss(network, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_samples_are_prepared_once_and_split_in_order(samples: SampleFile, tmp_path: Path) -> None:
    assert samples.counts == (32, 4, 4)
    assert samples.sides == SIDES
    written = samples.path.stat().st_mtime_ns
    assert prepare(problem(), tmp_path, tmp_path / "data") == samples.path
    assert samples.path.stat().st_mtime_ns == written
    with h5py.File(tmp_path / "heat.h5") as file:
        assert np.allclose(samples.read(samples.split("validation"))["temperature"], file["T"][32:36], rtol=1e-6)


def test_samples_have_the_name_of_their_contents(samples: SampleFile, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "heat.h5"
    os.utime(file, ns=(1, 1))  # as a copy, or made again
    assert prepare(problem(), tmp_path, data) == samples.path
    made = recipe(samples, "tiny").model_copy(update={"samples": samples.path.name})
    samples.path.unlink()
    with h5py.File(file, "r+") as changed:
        changed["T"][17, 3, 5] += 1
    other = prepare(problem(), tmp_path, data)
    assert other != samples.path
    expected = f"expected the samples {samples.path} but found {other.name}. `{typed('check', 'PROBLEM.toml')}`"
    with pytest.raises(RecipeError, match=re.escape(expected)):
        OperatorWorkload(made, data).prepare()


def test_samples_are_prepared_anew_where_readers_changed_and_earlier_recipes_find_them(
    samples: SampleFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    made = recipe(samples, "tiny")
    released = made.model_copy(update={"samples": str(samples.attributes["unversioned"])})
    with pytest.warns(UserWarning, match="as they are read now: .* are not those that it was trained on"):
        assert OperatorWorkload(released, data).prepare() == samples.path
    monkeypatch.setattr("training.data.prepare.READ_AS", READ_AS + 1)
    assert prepare(problem(), tmp_path, data) != samples.path
    assert OperatorWorkload(made.model_copy(update={"samples": samples.path.name}), data).prepare() == samples.path


def test_the_tensor_that_a_file_is_of_tells_samples_apart(tmp_path: Path) -> None:
    fields = np.random.default_rng(0).random((4, 12, 5, 6))
    for name, (k, f, u) in {"a": fields[:3], "b": fields[1:]}.items():
        np.savez(tmp_path / f"{name}.npz", k=k, f=f, u=u)
    made = []
    for tensor in ("k", "f"):
        inputs = {"k": {}, "f": {}} | {tensor: {"files": ["b.npz"]}}
        own = problem(data={"files": ["a.npz"]}, inputs=inputs, parameters={}, outputs={"u": {}})
        made.append(SampleFile(prepare(own, tmp_path, tmp_path / "data"), own).read(range(12))[tensor])
    assert made[0] == pytest.approx(fields[1], rel=1e-6)
    assert made[1] == pytest.approx(fields[2], rel=1e-6)


def test_a_folder_is_known_by_the_files_in_it(tmp_path: Path) -> None:
    folder, known = tmp_path / "heat.zarr", tmp_path / "known.json"
    (folder / "T").mkdir(parents=True)
    (folder / "T" / "0").write_bytes(b"one")
    first = checksum([folder], known)
    assert checksum([folder.rename(tmp_path / "copy.zarr")], known) == first
    (tmp_path / "copy.zarr" / "T" / "0").write_bytes(b"two")
    assert checksum([tmp_path / "copy.zarr"], known) != first


def test_samples_are_read_in_any_order_and_twice(samples: SampleFile, tmp_path: Path) -> None:
    rows = np.array([7, 2, 7, 31])  # as in a batch that begins in one pass over the samples and ends in the next
    with h5py.File(tmp_path / "heat.h5") as file:
        assert np.allclose(samples.read(rows)["temperature"], file["T"][...][rows], rtol=1e-6)


@pytest.mark.usefixtures("samples")
def test_bad_data_leave_no_samples(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "heat.h5", "r+") as file:
        file["T"][17, 3, 5] = np.nan
    before = sorted(path.name for path in (tmp_path / "data").glob("*.h5"))
    with pytest.raises(DataError, match=r"'T' is nan at sample 17, index \(3, 5\)"):
        prepare(problem(), tmp_path, tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "data").glob("*.h5")) == before


def test_sizes_follow_from_the_data(samples: SampleFile) -> None:
    config = network(samples, PRESETS["quick"])
    assert config.input_components == (0, 2)
    assert config.input_scales == ("log", "linear")  # k spans four decades
    assert config.parameter_scales == ("linear",)  # positive in the data, but nothing says that it stays so
    assert config.periodic == (False, True)
    assert config.working == SIDES
    assert (config.gated, config.layers, config.detail, config.linear) == (True, 0, 16, (False, False))


@pytest.mark.parametrize(
    ("sides", "count", "batch"), [((128,), 1000, 8), ((24, 32), 1000, 8), ((48, 64), 1000, 4), ((128,), 40, 4)]
)
def test_a_batch_holds_about_as_many_points_on_every_grid(
    sides: tuple[int, ...], count: int, batch: int, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "one.h5", "w") as file:
        for name in ("u", "v"):
            file.create_dataset(name, (count, *sides), np.float32)
    axes = {f"axis{index}": {} for index in range(len(sides))}
    document = {"name": "one", "data": {"files": ["one.h5"]}, "inputs": {"u": {}}, "outputs": {"v": {}}, "axes": axes}
    found = SampleFile(tmp_path / "one.h5", ProblemFile.model_validate(document))
    assert fitting(found, PRESETS["quick"]).batch == batch


def test_a_run_learns_and_leaves_a_checkpoint_that_needs_no_file(samples: SampleFile, tmp_path: Path) -> None:
    folder = train(short(samples), tmp_path / "run", samples.path.parent)
    rows = [float(line.split(",")[2]) for line in (folder / "metrics.csv").read_text().splitlines()[1:]]
    assert rows[-1] < rows[0]
    samples.close()
    for path in tmp_path.rglob("*.h5"):
        path.unlink()
    found = checkpoint.load(folder)
    assert found.card.errors[0]["grid"] == list(SIDES)
    assert found.card.errors[0]["fields"] == 4
    assert str(tmp_path) not in json.dumps(found.card.document) + (folder / checkpoint.CONFIG).read_text()
    assert found.recipe.problem_file is not None
    output = found.operator(torch.ones(2, 9, 20), torch.zeros(2, 2, 9, 20), torch.ones(2))
    assert output.shape == (2, 9, 20)
    assert found.calibration is not None
    # Four validation samples are too few for an error estimate; 16 training samples serve the novelty with them.
    assert found.calibration.names == ("novelty",)
    assert (found.card.calibration["fitted"], found.card.calibration["inputs"]) == (16, 20)
    assert isinstance(found.deployed, CalibratedOperator)
    _, novelty = found.deployed.with_quality(torch.ones(2, 9, 20), torch.zeros(2, 2, 9, 20), torch.ones(2))
    assert novelty.flatten().tolist() == pytest.approx([1 / 21, 1 / 21])


def test_another_operator_takes_a_user_s_fields_vectors_and_numbers(samples: SampleFile) -> None:
    decoder = {"kind": "spectral", "coordinates": False, "channels": 4, "modes": 4, "hidden": 4}
    table = {"kind": "grid-transformer", "channels": 8, "heads": 1, "layers": 1, "decoder": decoder}
    made = recipe(samples, "tiny", operator=table)
    assert (made.operator.dimensions, made.operator.inputs) == (2, 4)
    work = OperatorWorkload(made, samples.path.parent)
    network = work.network()
    work.fit_normalisers(network)
    batch = work.batch(range(3))
    [found] = work.predictions(network, batch)
    assert found.shape == batch.outputs[0].shape
    with pytest.raises(RecipeError, match="heat-tiny: the operator 'line-transformer' does not take these data"):
        recipe(samples, "tiny", operator={"kind": "line-transformer"})


def test_a_checkpoint_of_an_earlier_release_predicts_what_it_did() -> None:
    """It was written before networks had a U-Net and trainings a race, of which it says nothing."""
    operator = checkpoint.load(Path(__file__).parent / "released_checkpoint").operator
    k, wind = torch.linspace(0.1, 10, 9 * 7).reshape(1, 9, 7), torch.tensor([0.3])
    with torch.inference_mode():
        found = operator(k, wind)[0, ::4, ::3]
    expected = [[0.438969, 0.388704, 0.132844], [0.364806, 0.367502, 0.366271], [0.212743, 0.416034, 0.350337]]
    assert torch.allclose(found, torch.tensor(expected), atol=1e-5)


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_data_file_is_described_trained_and_resumed_by_commands(samples: SampleFile, tmp_path: Path) -> None:
    described = command("describe", tmp_path / "heat.h5", "--outputs", "T")
    assert described.exit_code == 0, described.output
    (tmp_path / "heat.toml").write_text(described.stdout[described.stdout.index("# heat.h5") :])
    own = (tmp_path / "heat.toml", "--preset", "tiny", "--data", samples.path.parent, "--out", tmp_path / "run")
    trained = command("fit", *own, "--set", "fit.epochs=2", "--set", "operator.attention=fourier")
    assert trained.exit_code == 0, trained.output
    found = checkpoint.load(tmp_path / "run")
    assert found.recipe.fit.epochs == 2
    assert found.recipe.operator.attention == "fourier"
    again = command("fit", *own, "--resume")  # a preset has other epochs
    assert again.exit_code == 0, again.output
    assert "finished" in again.stderr
    assert checkpoint.load(tmp_path / "run").digest == found.digest
    refused = command("data", tmp_path / "heat.toml", "--data", samples.path.parent, "--set", "data.train=3")
    assert "no recipe" in refused.stderr


def test_an_interrupted_run_keeps_the_epochs_that_it_began_with(samples: SampleFile, tmp_path: Path) -> None:
    (tmp_path / "heat.toml").write_text(command("describe", tmp_path / "heat.h5", "--outputs", "T").stdout)
    run = RunFolder(tmp_path)

    def own(preset: str, overrides: list[str]) -> ProblemRun:
        found = problem_run(str(tmp_path / "heat.toml"), preset, overrides, samples.path.parent)
        assert found is not None
        return found

    begun = own("tiny", ["fit.epochs=99999"]).recipe()  # no preset has them
    run.recipe.write_text(begun.model_dump_json())
    assert own("tiny", []).resumed(run) == begun
    assert own("tiny", ["fit.batch=3"]).resumed(run).fit.batch == 3
    assert own("quick", []).resumed(run).fit.epochs < 99999


def sparse(folder: Path, count: int, side: int) -> OperatorWorkload:
    """Return a training on a sparse file of ones on a plane."""
    chosen = ProblemFile.model_validate(
        {
            "name": "large",
            "data": {"files": ["large.h5"]},
            "inputs": {"k": {}},
            "outputs": {"u": {}},
            "axes": {"row": {}, "column": {}},
        }
    )
    with h5py.File(folder / "large.h5", "w") as file:
        for name in ("k", "u"):
            file.create_dataset(name, (count, side, side), np.float32, chunks=(1, side, side), fillvalue=1.0)
            file[name].attrs.update(minimum=1.0, maximum=1.0)
    found = SampleFile(folder / "large.h5", chosen)
    made = Recipe(
        model="large",
        preset="tiny",
        problem=chosen,
        samples="large.h5",
        operator=network(found, PRESETS["tiny"]),
        fit=Fit(epochs=1, batch=4, learning_rate=2e-3, keep="best"),
    )
    return OperatorWorkload(made, folder)


def test_samples_larger_than_memory_are_read_batch_by_batch(tmp_path: Path) -> None:
    """Of a sparse file of 2 TB one training batch and one validation batch are read."""
    work = sparse(tmp_path, 1 << 20, 512)
    task = Task(build(work.recipe.operator), work)
    for loader, size in ((task.train_dataloader(), 4), (task.val_dataloader(), 16)):
        batch = next(iter(loader))
        assert batch.inputs[0].shape == batch.outputs[0].shape == (size, 512, 512)


@pytest.mark.parametrize(("side", "count"), [(1024, 16), (3072, 2), (10_000, 1)])
def test_few_large_samples_are_measured_at_one_time(side: int, count: int, tmp_path: Path) -> None:
    work = sparse(tmp_path, 100, side)
    assert work.at_once == work.batches("validation").starts.step == count


# Workers are forked; JAX, which other tests use in this process, warns of that, and workers do not use it.
@pytest.mark.deep
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="torch warns of more workers than processors")
@pytest.mark.filterwarnings("ignore:os.fork")
def test_workers_read_the_batches_that_the_training_process_would(samples: SampleFile, tmp_path: Path) -> None:
    chosen = changed(short(samples), ["fit.epochs=2"])
    runs = [train(chosen, tmp_path / str(workers), samples.path.parent, workers=workers) for workers in (0, 2)]
    first, second = (run_folder.read_log(run / "metrics.csv") for run in runs)
    assert [(row["loss"], row["relative_l2"]) for row in first] == [(row["loss"], row["relative_l2"]) for row in second]


def test_options_that_change_nothing_of_a_user_s_samples_are_refused(samples: SampleFile, tmp_path: Path) -> None:
    (tmp_path / "heat.toml").write_text(command("describe", tmp_path / "heat.h5", "--outputs", "T").stdout)
    refused = command("data", tmp_path / "heat.toml", "--data", samples.path.parent, "--set", "fit.epochs=2")
    assert refused.exit_code == 2
    assert "Invalid value for --set" in refused.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--preset", "huge"), "expected a preset among tiny, quick, laptop but got 'huge'"),
        (("--preset", "tiny", "--set", "fit.epoch=2"), "fit.epoch: the key is unknown"),
    ],
)
def test_mistakes_are_named(change: tuple[str, ...], message: str, samples: SampleFile, tmp_path: Path) -> None:
    (tmp_path / "heat.toml").write_text(command("describe", tmp_path / "heat.h5", "--outputs", "T").stdout)
    failed = command("fit", tmp_path / "heat.toml", "--data", samples.path.parent, *change)
    assert message in str(failed.exception)


def test_weights_of_points_weigh_loss_and_errors(tmp_path: Path) -> None:
    rng, shape = np.random.default_rng(0), (40, 30)
    arrays = {"xy": rng.random((*shape, 2)), "f": rng.random(shape), "u": rng.standard_normal((*shape, 2))}
    np.savez(tmp_path / "cloud.npz", w=rng.random(shape), **arrays)
    chosen = ProblemFile.model_validate(
        {
            "name": "cloud",
            "data": {"files": ["cloud.npz"]},
            "inputs": {"f": {}},
            "outputs": {"u": {"components": ["x", "y"]}},
            "points": {"coordinates": "xy", "weights": "w"},
        }
    )
    samples = SampleFile(prepare(chosen, tmp_path, tmp_path / "data"), chosen)
    with pytest.raises(RecipeError, match=r"fit.h1: expected 0 on points"):
        OperatorWorkload(changed(recipe(samples, "tiny"), ["fit.h1=0.1"]), tmp_path / "data").check()
    made = recipe(samples, "tiny").model_copy(update={"samples": samples.path.name})
    work = OperatorWorkload(made, tmp_path / "data")
    net, batch = work.network(), work.batch(range(8))
    assert (len(batch.inputs), len(batch.outputs)) == (3, 1)  # the weights are neither
    work.fit_normalisers(net)
    with torch.no_grad():
        found = net(*batch.inputs).double()
        weights, truth = torch.tensor(samples.read(range(8))["weights"]).double(), batch.outputs[0].double()
        squares = [(weights * each.square().sum(dim=2)).sum(dim=1) for each in (found - truth, truth)]
        expected = (squares[0] / squares[1]).sqrt()
        assert torch.allclose(with_errors(work, net, batch).errors.double(), expected, rtol=1e-4)
        assert work.scores(net, batch)[0]["relative_l2"].item() == pytest.approx(expected.mean().item(), rel=1e-4)
        assert work.loss(net, batch).item() == pytest.approx(expected.mean().item(), rel=1e-4)
    assert work.measured(net, [batch])["relative_l2"] == pytest.approx(expected.numpy(), rel=1e-4)
    assert work.account()["weights"] == "w: what every point counts in errors"
