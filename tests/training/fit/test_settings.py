"""Settings that a training would ignore, or follow to another meaning, are refused before it begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import recipe
from training.problems.problem_file import ProblemFile
from training.recipe import RecipeError, changed

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
