"""Drafts of problem files, as somebody who confirms all guesses reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typer.testing import CliRunner

from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.problems.draft_file import Draft
from training.problems.problem_file import ProblemFile, read_problem_file
from training.problems.sections import unconfirmed

Arrays = Mapping[str, NDArray[Any]]


class Case(NamedTuple):
    """A layout: what writes it, the files to describe, the outputs, what is asked, the values that are right."""

    write: Callable[[Path], object]
    files: str | tuple[str, ...]
    outputs: str
    asked: AbstractSet[str]
    values: Arrays
    said: tuple[str, ...] = ()

    def check(self, folder: Path, rtol: float) -> Arrays:
        """Require that the draft reads the right values or asks what the files leave open, and return what it reads."""
        self.write(folder)
        text = described(folder, self.files, self.outputs)
        assert {*unconfirmed(text).values()} == self.asked
        for sentence in self.said:
            assert sentence in text
        found = contents(text, folder)
        assert {*found} >= {*self.values}
        for tensor, right in self.values.items():
            np.testing.assert_allclose(found[tensor], right, rtol=rtol, err_msg=tensor)
        return found


def described(folder: Path, files: str | tuple[str, ...] = ".", outputs: str = "") -> str:
    """Return the problem file that `describe` drafts for files of a folder; its errors are raised."""
    paths = [str(folder / each) for each in ([files] if isinstance(files, str) else files)]
    names = ["--outputs", outputs] if outputs else []
    return CliRunner().invoke(app, ["describe", *paths, *names], catch_exceptions=False).stdout


def read(text: str, folder: Path) -> tuple[ProblemFile, SampleFile]:
    """Read what a problem file says, its guesses confirmed."""
    (folder / "problem.toml").write_text(re.sub(r"  # guess:.*", "", text))
    problem = read_problem_file(folder / "problem.toml")
    return problem, SampleFile(prepare(problem, folder, folder / "data"), problem)


def contents(text: str, folder: Path) -> dict[str, NDArray[Any]]:
    """Read the samples that a problem file describes, its guesses confirmed."""
    _, samples = read(text, folder)
    return samples.read(range(sum(samples.counts)))


def values(made: Draft, folder: Path) -> dict[str, NDArray[Any]]:
    """Read the samples that a draft describes, its guesses confirmed."""
    return contents(made.toml(), folder)
