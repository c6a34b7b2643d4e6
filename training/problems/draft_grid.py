"""The draft of fields on a grid: which arrays are fields on it, numbers, the domain, and states in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from schema.parts import Axis, candidate_symmetries
from schema.problem import TIMES
from training.data.readers import (
    SPACE,
    DataFile,
    LazyArray,
    as_column,
    in_order,
    last_name,
)
from training.problems.ambiguity import (
    doubt_of_points,
    doubt_of_time,
    numbers_samples,
    times_of,
)
from training.problems.checks import FEWEST
from training.problems.draft_axes import (
    AXIS_NAMES,
    axis_entry,
    grid,
    named_grid,
    say_what_is_twice,
    with_components_named,
    with_levels_named,
    without_channels,
    without_components,
)
from training.problems.draft_file import Draft, DraftError, Tensor, quoted, shown
from training.problems.draft_points import IN_ADVANCE, POINTS, is_called, number_per_frame, time_step
from training.problems.draft_stacked import add_channels, add_sensors, channels, lone_array, refuse_named_series
from training.problems.roles import (
    INPUTS,
    OUTPUTS,
    add_parameter,
    assign_roles,
    is_positive,
    nothing,
    numbers_or_field,
)
from training.problems.wire_names import wire_name

MASKS = frozenset({"mask", "inside", "domain", "indicator", "vtkvalidpointmask"})
"""Names of arrays that say where the domain is, among them that of ParaView's Resample To Image."""
NUMBERS = 16  # the most numbers of a sample that are taken for parameters
HOLDS_TIMES = "it holds times: see the section [time], if there is one"


def on_grid(made: Draft, file: DataFile, outputs: Sequence[str], numeric: Sequence[LazyArray]) -> Draft:
    """Complete the draft for fields on a grid, by the arrays of numbers.

    Raises:
        DraftError: There are no fields, or no samples.
    """
    fields = fields_of(numeric)
    if not fields:
        raise DraftError(nothing(made, file, "fields [sample, *grid], which numbers alone do not need,"))
    samples = fields[0].samples
    if not samples:
        raise DraftError(nothing(made, file, "samples"))
    given, numeric = numeric, [with_components_named(one) for one in numeric]
    fields = fields_of(numeric)
    made.remarks += [
        f"{shown(one)} has an axis of fewer than {FEWEST} points, which is taken for its components"
        for before, one in zip(given, numeric, strict=True)
        if before.dimensions != one.dimensions
    ]
    lines = {max(one.shape) for one in numeric if one not in fields and one.shape and may_be_coordinates(one)}
    axes, sides = grid(fields, lines, outputs)
    named, numeric = numeric, [with_levels_named(one, axes) for one in numeric]
    made.remarks += [
        f"{shown(one)} has an axis beside those of the grid ({', '.join(axes)}), which is taken for its components"
        for before, one in zip(named, numeric, strict=True)
        if before.dimensions != one.dimensions
    ]
    numeric = [in_order(one, axes) for one in numeric]  # whose names may be in another order
    fields = fields_of(numeric)
    counts = {*sides, *(one.shape[1] for one in fields if is_moving(one))}
    # Where a file is a sample, times and coordinates have one, too.
    fields = [one for one in fields if one.samples > 1 or not along_axis(one, counts)] or fields
    others = [one for one in numeric if one not in fields]
    outputs, doubt = (outputs, "") if outputs or file.outputs else lone_field(numeric, fields, sides)
    for one in others:
        if one.name not in outputs and along_axis(one, counts):
            made.left_out[one.name] = along_axis(one, counts)
        else:
            add_number(made, one, samples, dict(zip(axes, sides, strict=True)), outputs)
    if (lone := lone_array(numeric)) is not None and (where := channels(lone)):
        doubt = add_channels(made, lone, where)
        beside_mask(made, [], [lone], sides)
    else:
        add_fields(made, file, beside_mask(made, numeric, fields, sides), sides, outputs)
    made.tensors.sort(key=lambda tensor: tensor.role == "parameters")
    if not made.moving and len(made.tensors) < 2:
        refuse_named_series([one.array for one in made.tensors], file)
        raise DraftError(
            nothing(
                made,
                file,
                "two fields, or a field and numbers per sample, an input and an output as arrays of their own,",
            )
        )
    assign_roles(made, file, outputs, doubt)
    beside = [one for one in others if may_be_coordinates(one)]
    for axis, side in zip(axes, sides, strict=True):
        made.axes[wire_name(axis)] = axis_entry(made, file, axis, side, beside)
    say_what_is_twice(made, axes, sides)
    described = [Axis(name=name, **entry) for name, entry in made.axes.items()]
    quantities = [each.quantity for role in ("inputs", "outputs") for each in made.of(role)]
    numbers = [each.values() for each in made.of("parameters")]
    directed = any(values.min() < 0 < values.max() for values in numbers)
    tried = candidate_symmetries(described, sides, quantities, directed=directed)
    made.candidates = tried if made.of("inputs") else ()
    ask(made, file, fields, others, sides)
    frames = times_of(others)
    times = np.asarray(file.coordinates.get("time", () if frames is None else frames.read()), np.float64).ravel()
    time_step(made, times)
    return made


