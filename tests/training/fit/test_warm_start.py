"""A training may start from the weights of an earlier model of the user's, where both have the same fields."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from schema.parts import Parameter, Quantity
from training import checkpoint
from training.commands import app
from training.fit import start
from training.fit.operator_workload import OperatorWorkload
from training.fit.run import train
from training.fit.start import WARM_START, ProblemRun
from training.fit.workload import ScopeError
from training.operators import build
from training.problems.problem_file import ProblemFile
from training.recipe import Recipe, RecipeError, changed

SMALL = ("operator.channels=4", "operator.layers=0", "operator.spectral=1", "operator.detail=4")
COUNTED = ("fit.epochs=2", "fit.seconds=1e9", "fit.batch=4", "fit.average=0.0")  # steps decide, on any machine


def problem(name: str = "line", **changes: Any) -> ProblemFile:
    """Return a problem file of which some sections are changed."""
    document: dict[str, dict[str, Any]] = {
        "data": {"files": [f"{name}.npz"], "validation": 8, "test": 4},
        "inputs": {"k": {"positive": True}},
        "parameters": {"speed": {}},
        "outputs": {"u": {"units": "K"}},
        "axes": {"x": {"boundary": "wall"}},
    }
    for section, change in changes.items():
        document[section] = document.get(section, {}) | change
    return ProblemFile.model_validate({"name": name, **document})


def write(folder: Path, name: str, sides: int = 12, samples: int = 24) -> None:
    rng = np.random.default_rng(len(name))
    k, speed = rng.uniform(1, 2, (samples, sides)), rng.random(samples)
    np.savez(folder / f"{name}.npz", k=k, speed=speed, u=k**2 + speed[:, None])


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Return the run of an earlier model."""
    write(tmp_path, "line")
    made = ProblemRun(problem(), "tiny", [*SMALL, *COUNTED], tmp_path, folder=tmp_path).recipe()
    return train(made, tmp_path / "earlier", tmp_path)


def second(folder: Path, preset: str = "tiny", overrides: tuple[str, ...] = (), **changes: Any) -> Recipe:
    """Return the recipe of a training that may start from the earlier model."""
    write(folder, "other", sides=16)
    changes["data"] = {"finetune": "earlier"} | changes.get("data", {})
    return ProblemRun(problem("other", **changes), preset, overrides, folder, folder=folder).recipe()


def test_a_training_without_a_race_starts_from_the_earlier_model(first: Path, tmp_path: Path) -> None:
    """With its network, weights and normalisers, whatever the grid of the new samples is, at a lower rate."""
    recipe = second(tmp_path)
    old = checkpoint.load(first)
    assert recipe.operator == old.recipe.operator
    assert recipe.operator.working == (12,)
    assert recipe.fit.learning_rate == start.RATE < old.recipe.fit.learning_rate
    weights = OperatorWorkload(recipe, tmp_path).task().network.state_dict()
    for name, tensor in old.operator.state_dict().items():
        assert torch.equal(weights[name], tensor)


def test_the_card_names_the_earlier_model_and_the_checkpoint_needs_it_no_more(first: Path, tmp_path: Path) -> None:
    new = train(changed(second(tmp_path), COUNTED), tmp_path / "new", tmp_path)
    expected = {"folder": str(first), "digest": checkpoint.load(first).digest}
    first.rename(tmp_path / "elsewhere")
    found = checkpoint.load(new)
    assert found.card.training["start"] == expected
    assert found.recipe.problem.data.finetune == "earlier"
    assert found.operator(torch.ones(2, 16), torch.ones(2)).shape == (2, 16)


@pytest.mark.deep
def test_the_earlier_model_races_against_random_weights(first: Path, tmp_path: Path) -> None:
    recipe = second(tmp_path, "quick")
    assert [each.start is not None for each in recipe.race] == [False] * (len(recipe.race) - 1) + [True]
    assert recipe.race[-1].name == WARM_START
    scratch = recipe.race[0].model_copy(update={"operator": {"detail": 2, "layers": 0, "spectral": 1}})
    short = changed(recipe.model_copy(update={"race": (scratch, recipe.race[-1])}), ["fit.epochs=12", *COUNTED[1:]])
    found = checkpoint.load(train(short, tmp_path / "new", tmp_path))
    assert {scratch.name, WARM_START} == {*found.card.race["rounds"][0]["validation_error"]}
    started = found.card.race["winner"].startswith(WARM_START)
    assert (found.recipe.start is not None) == ("start" in found.card.training) == started
    if started:
        assert found.card.training["start"]["folder"] == str(first)


