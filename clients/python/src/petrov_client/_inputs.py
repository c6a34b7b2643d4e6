"""What a caller passes to a prediction, checked against the description of a model: names, shapes, and values.

Arrays with `shape`, `dtype` and slicing are read a piece at a time; a mesh is read by its points and data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._arrays import WIRE_TYPES, FieldInput, Fields, PredictionInput
from petrov_client._errors import InvalidInput, Where
from petrov_client._labels import in_order
from petrov_client._meshes import arrays_of, is_mesh, with_cells
from petrov_client._models import ModelInfo
from petrov_client._schema import COMPONENT, FRAME, ParameterInfo, TensorInfo
from petrov_client._vocabulary import PADDING, Vocabulary

FINITE, KNOWN = "every value must be finite in float32", "every value must be known"
#: Attributes of files (netCDF) that say which number stands for a missing value.
FILL_ATTRIBUTES = ("_FillValue", "missing_value")
#: Those that say by what stored numbers are multiplied, and what is added, and where that changes nothing.
PACKING = {"scale_factor": 1.0, "add_offset": 0.0}
#: What `predict` takes by name besides inputs and parameters.
OPTIONS = ("version", "timeout", "progress", "quality", "tolerance", "outside", "grid")


def check_input(
    info: ModelInfo, array: Any = None, named: Mapping[str, Any] | None = None, *, read: bool = True
) -> PredictionInput:
    """Check inputs and parameters, as `predict` takes them, against the description of a model.

    Without `read` the values of fields are not checked, which takes as long as reading them.

    Raises:
        InvalidInput: A name is missing or unknown; type, rank, components or grid do not fit; or a value is not finite,
            not positive, out of range or not in the vocabulary. `.where` names the input and, for a value, its index.
    """
    mesh = array if is_mesh(array) else None
    passed, labels = in_order(info, _named(info, array if mesh is None else arrays_of(mesh, info), named or {}))
    for name, each in passed.items():
        _check_unpacked(name, each)
    inputs = tuple(_field(info, tensor, passed[tensor.name]) for tensor in info.inputs if tensor.name in passed)
    if not inputs and info.takes_grid:
        return _numbers_alone(info, passed)
    if not inputs:
        names = " or ".join(each.name for each in info.inputs)
        raise InvalidInput(f"expected {names}, which give the grid, but got none")
    inputs = _of_one_sample(inputs)
    # One on the grid, which the cotangent of a number is not.
    first = next((each for each in inputs if None in each.tensor.shape[1:]), inputs[0])
    for each in (
        each for each in inputs if each is not first
    ):  # the same number of fields and, unless the model fixes one of them, the same grid
        fixed = None not in each.tensor.shape[1:]
        if (each.single, len(each)) != (first.single, len(first)) or not (fixed or each.grid == first.grid):
            shapes = (
                f"{first.tensor.name} has shape {tuple(first.array.shape)} and {each.tensor.name} "
                f"{tuple(each.array.shape)}"
            )
            axes = ", ".join(each.tensor.axes[first.single :])
            raise _refusal(each.tensor, f"expected the same fields and grid but {shapes}: expected ({axes}) beside it")
    count = _frames(info, inputs, passed)
    sizes = {"batch": len(first), FRAME: 1 if count is None else count}
    numbers = {each.name: _numbers(each, passed[each.name], sizes) for each in info.parameters if each.name in passed}
    checked = PredictionInput(info, inputs, numbers, labels, mesh, count)
    mask = next((each for each in inputs if each.tensor.name == info.mask), None)
    for each in inputs if read else ():
        for piece in checked.pieces():
            domain = None if mask is None or each is mask else mask.fields(piece) == 1
            _check_values(each, piece, info.vocabulary, domain)
            if each is mask:
                _check_domain(each, piece)
    return checked


def _of_one_sample(inputs: tuple[FieldInput, ...]) -> tuple[FieldInput, ...]:
    """Return inputs of one sample all with the batch axis, or all without, as the first one, where files mix both."""
    if len({each.single for each in inputs}) == 1 or any(len(each) != 1 for each in inputs):
        return inputs
    single = inputs[0].single
    wanted = [np.asanyarray(each.array) if each.single != single else each.array for each in inputs]
    return tuple(
        each if each.single == single else replace(each, array=array[0] if single else array[np.newaxis], single=single)
        for each, array in zip(inputs, wanted, strict=True)
    )


def _numbers_alone(info: ModelInfo, passed: Mapping[str, Any]) -> PredictionInput:
    """Return parameters of a model that takes no field, of as many samples as one of them has."""
    shapes = {each.name: np.shape(passed[each.name]) for each in info.parameters if each.name in passed}
    counts = [shapes[each.name][0] for each in info.parameters if len(shapes.get(each.name, ())) == len(each.axes)]
    sizes = {"batch": max(counts, default=1)}
    if not shapes or not sizes["batch"]:
        raise InvalidInput(f"expected numbers for {', '.join(each.name for each in info.parameters)} but got none")
    numbers = {each.name: _numbers(each, passed[each.name], sizes) for each in info.parameters if each.name in passed}
    return PredictionInput(info, (), numbers, alone=not counts)


def _frames(info: ModelInfo, inputs: tuple[FieldInput, ...], passed: Mapping[str, Any]) -> int | None:
    """Return how many frames inputs and parameters have that have a value for each; None where none of them says it."""
    found = {each.tensor.name: each.shape[0] for each in inputs if FRAME in each.tensor.axes}
    numbers = [each.name for each in info.parameters if FRAME in each.axes and each.name in passed]
    found |= {name: shape[-1] for name in numbers if (shape := np.shape(passed[name]))}
    lead = next(iter(found), "")
    for name, count in found.items():
        if count != found[lead]:
            message = f"expected as many frames in all but {lead} has {found[lead]} and {name} {count}"
            raise InvalidInput(message, where=Where(name))
    return found.get(lead)


def _named(info: ModelInfo, array: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the caller passed by name, if the names are the model's."""
    first = () if array is None else array.items() if isinstance(array, Mapping) else ((info.first_name, array),)
    passed = dict(first)
    if repeated := [name for name in named if name in passed]:
        raise InvalidInput(f'"{repeated[0]}" is given twice', where=Where(repeated[0]))
    passed = with_cells(passed | dict(named), info)

    def listed(names: Iterable[str]) -> str:
        return ", ".join(f'"{name}"' for name in names)

    known = listed(each.name for each in info.arguments)
    if unknown := [name for name in passed if name not in {each.name for each in info.arguments}]:
        meant = _meant(info, unknown[0])
        advice = f': did you mean "{meant.name}"{meant.meaning and f" ({meant.meaning})"}?' if meant else ""
        if not meant and (option := get_close_matches(unknown[0], OPTIONS, 1)):
            advice = f": did you mean the option {option[0]}?"
        if not meant and info.frames is not None and unknown[0] == "frames":
            advice = ": rollout computes as many frames as you name"
        raise InvalidInput(f'"{info.name}" takes {known} and no "{unknown[0]}"{advice}', where=Where(unknown[0]))
    if missing := [name for name in info.required if name not in passed]:
        got = listed(passed) or "nothing"
        message = f'"{info.name}" takes {known}, but "{missing[0]}" is missing; got {got}'
        raise InvalidInput(message, where=Where(missing[0]))
    return passed


