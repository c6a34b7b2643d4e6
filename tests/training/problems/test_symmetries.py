"""Every symmetry that training draws commutes with the classical solver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import physics.burgers
import physics.darcy
import physics.poisson
from schema.problem import Description
from training.data.augment import transform
from training.data.readers import open_file
from training.problems.draft import draft
from training.problems.problem import PROBLEMS, Problem
from training.problems.problem_file import ProblemFile


def fields(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


def test_the_square() -> None:
    rng = np.random.default_rng(0)
    coefficients = np.where(rng.random((8, 21, 21)) < 0.5, 3.0, 12.0)
    solutions = np.stack([physics.darcy.solve(a) for a in coefficients])
    moved, outputs = transform(PROBLEMS["darcy"].description, fields(coefficients, solutions), rng)
    assert not torch.equal(moved, torch.from_numpy(coefficients))
    np.testing.assert_allclose(outputs, [physics.darcy.solve(a) for a in moved.numpy()], rtol=1e-8)


def test_the_circle() -> None:
    rng, x = np.random.default_rng(1), np.arange(128) / 128
    initial = np.stack([np.sin(2 * np.pi * x + k) + 0.3 * np.cos(4 * np.pi * x) for k in range(6)])
    final = physics.burgers.solve(initial)
    moved, outputs = transform(PROBLEMS["burgers"].description, fields(initial, final), rng)
    assert not torch.equal(moved, torch.from_numpy(initial))
    np.testing.assert_allclose(outputs, physics.burgers.solve(moved.numpy()), atol=1e-8)


def test_the_cube() -> None:
    rng = np.random.default_rng(2)
    sources = rng.standard_normal((8, 7, 7, 7))
    potentials = np.stack([physics.poisson.solve(f) for f in sources])
    moved, outputs = transform(PROBLEMS["poisson"].description, fields(sources, potentials), rng)
    assert not torch.equal(moved, torch.from_numpy(sources))
    np.testing.assert_allclose(outputs, [physics.poisson.solve(f) for f in moved.numpy()], atol=1e-14)


def test_a_cube_has_48_symmetries_and_a_box_those_that_keep_its_sides() -> None:
    rng = np.random.default_rng(3)
    for sides, number in {(2, 2, 2): 48, (2, 3, 2): 16, (2, 3, 4): 8}.items():
        field = torch.arange(float(np.prod(sides))).reshape(1, *sides).repeat(600, 1, 1, 1)
        moved, _ = transform(PROBLEMS["poisson"].description, (field, field), rng)
        assert moved.shape == field.shape
        assert len({tuple(one.flatten().tolist()) for one in moved}) == number


def test_a_rectangle_keeps_its_shape() -> None:
    grid = torch.arange(12.0).reshape(1, 3, 4).repeat(20, 1, 1)
    moved, _ = transform(PROBLEMS["darcy"].description, (grid, grid), np.random.default_rng(0))
    assert moved.shape == grid.shape
    assert len({tuple(field.flatten().tolist()) for field in moved}) == 4


def described(**changes: object) -> Description:
    return Description.model_validate(PROBLEMS["burgers"].description.model_dump() | changes)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["flip_depth"], "burgers: expected some of flip_point, .*shift_point, negate but got flip_depth"),
        (["rotate"], "but got rotate"),
    ],
)
def test_an_unknown_symmetry_is_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem(description=described(symmetries=names))


def test_a_shift_needs_a_periodic_axis() -> None:
    darcy = PROBLEMS["darcy"].description
    with pytest.raises(ValueError, match=r"expected some of flip_row, .*transpose, negate but got shift_row"):
        Problem(description=darcy.model_copy(update={"symmetries": ("shift_row",)}))


def test_symmetries_of_vector_fields_are_refused() -> None:
    velocity = {"name": "initial", "meaning": "velocity", "components": ["x", "y"]}
    with pytest.raises(ValueError, match=r"expected none with vector fields .initial."):
        Problem(description=described(inputs=[velocity]))


@pytest.mark.parametrize("part", ["outputs", "parameters"])
@pytest.mark.parametrize("name", ["flip_x", "reflect_x", "transpose", "shift_x", "negate"])
def test_turns_are_refused_with_numbers_that_have_components(part: str, name: str) -> None:
    document: dict[str, Any] = {
        "name": "flow",
        "data": {"files": ["flow.npz"]},
        "inputs": {"k": {}},
        "outputs": {"u": {}},
        "axes": {axis: {"boundary": "periodic"} for axis in ("x", "y")},
        "symmetries": {"exact": [name]},
    }
    assert ProblemFile.model_validate(document).symmetries == (name,)
    scalar = {"scalar": True} if part == "outputs" else {}
    document[part] = document.get(part, {}) | {"force": {"components": ["x", "y"]} | scalar}
    if name == "shift_x" or (name, part) == ("negate", "parameters"):
        assert ProblemFile.model_validate(document).symmetries == (name,)
    else:
        with pytest.raises(ValueError, match=rf"symmetries.exact: {name}: expected none with numbers .*\(force\)"):
            ProblemFile.model_validate(document)


@pytest.mark.parametrize("name", ["reflect_point", "negate"])
def test_a_symmetry_that_changes_the_sign_of_a_positive_field_is_refused(name: str) -> None:
    positive = {"name": "initial", "meaning": "density", "positive": True}
    with pytest.raises(ValueError, match=f"{name} does not hold for positive fields"):
        Problem(description=described(inputs=[positive], symmetries=[name]))


def test_negation_changes_signs_of_all_fields_of_a_sample_together() -> None:
    field = torch.arange(1.0, 65.0).repeat(40, 1)
    inputs, outputs = transform(described(symmetries=["negate"]), (field, field), np.random.default_rng(0))
    assert torch.equal(inputs, outputs)
    assert {tuple(one.tolist()) for one in inputs} == {tuple(field[0].tolist()), tuple((-field[0]).tolist())}


def test_a_parameter_of_both_signs_may_be_a_component_so_flips_are_not_tried(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    k = rng.standard_normal((30, 1, 1)) + np.ones((30, 16, 16)) * np.sin(np.arange(16) / 5)
    for low, flips in ((-3.0, False), (1.0, True)):
        np.savez(tmp_path / "flow.npz", k=k, c=2 * k, vx=rng.uniform(low, 3, 30))
        with open_file(tmp_path / "flow.npz", "auto") as file:
            made = draft(file, [tmp_path / "flow.npz"], None, ["c"])
        assert [one.name for one in made.of("parameters")] == ["vx"]
        assert ("flip_row" in made.candidates, "transpose" in made.candidates) == (flips, flips)
        assert "negate" in made.candidates
