"""Checkpoints: the same answers after a round trip, and clear words for every way a folder can be wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from schema.card import CheckpointCard
from training import calibration, checkpoint, recipes
from training.operators import build
from training.problems.problem import PROBLEMS

RECIPE = recipes.read(recipes.find("darcy-tiny"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    checkpoint.save(tmp_path, build(RECIPE.operator), RECIPE, PROBLEMS["darcy"], CheckpointCard(errors=()))
    return tmp_path


def test_a_round_trip_answers_the_same(folder: Path) -> None:
    torch.manual_seed(0)
    operator, field = build(RECIPE.operator).eval(), torch.rand(1, 29, 29) + 1
    found = checkpoint.load(folder)
    assert torch.equal(found.operator(field), operator(field))
    assert (found.recipe, found.problem, found.card) == (RECIPE, PROBLEMS["darcy"], CheckpointCard(errors=()))
    (folder / "plain").touch()
    assert {each.stat().st_mode for each in folder.iterdir()} == {(folder / "plain").stat().st_mode}  # for colleagues


OWN = json.loads((Path(__file__).parent / "released_configs.json").read_text())


@pytest.mark.parametrize("name", OWN)
def test_the_config_of_an_earlier_release_of_own_data_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    """Fields with vectors and numbers, symmetries, a domain, trajectories, and points."""
    (tmp_path / checkpoint.CONFIG).write_text(json.dumps(OWN[name]))
    found, before = checkpoint.read_config(tmp_path), copy.deepcopy(OWN[name])
    assert before["recipe"].pop("kind") == "own"
    noise = before["recipe"]["fit"].pop("noise")
    assert found.recipe.fit.noise == ((noise,) if noise else ())
    assert kept(before, found.model_dump(mode="json"))
    build(found.recipe.operator)
    again = found.model_dump(mode="json")
    assert checkpoint.Config.model_validate(again) == found


def test_a_noise_of_steady_fields_of_an_earlier_release_is_ignored_with_a_remark(tmp_path: Path) -> None:
    document = copy.deepcopy(next(one for one in OWN.values() if one["recipe"]["problem"].get("time") is None))
    document["recipe"]["fit"]["noise"] = 0.01
    (tmp_path / checkpoint.CONFIG).write_text(json.dumps(document))
    with pytest.warns(UserWarning, match=r"fit.noise = 0.01 is ignored"):
        found = checkpoint.read_config(tmp_path)
    assert found.recipe.fit.noise == ()


def kept(before: Any, after: Any) -> bool:
    """Return whether all that a document said is in another one, which may have keys of later releases, too."""
    if isinstance(before, dict):
        return all(key in after and kept(value, after[key]) for key, value in before.items())
    if isinstance(before, list):
        return len(before) == len(after) and all(map(kept, before, after))
    return bool(before == after)


def test_the_digest_follows_the_weights(folder: Path) -> None:
    before = checkpoint.load(folder).digest
    state = load_file(folder / checkpoint.WEIGHTS)
    save_file({name: tensor + 1 for name, tensor in state.items()}, folder / checkpoint.WEIGHTS)
    assert checkpoint.load(folder).digest != before


@pytest.mark.parametrize("name", [checkpoint.WEIGHTS, checkpoint.CONFIG, checkpoint.CARD])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(checkpoint.CheckpointError, match=name):
        checkpoint.load(folder)


def test_a_wrong_shape_is_named_with_both_shapes(folder: Path) -> None:
    state = load_file(folder / checkpoint.WEIGHTS)
    save_file(state | {"join.bias": torch.zeros(3)}, folder / checkpoint.WEIGHTS)
    with pytest.raises(checkpoint.CheckpointError, match=r"expected \(12,\) for 'join.bias' but found \(3,\)"):
        checkpoint.load(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    state = load_file(folder / checkpoint.WEIGHTS)
    del state["join.bias"]
    save_file(state, folder / checkpoint.WEIGHTS)
    with pytest.raises(checkpoint.CheckpointError, match=r"join\.bias"):
        checkpoint.load(folder)


def test_layers_that_a_file_does_not_have_keep_their_weights(folder: Path) -> None:
    state = load_file(folder / checkpoint.WEIGHTS)
    save_file({"join.bias": state["join.bias"] + 1}, folder / checkpoint.WEIGHTS)
    operator = build(RECIPE.operator)
    before = {name: tensor.clone() for name, tensor in operator.state_dict().items()}
    kept = len(before) - 1
    sentence = (
        rf"has 1 of the {len(before)} tensors of the network; {kept} keep their initial values: .* and \d+ others"
    )
    with pytest.warns(UserWarning, match=sentence):
        checkpoint.restore(operator, folder / checkpoint.WEIGHTS, partly=True)
    expected = before | {"join.bias": state["join.bias"] + 1}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in operator.state_dict().items())
    save_file({"other": torch.zeros(3)} | state, folder / checkpoint.WEIGHTS)
    with pytest.raises(checkpoint.CheckpointError, match="only the file or only the config has: other"):
        checkpoint.restore(operator, folder / checkpoint.WEIGHTS, partly=True)


@pytest.mark.parametrize("name", [checkpoint.WEIGHTS, checkpoint.EXAMPLES])
@pytest.mark.parametrize("part", [slice(0, 0), slice(0, 4), slice(0, 400), slice(0, -1), slice(8, None)])
def test_a_damaged_file_is_named(folder: Path, name: str, part: slice) -> None:
    whole = (folder / checkpoint.WEIGHTS).read_bytes()
    (folder / name).write_bytes(whole[part])
    with pytest.raises(checkpoint.CheckpointError, match=rf"{name}: expected a safetensors file but it is damaged"):
        checkpoint.load(folder)


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"recipe": {}}', b"\xff\xfe", b"[" * 100_000])
def test_a_broken_config_is_named(folder: Path, text: bytes) -> None:
    (folder / checkpoint.CONFIG).write_bytes(text)
    with pytest.raises(checkpoint.CheckpointError, match=r"config\.json"):
        checkpoint.load(folder)


def test_a_stray_key_is_named_in_one_line(folder: Path) -> None:
    path = folder / checkpoint.CONFIG
    document = json.loads(path.read_text())
    document["recipe"]["fit"]["stray"] = document["problem"]["odd"] = 1
    path.write_text(json.dumps(document))
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.load(folder)
    stray = "recipe.fit.stray: the key is unknown (found 1)"
    assert str(caught.value) == f"{path}: {stray}; problem.odd: the key is unknown (found 1)"


def test_new_weights_drop_the_calibration_of_the_old_ones(folder: Path) -> None:
    (folder / calibration.FILE).write_bytes(b"of the old weights")
    checkpoint.save(folder, build(RECIPE.operator), RECIPE, PROBLEMS["darcy"], CheckpointCard(errors=()))
    assert checkpoint.load(folder).calibration is None
