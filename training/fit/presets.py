"""Presets for prepared samples: sizes of the network from the grid, and how long it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from schema.faults import faults
from schema.parts import Parameter, Quantity
from training.data.dataset import SampleFile, spread
from training.fit.operator_workload import OperatorWorkload
from training.integrals import IntegralConfig
from training.operators import OPERATORS
from training.operators.field import FieldConfig
from training.operators.operator import Scale
from training.operators.points import PointsConfig
from training.operators.points_trajectory import PointsTrajectoryConfig
from training.operators.trajectory import TrajectoryConfig
from training.problems.integrals import integral_of
from training.problems.problem_file import ProblemFile
from training.problems.sections import INSIDE
from training.recipe import Fit, Recipe, RecipeError

AFTER_UNET: dict[str, Any] = {"unet": 1, "gate": "sigmoid"}  # its values may be large, so that the gate is bounded
FEWER = 4  # times as many gated layers as after a U-Net: in the same time, more steps are worth more
DECADES = 30.0  # a positive quantity whose largest value is this many times its least enters by its logarithm
TOKENS = {1: 64, 2: 400, 3: 512}  # about how many tokens a grid is cut into, by the number of axes
POINTS = 8192  # about how many points a batch holds: in the same time, more steps are worth more than larger batches
LARGE_CLOUD = 2 * POINTS  # points of a sample beyond which a step sees `POINTS` of them, drawn at random
BATCHES = {False: (4, 8), True: (4, 16)}
"""The smallest and largest batch of fields and of clouds, of trajectories on grids; powers of two, which several
processes can share. Short trainings of trajectories on meshes were better with 8 than with 16: docs/geometry.md."""
RATE = 5e-3
WARMUP = 0.03
"""The share of a training on fields during which the rate rises: a race tells little before it is near its highest."""
TRAJECTORY_WARMUP = 0.15
UNROLL = (1, 1, 2)  # steps of training rollouts, each for an equal share of the training
LONGER = 1.2  # of a preset's time for trajectories
BAND_FIELDS, BAND_TOLERANCE = 256, 1e-5
"""Fields of each quantity that are looked at, and what waves beyond the band may hold of a field's deviation."""
BAND_BYTES = 2**28  # of the fields that are looked at together: their transforms take several times as much memory
BAND_FRAMES = 8  # about how many frames of what changes in time are looked at
OVERSAMPLING = 4
"""Points per wave number of the band: products of fields hold twice its wave numbers, products of those four times."""


@dataclass(frozen=True)
class Preset:
    """How large and how long."""

    seconds: float  # of the training's processor time, which is what the clock shows on an idle machine
    least: int  # least steps, also where they take longer
    channels: int  # features of a token
    layers: int  # encoder layers
    detail: int  # channels on the working grid
    modes: dict[int, int]  # wave numbers per axis, by the number of axes
    spectral: dict[int, int]  # spectral layers, by the number of axes
    most: int  # most epochs, where the samples are so few or small that the time is not needed
    latent: dict[int, int]  # cells along the longest side of the latent grid of points, by the number of dimensions
    average: float = 0.99  # decay per step of the weights' exponential mean; 0 for none
    race: bool = True  # whether several networks are compared first; see `training.fit.search`
    rate: float = RATE  # the highest learning rate


PRESETS = {
    "tiny": Preset(
        8.0, 100, 16, 1, 8, {1: 8, 2: 6, 3: 4}, {1: 2, 2: 2, 3: 2}, 20, {2: 12, 3: 8}, 0.0, race=False, rate=2e-2
    ),
    "quick": Preset(300.0, 1000, 64, 1, 32, {1: 16, 2: 8, 3: 6}, {1: 4, 2: 4, 3: 3}, 500, {2: 40, 3: 16}),
    "laptop": Preset(5400.0, 5000, 96, 3, 48, {1: 32, 2: 12, 3: 8}, {1: 4, 2: 4, 3: 4}, 1500, {2: 64, 3: 24}),
}


def preset_of(name: str) -> Preset:
    """Return the preset of a name.

    Raises:
        RecipeError: There is none.
    """
    if name not in PRESETS:
        raise RecipeError(f"expected a preset among {', '.join(PRESETS)} but got {name!r}")
    return PRESETS[name]