def _meant(info: ModelInfo, name: str) -> TensorInfo | ParameterInfo | None:
    """Return the input or parameter whose name, or a word of whose meaning, is like an unknown name."""
    words: dict[str, TensorInfo | ParameterInfo] = {}
    for each in info.arguments:
        for word in (each.name, *(each.meaning or "").lower().split()):
            words.setdefault(word, each)
    close = get_close_matches(name.lower(), words, 1)
    return words[close[0]] if close else None


def _field(info: ModelInfo, tensor: TensorInfo, array: Any) -> FieldInput:
    """Return an input, if its type, rank and grid fit; its values are checked later, piece by piece."""
    if tensor.dtype not in WIRE_TYPES:
        raise InvalidInput(f'"{info.name}" expects {tensor.dtype}; predict sends {" or ".join(WIRE_TYPES)}')
    kind = getattr(array, "dtype", None)
    if callable(getattr(array, "toarray", None)) and not hasattr(array, "__array__"):
        raise _refusal(tensor, f'expected an array for "{tensor.name}" but got a sparse one: pass its .toarray()')
    labelled = hasattr(array, "iloc")  # by pandas, where an index is a label
    if not isinstance(kind, np.dtype) or kind.kind == "O" or not hasattr(array, "shape") or labelled:
        array = _array(tensor.name, array)  # what can be sliced stays as it is, perhaps on the disk
    kinds, expected = ("iu", "integers") if tensor.dtype == "INT32" else ("fiu", "real numbers")
    kinds += "b" if tensor.name == info.mask else ""
    if array.dtype.kind not in kinds:
        text = array.dtype.kind in "US" and info.vocabulary is not None
        advice = f': model("{info.name}").encode(texts) returns the tokens of texts' if text else ""
        raise _refusal(tensor, f'expected {expected} but got {array.dtype} for "{tensor.name}"{advice}')
    rank, shape = len(tensor.axes), tuple(array.shape)
    if len(shape) not in (rank - 1, rank) or not all(shape):
        axes = f"({', '.join(tensor.axes[1:])}) or ({', '.join(tensor.axes)})"
        raise _refusal(tensor, f'expected {axes}, none of them empty, but got {shape} for "{tensor.name}"')
    checked = FieldInput(array, tensor, single=len(shape) == rank - 1)
    limits = info.grid
    for number, (axis, points) in enumerate(zip(tensor.axes[1:], checked.shape, strict=True)):
        fixed = tensor.shape[1 + number] if tensor.shape else None
        if fixed is not None and points != fixed:
            kind = "components" if axis == COMPONENT else f"points along {axis}"
            raise _refusal(tensor, f'expected {fixed} {kind} but got {points} for "{tensor.name}"')
        free = limits is not None and fixed is None and axis in limits.axes
        if free and limits is not None and not limits.minimum <= points <= limits.maximum:
            expected = f"{limits.minimum} to {limits.maximum} points along {axis}"
            raise _refusal(tensor, f'expected {expected} but got {points} for "{tensor.name}"')
    return checked


