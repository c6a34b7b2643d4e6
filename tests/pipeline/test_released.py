"""Check the committed checkpoints on unseen fields, new expressions and memorised sequences, against their cards."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

import physics.averages
import physics.burgers
import physics.darcy
from physics.grid import WALL
from training import checkpoint
from training.sequences.corpora import grammar
from training.sequences.corpora import load as corpora
from training.sequences.samples import UNLABELLED

RELEASED = Path(__file__).parents[2] / "checkpoints"


def relative_l2(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


@pytest.mark.parametrize("points", [85, 141, 211])
def test_darcy_is_near_a_finite_volume_solve(points: int) -> None:
    coefficient, solution = (physics.darcy.restrict(field, points) for field in physics.darcy.sample(2**31))
    operator = checkpoint.load(RELEASED / "darcy").operator
    with torch.inference_mode():
        found = operator(torch.from_numpy(coefficient.astype("float32"))[None])[0].numpy()
    assert relative_l2(found, solution) < 1e-2


@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_the_inverse_recovers_the_block_means(noise: float) -> None:
    coefficient, solution = physics.darcy.sample(2**31)
    measured = physics.darcy.restrict(solution, 141)
    measured = measured + noise * np.random.default_rng(0).standard_normal(measured.shape)
    operator = checkpoint.load(RELEASED / "darcy_inverse").operator
    with torch.inference_mode():
        found = operator(torch.from_numpy(measured.astype("float32"))[None])[0].numpy()
    assert relative_l2(found, physics.averages.coarsen(coefficient, (36, 36), WALL)) < 5e-2


@pytest.mark.parametrize("points", [512, 1024, 8192])
def test_burgers_is_near_a_spectral_solve(points: int) -> None:
    initial, final = (field[:: 8192 // points] for field in physics.burgers.sample(2**31))
    operator = checkpoint.load(RELEASED / "burgers").operator
    with torch.inference_mode():
        found = operator(torch.from_numpy(initial.astype("float32"))[None])[0].numpy()
    assert relative_l2(found, final) < 5e-2


def test_listops_has_the_accuracy_of_its_card() -> None:
    released = checkpoint.load(RELEASED / "listops")
    [figures], rng = released.card["accuracy"], Random(2**31)  # noqa: S311 - reproducible, not secret
    drawn = [grammar.draw(rng, *released.recipe.data.length) for _ in range(400)]
    tokens = np.zeros((len(drawn), max(map(len, drawn))), np.int32)
    for row, expression in zip(tokens, drawn, strict=True):
        row[: len(expression)] = expression
    with torch.inference_mode():
        found = released.operator(torch.from_numpy(tokens)).argmax(dim=-1).tolist()
    accuracy = np.mean([value == grammar.value(each) for value, each in zip(found, drawn, strict=True)])
    assert accuracy > figures["accuracy"] - 0.1  # four standard deviations
    assert accuracy > figures["majority"] + 0.1


def test_the_memoriser_recalls_every_sequence_of_its_card(tmp_path: Path) -> None:
    """The sequences are drawn again from the seed of the recipe, and one of them is written on the card."""
    released = checkpoint.load(RELEASED / "memoriser")
    problem, splits = corpora.load(released.recipe, tmp_path)
    assert problem == released.problem
    assert released.card["training"]["distribution"] == problem.distribution
    tokens, labels = splits["train"].batch(range(len(splits["train"])))
    with torch.inference_mode():
        found = released.operator(*tokens).argmax(dim=-1)
    seen = labels != UNLABELLED
    assert (found == labels)[seen].double().mean().item() == released.card["accuracy"][0]["accuracy"] == 1
    *_, listed = problem.distribution.split("; ")
    letters, colours = (part.split() for part in listed.split(" with "))
    with torch.inference_mode():
        [output] = released.operator(torch.tensor([problem.encode(" ".join(letters))], dtype=torch.int32))
    assert [problem.labels[label] for label in output.argmax(dim=-1)] == colours


@pytest.mark.parametrize("name", sorted(path.name for path in RELEASED.iterdir()))
def test_the_card_agrees_with_weights_and_recipe(name: str) -> None:
    found = checkpoint.load(RELEASED / name)
    assert found.card["checkpoint"]["parameters"] == sum(p.numel() for p in found.operator.parameters())
    rows, unit = ("errors", "fields") if "errors" in found.card else ("accuracy", "sequences")
    assert {row[unit] for row in found.card[rows]} == {found.recipe.data.test}