def recipe(
    samples: SampleFile,
    name: str,
    adapt: Callable[[TrajectoryConfig], BaseModel] | None = None,
    operator: Mapping[str, Any] | None = None,
) -> Recipe:
    """Write the recipe of a preset for prepared samples.

    For trajectories `adapt` makes a problem's own operator of the general one; `operator` is the `kind` of another
    operator, with the keys of its config that have to differ from their defaults.

    Raises:
        RecipeError: The preset is unknown, or the operator does not take these data.
    """
    problem, preset = samples.problem, preset_of(name)
    config: BaseModel = network(samples, preset)
    if operator is not None and operator["kind"] != getattr(config, "kind", None):
        config = chosen_operator(samples, operator)
    elif adapt is not None and isinstance(config, TrajectoryConfig):
        config = adapt(config)
    made = Recipe(
        model=problem.name,
        preset=name,
        problem=problem,
        samples=samples.path.name,
        seed=problem.seed,
        operator=config,
        fit=fitting(samples, preset),
    )
    if operator is not None:
        work = OperatorWorkload(made, samples.path.parent)
        work.check()
        try:
            work.loss(work.network(), work.batch(range(made.fit.batch)))
        except (RuntimeError, TypeError, ValueError) as error:
            raise RecipeError(
                f"{made.name}: the operator {operator['kind']!r} does not take these data: {error}"
            ) from error
    return made


