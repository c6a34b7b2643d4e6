"""Tensors from files of their own are of the same samples: by the names of files, or it is said to be in doubt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from training.commands import app
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.data.readers import ReadError
from training.messages import UserError
from training.problems.problem_file import ProblemFile
from training.problems.sections import ProblemFileError

SAMPLES = 12
RNG = np.random.default_rng(0)
K, NU = RNG.random((SAMPLES, 8, 9)), RNG.random(SAMPLES)
Write = Callable[[Path], dict[str, object]]
BY_LETTERS = sorted(range(SAMPLES), key=str)  # 0, 1, 10, 11, 2 …
RUNS = [f"run{number}" for number in range(SAMPLES)]
DOUBT = "the rows of table.csv are taken to be in the order run1, run2, run3 …, and not in that of letters, run1, run10"


def read(folder: Path, data: dict[str, object], **tables: dict[str, dict[str, object]]) -> SampleFile:
    document = {"name": "pairs", "inputs": {"k": {}}, "outputs": {"u": {}}, "axes": {"x": {}, "y": {}}} | tables
    problem = ProblemFile.model_validate({**document, "data": data})
    return SampleFile(prepare(problem, folder, folder / "data"), problem)


def remarks(samples: SampleFile) -> str:
    return str(samples.file.attrs["remarks"])


def in_files(folder: Path) -> dict[str, object]:
    for name, k in zip(RUNS, K, strict=True):
        np.savez(folder / f"{name}.npz", k=k, u=2 * k)
    return {"files": ["run*.npz"], "sample": "file"}


def in_folders(folder: Path) -> dict[str, object]:
    for name, k in zip(RUNS, K, strict=True):
        (folder / name).mkdir()
        np.savez(folder / name / "fields.npz", k=k, u=2 * k)
    return {"files": ["run*/fields.npz"], "sample": "file"}


def in_groups(folder: Path) -> dict[str, object]:
    with h5py.File(folder / "runs.h5", "w") as file:
        for name, k in zip(RUNS, K, strict=True):
            file[f"{name}/k"], file[f"{name}/u"] = k, 2 * k
    return {"files": ["runs.h5"]}


def in_parts(folder: Path) -> dict[str, object]:
    for name, k in zip(RUNS, K, strict=True):
        np.savez(folder / f"{name}.npz", k=k[None], u=2 * k[None])
    return {"files": ["run*.npz"]}


def table(folder: Path, column: str, order: list[int]) -> dict[str, dict[str, object]]:
    """Write the numbers of all runs in an order, with a column that says of which run each row is, or with none."""
    names = {"id": order, "file": [f"{RUNS[row]}.npz" for row in order], "run": [row + 1 for row in order]}
    names["none"] = names["alike"] = ["steel"] * SAMPLES
    lines = [f"{name},{NU[row]}" for name, row in zip(names[column], order, strict=True)]
    (folder / "table.csv").write_text("\n".join([f"{column},nu", *lines]))
    return {"nu": {"files": ["table.csv"]}}


@pytest.mark.parametrize("write", [in_files, in_folders, in_groups, in_parts])
@pytest.mark.parametrize(("column", "said"), [("id", "10 at sample 2"), ("file", "run10.npz at sample 2"), ("run", "")])
def test_rows_that_are_those_of_other_files_are_refused(write: Write, column: str, said: str, tmp_path: Path) -> None:
    data = write(tmp_path)
    with pytest.raises(UserError, match=rf"table\.csv: '{column}' is {said}.*, and expected is "):
        read(tmp_path, data, parameters=table(tmp_path, column, BY_LETTERS))
    samples = read(tmp_path, data, parameters=table(tmp_path, column, [*range(SAMPLES)]))
    assert samples.file["nu"][:] == pytest.approx(NU, rel=1e-6)
    assert "in the order" not in remarks(samples)


def test_rows_of_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    """Of as many files, of which another one is missing."""
    data, parameters = in_files(tmp_path), table(tmp_path, "id", [*range(SAMPLES)])
    text = (tmp_path / "table.csv").read_text()
    (tmp_path / "table.csv").write_text(text.replace("\n3,", "\n12,"))
    with pytest.raises(ReadError, match=r"'id' is 12 at sample 3, and expected is that of .*run3\.npz"):
        read(tmp_path, data, parameters=parameters)


@pytest.mark.parametrize("write", [in_files, in_folders, in_groups])
def test_rows_without_names_are_a_remark_where_there_are_two_orders(write: Write, tmp_path: Path) -> None:
    data = write(tmp_path)
    assert DOUBT in remarks(read(tmp_path, data, parameters=table(tmp_path, "none", [*range(SAMPLES)])))


def test_names_with_as_many_digits_have_one_order(tmp_path: Path) -> None:
    for number, k in enumerate(K):
        np.savez(tmp_path / f"run{number:02}.npz", k=k, u=2 * k)
    parameters = table(tmp_path, "none", [*range(SAMPLES)])
    assert "in the order" not in remarks(
        read(tmp_path, {"files": ["run*.npz"], "sample": "file"}, parameters=parameters)
    )


@pytest.mark.parametrize("write", [in_files, in_groups])
@pytest.mark.parametrize(("column", "guessed"), [("id", False), ("file", False), ("none", True)])
def test_a_draft_compares_rows_with_files_or_marks_their_order_as_a_guess(
    write: Write, column: str, guessed: bool, tmp_path: Path
) -> None:
    write(tmp_path)
    by_letters = [*sorted(map(str, tmp_path.glob("run*"))), str(tmp_path / "table.csv")]  # as a shell lists them
    table(tmp_path, column, [*range(SAMPLES)])
    made = CliRunner().invoke(app, ["describe", *by_letters, "--outputs", "u"])
    assert (f"# guess: samples: {DOUBT}" in made.stdout) == guessed
    if not guessed:
        table(tmp_path, column, BY_LETTERS)
        refused = CliRunner().invoke(app, ["describe", *by_letters, "--outputs", "u"]).exception
        assert isinstance(refused, ReadError)
        assert "at sample 2, and expected is that of" in str(refused)


def in_two_folders(folder: Path, names: str, shape: tuple[int, ...], missing: tuple[int, int]) -> None:
    for part, left, factor in zip(("inputs", "outputs"), missing, (1, 2), strict=True):
        (folder / part).mkdir()
        for number, k in enumerate(K):
            if number != left:
                np.save(folder / part / f"{names.format(part=part[0], number=number)}.npy", factor * k.reshape(shape))


@pytest.mark.parametrize("names", ["{number:04}", "{part}2_{number}", "nu0.5_{part}{number:03}"])
@pytest.mark.parametrize(("sample", "shape"), [("file", (8, 9)), ("first", (1, 8, 9))])
def test_files_of_other_samples_are_no_pairs(names: str, sample: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    data, array = {"files": ["inputs/*.npy"], "sample": sample}, {"key": "array"}
    tables = {"inputs": {"k": array}, "outputs": {"u": {**array, "files": ["outputs/*.npy"]}}}
    for folder, missing in ((tmp_path / "equal", (3, 3)), (tmp_path / "unlike", (3, 7))):
        folder.mkdir()
        in_two_folders(folder, names, shape, missing)
    samples = read(tmp_path / "equal", data, **tables)
    assert samples.file["u"][:] == pytest.approx(2 * samples.file["k"][:])
    with pytest.raises(ProblemFileError, match=r"u\.files: .* but found .*3\.npy for sample 3, of which .*4\.npy"):
        read(tmp_path / "unlike", data, **tables)


def test_files_of_a_folder_for_each_sample_may_have_any_names(tmp_path: Path) -> None:
    for number, k in enumerate(K):
        (tmp_path / f"run{number}").mkdir()
        np.save(tmp_path / f"run{number}" / f"k_{number}.npy", k)
        np.save(tmp_path / f"run{number}" / f"u_{1000 - number}.npy", 2 * k)
    tables = {"inputs": {"k": {"key": "array"}}, "outputs": {"u": {"key": "array", "files": ["run*/u_*.npy"]}}}
    samples = read(tmp_path, {"files": ["run*/k_*.npy"], "sample": "file"}, **tables)
    assert samples.file["u"][:] == pytest.approx(2 * samples.file["k"][:])


def test_files_with_names_alone_are_pairs_by_these(tmp_path: Path) -> None:
    array: NDArray[np.float64] = K[0]
    for part, names in (("inputs", "abcdefghijkl"), ("outputs", "abcdefghijkm")):
        (tmp_path / part).mkdir()
        for name in names:
            np.save(tmp_path / part / f"{name}.npy", array)
    key = {"key": "array"}
    with pytest.raises(ProblemFileError, match=r"outputs/m\.npy for sample 11, of which the other is .*inputs/l\.npy"):
        read(
            tmp_path,
            {"files": ["inputs/*.npy"], "sample": "file"},
            inputs={"k": key},
            outputs={"u": {**key, "files": ["outputs/*.npy"]}},
        )
