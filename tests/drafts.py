"""Drafts of problem files, as somebody who confirms all guesses reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.problems.draft_file import Draft
from training.problems.problem_file import ProblemFile, read_problem_file


def read(text: str, folder: Path) -> tuple[ProblemFile, SampleFile]:
    """Read what a problem file says, its guesses confirmed."""
    (folder / "problem.toml").write_text(re.sub(r"  # guess:.*", "", text))
    problem = read_problem_file(folder / "problem.toml")
    return problem, SampleFile(prepare(problem, folder, folder / "data"), problem)


def values(made: Draft, folder: Path) -> dict[str, NDArray[Any]]:
    """Read the samples that a draft describes, its guesses confirmed."""
    _, samples = read(made.toml(), folder)
    return samples.read(range(sum(samples.counts)))
