"""Samples that are kept apart and are copies of training samples, or beyond them, are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.problems.problem_file import ProblemFile

RNG = np.random.default_rng(0)
K, NU, WINDS = RNG.random((30, 8, 9)), RNG.random(30), RNG.random((30, 2))
Array = NDArray[np.float64]


def remarks(folder: Path, arrays: dict[str, Array], **sections: Any) -> str:
    np.savez(folder / "set.npz", **arrays)
    known: dict[str, Any] = {
        "name": "set",
        "data": {"files": ["set.npz"], "validation": 3, "test": 3},
        "inputs": {"k": {}},
        "outputs": {"u": {}},
        "axes": {"x": {}, "y": {}},
    }
    problem = ProblemFile.model_validate(known | sections)
    return str(SampleFile(prepare(problem, folder, folder / "data"), problem).file.attrs["remarks"])


VECTOR = {part: {name: {"components": ["x", "y"]}} for part, name in (("inputs", "k"), ("outputs", "u"))}
MOVING = {"inputs": {"first": {"key": "u"}}, "time": {"step": 0.1}}


def mirrored(k: Array) -> Array:
    """Return a vector field on a flipped axis."""
    return k[:, :, ::-1] * np.array([-1.0, 1.0])[:, None, None]


@pytest.mark.parametrize(
    ("fields", "copied", "sections"),
    [
        (K, lambda k: k[:, ::-1], {}),
        (K, lambda k: -np.roll(k, 3, axis=2), {}),
        (np.stack([K, K**2], 1), mirrored, VECTOR),
        (np.stack([K, K**2, K**3], 1), lambda u: u[..., ::-1], MOVING),
    ],
)
def test_flipped_copies_of_training_samples_are_named(
    fields: Array, copied: Callable[[Array], Array], sections: dict[str, Any], tmp_path: Path
) -> None:
    for folder in ("alone", "copied"):
        (tmp_path / folder).mkdir()
    assert remarks(tmp_path / "alone", {"k": fields, "u": 2 * fields}, **sections) == ""
    both = np.concatenate([fields, copied(fields)])
    said = "6 of 6 validation and test samples have the values of training samples, in other places"
    assert said in remarks(tmp_path / "copied", {"k": both, "u": 2 * both}, **sections)


def test_fields_of_two_values_are_alike_by_chance(tmp_path: Path) -> None:
    """Also beside a field that is the same for all."""
    materials = (K.argsort(axis=None).reshape(K.shape) % 2).astype(float)
    inputs = {"inputs": {"k": {}, "depth": {}}}
    assert "in other places" not in remarks(
        tmp_path, {"k": materials, "u": K, "depth": np.broadcast_to(K[0], K.shape)}, **inputs
    )


def test_parameters_of_most_test_samples_beyond_those_of_the_training_are_named(tmp_path: Path) -> None:
    sections = {"parameters": {"nu": {}, "wind": {"components": ["x", "y"]}}}
    for folder in ("mixed", "in_order"):
        (tmp_path / folder).mkdir()
    arrays, ordered = {"k": K, "u": 2 * K}, np.stack([NU, np.sort(NU)], 1)
    assert remarks(tmp_path / "mixed", {**arrays, "nu": NU, "wind": WINDS}, **sections) == ""
    nu = np.repeat([100.0, 1000.0, 10000.0], [20, 7, 3])
    found = remarks(tmp_path / "in_order", {**arrays, "nu": nu, "wind": ordered}, **sections)
    assert "nu is from 100 to 1000 in the training samples, and from 10000 to 10000 in those of the test" in found
    assert "wind.y is from " in found
    assert "wind.x is from " not in found