def ask(
    made: Draft, file: DataFile, fields: Sequence[LazyArray], others: Sequence[LazyArray], sides: tuple[int, ...]
) -> None:
    """Mark the sample axis, and an axis that may be time or points, where neither the file nor its values tell them."""
    taken = [one for one in fields if one.name not in made.left_out]
    if taken and taken[0].dimensions is not None:
        if not file.samples and made.sample == "first" and "time" not in made.guesses:
            doubt = f"the first dimension ({taken[0].samples}), since none has a name such as sample, member or run"
            if taken[0].first == "time":
                doubt = (
                    f"time ({taken[0].samples}), so that no step in time is learned: for steps cut the series into "
                    "trajectories [sample, time, ...]"
                )
            made.guesses["files"] = f"samples are counted by {doubt}"
        return
    axis, doubt = doubt_of_time(sides, others)
    if doubt:
        made.guesses[f"axes.{[*made.axes][axis]}"] = f"time is not this axis, though {doubt}"
    elif doubt := doubt_of_points(taken, sides):
        made.guesses[f"axes.{next(iter(made.axes))}"] = f"points lie one after the other on a line, though {doubt}"


def lone_field(
    numeric: Sequence[LazyArray], fields: Sequence[LazyArray], sides: tuple[int, ...]
) -> tuple[list[str], str]:
    """Guess the outputs, and say the doubt, where there is one steady field on the grid and numbers beside it."""
    vectors = [one for one in fields if has_few_numbers(one, sides)]
    samples = fields[0].samples
    numbers = [one for one in numeric if one in vectors or is_number(one, samples) or one.shape == (1, samples)]
    numbers = [one for one in numbers if not numbers_samples(one, samples) and not along_axis(one, {*sides})]
    alone = [one for one in fields if one not in vectors]
    if len(alone) != 1 or not numbers or "time" in (alone[0].dimensions or ()):
        return [], ""
    return numbers_or_field(alone[0], numbers)


def fields_of(arrays: Sequence[LazyArray]) -> list[LazyArray]:
    """Return the arrays of more than a number per sample that have as many samples as most of those with most axes.

    What is the same for all samples has fewer axes than they.
    """
    several = [one for one in arrays if len(one.shape) > 1 and np.prod(one.shape[1:]) > 1]
    rank = max((len(one.shape) for one in several), default=0)
    sizes = Counter(one.samples for one in several if len(one.shape) == rank)
    samples = max(sizes, key=lambda size: (sizes[size], size), default=0)
    return [one for one in several if one.samples == samples]


def is_number(one: LazyArray, samples: int) -> bool:
    """Return whether an array has a number per sample."""
    return one.samples == samples and all(side == 1 for side in one.shape[1:]) and not one.shared


def has_few_numbers(one: LazyArray, sides: tuple[int, ...]) -> bool:
    """Return whether an array without named axes has a few numbers per sample, and is no field on the grid."""
    if one.dimensions is not None or sides in (one.shape[1:], without_components(one.shape[1:])[0]):
        return False
    return len(one.shape) == 2 and one.shape[1] <= NUMBERS


