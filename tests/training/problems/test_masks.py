"""Fields on a part of the grid, which a mask or NaN say: checks, prepared samples and drafts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from typer.testing import CliRunner

from tests.toy_masks import Arrays, samples, trajectories
from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.data.readers import DataFile, LazyArray
from training.data.readers.data_file import BLOCK
from training.problems.completed import steady, with_mask
from training.problems.problem_file import ProblemFile, read_problem_file
from training.problems.sections import INSIDE, DataError, unconfirmed


@pytest.fixture
def arrays() -> Arrays:
    return samples(10, 8)


def holes(**changes: object) -> ProblemFile:
    document: dict[str, object] = {
        "name": "holes",
        "data": {"files": ["holes.npz"]},
        "inputs": {"f": {}},
        "outputs": {"u": {"positive": True}},
        "axes": {"row": {}, "column": {}},
        "mask": {"key": "inside"},
    }
    return ProblemFile.model_validate(document | changes)


def prepared(problem: ProblemFile, folder: Path, arrays: Arrays) -> SampleFile:
    np.savez(folder / "holes.npz", **arrays)
    return SampleFile(prepare(problem, folder, folder / "data"), problem)


def test_frames_that_repeat_and_mark_the_outside_are_read_a_block_at_a_time() -> None:
    sizes = []

    def rows(start: int, stop: int) -> NDArray[np.float64]:
        sizes.append(stop - start)
        return np.broadcast_to(0.0, (stop - start, *one.shape[1:]))

    one = LazyArray("u", (200, 100, 64, 64), np.dtype(np.float64), rows, dimensions=("time", "row", "column"))
    file = DataFile(Path("a.npz"), "npz", {"u": one})
    problem = holes(inputs={"initial": {"key": "u"}}, outputs={"u": {}}, time={"step": 1.0}, mask={"nan": "u"})
    marked = with_mask(problem, file, file).array(problem[INSIDE].array)
    for made in (steady(one, file.path, "{} {}"), marked):
        sizes.clear()
        assert made.read(3, 43).shape == (40, 64, 64)
        assert sum(sizes) == 40
        assert max(sizes) * one.sample_bytes <= BLOCK
        assert made.read(3, 3).shape == (0, 64, 64)


@pytest.mark.parametrize("mask", [{"key": "inside"}, {"nan": "u"}])
def test_what_lies_outside_is_not_read(mask: dict[str, str], arrays: Arrays, tmp_path: Path) -> None:
    arrays["f"], arrays["u"] = arrays["f"][:, None], np.abs(arrays["u"])  # a component without a name
    arrays["f"][4, 0][arrays["inside"][4] == 0] = np.inf
    found = prepared(holes(mask=mask), tmp_path, arrays)
    values, inside = found.read(range(10)), arrays["inside"] == 1
    assert [*values] == ["f", "inside", "u"]
    assert (values["inside"] == inside).all()
    assert values["f"][inside] == pytest.approx(arrays["f"][:, 0][inside], rel=1e-6)
    assert np.isfinite(values["f"]).all()
    assert (values["u"][~inside] == 0).all()
    assert found.statistic("u", "deviation") == pytest.approx(arrays["u"][inside].std(), rel=1e-4)
    assert found.described.mask == "inside"


def test_one_mask_serves_all_samples_and_is_the_only_input(arrays: Arrays, tmp_path: Path) -> None:
    arrays["inside"] = arrays["inside"][0]
    arrays["u"] = np.random.default_rng(0).random((10, 8, 8)) + 1
    with pytest.raises(DataError, match="have equal inputs"):
        prepared(holes(inputs={}), tmp_path, arrays)
    values = prepared(holes(), tmp_path, arrays | {"f": arrays["u"] + 1}).read(range(10))
    assert (values["inside"] == arrays["inside"]).all()


def test_one_mask_for_all_samples_is_not_turned_with_arrays_whose_last_axis_counts_samples(tmp_path: Path) -> None:
    mask = np.tri(8)  # another one if rows and columns are exchanged
    fields = {name: np.random.default_rng(0).random((8, 8, 10)) for name in ("f", "u")}
    problem = holes(data={"files": ["holes.npz"], "sample": "last"})
    values = prepared(problem, tmp_path, fields | {"inside": mask}).read(range(10))
    assert (values["inside"] == mask).all()
    assert values["f"][3][mask == 1] == pytest.approx(fields["f"][mask == 1, 3], rel=1e-6)


def test_a_recipe_keeps_the_mask() -> None:
    assert ProblemFile.model_validate_json(holes().model_dump_json()) == holes()


def put(name: str, index: Any, value: Any) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name] = arrays[name].astype(np.float64)
        arrays[name][index] = value

    return change


def at_first_inside(name: str, value: float) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        assert arrays["inside"][3, 0, 0]
        arrays[name][3, 0, 0] = value

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (put("inside", (3, 1, 2), 0.5), r"holes.npz: 'inside' is 0.5 at sample 3, index \(1, 2\); expected 1 inside"),
        (put("inside", (3, 1, 2), np.nan), r"'inside' is nan at sample 3, index \(1, 2\); expected 1 inside"),
        (put("inside", 6, 0), r"'inside': no point of sample 6 is inside the domain"),
        (at_first_inside("f", np.nan), r"'f' is nan at sample 3, index \(0, 0\); expected a finite number"),
        (at_first_inside("u", -1), r"'u' is -1.0 at sample 3, index \(0, 0\); expected a positive number"),
    ],
)
def test_faults_are_named(change: Callable[[Arrays], None], sentence: str, arrays: Arrays, tmp_path: Path) -> None:
    arrays["u"] = np.abs(arrays["u"])
    change(arrays)
    with pytest.raises(DataError, match=sentence):
        prepared(holes(), tmp_path, arrays)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mask": {}}, "expected either key"),
        ({"mask": {"key": "inside", "nan": "u"}}, "expected either key"),
        (
            {"inputs": {"f": {"key": "u"}}, "outputs": {"u": {}}, "time": {"step": 0.1, "conserved": ["u"]}}
            | {"axes": {"row": {"boundary": "periodic", "points": "left"}}},
            r"time.conserved: expected none with \[mask\]",
        ),
        ({"points": {}}, r"mask: expected none with \[points\]"),
        ({"inputs": {"inside": {}}}, "inputs.inside: the name is that of the mask"),
    ],
)
def test_what_masks_exclude(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        holes(**changes)


@pytest.mark.parametrize(
    ("left_out", "section", "remark"),
    [
        ("", 'key = "inside"', "inside is 1 inside the domain and 0 outside"),
        ("inside", 'nan = "f"', "what lies outside the domain is NaN in f"),
    ],
)
def test_describe_finds_the_domain(left_out: str, section: str, remark: str, arrays: Arrays, tmp_path: Path) -> None:
    arrays.pop(left_out, None)
    np.savez(tmp_path / "own.npz", **arrays)
    drawn = (
        CliRunner()
        .invoke(app, ["describe", str(tmp_path / "own.npz"), "--outputs", "u"], catch_exceptions=False)
        .stdout
    )
    assert f"[mask]\n{section}" in drawn
    assert remark in drawn
    (tmp_path / "own.toml").write_text(drawn[drawn.index("# ") :])
    problem = read_problem_file(tmp_path / "own.toml")
    assert [one.name for one in problem.inputs] == ["f", "inside"]
    prepare(problem, tmp_path, tmp_path / "data")


def test_a_domain_that_is_repeated_for_all_samples_does_not_make_the_last_axis_count_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fields = {name: gaussian_filter(rng.standard_normal((24, 16, 16)), (0, 2, 2)) for name in ("f", "u")}
    np.savez(tmp_path / "own.npz", **fields, inside=np.broadcast_to(np.tri(16), (24, 16, 16)))
    drawn = CliRunner().invoke(app, ["describe", str(tmp_path / "own.npz"), "--outputs", "u"]).stdout
    assert '[mask]\nkey = "inside"' in drawn
    assert not unconfirmed(drawn)


COOLING = {"inputs": {"start": {"key": "heat"}}, "outputs": {"heat": {}}, "time": {"step": 0.004}}


@pytest.fixture(scope="module")
def cooling() -> Arrays:
    return trajectories(10, 8)


@pytest.mark.parametrize("mask", [{"key": "inside"}, {"nan": "heat"}])
@pytest.mark.parametrize("order", ["first", "last", "frames"])
def test_a_domain_is_the_same_in_all_frames(mask: dict[str, str], order: str, cooling: Arrays, tmp_path: Path) -> None:
    inside, heat = cooling["inside"] == 1, cooling["heat"]
    arrays = {**cooling, "heat": np.moveaxis(heat, 1, -1) if order == "last" else heat}
    if order == "frames":
        arrays["inside"] = np.repeat(cooling["inside"][:, None], heat.shape[1], axis=1)
    data = {"files": ["holes.npz"], "time": "last" if order == "last" else "first"}
    found = prepared(holes(**COOLING, mask=mask, data=data), tmp_path, arrays)
    values = found.read(range(10))
    assert [*values] == ["inside", "heat"]
    assert (values["inside"] == inside).all()
    known = np.broadcast_to(inside[:, None], heat.shape)
    assert values["heat"][known] == pytest.approx(heat[known], rel=1e-6)
    assert not values["heat"][~known].any()
    assert found.statistic("heat", "deviation") == pytest.approx(heat[known].std(), rel=1e-4)
    assert (found.frames, found.described.mask) == (6, "inside")


@pytest.mark.parametrize("mask", [{"key": "inside"}, {"nan": "heat"}])
def test_a_domain_that_moves_is_refused(mask: dict[str, str], cooling: Arrays, tmp_path: Path) -> None:
    heat, inside = cooling["heat"].copy(), np.repeat(cooling["inside"][:, None], 6, axis=1)
    heat[4, 3:, 0, 0], inside[4, 3:, 0, 0] = np.nan, 0
    with pytest.raises(DataError, match="the domain of sample 4 changes, at frame 3 first; expected the same in all"):
        prepared(holes(**COOLING, mask=mask), tmp_path, {"heat": heat, "inside": inside})


@pytest.mark.parametrize(("left_out", "section"), [("", 'key = "inside"'), ("inside", 'nan = "heat"')])
def test_describe_finds_the_domain_of_trajectories(
    left_out: str, section: str, cooling: Arrays, tmp_path: Path
) -> None:
    arrays = {**cooling, "conductivity": np.random.default_rng(0).random((10, 8, 8)) + 1}
    arrays.pop(left_out, None)
    np.savez(tmp_path / "own.npz", **arrays)
    arguments = ["describe", str(tmp_path / "own.npz"), "--outputs", "heat"]
    drawn = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
    assert f"[mask]\n{section}" in drawn
    text = "".join(line.partition("# guess:")[0] + "\n" for line in drawn[drawn.index("# ") :].splitlines())
    (tmp_path / "own.toml").write_text(text)
    problem = read_problem_file(tmp_path / "own.toml")
    assert [one.name for one in problem.inputs] == ["heat_first", "conductivity", "inside"]
    assert problem.time is not None
    prepare(problem, tmp_path, tmp_path / "data")


def test_describe_takes_no_values_that_end_for_a_domain(cooling: Arrays, tmp_path: Path) -> None:
    heat = np.nan_to_num(cooling["heat"])
    heat[:, 4:, 2, 2] = np.nan  # a solver that has diverged
    np.savez(tmp_path / "own.npz", heat=heat)
    arguments = ["describe", str(tmp_path / "own.npz"), "--outputs", "heat"]
    assert "[mask]" not in CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
