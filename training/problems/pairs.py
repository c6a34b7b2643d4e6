"""Whether tensors from files of their own are those of the same samples as the others, which have the same places.

A file that lacks on one side, or a table in another order, gives samples the values of others, in numbers that fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from schema.parts import Quantity
from training.data.readers import DataFile, doubt_of_rows, naming, unlike_names
from training.problems.columns import Column
from training.problems.problem_file import ProblemFile, in_each
from training.problems.sections import ProblemFileError


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


def check_names(files: Mapping[str, Sequence[Path]]) -> None:
    """Refuse files of tensors, one for each sample, that are those of other samples by their names.

    Raises:
        ProblemFileError: Files at one place have other numbers in their names, or other names.
    """
    (first, lead), *others = files.items()
    for name, each in others:
        unlike = unlike_names(lead, each) if 1 < len(each) == len(lead) else None
        if unlike is not None and unlike.any():
            at = int(unlike.argmax())
            raise ProblemFileError(
                f"{name}.files: expected a file for each of {first}.files, of the same number or name, but found "
                f"{each[at]} for sample {at}, of which the other is {lead[at]}: leave out the file that is alone, or "
                "rename the files"
            )


def matched(
    problem: ProblemFile,
    columns: Mapping[str, Column],
    files: Sequence[DataFile],
    others: Mapping[str, Sequence[DataFile]],
) -> list[str]:
    """Refuse tensors from files of their own that are in another order than the files, or groups, of the samples.

    `others` are the open files of these tensors, by their names.

    Returns:
        Which tables are matched with samples by their places alone, though these have names, in sentences.

    Raises:
        ProblemFileError: A file is that of another sample by its name.
        ReadError: A row of a table is.
    """
    lead = next((column for name, column in columns.items() if in_each(problem.in_files[name])), None)
    if lead is None:
        return []
    each_file = [part.path for part in lead.parts]
    names: list[str] | list[Path] = each_file
    if {*lead.sizes} != {1} or len({*each_file}) < len(each_file):
        each_file, names = [], [name for file in files for name in file.names]
    said: dict[Path, str] = {}  # by table, of which several tensors may be
    for tensor, own in others.items():
        one = problem.stored[tensor]
        if (isinstance(one, Quantity) and one.static) or not 1 < len(names) == columns[tensor].samples:
            continue
        if {*columns[tensor].sizes} == {1}:
            check_names({"data": each_file, tensor: [part.path for part in columns[tensor].parts]})
        else:
            said[own[0].path] = doubt_of_rows(own[0].path, names, naming(own))
    return [sentence for sentence in said.values() if sentence]