def add_number(made: Draft, one: LazyArray, samples: int, axes: Mapping[str, int], outputs: Sequence[str]) -> None:
    """Add an array that is no field as a number per sample or a field for all, or leave it out with the reason.

    `axes` are the sides of the grid by the names of its axes.
    """
    shape, sides = " x ".join(map(str, one.shape)), tuple(axes.values())
    named = dict(zip((one.first, *(one.dimensions or ())), one.shape, strict=False))
    if one.name in outputs and (is_number(one, samples) or one.shape == (1, samples)):
        column = one if is_number(one, samples) else as_column(one)
        made.tensors.append(Tensor(wire_name(one.name), column, "outputs", scalar=True, positive=is_positive(one)))
    elif numbers_samples(one, samples):
        made.left_out[one.name] = "it numbers the samples"
    elif one.samples == samples and all(side == 1 for side in one.shape[1:]):
        add_parameter(made, one)
    elif one.shape == (1, samples):
        add_parameter(made, as_column(one))
    elif one is times_of([one]):
        made.left_out[one.name] = HOLDS_TIMES
    elif (one.shape == sides or named == axes) and len(sides) > 1:  # in whatever order of named axes
        made.tensors.append(Tensor(wire_name(one.name), one, "inputs", static=True))
    elif max(one.shape) in sides and np.prod(one.shape) == max(one.shape):
        made.left_out[one.name] = f"it may hold the coordinates of an axis of {max(one.shape)} points: see [axes]"
    else:
        count = f"it has {one.samples} on its first axis, and the fields have {samples} samples"
        made.left_out[one.name] = f"{count} (shape {shape})"


def along_axis(one: LazyArray, counts: Collection[int]) -> str:
    """Say why an array may be no numbers of samples, by its name and as many numbers as an axis has; empty otherwise.

    There may be as many samples as points or frames. An array whose axes have names is what they say.
    """
    count = max(one.shape, default=0)
    if count not in counts or int(np.prod(one.shape)) != count:
        return ""
    if last_name(one) in TIMES and one.dimensions in {None, ("time",)}:
        return HOLDS_TIMES
    if one.dimensions is not None:
        return ""
    return f"it may hold the coordinates of an axis of {count} points: see [axes]" if last_name(one) in SPACE else ""


def may_be_coordinates(one: LazyArray) -> bool:
    """Return whether a line of numbers has the name of coordinates, or of points as those of a trunk."""
    return last_name(one) in SPACE or is_called(one, POINTS)


def beside_mask(
    made: Draft, arrays: Sequence[LazyArray], fields: Sequence[LazyArray], sides: tuple[int, ...]
) -> Sequence[LazyArray]:
    """Declare the domain, if an array of 0 and 1 or NaN say where it is, and return the fields but such an array."""
    samples, frames = fields[0].samples, {one.shape[1] for one in fields if is_moving(one)}
    shapes = {sides, (samples, *sides), *((samples, count, *sides) for count in frames)}
    for one in arrays:
        if one.name.rpartition("/")[2].lower() in MASKS and one.shape in shapes:
            values = one.read(0, samples if one.shape == sides else 1)
            if np.isin(values, (0, 1)).all():
                made.mask, made.domain = f"key = {quoted(one.name)}", one.name
                made.guesses["mask"] = f"{one.name} is 1 inside the domain and 0 outside"
                made.left_out.pop(one.name, None)  # one for all samples is no field
                made.tensors = [tensor for tensor in made.tensors if tensor.array is not one]
                return [each for each in fields if each is not one]
    for one in fields:
        _, values = next(iter(one.blocks()))
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)
        lasts = not is_moving(one) or bool((missing == missing[:, :1]).all())  # else values are missing
        if lasts and missing.reshape(len(values), -1).any(axis=1).all():
            made.mask = f"nan = {quoted(one.name)}"
            made.guesses["mask"] = f"what lies outside the domain is NaN in {one.name}"
            break
    return fields


def add_fields(
    made: Draft, file: DataFile, fields: Sequence[LazyArray], sides: tuple[int, ...], outputs: Sequence[str]
) -> None:
    """Add fields, and numbers of every frame, to the draft."""
    moving = [one for one in fields if is_moving(one)]
    forced = known_in_advance(file, moving, outputs)
    for one in fields:
        if moving and one.shape[1:] == moving[0].shape[1:2] and sides != one.shape[1:]:
            number = number_per_frame(one)
            if file.format == "well":  # whose scalars are no states, as its layout says
                number = replace(number, guess="")
                made.remarks.append(f"{one.name} changes in time: a request brings its values of all frames")
            made.tensors.append(number)
        else:
            add_field(made, one, sides, outputs, forced)
    if not made.moving and len(made.tensors) < 2:
        add_sensors(made, fields, fields[0].samples, outputs)