DIFFERENCES = {
    "another name": (
        {"outputs": {"v": {"key": "u"}}},
        "outputs: expected u, as the model in {path} has, but found u, v",
    ),
    "other units": (
        {"outputs": {"u": {"units": "degC"}}},
        "outputs.u: expected units 'K', components none, of any sign, as the model in {path} has, but found units",
    ),
    "another boundary": (
        {"axes": {"x": {"boundary": "periodic"}}},
        "axes.x: expected boundary 'wall', points 'cells', as the model in {path} has, but found boundary 'periodic'",
    ),
    "another range": (
        {"parameters": {"speed": {"minimum": 1e-9}}},
        "parameters.speed: expected units '1', components none, no positive minimum, as the model in {path} has",
    ),
    "no model": (
        {"data": {"finetune": "nowhere"}},
        "expected the folder of a trained model, or its name in runs or checkpoints, but got 'nowhere'",
    ),
}


@pytest.mark.parametrize(("changes", "message"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_model_of_other_fields_is_refused_before_the_training(
    first: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=re.escape(f"data.finetune: {message}".replace("{path}", str(first)))):
        second(tmp_path, **changes)


@pytest.mark.usefixtures("first")  # of the 24 samples of line.npz, 12 for training and 8 for validation
@pytest.mark.parametrize(
    ("validation", "test", "sentence"),
    [
        (16, 4, "expected new validation samples but sample 28 is the sample 4 of the training of "),
        (1, 11, "expected new test samples but sample 37 is the sample 13 of the validation of "),
    ],
)
def test_samples_that_the_earlier_model_has_seen_are_not_kept_apart(
    validation: int, test: int, sentence: str, tmp_path: Path
) -> None:
    def begin(*files: str, **more: str) -> Recipe:
        data = {"files": files, "validation": validation, "test": test, **more}
        return ProblemRun(problem("more", data=data), "tiny", (), tmp_path, folder=tmp_path).recipe()

    write(tmp_path, "another")
    assert begin("line.npz", "another.npz", finetune="earlier").start is not None
    with pytest.raises(RecipeError, match=rf"data\.finetune: {sentence}.*earlier"):
        begin("another.npz", "line.npz", finetune="earlier")
    with pytest.raises(RecipeError, match=rf"--init: {sentence}.*earlier"):
        train(begin("another.npz", "line.npz"), tmp_path / "new", tmp_path, init=tmp_path / "earlier")


def test_samples_that_the_earlier_model_of_an_earlier_model_has_seen_are_not_kept_apart(
    first: Path, tmp_path: Path
) -> None:
    """The second model has learned other samples, and its weights come from the first one."""
    recipe = second(tmp_path)
    shutil.copytree(first, tmp_path / "middle")
    checkpoint.write_recipe(tmp_path / "middle", recipe)
    data = {"files": ("another.npz", "line.npz"), "validation": 16, "test": 4, "finetune": "middle"}
    write(tmp_path, "another")
    with pytest.raises(RecipeError, match=r"sample 28 is the sample 4 of the training of .*earlier"):
        ProblemRun(problem("more", data=data), "tiny", (), tmp_path, folder=tmp_path).recipe()
    with pytest.raises(ScopeError, match=r"sample 0 of --files is the sample 0 of the training of .*earlier"):
        OperatorWorkload(recipe, tmp_path).renewed(0, (str(tmp_path / "line.npz"),))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"inputs": {"f": {"per_frame": "start"}}}, "inputs.f"),
        ({"inputs": {"f": {"per_frame": "end"}}}, "inputs.f"),
        ({"parameters": {"speed": {"per_frame": "start"}}}, "parameters.speed"),
        ({"parameters": {"speed": {"components": ["x", "y"]}}}, "parameters.speed"),
        ({"parameters": {"speed": {"components": ["x", "z"]}}}, "parameters.speed"),
    ],
)
def test_the_frame_that_a_step_sees_and_components_have_to_be_the_same(changes: dict[str, Any], what: str) -> None:
    earlier = {"inputs": {"f": {}, "k": {"key": "u"}}, "time": {"step": 0.1}}
    known = {part: earlier.get(part, {}) | changes.get(part, {}) for part in (*earlier, *changes)}
    one, other = (start.facts(problem(**each).describe((12,), 24, 6)) for each in (earlier, known))
    assert {each for each in one | other if one.get(each) != other.get(each)} == {what}


