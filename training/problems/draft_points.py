"""The draft of samples that have points of their own: mesh files, and clouds in arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.data.readers import DataFile, LazyArray
from training.problems.ambiguity import last_name
from training.problems.draft_file import AREA, COORDINATES, Draft, DraftError, Tensor, shown, wire_name
from training.problems.problem_file import FEWEST_POINTS
from training.problems.roles import assign_roles, is_positive, nothing

# Names of arrays of coordinates, and of numbers of points.
POINTS = """
xy xyz coordinates coordinate coords coord points pos position positions nodes vertices locations pointcloud trunk
"""
COUNTS = """
n count counts n_points npoints num_points n_nodes num_nodes lengths
"""
DERIVED = frozenset({"boundary", "distance"})  # what readers of meshes add


def mesh(made: Draft, file: DataFile, outputs: Sequence[str]) -> Draft:
    """Complete the draft for mesh files, one sample each, by the fields of the first one."""
    made.points, made.cells = {"dimensions": file.arrays[COORDINATES].shape[-1]}, AREA in file.arrays
    for one in file.arrays.values():
        points = file.arrays[COORDINATES].shape[:2]
        if one.shape == points[:1]:
            made.tensors.append(Tensor(wire_name(one.name), one, "parameters"))
        elif one.shape[:2] != points:
            made.left_out[one.name] = (
                f"its shape {' x '.join(map(str, one.shape[1:]))} is not that of {points[1]} points"
            )
        elif one.name not in {COORDINATES, AREA}:
            vector, role = len(one.shape) > 2, "inputs" if one.name in DERIVED and one.name not in outputs else ""
            made.tensors.append(Tensor(wire_name(one.name), one, role, one.shape[-1] if vector else 0))
    made.tensors.sort(key=lambda tensor: tensor.role == "parameters")
    assign_roles(made, file, outputs)
    nodes = file.arrays[COORDINATES].read()[0]
    if several := len(nodes) - len(np.unique(nodes, axis=0)):
        made.points["merge"] = True
        made.remarks.append(f"{several} nodes are where others are: `merge` takes the mean of their values")
    made.remarks.append(f"every file is one sample; {file.path.name} has {file.arrays[COORDINATES].shape[1]} points")
    return made


def refuse_moving(arrays: Sequence[LazyArray], path: Path) -> None:
    """Refuse trajectories on points that move, `[sample, time, point, dimension]`.

    Raises:
        DraftError: There are such coordinates, and a field beside them.
    """
    for one in arrays:
        if len(one.shape) == 4 and one.shape[-1] in {2, 3} and is_called(one, POINTS) and not one.dimensions:
            beside = [each for each in arrays if each is not one and each.shape[:3] == one.shape[:3]]
            if beside:
                raise DraftError(
                    f"{path}: expected points [sample, point, dimension] but found {one.described} beside "
                    f"{beside[0].described}: trajectories on points are not supported"
                )


def is_called(one: LazyArray, names: str) -> bool:
    """Return whether an array has one of some names, or one of them is a word of its name."""
    return bool({last_name(one), *re.split(r"[^a-z]+", last_name(one))} & {*names.split()})


def coordinates_of(arrays: Sequence[LazyArray]) -> LazyArray | None:
    """Return the array of the coordinates of a cloud, `[sample, point, dimension]`, or `[point, dimension]` of one.

    Its name says that it may be one, and there are fields `[sample, point]` beside it.
    """
    for one in arrays:
        *lead, last = one.shape or (0,)
        if not is_called(one, POINTS) or last not in {2, 3} or one.dimensions:
            continue
        fields = [each for each in arrays if each is not one and len(each.shape) > 1 and each.shape[1] == lead[-1:][0]]
        if lead[-1] >= FEWEST_POINTS and any(len(lead) == 1 or each.samples == lead[0] for each in fields):
            return one if len(lead) < 3 else None
    return None


def cloud(
    made: Draft, file: DataFile, outputs: Sequence[str], arrays: Sequence[LazyArray], coordinates: LazyArray
) -> Draft:
    """Complete the draft for points in arrays, padded to one number where counts say how many are valid."""
    points, dimensions = coordinates.shape[-2:]
    others = [one for one in arrays if one is not coordinates]
    on_points = [one for one in others if len(one.shape) in {2, 3} and one.shape[1] == points]
    samples = coordinates.samples if len(coordinates.shape) == 3 else on_points[0].samples
    made.points = {"coordinates": coordinates.name, "dimensions": dimensions}
    if coordinates.name in file.sources:  # the section has no files of its own
        sources = {label: (tuple(map(str, paths)), key) for label, (paths, key) in file.sources.items()}
        made.files = sources[coordinates.name][0]
        made.sources = {label: (paths, key) for label, (paths, key) in sources.items() if paths != made.files}
    for one in others:
        name, shape = wire_name(one.name), " x ".join(map(str, one.shape))
        if one in on_points and one.samples == samples:
            components = one.shape[2] if len(one.shape) == 3 else 0
            made.tensors.append(Tensor(name, one, "", components, positive=not components and is_positive(one)))
        elif one.samples == samples and one.name in outputs and len(one.shape) < 3:
            several = one.shape[1] if one.shape[1:] not in {(), (1,)} else 0
            made.tensors.append(Tensor(name, one, "outputs", several, scalar=True, positive=is_positive(one)))
        elif one.shape == (samples,) and is_count(one, points):
            made.points["counts"] = one.name
        elif one.samples == samples and all(side == 1 for side in one.shape[1:]):
            made.tensors.append(Tensor(name, one, "parameters"))
        else:
            made.left_out[one.name] = f"its shape {shape} is not [{samples} samples, {points} points]"
    made.tensors.sort(key=lambda tensor: tensor.role == "parameters")
    assign_roles(made, file, outputs)
    if len(coordinates.shape) == 2 and not (made.of("inputs") or made.of("parameters")):
        raise DraftError(nothing(made, file, "an input field or a parameter beside the points of all samples"))
    made.remarks.append(
        f"every sample has points of its own, at {shown(coordinates)}"
        if len(coordinates.shape) == 3
        else f"all samples have the points {shown(coordinates)}"
    )
    return made


def is_count(one: LazyArray, most: int) -> bool:
    """Return whether numbers may be those of the valid points of every sample."""
    values = one.read()
    fits = (values == np.floor(values)).all() and values.min() >= FEWEST_POINTS and values.max() <= most
    return one.name.rpartition("/")[2].lower() in COUNTS.split() and bool(fits)
