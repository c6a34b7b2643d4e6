"""Drafts of files with numbers per sample as outputs, and of files without an input field."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.data.readers import open_file
from training.files import read_toml
from training.problems.draft import draft
from training.problems.draft_file import DraftError
from training.problems.problem_file import ProblemFile

RNG = np.random.default_rng(0)
SHAPE = RNG.random((30, 16, 16))
A = RNG.uniform([-1, 0, 0], [1, 3, 3], (30, 3))
X, Y = np.mgrid[0:1:16j, 0:1:12j]
WAVES = A[:, :1, None] * np.cos(A[:, 1:2, None] * X + A[:, 2:, None] * Y)


def drafted(folder: Path, outputs: Sequence[str] = (), **arrays: Any) -> str:
    np.savez(folder / "case.npz", **arrays)
    with open_file(folder / "case.npz") as file:
        return draft(file, [Path("case.npz")], outputs=outputs).toml()


def described(text: str, folder: Path) -> ProblemFile:
    """Return the drafted problem, whose samples can be prepared."""
    (folder / "case.toml").write_text(text)
    found = ProblemFile.model_validate(read_toml(folder / "case.toml"))
    assert SampleFile(prepare(found, folder, folder / "data"), found).counts[0] == 24
    return found


@pytest.mark.parametrize(
    ("arrays", "outputs"),
    [
        ({"drag": SHAPE.mean((1, 2)), "lift": SHAPE.std((1, 2))}, ["drag", "lift"]),
        ({"coefficients": np.stack([SHAPE.mean((1, 2)), SHAPE.std((1, 2))], 1)}, ["coefficients"]),
        ({"drag": SHAPE.mean((1, 2)), "pressure": SHAPE**2}, ["drag", "pressure"]),
        ({"mach": RNG.random(30), "drag": SHAPE.mean((1, 2))[None]}, ["drag"]),  # a row of MATLAB
    ],
)
def test_numbers_that_are_asked_for_are_outputs(arrays: dict[str, Any], outputs: list[str], tmp_path: Path) -> None:
    text = drafted(tmp_path, outputs, shape=SHAPE, **arrays)
    assert "guess: outputs" not in text
    found = described(text, tmp_path)
    assert {*found.output_names} == {*outputs}
    assert all(one.positive for one in found.scalars)
    assert [one.name for one in found.inputs] == ["shape"]
    assert [one.name for one in found.parameters] == [name for name in arrays if name not in outputs]


def test_numbers_beside_a_lone_field_are_a_guess_by_their_names(tmp_path: Path) -> None:
    text = drafted(tmp_path, shape=SHAPE, drag=SHAPE.mean((1, 2)))
    assert "[outputs.drag]  # guess: outputs: it may be shape or the numbers per sample (drag)" in text
    text = drafted(tmp_path, v=WAVES, a1=A[:, 0], a2=A[:, 1])
    assert "[outputs.v]  # guess: outputs: it may be v or the numbers per sample (a1, a2)" in text


@pytest.mark.parametrize(
    ("field", "number", "output"),
    [
        ("pressure", "drag_coefficient", "drag_coefficient"),
        ("u", "dissipation", "dissipation"),
        ("u", "diffusion_coefficient", "u"),
        ("u", "wind_y", "u"),
        ("shape", "speed", "shape"),
    ],
)
def test_a_lone_field_with_numbers_beside_it_is_a_guess_whatever_their_names(
    field: str, number: str, output: str, tmp_path: Path
) -> None:
    text = drafted(tmp_path, **{field: SHAPE, number: SHAPE.mean((1, 2))})
    assert f"[outputs.{output}]  # guess: outputs: it may be {field} or the numbers per sample ({number})" in text
    assert "guess: outputs" not in drafted(tmp_path, [output], **{field: SHAPE, number: SHAPE.mean((1, 2))})


def test_numbers_beside_a_lone_trajectory_or_a_field_of_a_cloud_are_a_guess(tmp_path: Path) -> None:
    steps = np.cumsum(RNG.random((30, 9, 16)), axis=1)
    text = drafted(tmp_path, u=steps, t=np.arange(9.0), drag=steps.mean((1, 2)))
    assert "[outputs.u]  # guess: outputs: the field that changes in time, none of the numbers per sample (" in text
    text = drafted(tmp_path, xy=RNG.random((30, 20, 2)), f=RNG.random((30, 20)), drag=RNG.random(30))
    assert "[outputs.f]  # guess: outputs: it may be f or the numbers per sample (drag)" in text


@pytest.mark.parametrize("arrays", [{"a1": A[:, 0], "a2": A[:, 1], "a3": A[:, 2]}, {"params": A}])
def test_a_field_of_numbers_alone_has_no_input_field(arrays: dict[str, Any], tmp_path: Path) -> None:
    found = described(drafted(tmp_path, u=WAVES, **arrays), tmp_path)
    assert not found.inputs
    assert len(found.parameters) == 3
    assert found.output_names == ("u",)


def test_numbers_of_clouds_are_outputs(tmp_path: Path) -> None:
    xy, f = RNG.random((30, 20, 2)), RNG.random((30, 20))
    found = described(drafted(tmp_path, ["lift"], xy=xy, f=f, lift=f.mean(1), speed=f.max(1)), tmp_path)
    assert [(one.name, one.scalar, one.positive) for one in found.outputs] == [("lift", True, True)]
    assert [one.name for one in found.parameters] == ["counts", "speed"]


def test_a_field_without_anything_to_learn_it_from_is_asked_about_or_refused(tmp_path: Path) -> None:
    assert "# guess: time is the first axis behind the samples', of 16" in drafted(tmp_path, u=WAVES)
    with pytest.raises(DraftError, match="two fields, or a field and numbers per sample"):
        drafted(tmp_path, u=WAVES[:, 0])