def _numbers(parameter: ParameterInfo, value: Any, sizes: Mapping[str, int]) -> Fields:
    where, components = Where(parameter.name), len(parameter.components)
    shape = tuple(components if axis == COMPONENT else sizes.get(axis, 1) for axis in parameter.axes)
    values = _array(parameter.name, value)
    if values.dtype.kind not in "fiu":
        raise InvalidInput(f'expected real numbers but got {values.dtype} for "{parameter.name}"', where=where)
    if components and values.shape not in {shape, shape[1:]}:
        expected = f"{components} numbers ({', '.join(parameter.components)}), or as many per field {shape}"
        raise InvalidInput(f'expected {expected} but got {values.shape} for "{parameter.name}"', where=where)
    if values.shape not in {(), shape, shape[1:]}:
        several = f"{shape[1:]} or {shape}" if shape[1:] else f"{shape}"
        raise InvalidInput(
            f'expected one number or {several} numbers but got {values.shape} for "{parameter.name}"', where=where
        )
    with np.errstate(over="ignore"):
        numbers = np.asarray(values, "<f4")
    if (missing := _missing(values, value)).any():
        where = Where(parameter.name, _first(missing) or None)
        raise InvalidInput(f"{where} is missing; {KNOWN}", where=where)
    low = -math.inf if parameter.minimum is None else parameter.minimum
    high = math.inf if parameter.maximum is None else parameter.maximum
    bad = ~((numbers >= low) & (numbers <= high) & np.isfinite(numbers))
    if bad.any():
        index = _first(bad)
        where = Where(parameter.name, index or None)
        rule = f"expected {low:g} to {high:g}" if np.isfinite(numbers[index]) else FINITE
        raise InvalidInput(f"{where} is {values[index]!s}; {rule}", where=where)  # without !s a float32 has 16 digits
    return np.array(np.broadcast_to(numbers, shape))


def _check_values(
    checked: FieldInput, piece: slice, vocabulary: Vocabulary | None, read: npt.NDArray[np.bool_] | None
) -> None:
    """Check the numbers of a piece: fields that are finite and positive where they are read, or tokens and padding."""
    tensor, values = checked.tensor, checked.values(piece)
    rules: list[tuple[npt.NDArray[np.bool_], str]] = [(_missing(values, checked.array), KNOWN)]
    if tensor.dtype != "INT32":
        fields = checked.converted(values)
        rules.append((~np.isfinite(fields), FINITE))
        if tensor.positive:
            rules.append((fields <= 0, f"{tensor.meaning or tensor.name} must be positive"))
    else:
        tokens = np.asarray(values)
        if vocabulary is None:
            rules.append(((tokens < -(2**31)) | (tokens >= 2**31), "expected a number that int32 holds"))
        else:
            words = len(vocabulary.words)
            rules.append(((tokens < 0) | (tokens >= words), f"the vocabulary has {words} words"))
            padding = tokens == PADDING
            misplaced = padding & np.logical_or.accumulate(~padding[:, ::-1], axis=1)[:, ::-1]
            misplaced[:, 0] |= padding[:, 0]
            rules.append((misplaced, "that is padding and belongs behind the words"))
    for bad, rule in rules:
        if read is not None:  # in the domain `[field, *grid]`
            bad &= read.reshape(len(read), *(1,) * (bad.ndim - read.ndim), *read.shape[1:])  # noqa: PLW2901
        if bad.any():
            where = _at(checked, piece, _first(bad))
            found = "missing" if rule == KNOWN else np.asarray(checked.array[where.index])
            raise InvalidInput(f"{where} is {found!s}; {rule}", where=where)


