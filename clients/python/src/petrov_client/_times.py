"""Times of frames, as files and labelled arrays say them, beside the time step of a model.

Times in files are decimal and rounded, so they are compared with a tolerance. What says no times is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from petrov_client._models import ModelInfo
from petrov_client._schema import FRAME, HISTORY, TIMES, UNEVEN

#: Times of files have six digits or more.
ROUNDED = 1e-6
REMEDY = (
    "take frames that are one step apart (leave out those between, or interpolate in time), or leave the times out "
    "where they only count frames"
)


def known(times: Sequence[float | None] | npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the times `[(sample), frame]` where all of them are said, by numbers; else none."""
    array = np.asarray(times)
    fits = array.dtype.kind in "fiu" and array.ndim in {1, 2} and array.shape[-1] > 1 and np.isfinite(array).all()
    return array.astype(np.float64) if fits else np.empty(0)


def unlike(times: Sequence[float | None] | npt.NDArray[Any], info: ModelInfo) -> str:
    """Return how the times of frames differ from the steps of a model, in words; nothing where they do not."""
    array = known(times)
    if not array.size or info.frames is None:
        return ""
    step, apart = info.frames.step, np.diff(array)
    off = np.abs(apart - step) > UNEVEN * step + ROUNDED * np.abs(array).max()
    if not off.any():
        return ""
    at = tuple(np.argwhere(off)[0])
    first, last = array[at], array[(*at[:-1], at[-1] + 1)]
    return f'times {first:.9g} and {last:.9g} are {apart[at]:.9g} apart, but one step of "{info.name}" takes {step:g}'


def of_arrays(arrays: Any, info: ModelInfo) -> tuple[str, str]:
    """Return how the times among arrays by name differ from the steps of a model, and the name of the array."""
    taken = {each.name for each in info.arguments}
    for name in (each for each in arrays if each.rpartition("/")[2].lower() in TIMES and each not in taken):
        try:
            values = arrays[name]
        except (ValueError, BadZipFile):  # Python objects in an archive, or a damaged member, which no model takes
            continue
        found = unlike(np.asarray(values), info) if 0 < len(np.shape(values)) <= 2 else ""
        if found and np.shape(values) not in _per_sample(arrays, info):
            return found, name
    return "", ""


def _per_sample(arrays: Any, info: ModelInfo) -> set[tuple[int]]:
    """Return the shape of a number per sample, of samples that the model takes and that are as many as no frames."""
    samples, frames = set[int](), set[int]()
    try:
        shapes = {
            each.name: np.shape(arrays[each.name]) for each in (*info.arguments, *info.outputs) if each.name in arrays
        }
    except (ValueError, BadZipFile):  # what reads them says what is wrong
        return set()
    for each in info.arguments:
        shape = shapes.get(each.name, ())
        if len(shape) == len(each.axes):
            samples.add(shape[0])
        framed = zip(reversed(each.axes), reversed(shape), strict=False)
        frames |= {size for axis, size in framed if axis in {FRAME, HISTORY}}
    # Beside a state of one frame, the true frames of an output may be what times are of.
    frames |= {size for each in info.outputs for size in shapes.get(each.name, ())[1:2]}
    return {(size,) for size in samples - frames}


def takes_several(info: ModelInfo) -> bool:
    """Return whether a rollout is made of several frames of what is passed: those of its start, or a forcing."""
    return info.frames is not None and (info.frames.history > 1 or bool(info.forced))
