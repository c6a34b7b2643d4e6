"""A user's files: drafted as they are, checked before any training, and refused with the location of what is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from export.repository import SUFFIXES
from schema.parts import Axis, Parameter, Quantity
from training.data.prepare import data_files
from training.data.readers import ReadError, open_file
from training.data.readers.formats import READERS
from training.messages import UserError
from training.problems.checks import check, remarks
from training.problems.columns import Column, columns_of
from training.problems.draft import draft
from training.problems.problem_file import ProblemFile, read_problem_file
from training.problems.sections import (
    CoarseSection,
    DataError,
    DataSection,
    MaskSection,
    PointsSection,
    ProblemFileError,
    SymmetrySection,
    TimeSection,
)

HEAT = """
name = "heat"
[data]
files = ["heat.h5"]
[inputs.conductivity]
key = "k"
units = "W/(m K)"
positive = true
[inputs.source]
key = "f"
[parameters.wind]
minimum = 0.0
maximum = 1.0
[outputs.temperature]
key = "T"
units = "K"
[axes.row]
boundary = "wall"
[axes.column]
length = 2.0
boundary = "periodic"
[symmetries]
exact = ["flip_row", "shift_column"]
"""
Arrays = dict[str, NDArray[Any]]


def heat(samples: int = 20) -> Arrays:
    rng = np.random.default_rng(0)
    k, f = rng.uniform(1, 2, (samples, 8, 12)), rng.standard_normal((samples, 8, 12))
    return {"k": k, "f": f, "wind": rng.random(samples), "T": f / k}


def write(path: Path, arrays: Arrays) -> None:
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file[name] = value


@pytest.fixture
def problem(tmp_path: Path) -> ProblemFile:
    (tmp_path / "heat.toml").write_text(HEAT)
    return read_problem_file(tmp_path / "heat.toml")


@contextmanager
def open_columns(problem: ProblemFile, paths: list[Path]) -> Iterator[dict[str, Column]]:
    with ExitStack() as stack:
        yield columns_of(problem, [stack.enter_context(open_file(path, problem.data.format)) for path in paths])


def checked(problem: ProblemFile, paths: list[Path]) -> tuple[dict[str, Column], dict[str, Any]]:
    with open_columns(problem, paths) as columns:
        return columns, check(problem, columns)


def test_good_data_pass_and_are_summarised(problem: ProblemFile, tmp_path: Path) -> None:
    arrays = heat()
    write(tmp_path / "heat.h5", arrays)
    columns, found = checked(problem, data_files(problem, tmp_path))
    assert {name: column.shape for name, column in columns.items()} == {
        "conductivity": (8, 12),
        "source": (8, 12),
        "wind": (),
        "temperature": (8, 12),
    }
    assert found["temperature"].mean == pytest.approx(arrays["T"].mean(), rel=1e-5)
    assert found["source"].deviation == pytest.approx(arrays["f"].std(), rel=1e-5)
    assert problem.data.counts(20) == (16, 2, 2)
    assert remarks(columns, found) == []


def test_several_files_are_one_set(tmp_path: Path) -> None:
    (tmp_path / "heat.toml").write_text(HEAT.replace('"heat.h5"', '"run-*.h5"'))
    problem, arrays = read_problem_file(tmp_path / "heat.toml"), heat()
    for part, rows in {"a": slice(0, 7), "b": slice(7, 20)}.items():
        write(tmp_path / f"run-{part}.h5", {name: value[rows] for name, value in arrays.items()})
    received: dict[str, list[NDArray[np.float32]]] = {}
    with open_columns(problem, data_files(problem, tmp_path)) as columns:
        check(problem, columns, lambda name, _, values: received.setdefault(name, []).append(values))
    assert np.allclose(np.concatenate(received["temperature"]), arrays["T"])


def spoil(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[], Arrays]:
    def spoilt() -> Arrays:
        arrays = heat()
        return arrays | {name: change(arrays[name])}

    return spoilt


def put(index: tuple[int, ...], value: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def change(array: NDArray[Any]) -> NDArray[Any]:
        array[index] = value
        return array

    return change


def without(name: str) -> Callable[[], Arrays]:
    return lambda: {key: value for key, value in heat().items() if key != name}


def twice() -> Arrays:
    return {name: put((19,), value[3])(value) for name, value in heat().items()}


BAD: dict[str, tuple[Callable[[], Arrays], str]] = {
    "wrong name": (without("T"), r"heat\.h5: expected an array 'T' but found f \[20 x 8 x 12\] float64, k .*, wind"),
    "nan": (
        spoil("f", put((17, 3, 5), np.nan)),
        r"heat\.h5: 'f' is nan at sample 17, index \(3, 5\); expected a finite .*, or the array in \[mask\] where NaN",
    ),
    "infinite in float32": (spoil("f", put((2, 0, 0), 1e39)), r"'f' is 1e\+39 at sample 2, index \(0, 0\)"),
    "not positive": (spoil("k", put((4, 7, 11), 0.0)), r"'k' is 0.0 at sample 4, index \(7, 11\); expected a positive"),
    "one output fewer": (spoil("T", lambda t: t[:19]), r"as many samples in 'T' as in 'k' but found 19 and 20"),
    "another grid": (spoil("f", lambda f: f[:, :, :6]), r"'f' has the grid \(8, 6\) and .*'k' \(8, 12\)"),
    "another rank": (
        spoil("k", lambda k: k[..., None] * np.ones(3)),
        r"expected axes \[sample, row, column\] in 'k'",
    ),
    "a field for a number": (
        spoil("wind", lambda w: w[:, None] * np.ones(3)),
        r"expected one number per sample \(.*\) in 'wind'",
    ),
    "strings": (spoil("k", lambda k: np.full(k.shape, b"a")), r"'k' holds \|S1; expected real numbers"),
    "constant output": (spoil("T", np.ones_like), "'T' is 1 everywhere: nothing to learn"),
    "tiny output": (
        spoil("T", lambda values: 1e-40 * values),
        "'T' varies by .*e-41; expected 1.2e-38 or more: another unit",
    ),
    "a sample in two splits": (twice, r"samples 3 \(training\) and 19 \(test\) have equal inputs"),
    "two layers": (
        lambda: {name: value[:, :2] if value.ndim > 1 else value for name, value in heat().items()},
        r"'k' has 2 points along the axis 'row'; expected at least 4: name few layers as `components`",
    ),
    "a bad number": (spoil("wind", put((6,), np.inf)), "'wind' is inf at sample 6; expected"),
    "a number out of bounds": (spoil("wind", put((6,), 1.5)), "'wind' is 1.5 at sample 6; expected at most 1.0"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_fault_is_named_with_file_array_sample_and_index(fault: str, problem: ProblemFile, tmp_path: Path) -> None:
    make, message = BAD[fault]
    write(tmp_path / "heat.h5", make())
    with pytest.raises((DataError, ReadError), match=message):
        checked(problem, [tmp_path / "heat.h5"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('key = "T"', 'key = "T"\nframe = 5'), r"expected a frame 5 in 'T' but found 3 \(shape \(20, 3, 8, 12\)\)"),
        (('key = "T"', 'key = "T"\nframe = -4'), "expected a frame -4 in 'T'"),
        (
            ('["flip_row", "shift_column"]\n', '["transpose"]\n', "length = 2.0", "", '"periodic"', '"wall"'),
            r"'k' has the grid \(8, 12\): symmetries\.exact: no transpose",
        ),
    ],
)
def test_what_the_data_do_not_have_is_refused(change: tuple[str, ...], message: str, tmp_path: Path) -> None:
    text, arrays = HEAT, heat()
    for old, new in zip(change[::2], change[1::2], strict=True):
        text = text.replace(old, new)
    (tmp_path / "heat.toml").write_text(text)
    if "frame" in text:
        arrays["T"] = np.stack([arrays["T"]] * 3, axis=1)
    write(tmp_path / "heat.h5", arrays)
    with pytest.raises(DataError, match=message):
        checked(read_problem_file(tmp_path / "heat.toml"), [tmp_path / "heat.h5"])


def test_the_documentation_shows_every_key() -> None:
    docs = Path(__file__).parents[3] / "docs"
    [document], points = (
        [tomllib.loads(part.partition("```")[0]) for part in (docs / name).read_text().split("```toml\n")[1:]]
        for name in ("problem-file.md", "geometry.md")
    )
    sections = {
        ProblemFile: [document, *points],
        PointsSection: [each["points"] for each in points if "points" in each],
        MaskSection: [each["mask"] for each in points if "mask" in each],
        DataSection: [document["data"]],
        CoarseSection: [document["data"]["coarse"]],
        Quantity: [*document["inputs"].values(), *document["outputs"].values()],
        Parameter: [*document["inputs"].values(), *document["parameters"].values()],
        Axis: [*document["axes"].values()],
        SymmetrySection: [document["symmetries"]],
        TimeSection: [document["time"]],
    }
    for model, tables in sections.items():
        assert set(model.model_fields) - {"name"} <= {key for table in tables for key in table}, model
    others = {"time", "symmetries"}  # the first needs a state, the second scalar fields
    del document["inputs"]["rain"]  # which needs the first
    ProblemFile.model_validate({key: value for key, value in document.items() if key not in others})


def test_the_documentation_names_every_format() -> None:
    page = (Path(__file__).parents[3] / "docs/problem-file.md").read_text()
    _, _, table = page.partition("| format | what is read |")
    first = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()[2:]]
    assert {*re.findall("`([^`]*)`", "".join(first))} == {*READERS}


FAULTS = {
    ("positive = true", "positiv = true"): "inputs.conductivity.positiv: the key is unknown",
    ('boundary = "wall"', 'boundary = "w"'): "axes.row.boundary: Input should be 'wall', 'periodic' or 'open'",
    ('"flip_row"', '"flip_x"'): "expected some of flip_row, .*shift_column, negate but got flip_x",
    ('name = "heat"', 'name = "Heat"'): "name: String should match pattern",
    **{
        ('name = "heat"', f'name = "heat{suffix}"'): f"name: expected none that ends in {suffix}" for suffix in SUFFIXES
    },
    (
        "[outputs.temperature]",
        "[outputs.T]",
    ): "outputs.T: expected a name in small letters, digits and _, such as 't', and `key = \"T\"` for that of the",
    ("[axes.row]", '[axes."Row 1"]'): "axes.Row 1: expected a name in small letters, digits and _, such as 'row_1'$",
    ("positive = true", "Positive = true"): "inputs.conductivity.Positive: the key is unknown",
    ("[outputs.temperature]", "[outputs.wind]"): "expected different names .*'wind'",
    ("[outputs.temperature]", "[outputs.novelty]"): "expected other names than .'novelty'., which responses use",
    ("[outputs.temperature]", "[outputs.failed]"): "expected other names than .'failed'., which responses use",
    ("[outputs.temperature]", "[time]\nstep = 0.1\n[outputs.frame]"): "expected another name than 'frame', by which a",
    ("minimum = 0.0", "minimum = 2.0"): "expected minimum <= default <= maximum but got",
    ("[inputs.source]", "[inputs.source"): "expected TOML but found an error",
    ("[inputs.source]", '[inputs.source]\ncomponents = ["x", "y"]'): "expected none with vector fields .source.",
    ('"flip_row"', '"negate"'): "negate does not hold for positive fields .conductivity.",
    ('"flip_row"', '"reflect_row"'): "reflect_row does not hold for positive fields .conductivity.",
    ("length = 2.0", "length = true"): r"length: expected a number \(found true\)",
    ('files = ["heat.h5"]', 'files = ["heat.h5"]\ntest = true'): r"test: expected a number \(found true\)",
    ("length = 2.0", "length = inf"): "axes.column.length: Input should be a finite number",
    ("length = 2.0", "length = " + "1" * 10_000): "expected TOML but found an error: Exceeds the limit",
    ("length = 2.0", "length = " + "[" * 100_000): "expected TOML but found tables or arrays nested too deeply",
    ("length = 2.0", f"length = 2.0 # {'x' * (1 << 20)}"): "expected at most 1048576 bytes",
    (
        'files = ["heat.h5"]',
        f'files = ["heat.h5"]\ntest = {"1" * 4000}.5',
    ): r"data\.test\.float: Input should be a finite number",
    (
        "[outputs.temperature]",
        "[outputs.temperature]\nlinear = true",
    ): "outputs.temperature.linear: expected it of inputs",
    (
        "[inputs.source]",
        '[mask]\nkey = "inside"\n[inputs.source]\nlinear = true',
    ): "inputs.source.linear: expected fields on a line or a plane, without",
    ('files = ["heat.h5"]', 'files = "heat.h5"'): "data.files: expected a list .found 'heat.h5'.",
    ('files = ["heat.h5"]', 'files = ["heat.h5"]\ntime = "last"'): r"data\.time: expected it with .time., or with a fr",
    (
        "[outputs.temperature]",
        "[outputs.temperature]\ndefault = 1.0",
    ): "outputs.temperature.default: expected it of inp",
    ("[symmetries]", "[time]\nstep = 0.1\n[symmetries]"): "outputs.temperature: expected one input with the key 'T'",
    ("[symmetries]", "[time]\nstep = -0.1\n[symmetries]"): "time.step: Input should be greater than 0",
    ('files = ["heat.h5"]', 'files = ["heat.h5"]\ntest = 1.5'): "data.test: expected a share between 0 and 1",
    ('boundary = "periodic"', 'boundary = "periodic"\npoints = "nodes"'): 'axes.column: points "nodes"',
}


@pytest.mark.parametrize("change", FAULTS)
def test_a_fault_of_the_problem_file_is_named_with_its_key(change: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "heat.toml"
    path.write_text(HEAT.replace(*change))
    with pytest.raises(UserError, match=FAULTS[change]) as error:
        read_problem_file(path)
    assert str(error.value).startswith(str(path))


def test_missing_files_are_named(problem: ProblemFile, tmp_path: Path) -> None:
    with pytest.raises(ProblemFileError, match=r"expected files for 'heat\.h5'"):
        data_files(problem, tmp_path)
    write(tmp_path / "heat.h5", heat(4))
    twice = problem.model_copy(update={"data": problem.data.model_copy(update={"files": ("heat.h5", "h*.h5")})})
    with pytest.raises(ProblemFileError, match=r"expected every file once but found heat\.h5 2 times"):
        data_files(twice, tmp_path)
    with pytest.raises(UserError, match=r"none\.toml: expected a TOML file"):
        read_problem_file(tmp_path / "none.toml")


def test_too_few_samples_for_the_splits_are_refused(problem: ProblemFile, tmp_path: Path) -> None:
    write(tmp_path / "heat.h5", heat(2))
    with pytest.raises(ValueError, match="at least one sample for training"):
        checked(problem, [tmp_path / "heat.h5"])


def test_what_is_odd_but_allowed_is_remarked(problem: ProblemFile, tmp_path: Path) -> None:
    arrays = heat()
    arrays["f"] = np.ones_like(arrays["f"])
    arrays["k"][3] = 1.5
    write(tmp_path / "heat.h5", arrays)
    with h5py.File(tmp_path / "heat.h5", "r+") as file:
        file["T"].attrs["units"] = "Celsius"
    with open_columns(problem, [tmp_path / "heat.h5"]) as columns:
        lines = " / ".join(remarks(columns, check(problem, columns)))
    assert "conductivity is constant in 1 of 20 samples" in lines
    assert "source is 1 everywhere" in lines
    assert "temperature has units 'K' here and 'Celsius' in the data file" in lines
    write(tmp_path / "other.h5", arrays | {"k": arrays["k"] + 0.5})
    with h5py.File(tmp_path / "other.h5", "r+") as file:
        file["T"].attrs["units"] = "K"
    with open_columns(problem, [tmp_path / "heat.h5", tmp_path / "other.h5"]) as columns:
        lines = " / ".join(remarks(columns, check(problem, columns)))
    assert "temperature has units 'Celsius' in heat.h5 and 'K' in other.h5: values are taken as they are" in lines


def drafted(path: Path, folder: Path, *outputs: str) -> ProblemFile:
    with open_file(path) as file:
        (folder / "problem.toml").write_text(draft(file, [path], outputs=outputs).toml())
    return read_problem_file(folder / "problem.toml")


@pytest.mark.parametrize("name", ["darcy", "poisson", "neuralop_darcy", "kuramoto_sivashinsky"])
def test_the_name_of_a_built_in_problem_is_refused(name: str, tmp_path: Path) -> None:
    """Its classical solver would solve another equation than the user's."""
    path = tmp_path / "problem.toml"
    tables = ('data]\nfiles = ["a.npz"]', "inputs.k]", "outputs.u]", 'axes.x]\nboundary = "wall"')
    path.write_text("\n[".join([f'name = "{name}"', *tables]))
    with pytest.raises(ProblemFileError, match=f"such as own_{name}, but {name} is a built-in problem"):
        read_problem_file(path)
    write(tmp_path / f"{name}.h5", heat())
    assert drafted(tmp_path / f"{name}.h5", tmp_path, "T").name == f"own_{name}"