def fitting(samples: SampleFile, preset: Preset) -> Fit:
    """Choose time, batch, rate, averaging and rollouts of a training."""
    is_trajectory, seen = samples.problem.time is not None, int(np.prod(samples.sides))
    scattered = samples.problem.scattered
    points = POINTS if scattered and seen > LARGE_CLOUD else None
    most = BATCHES[is_trajectory and not scattered]
    fits = int(np.clip((2 if is_trajectory else 1) * POINTS / (points or seen), *most))
    batch = 2 ** int(np.log2(fits))
    fit = Fit(
        epochs=preset.most,
        seconds=preset.seconds * (LONGER if is_trajectory else 1),
        least=preset.least,
        batch=batch if is_trajectory else min(batch, max(1, samples.counts[0] // 8)),
        learning_rate=preset.rate,
        optimiser="muon",
        warmup=TRAJECTORY_WARMUP if is_trajectory else WARMUP,
        h1=0.0,
        keep="best",
        cycle_momentum=False,  # 20 % more error where Muon's momentum falls to 0.85 at the highest rate
        average=preset.average,
        points=points,
    )
    if samples.problem.time is None or samples.frames is None:
        return fit
    longest = samples.frames - samples.problem.time.history
    return fit.model_copy(update={"unroll": tuple(min(steps, longest) for steps in UNROLL)})


def network(samples: SampleFile, preset: Preset) -> FieldConfig | TrajectoryConfig | PointsConfig:
    """Choose the sizes of the general operator, or of a step of it."""
    problem = samples.problem
    is_trajectory, frames = problem.time is not None, problem.time.history if problem.time is not None else 1
    if problem.scattered:
        cloud = on_points(samples, preset, frames)
        return PointsTrajectoryConfig(step=cloud, **of_time(samples)) if is_trajectory else cloud
    closed = all(axis.boundary == "periodic" for axis in problem.axes) and problem.mask is None
    fields = tuple(one for one in problem.inputs if problem.mask is None or one.name != INSIDE)
    chosen = sizes(samples, preset)
    if is_trajectory and closed:
        chosen |= smooth(samples, preset)
    elif len(samples.sides) < 3 and not is_trajectory and problem.mask is None:
        # Products of channels are worth their time: more than tokens, and on planes more than as many channels.
        chosen |= {"gated": True, "layers": 0, "linear": tuple(one.linear for one in fields)}
        chosen["detail"] //= len(samples.sides)
        if len(samples.sides) > 1 and not any(chosen["linear"]):
            chosen |= AFTER_UNET | {"spectral": max(1, chosen["spectral"] // FEWER)}
    known = quantities(
        samples, fields, problem.parameters, frames, plain=is_trajectory or any(one.linear for one in fields)
    )
    step = FieldConfig(masked=problem.mask is not None, **known, **chosen)
    return TrajectoryConfig(step=step, bounded=closed, damped=closed, **of_time(samples)) if is_trajectory else step


def of_time(samples: SampleFile) -> dict[str, Any]:
    """Choose everything of a step operator but its step."""
    problem = samples.problem
    assert problem.time is not None  # noqa: S101 -- the caller has looked
    positions = {one.name: index for index, one in enumerate(problem.inputs)}
    inputs = {output: name for name, output in problem.states.items()}
    arguments = enumerate((*problem.inputs, *problem.parameters))
    return {
        "history": problem.time.history,
        "components": components(problem.outputs),
        "states": tuple(positions[inputs[name]] for name in problem.output_names),
        "conserved": tuple(name in problem.time.conserved for name in problem.output_names),
        "forced": tuple(index for index, one in arguments if one.per_frame is not None),
    }


def quantities(
    samples: SampleFile, fields: Sequence[Quantity], numbers: Sequence[Parameter], frames: int, *, plain: bool
) -> dict[str, Any]:
    """Choose what a network maps to what: input fields, numbers, outputs, and their scales; `plain` ones of outputs."""
    outputs, scalars = samples.problem.output_fields, learned(samples.problem)
    return {
        "input_components": stacked(samples, fields, frames),
        "input_scales": scales(samples, fields),
        "parameter_scales": scales(samples, numbers),
        "parameter_components": components(numbers),
        "output_components": components(outputs),
        "output_scales": ("linear",) * len(outputs) if plain else scales(samples, outputs),
        "scalar_components": components(scalars),
        "scalar_scales": scales(samples, scalars),
        "integrals": integrals(samples.problem),
    }


def stacked(samples: SampleFile, fields: Sequence[Quantity], frames: int) -> tuple[int, ...]:
    """Return the components of fields as a step sees them: those of a state for each of its frames."""
    return tuple(
        frames * max(1, count) if one.name in samples.problem.states and frames > 1 else count
        for one, count in zip(fields, components(fields), strict=True)
    )


def on_points(samples: SampleFile, preset: Preset, frames: int) -> PointsConfig:
    """Choose the sizes of the operator for samples that have points of their own, which sees some frames of states."""
    problem, box = samples.problem, samples.box
    fields = tuple(one for one in problem.inputs if one.name != "coordinates")
    numbers = problem.parameters[1:]  # the first one counts the points
    return PointsConfig(
        **quantities(samples, fields, numbers, frames, plain=problem.time is not None),
        box=box,
        latent=preset.latent[len(box)],
        channels=preset.detail // 2,  # of three levels, with twice as many on each coarser one
    )


def chosen_operator(samples: SampleFile, table: Mapping[str, Any]) -> BaseModel:
    """Return the config of an operator of another kind for samples: its own sizes, or its defaults.

    Raises:
        RecipeError: A key of its config is wrong, or it does not take these data.
    """
    problem, kind = samples.problem, OPERATORS[str(table["kind"])]
    known = kind.sized(samples.described, samples.sides) if kind.sized else {}
    try:
        config = kind.config.model_validate(dict(known) | dict(table))
    except ValidationError as error:
        raise RecipeError(f"{problem.name}: operator.{faults(error)}") from error
    if problem.time is not None and not isinstance(config, TrajectoryConfig):
        raise RecipeError(f"{problem.name}: expected an operator of trajectories but got {kind.name!r}")
    if problem.scalars and not hasattr(config, "integrals"):
        raise RecipeError(
            f"{problem.name}: expected an operator that predicts numbers, as field and points do, but got {kind.name!r}"
        )
    if problem.mask is not None and not getattr(config, "masked", False):
        raise RecipeError(
            f"{problem.name}: expected an operator that takes a mask, as field does, but got {kind.name!r}"
        )
    return config


def sizes(samples: SampleFile, preset: Preset) -> dict[str, Any]:
    """Choose everything of a general operator but its input and output fields."""
    problem, sides = samples.problem, samples.sides
    axes = problem.axes
    resolved = [side // 2 + 1 if axis.boundary == "periodic" else side for side, axis in zip(sides, axes, strict=True)]
    patch = next(size for size in count(1) if np.prod([-(-side // size) for side in sides]) <= TOKENS[len(sides)])
    return {
        "periodic": tuple(axis.boundary == "periodic" for axis in axes),
        "points": tuple(axis.points for axis in axes),
        "working": sides,
        "translation": tuple(f"shift_{axis.name}" in problem.symmetries for axis in axes),
        "patch": patch,
        "channels": preset.channels,
        "layers": preset.layers,
        "feedforward": 2 * preset.channels,
        "detail": preset.detail,
        "spectral": preset.spectral[len(sides)],
        "modes": min(preset.modes[len(sides)], *resolved),
    }


def smooth(samples: SampleFile, preset: Preset) -> dict[str, Any]:
    """Choose the network of periodic grids: gated spectral layers, without tokens, on the grid that the data need."""
    working, known = working_grid(samples), preset.modes[len(samples.sides)]
    held = max(working) // OVERSAMPLING + 1
    return {
        "working": working,
        "layers": 0,
        "gated": True,
        "band_limited": True,
        "modes": min(int(np.clip(held, known, 2 * known)), *(side // 2 + 1 for side in working)),
    }


def learned(problem: ProblemFile) -> tuple[Quantity, ...]:
    """Return the outputs that are numbers which the network learns, and no integrals of other outputs."""
    return tuple(one for one in problem.scalars if one.integral_of is None)


def integrals(problem: ProblemFile) -> tuple[IntegralConfig, ...]:
    """Return what the integrals among the outputs are computed from."""
    return tuple(integral_of(problem, one) for one in problem.integrals)


def components(fields: Sequence[Quantity | Parameter]) -> tuple[int, ...]:
    """Return the number of components per field or number, 0 for none."""
    return tuple(len(field.components) for field in fields)


def scales(samples: SampleFile, tensors: Sequence[Quantity | Parameter]) -> tuple[Scale, ...]:
    """Choose the logarithm for positive fields and parameters that span decades; states enter as they are."""

    def spans_decades(one: Quantity | Parameter) -> bool:
        positive = (one.minimum or 0) > 0 if isinstance(one, Parameter) else one.positive and not one.linear
        if not positive or one.name in samples.problem.states:
            return False
        return samples.statistic(one.name, "maximum") / samples.statistic(one.name, "minimum") > DECADES

    return tuple("log" if spans_decades(one) else "linear" for one in tensors)


# The band of periodic trajectories


def working_grid(samples: SampleFile) -> tuple[int, ...]:
    """Return points per axis that resolve periodic fields and products of them, at most those of the data."""
    problem, train = samples.problem, samples.split("train")
    numbers = []
    for one in (*problem.outputs, *(one for one in problem.inputs if one.name not in problem.states)):
        values = samples.file[one.name]
        for frames in looked_at(problem, one, values.shape):
            size = values[train.start : train.start + 1, *frames].nbytes
            rows = spread(train, min(BAND_FIELDS, max(1, BAND_BYTES // size)))
            chosen = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
            numbers.append(band(values[chosen, *frames].reshape(-1, *samples.sides)))
    most = np.max(numbers, axis=0)
    return tuple(min(side, OVERSAMPLING * int(number)) for side, number in zip(samples.sides, most, strict=True))


def looked_at(problem: ProblemFile, one: Quantity, shape: tuple[int, ...]) -> list[tuple[int | slice, ...]]:
    """Return the frames of a field that show its band, one by one or some together.

    Of states it is each of some frames that are predicted: fine waves of the first ones may decay, and a front may be
    steepest in between. What is known in advance may vanish in any of them.
    """
    if one.name not in problem.timed or problem.time is None:
        return [()]
    if one not in problem.outputs:
        return [(slice(None, None, max(1, shape[1] // BAND_FRAMES)),)]
    first, count = problem.time.history, shape[1]
    return [(frame,) for frame in sorted({*range(first, count, max(1, (count - first) // BAND_FRAMES)), count - 1})]


def band(fields: NDArray[Any]) -> list[int]:
    """Return per axis the largest wave number that fields `[field, *grid]` hold, at least 1.

    Example:
        >>> x = 2 * np.pi * np.arange(32) / 32
        >>> band((np.cos(5 * x) + 1e-7 * np.cos(9 * x))[None])
        [5]
    """
    found = []
    for axis in range(1, fields.ndim):
        energy = np.abs(np.fft.rfft(fields.astype(np.float64), axis=axis)) ** 2
        by_number = energy.sum(axis=tuple(other for other in range(fields.ndim) if other != axis))
        beyond = np.cumsum(by_number[:0:-1])[::-1]  # from wave number 1 on
        held = np.flatnonzero(beyond > BAND_TOLERANCE**2 * beyond[0]) if beyond[0] > 0 else [0]
        found.append(int(held[-1]) + 1)
    return found
