"""One definition of a card: released cards are read by it, and the client's copy says the same."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from petrov_client import _schema
from petrov_client._descriptions import model_info
from petrov_client._vocabulary import PADDING, Vocabulary
from schema import __main__ as copies
from schema import card
from schema.card import Card, CheckpointCard, Interface
from schema.parts import validated

ROOT = Path(__file__).parents[2]
RELEASED = sorted(ROOT.glob("checkpoints/*/published/*/card.json"))
GENERATED = copies.generated()
TRAINED = sorted(ROOT.glob("checkpoints/*/card.json"))


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def same(info: Any, described: Any) -> bool:
    """Return whether a value of the client says what a part of a card does."""
    return all(getattr(info, each.name) == getattr(described, each.name) for each in fields(info))


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_a_chapter_of_the_client_is_as_it_is_made(path: Path) -> None:
    assert path.read_text() == GENERATED[path], "run `python -m schema`"


def test_help_writes_no_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "CLIENT", tmp_path)
    for arguments, status in ((["--help"], 0), (["--check"], 2)):
        with pytest.raises(SystemExit) as ended:
            copies.main(arguments)
        assert (ended.value.code, [*tmp_path.iterdir()]) == (status, [])
    copies.main([])
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in GENERATED}


def test_every_fact_of_a_card_s_parts_is_in_the_client_s_copy() -> None:
    for copy in copies.COPIES:
        known = {each.name for each in fields(getattr(_schema, copy.name))}
        assert known == set(copy.of.model_fields) - {*copy.without}


def test_the_client_s_vocabulary_has_every_fact_of_the_schema() -> None:
    renamed = {"answer": "labelled"}
    known = {renamed.get(name, name) for name in card.Vocabulary.model_fields} - {"padding"}
    assert {each.name for each in fields(Vocabulary)} == known
    assert card.Vocabulary.model_fields["padding"].default == PADDING


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.parent.name)
def test_the_client_reads_a_released_card_as_the_gateway_does(path: Path) -> None:
    described = validated(Card, document(path), path)
    sent = json.loads(described.model_dump_json())  # as the gateway does
    info = model_info({"name": path.parent.name, "version": 1, "versions": [1], "card": sent, "certificate": None})
    for part in ("inputs", "parameters", "outputs"):
        assert len(getattr(info, part)) == len(getattr(described, part))
        assert all(map(same, getattr(info, part), getattr(described, part)))
    assert info.grid is not None
    assert same(info.grid, described.grid)
    assert (info.frames is None) == (described.frames is None)
    assert info.frames is None or same(info.frames, described.frames)
    assert (info.quality, info.mask, info.batch) == (described.known, described.mask, described.limits.batch)
    if described.vocabulary is not None:
        texts = info.vocabulary
        assert texts is not None
        assert (texts.words, texts.pattern, texts.labels, texts.labelled) == (
            described.vocabulary.words,
            described.vocabulary.pattern,
            described.vocabulary.labels,
            described.vocabulary.answer,
        )


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.parent.name)
def test_the_card_of_a_released_checkpoint_has_no_unknown_key(path: Path) -> None:
    found = validated(CheckpointCard, document(path), path)
    assert found.model_dump(mode="json", exclude_unset=True) == document(path)


def test_what_a_plain_triton_does_not_say_is_none() -> None:
    tensor, number = _schema.TensorInfo("u", ("batch", "x")), _schema.ParameterInfo("t")
    assert (tensor.units, tensor.meaning, number.units, number.meaning) == (None, None, None, None)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"colour": "red"}, "colour"),
        ({"limits": {"batch": 4, "seconds": 1}}, "limits.seconds"),
        ({"inputs": [{"name": "u", "axes": ["batch", "x"], "unit": "m"}]}, "inputs.0.unit"),
        ({"quality": ["novelty", "error_bound"]}, "expected quality outputs in the order"),
    ],
)
def test_an_unknown_key_is_refused_by_a_sentence_that_names_file_and_key(change: dict[str, Any], key: str) -> None:
    found = document(RELEASED[0])
    with pytest.raises(ValueError, match=r"card\.json: ") as caught:
        validated(Card, found | change, "darcy/3/card.json")
    assert str(caught.value).startswith("darcy/3/card.json: ")
    assert key in str(caught.value)


def test_coordinates_on_a_grid_are_a_field_and_no_points_of_a_sample() -> None:
    """A grid that follows a body is described so, and its export took the model for one on points."""
    size, named = {"minimum": 8, "maximum": 64, "declared": [16], "points": "given"}, {"name": "coordinates"}
    common = {"limits": {"batch": 8}}

    def model(axes: list[str], *, behind: bool) -> Interface:
        sizes = [None] * len(axes)
        first = ["batch", *axes, "component"] if behind else ["batch", "component", *axes]
        shape = [None, *sizes, 2] if behind else [None, 2, *sizes]
        coordinates = named | {"components": ["x", "y"], "axes": first, "shape": shape}
        output = {"name": "speed", "axes": ["batch", *axes]}
        return Interface.model_validate(
            common | {"inputs": [coordinates], "outputs": [output], "grid": size | {"axes": axes}}
        )

    for interface, scattered in (
        (model(["row", "column"], behind=False), False),
        (model(["point"], behind=True), True),
    ):
        assert interface.scattered == scattered
        sent = interface.model_dump(mode="json") | {"title": "Flow"}
        info = model_info({"name": "flow", "version": 1, "versions": [1], "card": sent})
        assert info.scattered == scattered
