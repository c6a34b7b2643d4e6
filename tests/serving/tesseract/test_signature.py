"""Shapes of outputs that follow from shapes of inputs, and those that do not."""

from __future__ import annotations

from schema.card import Card
from serving.protocols import tesseract
from tests import toy_fields
from tests.refusals import refused

CARD = Card.model_validate(toy_fields._card("drift", 1.0) | {"quality": ["novelty"]})
EVERY_DEFAULT = CARD.model_copy(
    update={"inputs": tuple(tensor.model_copy(update={"default": 1.0}) for tensor in CARD.inputs)}
)


def test_a_batch_has_a_number_about_its_quality_per_sample() -> None:
    shapes = {"density": (1, 6, 9), "time": (5,)}
    assert tesseract.results(CARD, shapes) == {"moved": (5, 6, 9), "flux": (5, 2, 6, 9), "novelty": (5,)}
    assert tesseract.results(CARD, {"density": (6, 9)}) == {"moved": (6, 9), "flux": (2, 6, 9), "novelty": ()}


def test_without_an_input_the_grid_is_unknown() -> None:
    with refused("wrong-input", match="the grid is unknown; send density or velocity"):
        tesseract.results(EVERY_DEFAULT, {"time": ()})


def test_an_output_on_a_grid_of_its_own_has_no_shape_yet() -> None:
    moved, *others = CARD.outputs
    apart = CARD.model_copy(update={"outputs": (moved.model_copy(update={"axes": ("batch", "y", "x")}), *others)})
    with refused("wrong-shape", match="known only once it is computed"):
        tesseract.results(apart, {"density": (6, 9)})
