"""Problems: descriptions refuse contradictions, missing parts and unknown names are errors that name the problem."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from physics import darcy, poisson
from schema.parts import Parameter
from schema.problem import Description, GridLimits
from training.data.views import only_pair
from training.messages import UnknownNameError
from training.problems.problem import PROBLEMS, Conditions, MissingPartError, Problem, with_code

HEAT: dict[str, Any] = {
    "name": "heat",
    "title": "Steady heat",
    "equation": "-div(k grad T) = f",
    "boundary": "",
    "inputs": [
        {"name": "conductivity", "meaning": "", "units": "W/(m K)", "positive": True},
        {"name": "source", "meaning": ""},
    ],
    "parameters": [{"name": "wind", "meaning": "", "default": 1.0}],
    "outputs": [{"name": "temperature", "meaning": "", "units": "K"}],
    "axes": [
        {"name": "row", "boundary": "wall", "points": "cells"},
        {"name": "column", "length": 2.0, "boundary": "periodic", "points": "left"},
    ],
    "points": "cell centres",
    "grid": {"minimum": 16, "maximum": 128, "declared": [32], "unequal": [[32, 64]]},
    "distribution": "1000 simulations",
}


def heat(**changes: Any) -> Description:
    return Description.model_validate(HEAT | changes)


def test_a_description_survives_json() -> None:
    assert Description.model_validate_json(heat().model_dump_json()) == heat()
    assert [tensor.name for tensor in heat().tensors] == ["conductivity", "source", "wind", "temperature"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs": [{"name": "source", "meaning": ""}]}, "heat: expected different names but found 'source'"),
        ({"outputs": []}, "at least 1 item"),
        ({"output_grid": [8]}, r"expected points for the axes \('row', 'column'\) but got \(8,\)"),
        ({"name": "Heat 2"}, "should match pattern"),
        ({"colour": "red"}, "Extra inputs are not permitted"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        heat(**changes)


def test_limits_are_ordered() -> None:
    with pytest.raises(ValueError, match="expected minimum <= declared <= maximum"):
        GridLimits(minimum=16, maximum=64, declared=(32,), unequal=((32, 128),))
    with pytest.raises(ValueError, match="wind: expected minimum <= default <= maximum"):
        Parameter(name="wind", meaning="", default=3, maximum=2)


def test_a_missing_part_is_named_with_its_problem() -> None:
    problem = with_code(heat())
    assert problem == Problem(description=heat())
    with pytest.raises(MissingPartError, match="the problem 'heat' has no sampler"):
        problem.sample(np.random.SeedSequence(0), 8)
    with pytest.raises(MissingPartError, match="the problem 'heat' has no classical solver"):
        problem.solve({}, Conditions(8))


def test_the_pipeline_says_that_it_takes_one_input_and_one_output() -> None:
    with pytest.raises(NotImplementedError, match="but heat has conductivity, source, wind, temperature"):
        only_pair(heat())


def test_an_unknown_problem_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"expected a problem among burgers, .*darcy, .* but got 'heat'"):
        PROBLEMS["heat"]


def test_a_stored_description_keeps_its_own_figures_and_gets_the_code() -> None:
    stored = PROBLEMS["darcy_inverse"].description.model_copy(update={"output_grid": (8, 8)})
    found = with_code(stored)
    assert found.description.output_grid == (8, 8)
    assert found.source is PROBLEMS["darcy"]


def test_an_optional_parameter_belongs_to_models_and_not_to_samples() -> None:
    problem = PROBLEMS["darcy_inverse"]
    described = problem.description_for(optional=True)
    assert [parameter.name for parameter in described.parameters] == ["noise"]
    assert problem.description_for(optional=False) == problem.description
    assert with_code(described).of_samples.description == problem.description


@pytest.mark.parametrize("name", PROBLEMS)
def test_worker_processes_receive_the_object(name: str) -> None:
    assert pickle.loads(pickle.dumps(PROBLEMS[name])) == PROBLEMS[name]  # noqa: S301 -- its own bytes


@pytest.mark.parametrize(("name", "mesh"), [("darcy", 21), ("poisson", 9)])
def test_a_solution_on_the_sample_s_own_mesh_leaves_no_residual(name: str, mesh: int) -> None:
    problem, conditions = PROBLEMS[name], Conditions(mesh)
    sample = problem.sample(np.random.SeedSequence(1), mesh)
    inputs = {one.name: sample[one.name] for one in problem.description.inputs}
    assert set(sample) == {tensor.name for tensor in problem.description.tensors}
    found = inputs | dict(problem.solve(inputs, conditions))
    residual = darcy.residual(**found, wall=conditions.wall) if name == "darcy" else poisson.residual(*found.values())
    assert np.abs(residual).max() < 1e-8