def test_every_frame_and_list_of_components_is_a_fact_of_its_own() -> None:
    fields = [Quantity(name="f", per_frame=frame) for frame in (None, "start", "end")]
    numbers = [Parameter(name="v", components=parts) for parts in ((), ("x", "y"), ("x", "z"))]
    assert len({*map(start.shared, (*fields, *numbers))}) == 5
    scalar, field = (
        start.facts(problem(outputs={"d": {"scalar": flag}}).describe((12,), 24)) for flag in (True, False)
    )
    assert scalar["outputs.d"] != field["outputs.d"]


def test_another_network_and_the_folder_of_the_run_itself_are_refused(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RecipeError, match="the network is that of the earlier model"):
        second(tmp_path, overrides=("operator.layers=2",))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "other.toml"
    file.write_text(
        'name = "other"\n[data]\nfiles = ["other.npz"]\nfinetune = "earlier"\n[inputs.k]\n[outputs.u]\n[axes.x]\n'
    )
    result = CliRunner().invoke(app, ["fit", str(file), "--preset", "tiny", "--out", "earlier"])
    assert "expected another folder than that of the run" in str(result.exception)
    assert (first / checkpoint.WEIGHTS).is_file()


def initial(first: Path, operator: dict[str, Any]) -> Recipe:
    """Return the recipe of the earlier model with another operator, for the same samples."""
    recipe = checkpoint.load(first).recipe
    assert isinstance(recipe, Recipe)
    return changed(recipe, [f"operator.{key}={json.dumps(value)}" for key, value in operator.items()])


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("input_scales", ["log"], """'operator.input_scales=["linear"]'"""),
        ("output_scales", ["log"], """'operator.output_scales=["linear"]'"""),
        ("gate", "sigmoid", "operator.gate=silu"),
        ("points", ["nodes"], """'operator.points=["cells"]'"""),
    ],
)
def test_weights_are_not_taken_where_no_tensor_shows_another_meaning(
    first: Path, tmp_path: Path, key: str, value: object, advice: str
) -> None:
    earlier = checkpoint.load(first).recipe
    other = initial(first, {key: value})
    assert {name: each.shape for name, each in build(earlier.operator).state_dict().items()} == {
        name: each.shape for name, each in build(other.operator).state_dict().items()
    }
    theirs = json.loads(json.dumps(getattr(earlier.operator, key)))
    sentence = f"{first}: its weights have the names and shapes of those of the network and another meaning; its "
    sentence += f"network has {key} {theirs} instead of {value}: train one like it, by its preset or --set {advice}"
    with pytest.raises(checkpoint.CheckpointError, match=re.escape(sentence)):
        OperatorWorkload(other, tmp_path).task(first)


def test_weights_are_taken_on_another_grid_and_with_dropout(first: Path, tmp_path: Path) -> None:
    for key, value in {"working": [14], "dropout": 0.5, "translation": []}.items():
        network = OperatorWorkload(initial(first, {key: value}), tmp_path).task(first).network
        assert all(
            torch.equal(tensor, network.state_dict()[name])
            for name, tensor in checkpoint.load(first).operator.state_dict().items()
        )


def test_an_earlier_model_that_was_trained_anew_since_is_refused(first: Path, tmp_path: Path) -> None:
    recipe = second(tmp_path)
    OperatorWorkload(recipe, tmp_path).task()
    assert recipe.start is not None
    state = load_file(first / checkpoint.WEIGHTS)
    save_file({name: tensor + 1 for name, tensor in state.items()}, first / checkpoint.WEIGHTS)
    for init in (None, first):  # as on this machine, and as a copy of it
        with pytest.raises(checkpoint.CheckpointError, match=f"of SHA-256 {recipe.start.digest}, but found [0-9a-f]+:"):
            OperatorWorkload(recipe, tmp_path).task(init)
