"""Check arrays against a model's card and convert them to the batches that the model takes.

The card alone decides: rank, type, components, grid limits, whether the quantity is positive and, of sequences, the
vocabulary. What a request leaves out has the card's default. A fault names the first value, by its index in the
caller's own array.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.card import COMPONENT, COORDINATES, COUNTS, FRAME, GRID, Card, Parameter, Tensor, Vocabulary
from serving.errors import Problem

OTHER = "other"  # the label of grids that the card does not declare


def names(sent: Collection[str], known: Sequence[str], optional: Collection[str] = ()) -> None:
    """Check that a request has the inputs of the model, of which some may be missing, and no others (`wrong-input`)."""
    shown = [", ".join(f'"{name[:64]}"' for name in list(each)[:8]) or "none" for each in (sent, known)]
    for name in known:
        if name not in sent and name not in optional:
            raise Problem("wrong-input", f'input "{name}" is missing; got {shown[0]}', array=name)
    for name in sent:
        if name not in known:
            detail = f'there is no input "{name[:64]}"; the model takes {shown[1]}'
            raise Problem("wrong-input", detail, array=name[:64])


def batch(
    arrays: Mapping[str, NDArray[Any]], card: Card, count: int | None = None
) -> tuple[dict[str, NDArray[Any]], bool]:
    """Check the inputs and parameters of a model, and convert them to batches of the card's types.

    The arrays are single samples or batches; those with a default may be missing. The result is inputs `[B, (frame),
    (component), *grid]` and parameters `[B, (frame)]` by name, and whether the input was a single sample; a trajectory
    is to have `count` frames. Fields that were sent are C-contiguous. What has been left out, or holds for all samples
    or frames, is a read-only view of the numbers that it repeats, so that few bytes sent take few bytes of memory.
    """
    if card.padded:
        arrays = without_padding(arrays, card)
    if card.mask in arrays:
        arrays = inside(arrays, card)
    lead = next((tensor for tensor in card.inputs if tensor.name in arrays and tensor.points is None), None)
    if lead is None:
        return without_fields(arrays, card)
    found = {tensor.name: _field(arrays[tensor.name], tensor, card) for tensor in card.inputs if tensor.name in arrays}
    single = arrays[lead.name].ndim < len(lead.axes)
    size, grid = len(found[lead.name]), lead.grid_of(found[lead.name].shape)
    for tensor in card.inputs:
        if tensor is lead or tensor.name not in found:
            continue
        sent = arrays[tensor.name]
        alike = (sent.ndim < len(tensor.axes)) == single and len(found[tensor.name]) == size
        if not alike or (tensor.points is None and tensor.grid_of(found[tensor.name].shape) != grid):
            found_shapes = f"{tensor.name} has shape {sent.shape} and {lead.name} {arrays[lead.name].shape}"
            axes = f", ({', '.join(tensor.axes[single:])}) of {tensor.name}" if FRAME in tensor.axes else ""
            raise Problem("wrong-shape", f"{found_shapes}; expected the same samples and grid{axes}", array=tensor.name)
    if len(found) < len(card.inputs):
        for tensor in card.inputs:
            if tensor.name not in found:
                leading = ((count or 0) if each is None else each for each in tensor.leading)
                shape = (size, *leading, *(grid if tensor.points is None else tensor.points), *tensor.trailing)
                found[tensor.name] = np.broadcast_to(np.float32(tensor.default or 0.0), shape)
        found = {tensor.name: found[tensor.name] for tensor in card.inputs}
    return found | {each.name: _numbers(arrays.get(each.name), each, size, count) for each in card.parameters}, single


def without_fields(arrays: Mapping[str, NDArray[Any]], card: Card) -> tuple[dict[str, NDArray[Any]], bool]:
    """Check numbers alone, as `batch` does, which models without an input on the grid take."""
    if not card.takes_grid:
        names = [tensor.name for tensor in card.inputs if tensor.points is None]
        detail = f"no input was sent, so the grid is unknown; send {' or '.join(names)}"
        raise Problem("wrong-input", detail, array=names[0])
    ranks = {argument.name: len(argument.axes) for argument in card.arguments}
    counts = {name: len(array) for name, array in arrays.items() if array.ndim == ranks[name]}
    size, single = max(counts.values(), default=1), not counts
    if not size:
        name = next(iter(counts))
        raise Problem("wrong-shape", f'expected at least one sample but got none in "{name}"', array=name)
    found = {}
    for tensor in card.inputs:  # cotangents
        values = _field(arrays[tensor.name], tensor, card) if tensor.name in arrays else None
        if values is not None and len(values) != size:
            detail = f"{tensor.name} has {len(values)} samples; expected {size}, as the parameters"
            raise Problem("wrong-shape", detail, array=tensor.name)
        found[tensor.name] = values
    numbers = {each.name: _numbers(arrays.get(each.name), each, size) for each in card.parameters}
    return {name: array for name, array in found.items() if array is not None} | numbers, single


def with_grid(arrays: dict[str, NDArray[Any]], grid: Sequence[int] | None, card: Card) -> dict[str, NDArray[Any]]:
    """Return the arrays for a model without an input on the grid, with the argument whose shape says the grid.

    That is the `grid` of the request or, where it says none, that of a cotangent or else the one that the model was
    trained on.
    """
    own = [tensor for tensor in card.inputs if tensor.name in arrays and tensor.points is None]
    sent = own[0].grid_of(arrays[own[0].name].shape) if own else None
    points = points_of(grid, sent, card)
    if sent not in {None, points}:
        detail = f"{own[0].name} is on {sent} points; expected {points}, as grid says"
        raise Problem("wrong-shape", detail, array=own[0].name)
    size = len(next(iter(arrays.values())))
    found: dict[str, NDArray[Any]] = {GRID: np.broadcast_to(np.int32(0), (size, *points))}
    for tensor in card.inputs:
        if tensor.name not in arrays:
            shape = (size, *tensor.vector, *(points if tensor.points is None else tensor.points))
            found[tensor.name] = np.broadcast_to(np.float32(tensor.default or 0.0), shape)
    return arrays | found


def points_of(grid: Sequence[int] | None, sent: Sequence[int] | None, card: Card) -> tuple[int, ...]:
    """Return the points per axis that a request says, else those that it has sent, else those of the training."""
    limits = card.grid
    if grid is not None and len(grid) == 1:
        grid = tuple(grid) * len(limits.axes)
    points = tuple(grid or sent or limits.usual)
    if len(points) != len(limits.axes):
        detail = f"grid: expected points along {', '.join(limits.axes)}, or one number for all, but got {points}"
        raise Problem("invalid-parameter", detail)
    within(points, card)
    return points


def within(points: Sequence[int], card: Card, name: str = GRID) -> None:
    """Require points per axis that the model takes; `name` is what says them in the request."""
    limits = card.grid
    for axis, size in zip(limits.axes, points, strict=True):
        if not limits.minimum <= size <= limits.maximum:
            detail = f'{name} has {size} points along "{axis}"; the model takes {limits.minimum} to {limits.maximum}'
            raise Problem("grid-out-of-limits", detail, array=GRID)


def without_padding(arrays: Mapping[str, NDArray[Any]], card: Card) -> dict[str, NDArray[Any]]:
    """Return arrays on points with the values of padding replaced by those of a sample's first point.

    Whatever a caller has put there, such as NaN, is neither checked nor read.
    """
    found, sent = dict(arrays), arrays.get(COORDINATES)
    if COUNTS not in arrays or sent is None or sent.ndim not in {2, 3}:
        return found
    parameter = next(each for each in card.parameters if each.name == COUNTS)
    points = sent.shape[-2]
    counts = _numbers(arrays[COUNTS], parameter, len(sent) if sent.ndim > 2 else 1)
    known = (counts == np.floor(counts)) & (counts >= card.grid.minimum) & (counts <= points)
    wrong = ~known & (counts != 0)
    if wrong.any():
        index = first(wrong) if arrays[COUNTS].ndim else ()
        detail = f"is {counts[wrong][0]:g}; expected a whole number from {card.grid.minimum} to {points}, or 0 for all"
        raise problem("out-of-range", COUNTS, index, detail)
    valid = np.arange(points) < np.where(counts == 0, points, counts)[:, np.newaxis]
    for tensor in () if valid.all() else card.inputs:
        array, rank = arrays.get(tensor.name), len(tensor.axes)
        if array is None or tensor.grid_of(array.shape) != (points,) or array.ndim not in {rank - 1, rank}:
            continue  # a default, or what is refused for its shape
        batch = array if array.ndim == rank else array[np.newaxis]
        if len(batch) == len(valid):
            axis = 1 + len(tensor.leading)  # of the points
            mask = valid.reshape(len(valid), *(1,) * (axis - 1), points, *(1,) * (rank - axis - 1))
            found[tensor.name] = np.where(mask, batch, np.take(batch, [0], axis)).reshape(array.shape)
    return found


def points_of_samples(arrays: Mapping[str, NDArray[Any]], card: Card) -> NDArray[np.int64]:
    """Return the number of points `[B]` of every sample on points, after checks of coordinates and counts."""
    sent = {name: arrays[name] for name in (COORDINATES, COUNTS) if name in arrays}
    samples, points = _field(
        (without_padding(sent, card) if card.padded else sent)[COORDINATES], card.inputs[0], card
    ).shape[:2]
    counts: NDArray[Any] = np.zeros(samples)
    if card.padded:
        parameter = next(each for each in card.parameters if each.name == COUNTS)
        counts = _numbers(arrays.get(COUNTS), parameter, samples)
    return np.where(counts == 0, points, counts).astype(np.int64)


def inside(arrays: Mapping[str, NDArray[Any]], card: Card) -> dict[str, NDArray[Any]]:
    """Return arrays with 1 in place of what a caller has put outside the domain, such as NaN, which the model ignores.

    Raises:
        Problem: out-of-range: The mask has another value than 0 and 1, or a sample has no point inside.
    """
    mask = next(tensor for tensor in card.inputs if tensor.name == card.mask)
    found, sent = dict(arrays), arrays[mask.name]
    if sent.ndim not in {len(mask.axes) - 1, len(mask.axes)}:
        return found  # is refused for its shape
    wrong = (sent != 0) & (sent != 1)
    if wrong.any():
        index = first(wrong)
        raise problem(
            "out-of-range", mask.name, index, f"is {sent[index]!s}; expected 1 inside the domain, or 0 outside"
        )
    empty = np.asarray(~sent.any(axis=tuple(range(-len(mask.axes) + 1, 0))))
    if empty.any():
        index = first(empty) if empty.ndim else ()
        raise problem("out-of-range", mask.name, index, "has no point inside the domain; expected some")
    for tensor in card.inputs:
        array, batch = arrays.get(tensor.name), sent.shape[: sent.ndim - len(card.grid.axes)]
        if tensor is mask or array is None or tensor.grid_of(array.shape) != mask.grid_of(sent.shape):
            continue  # a default, or what is refused for its shape
        if array.ndim == len(batch) + len(tensor.axes) - 1 and array.shape[: len(batch)] == batch:
            domain = sent.reshape(*batch, *(1,) * (len(tensor.axes) - len(mask.axes)), *sent.shape[len(batch) :])
            found[tensor.name] = np.where(domain == 1, array, np.ones((), array.dtype))
    return found


def replaced_bytes(arrays: Mapping[str, NDArray[Any]], card: Card) -> int:
    """Return the bytes of the copies that `batch` makes of fields without what is padding or outside a domain."""
    if card.mask not in arrays and not (card.padded and COUNTS in arrays):
        return 0
    return sum(arrays[each.name].nbytes for each in card.inputs if each.name in arrays and each.name != card.mask)


def _field(array: NDArray[Any], tensor: Tensor, card: Card) -> NDArray[Any]:
    """Return an input as a batch, after checks of its rank, grid and values."""
    rank, name, grid = len(tensor.axes), tensor.name, card.grid
    if array.ndim not in {rank - 1, rank}:
        expected = f"expected ({', '.join(tensor.axes)}) or ({', '.join(tensor.axes[1:])})"
        raise Problem("wrong-shape", f'{expected} but got shape {array.shape} for "{name}"', array=name)
    values = array if array.ndim == rank else array[np.newaxis]
    if len(values) == 0:
        detail = f'expected at least one field but got shape {array.shape} for "{name}"'
        raise Problem("wrong-shape", detail, array=name)
    sides = tensor.grid_of(values.shape)
    others = values.shape[1 : 1 + len(tensor.leading)] + values.shape[values.ndim - len(tensor.trailing) :]
    for size, expected_size in zip(others, tensor.leading + tensor.trailing, strict=True):
        if size == 0 or expected_size not in {None, size}:
            names = f" ({', '.join(tensor.components)})" if tensor.components else ""
            detail = f"{size} components; expected {expected_size}{names}" if expected_size else "no frames"
            raise Problem("wrong-shape", f"{name} has {detail}", array=name)
    axes = tensor.grid_of(tensor.axes)  # none of the cotangent of a number
    for axis, fixed, size in zip(axes, tensor.grid_of(tensor.sizes), sides, strict=True):
        if fixed is not None and size != fixed:
            raise Problem("wrong-shape", f'{name} has {size} points along "{axis}"; expected {fixed}', array=name)
        if fixed is None and not grid.minimum <= size <= grid.maximum:
            detail = f'{name} has {size} points along "{axis}"; the model takes {grid.minimum} to {grid.maximum}'
            raise Problem("grid-out-of-limits", detail, array=name)
    single = array.ndim < rank
    if card.vocabulary is not None:
        return tokens(values, tensor, card.vocabulary, single=single)
    cast = _float32(values, name, single=single)
    if tensor.positive and not (positive := cast > 0).all():
        index = first(~positive)
        zero = " (zero in float32)" if values[index] > 0 else ""
        article = "an" if tensor.meaning[:1].lower() in "aeiou" else "a"
        detail = f"is {values[index]!s}{zero}; {article} {tensor.meaning} must be positive"
        raise problem("non-positive", name, index[1:] if single else index, detail)
    return cast


def _float32(values: NDArray[Any], name: str, *, single: bool) -> NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes inf, which the next check reports
        cast = np.asarray(values, np.float32, order="C")
    finite = np.isfinite(cast)
    if not finite.all():
        index = first(~finite)
        value = values[index]
        reason = ", beyond the range of float32" if np.isfinite(value) else "; values must be finite"
        raise problem("non-finite", name, index[1:] if single else index, f"is {value!s}{reason}")
    return cast


def _numbers(
    array: NDArray[Any] | None, parameter: Parameter, samples: int, frames: int | None = None
) -> NDArray[np.float32]:
    """Return the values `[B]` of a parameter: one per sample, one for all of them, or its default.

    Those of components are `[B, component]`, and all of them are sent. Those of frames are `[B, frame]`: one per sample
    and frame, one per frame for all samples, or one for all.
    """
    name, every = parameter.name, {"batch": samples, FRAME: frames or 0, COMPONENT: len(parameter.components)}
    shape = tuple(every[axis] for axis in parameter.axes)
    if array is None:
        return np.broadcast_to(np.float32(parameter.default or 0.0), shape)
    if array.shape not in {shape, shape[1:]} and (array.shape or parameter.components):
        one, several = "one number", "or one per sample"
        if parameter.components:
            one, several = f"{len(parameter.components)} numbers", "or as many per sample"
        elif shape[1:]:
            several = f"one per frame {shape[1:]}, or one per sample and frame"
        detail = f"{name} has shape {array.shape}; expected {one}, {several} {shape}"
        raise Problem("wrong-shape", detail, array=name)
    cast = _float32(array, name, single=False)
    low = np.float32(-np.inf if parameter.minimum is None else parameter.minimum)
    high = np.float32(np.inf if parameter.maximum is None else parameter.maximum)
    outside = (cast < low) | (cast > high)
    if outside.any():
        index = first(outside)
        raise problem("out-of-range", name, index, f"is {array[index]!s}; expected {low:g} to {high:g}")
    return np.broadcast_to(cast, shape)


def tokens(values: NDArray[Any], tensor: Tensor, vocabulary: Vocabulary, *, single: bool) -> NDArray[np.int32]:
    """Return sequences `[B, L]` of integers of any size as int32.

    0 is padding, which belongs behind the tokens: the model ignores it there, and would read it anywhere else.
    """
    if values.dtype.kind not in "iu":
        detail = f"{tensor.name} holds {values.dtype.name}; expected integers, the numbers of words"
        raise Problem("wrong-dtype", detail, array=tensor.name)
    size = len(vocabulary.words)
    unknown = (values < 0) | (values >= size)
    padding = values == 0
    misplaced = padding & np.logical_or.accumulate(~padding[:, ::-1], axis=1)[:, ::-1]
    misplaced[:, 0] |= padding[:, 0]
    for wrong in (unknown, misplaced):
        if wrong.any():
            index = first(wrong)
            outside = f"is {values[index]}; the vocabulary has {size} words"
            detail = outside if wrong is unknown else "is 0, which is padding and belongs behind the words"
            raise problem("wrong-token", tensor.name, index[1:] if single else index, detail)
    return np.ascontiguousarray(values, np.int32)


def first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the index of the first true value, in C order, of a mask with at least one."""
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))


