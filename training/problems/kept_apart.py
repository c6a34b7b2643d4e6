"""What spoils the figures on samples that are kept apart: other parameters than those of the training, and its copies.

These are no errors: a model may have to extrapolate, and fields may be alike by chance. They are said, in sentences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.problems.problem_file import ProblemFile

LEAST = 3  # test samples: a parameter of fewer may well be the least or the greatest of all by chance
COMPARED = 64  # values of a sample that are looked at, of which most have to differ: else samples are alike by chance
MOST_ALIKE = 16  # copies of a sample, itself among them: on a square there are 8, with another sign 16
AT_ONCE = 2**16  # values of a sample that are summed at one time
UNSIGNED = np.uint32(0x7FFFFFFF)  # the bits of a number of float32 but that of its sign


def beyond_training(problem: ProblemFile, samples: Mapping[str, Any]) -> list[str]:
    """Say which parameters of most test samples lie outside the range of those of the training samples.

    Args:
        problem: The problem file.
        samples: Arrays `[sample, …]` by name, such as data sets of HDF5.
    """
    lines = []
    for one in problem.parameters:
        if problem.scattered and one.name == "counts":
            continue
        values = np.asarray(samples[one.name][:])
        train, _, test = problem.data.counts(len(values))
        parts = values.T if one.components else values.reshape(1, len(values), -1)
        for label, each in zip(one.components or ("",), parts.reshape(len(parts), len(values), -1), strict=True):
            known, kept = each[:train], each[len(each) - test :]
            low, high = known.min(), known.max()
            count = int(((kept < low) | (kept > high)).any(axis=1).sum())
            if test >= LEAST and 2 * count > test:
                lines.append(
                    f"{f'{one.name}.{label}'.rstrip('.')} is from {low:g} to {high:g} in the training samples, and "
                    f"from {kept.min():g} to {kept.max():g} in those of the test, outside of it in {count} of {test}: "
                    "the last samples are kept apart, so shuffle them all unless the model has to extrapolate"
                )
    return lines


class Copies:
    """What tells samples with the same values in other places, as their flips, transposes and shifts have, from others.

    Values count without their signs, which flips of vectors change.
    """

    def __init__(self, problem: ProblemFile) -> None:
        self.problem = problem
        self.fields = {one.name for one in (*problem.inputs, *problem.outputs) if not one.scalar}
        names = (name for name in problem.stored if problem.time is not None or name not in problem.output_names)
        self.sums: dict[str, list[NDArray[np.uint64]]] = {name: [] for name in names}
        self.telling: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in self.sums if name in self.fields}

    def add(self, name: str, values: NDArray[np.float32]) -> None:
        """Take in some samples of a tensor, the first ones first."""
        if name not in self.sums:
            return
        flat = values.reshape(len(values), -1)
        self.sums[name].append(sums(flat))
        if name in self.telling:
            some = np.sort(np.abs(flat[:, :: -(-flat.shape[1] // COMPARED)]), axis=1)
            differ = np.count_nonzero(np.diff(some, axis=1), axis=1)
            self.telling[name].append(np.asarray(2 * differ > some.shape[1]))

    def remarks(self) -> list[str]:
        """Say how many samples that are kept apart are such copies of training samples, if any are."""
        every = {name: np.concatenate(each) for name, each in self.sums.items()}
        # A field that few samples have another one of, as the coordinates of one mesh, tells none of them apart.
        many = [name for name in self.telling if MOST_ALIKE * len(np.unique(every[name])) >= len(every[name]) > 0]
        if not many:
            return []
        telling = np.any([np.concatenate(self.telling[name]) for name in many], axis=0)
        found = [*map(tuple, np.stack([*every.values()], axis=1).tolist())]
        train = self.problem.data.counts(len(found))[0]
        known = {each for each, tells in zip(found[:train], telling[:train], strict=True) if tells}
        copies = sum(each in known for each in found[train:])
        sentence = (
            f"{copies} of {len(found) - train} validation and test samples have the values of training samples, in "
            "other places, as flips, transposes and shifts have: figures on unseen samples are too good: leave such "
            "copies out, of which a training makes its own by [symmetries]"
        )
        return [sentence] if copies else []


class Steps:
    """What tells the steps of trajectories from others; one that stays as it is makes none: many may end at rest."""

    def __init__(self, problem: ProblemFile) -> None:
        self.problem = problem
        self.frames: dict[str, list[list[bytes]]] = {name: [] for name in problem.states.values()}

    def add(self, name: str, values: NDArray[np.float32]) -> None:
        """Take in the frames of some trajectories of an output `[trajectory, frame, …]`, the first ones first."""
        if name in self.frames:
            whole = np.ascontiguousarray(values)
            self.frames[name] += [[hashlib.blake2b(one, digest_size=16).digest() for one in each] for each in whole]

    def remarks(self) -> list[str]:
        """Say how many trajectories that are kept apart have a step of a training trajectory, if any have."""
        every = [pairwise(zip(*each, strict=True)) for each in zip(*self.frames.values(), strict=True)]
        steps = [{(before, after) for before, after in each if before != after} for each in every]
        train = self.problem.data.counts(len(steps))[0] if steps else 0
        known, apart = {step for each in steps[:train] for step in each}, steps[train:]
        shared = sum(not each.isdisjoint(known) for each in apart)
        sentence = (
            f"{shared} of {len(apart)} validation and test trajectories have steps of training trajectories, so "
            "figures on unseen samples are too good: cut series into parts that do not overlap, and keep their order"
        )
        return [sentence] if shared else []


def sums(values: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return a number for every row of values `[sample, value]`, the same in whatever order they are, with any signs.

    It is the sum of the squares of their bits, taken for a whole number, modulo 2^64.

    Example:
        >>> first, second, third = sums(np.array([[1, 2, 4], [4, -1, 2], [4, 1, 3]], np.float32))
        >>> first == second, first == third
        (True, False)
    """
    found = np.zeros(len(values), np.uint64)
    for start in range(0, values.shape[1], AT_ONCE):
        bits = np.ascontiguousarray(values[:, start : start + AT_ONCE]).view(np.uint32) & UNSIGNED
        bits ^= bits >> np.uint32(15)  # numbers of few digits have zeros at their ends
        whole = bits.astype(np.uint64)
        found += np.einsum("ij,ij->i", whole, whole)
    return found
