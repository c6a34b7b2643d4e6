"""The registry holds every problem that has a classical solver, and refuses other names."""

from __future__ import annotations

import numpy as np
import pytest

from physics import registry

AXES = {
    "burgers": 1,
    "burgers_flow": 1,
    "darcy": 2,
    "darcy_inverse": 2,
    "poisson": 3,
    "kuramoto_sivashinsky": 1,
    "navier_stokes": 2,
}


def test_every_problem_of_physics_is_registered() -> None:
    assert registry.problems().keys() == AXES.keys()


@pytest.mark.parametrize("name", ["burgers", "darcy", "poisson"])
def test_an_example_is_solved_on_its_own_grid(name: str) -> None:
    problem = registry.problem(name)
    assert problem.example is not None
    example = problem.example(12, 3)
    solution = problem.solve(example)
    assert example.shape == solution.shape == (12,) * AXES[name]
    assert np.isfinite(solution).all()
    np.testing.assert_array_equal(example, problem.example(12, 3))


def test_the_inverse_problem_has_a_grid_of_its_own_and_limits() -> None:
    problem = registry.problem("darcy_inverse")
    pressure = registry.problem("darcy").solve(np.ones((13, 13)))
    assert problem.solve(pressure, points=(4, 4)).shape == (4, 4)
    assert (problem.largest, problem.slow) == (141**2, True)


@pytest.mark.parametrize("name", ["kuramoto_sivashinsky", "navier_stokes"])
def test_a_state_is_followed_by_frames(name: str) -> None:
    problem, state = registry.problem(name), np.sin(2 * np.pi * np.arange(16) / 16)
    state = state if AXES[name] == 1 else state + state[:, None]
    whole = problem.solve(state, frames=3, interval=0.5)
    assert whole.shape == (3, *state.shape)
    np.testing.assert_allclose(problem.solve(whole[0], frames=2, interval=0.5), whole[1:], rtol=1e-6, atol=1e-8)
    assert problem.trajectories


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(registry.UnknownProblemError, match=r'burgers, .*darcy, .*, poisson but got "heat"'):
        registry.problem("heat")
