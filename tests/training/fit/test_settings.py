"""Settings that a training would ignore, or follow to another meaning, are refused before it begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import recipe
from training.problems.problem_file import ProblemFile
from training.recipe import Recipe, RecipeError, changed
from training.recipes import find, read

SIDES = (12, 16)


@pytest.fixture
def samples(tmp_path: Path) -> SampleFile:
    """Return a positive field on a plane, and as many of another one."""
    values = np.random.default_rng(0).uniform(1, 2, (40, *SIDES))
    np.savez(tmp_path / "heat.npz", k=values, T=values)
    document = {
        "name": "heat",
        "data": {"files": ["heat.npz"]},
        "inputs": {"k": {"positive": True}},
        "outputs": {"t": {"key": "T"}},
        "axes": {"row": {}, "column": {}},
    }
    problem = ProblemFile.model_validate(document)
    return SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem)


@pytest.mark.parametrize("kind", ["elliptic", "equivariant-inverse", "burgers-flow"])
def test_an_operator_that_solves_an_equation_of_its_own_is_refused_for_a_user_s_data(
    kind: str, samples: SampleFile
) -> None:
    """The bounds that it guarantees would be those of its own equation, whatever the data are of."""
    message = f"heat-tiny: operator: expected one that learns any equation, as field does, but got '{kind}'"
    with pytest.raises(RecipeError, match=message):
        recipe(samples, "tiny", operator={"kind": kind})
    chosen = changed(recipe(samples, "tiny"), [f'operator={{kind = "{kind}"}}'])
    with pytest.raises(RecipeError, match=message):
        OperatorWorkload(chosen, samples.path.parent).check()


def test_the_precision_of_a_recipe_is_that_of_the_steps_of_trajectories(tmp_path: Path) -> None:
    """They are trained by rollouts, which do not call the whole network."""
    values = np.random.default_rng(0).standard_normal((16, 6, 12)).cumsum(axis=1)
    np.savez(tmp_path / "waves.npz", u=values)
    document = {
        "name": "waves",
        "data": {"files": ["waves.npz"]},
        "inputs": {"initial": {"key": "u"}},
        "outputs": {"u": {}},
        "axes": {"x": {}},
        "time": {"step": 0.1},
    }
    problem = ProblemFile.model_validate(document)
    made = recipe(SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem), "tiny")
    found: dict[str, list[torch.Tensor]] = {}
    for precision in ("float32", "bfloat16"):
        work = OperatorWorkload(changed(made, [f"precision={precision}"]), tmp_path / "data")
        network, batch = work.task().network, work.batch(range(4), 2)
        with torch.no_grad():
            found[precision] = [work.predictions(network.train(), batch)[0]]
            found[precision] += [work.last_step(network, batch).inputs[0]]
            found[precision] += [work.predictions(network.eval(), batch)[0]]
    exact, rough = found.values()
    assert all(each.dtype == torch.float32 for each in rough)
    for one, other in zip(exact[:2], rough[:2], strict=True):
        assert 1e-5 < (one - other).norm() / one.norm() < 1e-1
    assert torch.equal(exact[2], rough[2])


def test_a_network_that_computes_its_loss_itself_is_trained_in_float32(tmp_path: Path) -> None:
    made = read(find("darcy_inverse-equivariant"))
    assert isinstance(made, Recipe)
    assert made.operator.kind == "equivariant-inverse"
    OperatorWorkload(made, tmp_path).check()
    chosen = changed(made, ["precision=bfloat16"])
    with pytest.raises(RecipeError, match="precision: expected float32 of the operator 'equivariant-inverse', which"):
        OperatorWorkload(chosen, tmp_path).check()
