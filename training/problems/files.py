"""The data files of a problem file: patterns resolved, in order, and those of tensors that have files of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path

from training.data.readers import natural
from training.problems.problem_file import ProblemFile
from training.problems.sections import ProblemFileError


def data_files(problem: ProblemFile, folder: Path) -> list[Path]:
    """Return the data files of a problem file that lies in `folder`, patterns resolved, in order.

    Raises:
        ProblemFileError: A name or a pattern fits no file.
    """
    return fitting_files(problem.data.files, folder, "data.files")


def tensor_files(problem: ProblemFile, folder: Path) -> dict[str, list[Path]]:
    """Return the data files of the tensors that have files of their own, by their names, as `data_files` does."""
    found = {
        name: fitting_files(one.files, folder, f"{name}.files") for name, one in problem.stored.items() if one.files
    }
    if problem.data.sample == "file":
        runs = {"data": data_files(problem, folder), **found}
        check_runs({name: files for name, files in runs.items() if len({path.parent for path in files}) > 1})
    return found


def check_runs(files: Mapping[str, Sequence[Path]]) -> None:
    """Refuse files of tensors that are not in the same folders, of a run each: values would be those of another run.

    Raises:
        ProblemFileError: A folder has a file of one tensor and none, or another number, of another.
    """
    counts = {name: Counter(path.parent for path in each) for name, each in files.items()}
    (first, lead), *others = counts.items() or [("", Counter())]
    for name, each in others:
        alone = lead.keys() ^ each.keys()
        # Tensors may have folders of their own, with several files in each.
        if alone and (lead.keys() & each.keys() or max(*lead.values(), *each.values()) == 1):
            raise ProblemFileError(
                f"{name}.files: expected a file in every folder that has one of {first}.files, and in no other; "
                f"one of both is not in {min(alone)}"
            )
        if not alone and (unlike := [folder for folder in lead if lead[folder] != each[folder]]):
            folder = min(unlike)
            raise ProblemFileError(
                f"{name}.files: expected as many files in {folder} as {first}.files fit there but found "
                f"{each[folder]} and {lead[folder]}"
            )


def fitting_files(patterns: Sequence[str], folder: Path, label: str) -> list[Path]:
    """Return the files that patterns fit, in the order of the numbers in their names.

    Raises:
        ProblemFileError: A name or a pattern fits no file.
    """
    found: list[Path] = []
    for pattern in patterns:
        literal = folder / pattern  # whose name may hold brackets
        matches = () if literal.exists() else glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 -- it may be absolute
        fitting = [folder / name for name in sorted(matches, key=natural)] or [literal]
        if not all(path.is_file() or path.is_dir() for path in fitting):
            raise ProblemFileError(f"{label}: expected files for {pattern!r} in {folder} but there are none")
        found += fitting
    return found
