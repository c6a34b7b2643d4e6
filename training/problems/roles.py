"""What arrays of a file are for: those that hold no numbers, positive ones, inputs and outputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from training.data.readers import DataFile, LazyArray, last_name
from training.problems.checks import missing_values
from training.problems.columns import NUMERIC
from training.problems.draft_file import Draft, DraftError, Tensor, plain_name
from training.problems.summary import Spread, advice
from training.problems.wire_names import wire_name

INPUTS = """
x a k nu f g q in input inputs source forcing rhs initial u0 coeff coefficient permeability perm conductivity cond
diffusivity geometry mask material boundary distance
"""
OUTPUTS = """
y u t p out output outputs target solution sol final tensor pressure temperature temp potential displacement
concentration saturation stress
"""
SCALARS = """
drag lift cd cl cm moment force forces torque energy power efficiency loss coefficient coefficients qoi objective
compliance flux dissipation nusselt output outputs prediction label labels target targets y
"""
VAGUE = """
coefficient coefficients label labels target targets y
"""  # of these, words that say nothing beside others, as in diffusion_coefficient and wind_y
RECORDS = """
seed seeds rng_seed random_seed random_state random_states rng_state hash git_hash sha git commit git_commit revision
created created_at creation_time creation_date timestamp date datetime uuid guid hostname pid job_id jobid
slurm_job_id version runtime run_time walltime wall_time wall_clock wallclock wallclock_time wall_clock_time cpu_time
cputime gpu_time elapsed elapsed_time elapsed_seconds solve_time solver_time solver_seconds solve_seconds compute_time
computation_time duration_seconds n_iter niter num_iter n_iterations num_iterations iterations solver_iterations
residual residuals residual_norm converged success status return_code exit_code nproc nprocs n_procs num_procs
n_threads num_threads n_cores ncores num_cores mpi_size verbose log_level
"""  # names of numbers that a program writes about a run and no law has: they say nothing of a new one
NUMERICS = """
dt dx dy dz time_step timestep step_size cfl tol tolerance rtol atol nx ny nz nt n_steps nsteps num_steps max_iter n_x
n_y n_t save_every order degree resolution
"""  # names of numbers that say how equations were solved, which may decide the outputs, too
FADED = 1e-9  # values below this part of the greatest are no positive quantity that is learned by its logarithm
COUNTED_FROM = 3  # numbers, of which more that are equally far apart are no chance
KINDS_MOST = 8  # the most whole numbers that may name kinds
LISTED = 32  # of what a file holds, in a sentence
SCANNED = 1 << 30  # bytes of one array that are read to see whether it is positive
KINDS = {
    "O": "objects",
    "S": "text",
    "U": "text",
    "M": "dates",
    "m": "durations",
    "V": "structs",
}


def sort_out(made: Draft, one: LazyArray, outputs: Collection[str]) -> bool:
    """Leave out an array that holds no real numbers or only a record of the run, and return whether it was left out."""
    if one.dtype.kind not in NUMERIC:
        kind = "struct" if one.dtype.names else str(one.dtype)
        made.left_out[one.name] = f"it holds {held_in(one)} ({kind})"
    elif plain_name(one.name) in RECORDS.split() and one.name not in outputs and np.prod(one.shape[1:]) == 1:
        table = f"[parameters.{wire_name(one.name)}] with the key {one.name!r}"
        made.left_out[one.name] = f"its name is that of a record of the run: if outputs depend on it, write {table}"
    elif not one.shape:
        made.left_out[one.name] = "it is one number for all samples"
        made.constants[one.name] = float(one.rows(0, 1))
    return one.name in made.left_out


def held_in(one: LazyArray) -> str:
    """Return in a word what an array holds that are no numbers."""
    if one.dtype.kind == "V" and not one.dtype.names:
        return "bytes of a type that the file does not tell, as of bfloat16: save it as float32"
    metadata: Any = one.dtype.metadata or {}
    if vlen := metadata.get("vlen"):  # of HDF5
        return "text" if vlen in {str, bytes} else "lists of lengths of their own"
    return KINDS.get(one.dtype.kind, "no real numbers")


def doubt_of_number(one: LazyArray) -> str:
    """Say why a number per sample may be no parameter: it is a setting of the run, or says how it was solved."""
    if plain_name(one.name) in NUMERICS.split():
        return "it may only say how the equations were solved: then remove the table"
    if one.dimensions is None and one.samples > COUNTED_FROM and is_even(one):
        return "its values are equally far apart: where they are the coordinates of an axis, remove the table"
    return "a setting of each run: remove the table if the outputs do not depend on it" if one.setting else ""


def is_even(one: LazyArray) -> bool:
    """Return whether numbers are equally far apart, as coordinates are and few parameters."""
    steps = np.diff(np.ravel(one.read()).astype(np.float64))
    return bool(len(steps) and steps[0] and (np.abs(steps - steps[0]) < 1e-3 * np.abs(steps[0])).all())


def add_parameter(made: Draft, one: LazyArray) -> None:
    """Add a number per sample to the draft, unless it is the same for all samples."""
    values = np.ravel(one.read()) if one.samples > 1 and not made.of_several else np.empty(0)
    if len(values) and (values == values[0]).all():
        made.left_out[one.name] = f"it is {values[0]:g} for all samples"
        made.constants[one.name] = float(values[0])
    else:
        made.tensors.append(Tensor(wire_name(one.name), one, "parameters", guess=doubt_of_number(one)))


def named_outputs(file: DataFile, outputs: Sequence[str]) -> list[str]:
    """Return the arrays that a user calls outputs, by their names in the file or on the wire.

    Raises:
        DraftError: One of them is no array of the file.
    """
    on_wire = {wire_name(name): name for name in reversed([*file.arrays])}
    ends = Counter(re.split(r"[/.]", name)[-1] for name in file.arrays)
    alone = {end: name for name in file.arrays if ends[end := re.split(r"[/.]", name)[-1]] == 1}
    found = []
    for each in outputs:
        name = each if each in file.arrays else on_wire.get(each, alone.get(each))
        if name is None:
            there = some_of([one.described for one in file.arrays.values()], ", ") or "no arrays"
            there += "".join(f"; {left} is left out: {reason}" for left, reason in file.left_out.items())
            raise DraftError(f"{file.path}: expected an output among the arrays {there} but got {each!r}")
        found.append(name)
    return found


def nothing(made: Draft, file: DataFile, expected: str) -> str:
    """Say that a file does not hold what is expected, and what every array was taken for."""
    found = [f"{one.described}: {made.role_of(one.name) or 'no field'}" for one in file.arrays.values()]
    found += [f"{name} left out: {reason}" for name, reason in file.left_out.items()]
    return f"{file.path}: expected {expected} but found {some_of(found, '; ') or 'no arrays'}"


def some_of(found: Sequence[str], mark: str) -> str:
    """Join what a file holds, and say of many how many more there are."""
    more = f"{mark}and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return mark.join(found[:LISTED]) + more


def is_positive(array: LazyArray) -> bool:
    """Return whether every value but NaN is above zero, and none has faded to nothing beside the greatest.

    Of very large arrays the first gigabyte is read. The logarithm of values that fade, such as the tails of a source,
    says nothing.
    """
    read, least, most = 0, np.inf, 0.0
    for _, values in array.blocks():
        read += values.nbytes
        if not np.isnan(values).all():
            least, most = min(least, float(np.nanmin(values))), max(most, float(np.nanmax(values)))
        if least <= 0 or read > SCANNED:
            break
    return least > FADED * most


def assign_roles(made: Draft, file: DataFile, outputs: Sequence[str], doubt: str = "") -> None:
    """Decide which fields are inputs and which are outputs: as the user or the layout says, or by a marked guess.

    `doubt` is why the outputs are a guess already.

    Raises:
        DraftError: What is said to be an output cannot be one.
    """
    chosen = outputs or [name for name in file.outputs if name in file.arrays]
    for name in chosen:
        if not any(one.array.name == name and one.role != "parameters" for one in made.tensors):
            raise DraftError(f"{file.path}: expected an output that is a field, but {name} is {taken_for(made, name)}")
    unknown = [one for one in made.tensors if not one.role]
    moving = {one.array.name for one in made.tensors if one.role == "outputs"}
    numbers = [one.name for one in made.tensors if one.role == "parameters" and not one.per_frame]
    if made.moving:
        if still := [name for name in outputs if name not in moving]:
            raise DraftError(
                f"{file.path}: expected outputs that change in time, as {', '.join(sorted(moving))} do, "
                f"but {still[0]} does not"
            )
        doubt = doubt if chosen else doubt_of_moving(made, file, numbers)
    elif not chosen and unknown:
        chosen = [one.array.name for one in likely(unknown)]
        if len(unknown) > 1:
            doubt = "outputs: the file does not say which arrays are outputs"
        elif numbers:
            doubt = field_or_numbers(unknown[0].name, numbers)
    made.tensors = [
        replace(one, role=one.role or ("outputs" if one.array.name in chosen else "inputs")) for one in made.tensors
    ]
    made.tensors = [replace(one, guess=doubt) if one.role == "outputs" else one for one in made.tensors]
    waves = [one for one in made.tensors if one.role == "parameters" and one.array.name in made.complex]
    made.left_out |= {one.array.name: "it holds a complex number per sample: save both parts" for one in waves}
    made.tensors = [one for one in made.tensors if one not in waves]
    made.tensors = [
        replace(one, complex=True, positive=False) if one.array.name in made.complex else without_offset(one)
        for one in made.tensors
    ]
    vectors = {one.array.name: one for one in made.tensors if one.components and not one.complex}
    made.remarks += [
        said
        for name, one in vectors.items()
        for said in unresolved_in(name, one.array, one.quantity.components, component_axis(made, one))
    ]
    fields = {one.array.name: one.array for one in made.tensors if one.role != "parameters"}
    made.remarks += [
        said for name, array in fields.items() if (said := missing_in(name, array) or kinds_in(name, array))
    ]
    if not (made.of("inputs") or made.of("parameters") or made.points) or not made.of("outputs"):
        raise DraftError(nothing(made, file, "at least one input and one output"))
    name_apart(made)


def name_apart(made: Draft) -> None:
    """Give tensors whose arrays have one name on the wire, as `Δt` and `delta_t` have, numbers behind it."""
    taken = {one.name for one in made.tensors}
    seen = set[str]()
    for index, one in enumerate(made.tensors):
        name = one.name
        if name in seen:
            name = next(each for number in count(2) if (each := f"{name}_{number}") not in taken)
            made.tensors[index] = replace(one, name=name)
        seen.add(name)
        taken.add(name)


def missing_in(name: str, array: LazyArray) -> str:
    """Say that the first values of an array hold a number that stands for missing ones; empty where none does."""
    values = next((block for _, block in array.blocks()), np.empty(0))
    known = values[np.isfinite(values)]
    return missing_values(name, float(known.min()), float(known.max())) if known.size else ""


def kinds_in(name: str, array: LazyArray) -> str:
    """Say that the first values of an array are a few whole numbers, which may name kinds; empty where they are not."""
    block = np.ravel(next((block for _, block in array.blocks()), np.empty(0, array.dtype)))
    if block.dtype.kind == "f":  # of whole numbers, too, where their file says which are missing
        block = block[np.isfinite(block)]
        if (block != np.rint(block)).any():
            return ""
    found = np.unique(block)
    if not 2 < found.size <= KINDS_MOST:
        return ""
    listed = ", ".join(f"{each:g}" for each in found)
    return f"{name} is {listed} alone: where these name kinds, as of materials, save an array of 0 and 1 for each"


def doubt_of_moving(made: Draft, file: DataFile, numbers: Sequence[str]) -> str:
    """Say why what changes in time may not be the outputs, where neither the user nor the layout says it."""
    if file.format in {"well", "pdebench"}:
        return ""
    if any(one.per_frame for one in made.tensors):
        return "outputs: all fields that change in time but those with the name of an input"
    if len(made.of("outputs")) > 1:
        return "outputs: all fields that change in time"
    listed = ", ".join(numbers)
    return f"outputs: the field that changes in time, none of the numbers per sample ({listed})" if numbers else ""


def without_offset(one: Tensor) -> Tensor:
    """Return a tensor with the offset that has to be subtracted for float32 to hold what varies, where there is one.

    The first numbers of the file decide.
    """
    if one.components or np.can_cast(one.array.dtype, np.float32) or not one.array.samples:
        return one
    _, values = next(iter(one.array.blocks()))
    spread = Spread.of(values if one.column is None else values.reshape(len(values), -1)[:, one.column])
    if not spread.unresolved:
        return one
    guess = f"{spread.unresolved}, so the model has the difference from this number"
    return replace(one, offset=spread.offset, offset_guess=guess, positive=False)


def unresolved_in(name: str, array: LazyArray, components: Sequence[str], axis: int) -> list[str]:
    """Say what float32 does not hold of the components of a vector, by its first values, and what to do."""
    if np.can_cast(array.dtype, np.float32) or not array.samples or array.shape[axis] != len(components):
        return []
    _, values = next(iter(array.blocks()))
    found = (Spread.of(np.take(values, at, axis), label) for at, label in enumerate(components))
    return [f"{name}: {said}" for one in found if (said := advice(one, name))]


def component_axis(made: Draft, one: Tensor) -> int:
    """Return the axis of the components of a vector, as its array has them."""
    names = one.array.dimensions or ()
    if made.points or one.scalar or one.component_axis == "last":
        return -1
    return 1 + names.index("component") if "component" in names else 1


def taken_for(made: Draft, name: str) -> str:
    """Say what an array is that cannot be an output."""
    return made.role_of(name) or "no field"


def numbers_or_field(field: LazyArray, numbers: Sequence[LazyArray]) -> tuple[list[str], str]:
    """Guess whether a lone field or the numbers beside it are the outputs: their names, and the doubt.

    Numbers with the names of outputs are, or all where the field has the name of an input.
    """
    sounding = [one.name for one in numbers if is_result(one)]
    doubt = field_or_numbers(field.name, [one.name for one in numbers])
    if sounding or field.name.rpartition("/")[2].lower() in INPUTS.split():
        return sounding or [one.name for one in numbers], doubt
    return [field.name], doubt


def is_result(numbers: LazyArray) -> bool:
    """Return whether numbers per sample sound like outputs, by their name or a word of it."""
    words = {*re.split(r"[^a-z0-9]+", last_name(numbers))} - {*VAGUE.split()}
    return not {last_name(numbers), *words}.isdisjoint(SCALARS.split())


def field_or_numbers(field: str, numbers: Sequence[str]) -> str:
    """Return the doubt of the outputs where a lone field has numbers beside it, whatever their names are."""
    return f"outputs: it may be {field} or the numbers per sample ({', '.join(numbers)}): say OUTPUTS="


def likely(unknown: Sequence[Tensor]) -> list[Tensor]:
    """Order a guess of outputs by the names of arrays: those that sound like outputs, or the last that may be one.

    The coordinates of grids that are curved, as `NACA_X` and `NACA_Y` beside `NACA_Q`, are none.
    """
    words = {one.name: one.array.name.rpartition("/")[2].lower() for one in unknown}
    fields = [one for one in unknown if one.name not in coordinates_among(words)]
    sounding = [one for one in fields if words[one.name] in OUTPUTS.split()]
    if sounding and len(sounding) < len(unknown):
        return sounding
    return [one for one in fields if words[one.name] not in INPUTS.split()][-1:] or [*fields[-1:]]


def coordinates_among(words: Mapping[str, str]) -> set[str]:
    """Return which of some names, by a word for each, are those of coordinates: they end in x, y and z, others do not.

    All begin alike, or the field is known: `x` and `y` alone are an input and an output.
    """
    starts = {re.sub(r"[^_.-]*$", "", word) for word in words.values()}
    start = starts.pop() if len(starts) == 1 else ""
    ends = {name: word.removeprefix(start) for name, word in words.items()}
    found = {name for name, end in ends.items() if end in {"x", "y", "z"}}
    others = {*ends.values()} - {"x", "y", "z"}
    known = bool(start and others) or not others.isdisjoint({*OUTPUTS.split()} - {"out", "output", "outputs", "target"})
    return found if len(found) > 1 and known else set()
