"""Research is found by entry points alone, and imported only where a recipe names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from training import checkpoint, recipes
from training.messages import UnknownNameError
from training.problems.problem import PROBLEMS

pytestmark = pytest.mark.deep
ROOT = Path(__file__).parents[2]
IMPORTED = """
import sys
from pathlib import Path
from training.fit import run
from training import recipes
from pathlib import Path

for name in sys.argv[1:]:
    run.workload(recipes.read(recipes.find(name)), Path("data"))
    print(*sorted(name for name in sys.modules if name.partition(".")[0] == "research"))
"""


def test_a_recipe_of_fields_imports_no_corpora_and_no_networks_of_sequences() -> None:
    command = [sys.executable, "-c", IMPORTED, "darcy-quick", "listops-tiny"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    fields, then = (line.split() for line in done.stdout.splitlines())
    assert not {name for name in fields if name.startswith(("research.sequences", "research.memorisation"))}
    assert "research.sequences.training" in then


def test_problems_and_recipes_of_research_are_found_by_name() -> None:
    assert {"burgers_r10", "neuralop_darcy"} < set(PROBLEMS)
    for name in ("darcy-ablation", "burgers_fourier-laptop", "neuralop_darcy-quick", "memoriser-tiny"):
        assert recipes.read(recipes.find(name)).name == name


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="expected a kind of recipe among sequences but got 'graphs'"):
        recipes.validate({"kind": "graphs"}, "test")


def test_a_checkpoint_without_a_kind_is_that_of_sequences_if_it_has_a_vocabulary() -> None:
    stored = checkpoint.read_config(ROOT / "checkpoints" / "listops")
    assert stored.recipe.model_dump()["kind"] == "sequences"
    assert checkpoint.Config.model_validate_json(stored.model_dump_json()) == stored