def problem(kind: str, array: str, index: tuple[int, ...], detail: str) -> Problem:
    """Return the error about one value, by its index in the caller's array.

    A detail formats the value with `!s`: without it a float32 0.001 is 0.0010000000474974513.
    """
    return Problem(kind, f"{shown(array, index)} {detail}", array=array, index=index)


def shown(array: str, index: tuple[int, ...]) -> str:
    """Return how a value is named in a message: `coefficient[0,17,3]`."""
    return f"{array}[{','.join(map(str, index))}]" if index else array


def not_finite(outputs: Mapping[str, NDArray[np.float32]]) -> NDArray[np.bool_]:
    """Return which samples `[B]` of outputs `[B, ...]` hold NaN or infinity."""
    failed = np.zeros(len(next(iter(outputs.values()))), np.bool_)
    for array in outputs.values():
        failed |= ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    return failed


def output_fault(
    outputs: Mapping[str, NDArray[np.float32]], failed: NDArray[np.bool_], card: Card, *, single: bool
) -> Problem:
    """Return the error about the samples of outputs `[B, ...]` that a model failed on, by a mask with at least one."""
    sample, model = int(failed.argmax()), f'the output of "{card.model}" version {card.version}'
    name, array = next((name, array) for name, array in outputs.items() if not np.isfinite(array[sample]).all())
    index = first(~np.isfinite(array[sample]))
    others = ""
    if not failed.all():
        others = f"; {int(failed.sum())} of {len(failed)} samples fail, and partial=true returns the others"
    given = ", ".join(each.name for each in card.inputs or card.parameters)
    which = f" for {'this' if single else f'sample {sample} of'} {given}"
    return Problem(
        "non-finite-output",
        f"{model}{which} is not finite ({shown(name, index)} is {array[sample][index]!s}){others}",
        array=card.names[0],
        index=None if single else [sample],
    )


def grid_label(shape: tuple[int, ...], card: Card) -> str:
    """Return the grid for metrics: `141x141` for declared sizes, else `other`, so that labels stay few."""
    return "x".join(map(str, shape)) if shape in card.grid.shapes else OTHER


def shapes(card: Card, points: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of one sample of every input, parameter and output, by name.

    The `points` are those per axis of the grid, and the frames of a trajectory.
    """
    found = {}
    for tensor in (*card.arguments, *card.outputs):
        axes = zip(tensor.axes[1:], tensor.sizes[1:], strict=True)
        sizes = [points.get(axis) if size is None else size for axis, size in axes]
        if None in sizes:
            detail = f"the shape of {tensor.name} is known only once it is computed"
            raise Problem("wrong-shape", detail, array=tensor.name)
        found[tensor.name] = tuple(size for size in sizes if size is not None)
    return found