def _check_domain(mask: FieldInput, piece: slice) -> None:
    """Check that a piece of a mask is 1 or 0, and has some domain in every sample."""
    fields = mask.fields(piece)
    bad = (fields != 0) & (fields != 1)
    if bad.any():
        where = _at(mask, piece, _first(bad))
        found = np.asarray(mask.array[where.index])
        raise InvalidInput(f"{where} is {found!s}; expected 1 inside the domain, or 0 outside", where=where)
    empty: npt.NDArray[np.bool_] = np.asarray(~fields.reshape(len(fields), -1).any(axis=1))
    if empty.any():
        where = _at(mask, piece, _first(empty))
        raise InvalidInput(f"{where} has no point inside the domain; expected some", where=where)


def _at(checked: FieldInput, piece: slice, index: tuple[int, ...]) -> Where:
    """Return the location of a value of a piece in the caller's own array."""
    index = index[1:] if checked.single else (piece.start + index[0], *index[1:])
    return Where(checked.tensor.name, index)


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return a value as an array, masked where the value is.

    Raises:
        InvalidInput: It is none: its rows differ in length, or it belongs to a graph of torch.
    """
    if getattr(value, "requires_grad", False):
        raise InvalidInput(
            f'"{name}" is a tensor that requires a gradient: petrov_client.torch.Operator computes gradients; for a '
            "prediction alone pass its .detach()",
            where=Where(name),
        )
    try:
        found: npt.NDArray[Any] = _stacked(value)
    except (TypeError, ValueError, RuntimeError) as error:  # a RuntimeError: of torch
        raise InvalidInput(f'expected an array of numbers for "{name}" but: {error}', where=Where(name)) from error
    if found.dtype.kind == "O":  # such as None and pandas' NA; the first that is no number says what is wrong
        wrong = np.array([not isinstance(each, Real) for each in found.flat], np.bool_).reshape(found.shape)
        if wrong.any():
            index = _first(wrong)
            where = Where(name, index or None)
            raise InvalidInput(f"{where} is {found[index]!r:.40}; expected real numbers", where=where)
    return found


def _stacked(value: Any) -> npt.NDArray[Any]:
    """Return nested lists as one array, masked where arrays in them are: `asarray` drops their masks."""
    if not _holds_masks(value):
        alone = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        return np.from_dlpack(value) if alone else np.asanyarray(value)
    return np.ma.stack([_stacked(each) for each in value]) if isinstance(value, list | tuple) else value


def _holds_masks(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_masks, value))
    return isinstance(value, np.ma.MaskedArray)


def _missing(values: npt.NDArray[Any], source: Any) -> npt.NDArray[np.bool_]:
    """Return where values are missing: masked, or equal to what the attributes of their source say."""
    missing = np.ma.getmaskarray(values)
    attributes = getattr(source, "attrs", None) or {}
    for name in FILL_ATTRIBUTES:
        fill = np.asarray(attributes.get(name, ()))
        if fill.size and fill.dtype.kind in "fiu":
            missing = missing | np.isin(np.asarray(values), fill.astype(values.dtype))
    return np.asarray(missing)


def _check_unpacked(name: str, source: Any) -> None:
    """Refuse numbers of files (netCDF) that are values only once they have been multiplied and shifted."""
    attributes = getattr(source, "attrs", None) or {}
    for attribute, nothing in PACKING.items():
        said = np.asarray(attributes.get(attribute, nothing))
        if said.dtype.kind in "fiu" and (said != nothing).any():
            what = f"{attribute} {said.ravel()[0]:g} of {name}"
            remedy = "unpack them, as xarray.open_dataset does, or remove the attribute where they are the values"
            raise InvalidInput(f"expected values but got packed numbers, by the {what}: {remedy}", where=Where(name))


def _first(bad: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))


def _refusal(tensor: TensorInfo, message: str) -> InvalidInput:
    return InvalidInput(message, where=Where(tensor.name))
