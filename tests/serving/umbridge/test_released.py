"""Every released model that UM-Bridge lists takes some constant input, as the project's conformity suite sends it.

The suite sets every input of the first listed model to one number. Parameters with a default are no inputs, so that one
number is valid for all that are left. The graphs run here without a Triton, on the default grid of `InputSizes`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest

from serving import checks
from serving.catalogue.card import FRAME, Card
from serving.errors import Problem
from serving.protocols import umbridge

if TYPE_CHECKING:
    from numpy.typing import NDArray

REPOSITORY = Path(__file__).parents[3] / "model_repository"
VALUES = (3.0, 1.0, 0.5, 0.0)  # the first is the one of the suite's documentation


def read(folder: Path) -> Card:
    newest = max((each for each in folder.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))
    return Card.model_validate_json((newest / "card.json").read_text())


CARDS = {folder.name: read(folder) for folder in sorted(REPOSITORY.iterdir()) if folder.is_dir()}
LISTED = [name for name, card in CARDS.items() if umbridge.fits(card) and card.format == "onnx"]


def run(card: Card, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.enable_mem_reuse = False  # else ONNX Runtime plans the memory of a rollout for many seconds
    file = REPOSITORY / card.model / str(card.version) / "model.onnx"
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, arrays), strict=True))


def constant(card: Card, value: float, shapes: dict[str, Any], sent: list[str]) -> dict[str, NDArray[Any]]:
    arrays, _ = checks.batch({name: np.full(shapes[name], value) for name in sent}, card)
    if card.frames is not None:
        arrays[FRAME] = np.zeros((1, 1), np.int32)
    return arrays


def test_there_are_some() -> None:
    assert {"burgers", "darcy", "darcy_inverse", "navier_stokes"} <= set(LISTED)


@pytest.mark.parametrize("name", LISTED)
def test_every_input_may_be_set_to_one_number(name: str) -> None:
    card, config = CARDS[name], umbridge.Config()
    grid = umbridge._grid(card, config)
    sizes = card.shapes(dict(zip(card.grid.axes, grid, strict=True)) | {FRAME: 1})
    arguments = [argument.name for argument in umbridge._arguments(card, config)]
    assert not set(arguments) & set(card.optional)
    for value in VALUES:
        try:
            arrays = constant(card, value, sizes, arguments)
        except Problem:
            continue
        outputs = run(card, arrays)
        if all(np.isfinite(outputs[tensor.name]).all() for tensor in card.outputs):
            break
    else:
        pytest.fail(f"{name} takes no constant input")
    for kind in card.differentiable:
        product = CARDS[f"{name}_{kind}"]
        role = "cotangents" if kind == "vjp" else "tangents"
        along = card.outputs[0].name if kind == "vjp" else arguments[0]
        vector = {f"{role}.{along}": np.full(sizes[along], value)}
        sent = {each: np.full(sizes[each], value) for each in arguments} | vector
        checked, _ = checks.batch(sent, product)
        if card.frames is not None:
            checked[FRAME] = np.zeros((1, 1), np.int32)
        for result, array in run(product, checked).items():
            assert np.isfinite(array).all(), (kind, result, math.prod(array.shape))