def is_moving(one: LazyArray) -> bool:
    """Return whether an array has frames."""
    return one.dimensions is not None and one.dimensions[:1] == ("time",) and one.shape[1] > 1


def known_in_advance(file: DataFile, moving: Sequence[LazyArray], outputs: Sequence[str]) -> set[str]:
    """Return which fields that change in time are inputs: those that are no outputs, or have the name of an input."""
    if outputs:
        return {one.name for one in moving} - {*outputs}
    if file.format in {"well", "pdebench"}:
        return set()
    words = {one.name: one.name.rpartition("/")[2].lower() for one in moving}
    named = {name for name, word in words.items() if word in INPUTS.split() and word not in OUTPUTS.split()}
    return named if len(named) < len(words) else set()


def add_field(
    made: Draft, one: LazyArray, sides: tuple[int, ...], outputs: Sequence[str], forced: Collection[str]
) -> None:
    """Add one field; of a trajectory the state it starts from, and itself.

    Those that are `forced` are inputs with a value per frame.
    """
    name, moving, doubt = wire_name(one.name), one.dimensions is not None and "time" in one.dimensions, ""
    if one.dimensions is not None:
        axes = named_grid(one)
        end, components = "last" if axes[-1][0] == "component" else "", dict(axes).get("component", 0)
        own = tuple(side for axis, side in axes if axis not in {"time", "component"})
        if own != sides:
            made.left_out[one.name] = (
                f"its axes {', '.join(axis for axis, _ in axes)} are not those of the grid {sides}"
            )
            return
    else:
        rest, end = without_components(one.shape[1:])
        if has_few_numbers(one, sides) and one.name in outputs:
            found = Tensor(name, one, "outputs", one.shape[1], scalar=True, positive=is_positive(one))
            made.tensors.append(found)
            return
        if has_few_numbers(one, sides):
            made.tensors += [
                Tensor(f"{name}_{column}", one, "parameters", column=column) for column in range(one.shape[1])
            ]
            return
        where = dict(without_channels(one.shape[1:])).get(sides, "")
        if where and sides not in (one.shape[1:], rest):
            rest, end = sides, where
            if one.name in outputs:
                axis = "second" if where == "first" else "last"
                line = f"axes.{AXIS_NAMES[len(sides)][0]}"
                made.guesses[line] = f"time is no axis, though the {axis} one of {shown(one)} may count frames"
        if sides not in (one.shape[1:], rest):
            made.left_out[one.name] = reason_of(one, sides)
            return
        components = one.shape[1 if end == "first" else -1] if end in {"first", "last"} and rest == sides else 0
        doubt = f"the axis of {components} in {shown(one)} holds components" if components > 1 else ""
    end = "last" if end == "last" else "first"
    found = Tensor(name, one, "", 0 if components == 1 else components, end, components_guess=doubt)
    if one.name in forced:
        made.tensors.append(replace(found, role="inputs", per_frame=True, guess=IN_ADVANCE, positive=is_positive(one)))
    elif moving and one.shape[1] > 1:
        made.tensors += [replace(found, name=f"{name}_first", role="inputs"), replace(found, role="outputs")]
        made.remarks.append(f"{one.name} has a time axis: the draft learns the step from one frame to the next")
        made.moving = True
    else:
        made.tensors.append(replace(found, frame=0 if moving else None, positive=is_positive(one)))


def reason_of(one: LazyArray, sides: tuple[int, ...]) -> str:
    """Say why an array without named axes is not on the grid."""
    own, grid_ = one.shape[1:], " x ".join(map(str, sides))
    if len(own) == 1 and len(sides) > 1:
        return f"it has {own[0]} numbers per sample, on no grid of {grid_}: save parameters as an array [sample] each"
    if len(own) == len(sides) + 1 and sides in (own[:-1], own[1:]):
        where, count = ("last", own[-1]) if own[:-1] == sides else ("second", own[0])
        return f"its {where} axis, of {count}, is not one of the grid {grid_}: is it time?"
    other = ": interpolate one to the points of the other" if len(own) == len(sides) else ""
    return f"its shape {' x '.join(map(str, one.shape))} is not that of the grid {grid_}{other}"
