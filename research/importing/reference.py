"""Import of a file of the reference as a checkpoint of this project."""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from physics.numerics.grid import block_mean
from research.cao2021.transformers import (
    LineTransformer,
    LineTransformerConfig,
    PlaneTransformer,
    PlaneTransformerConfig,
)
from research.importing.files import (
    ReferenceImportError,
    State,
    Statistics,
    read_config,
    read_state,
    read_statistics,
    read_whole_model,
)
from research.importing.network import DROPOUT, Arguments, line_config, plane_config
from research.importing.weights import load_reference
from schema.card import CheckpointCard
from training import checkpoint
from training.data.dataset import SampleGroup
from training.data.generate import DataConfig
from training.data.views import Samples, Split, only_pair, read
from training.evaluation import rows
from training.fit.operator_workload import OperatorWorkload
from training.nn.pointwise import EPSILON, Normaliser
from training.operators import Operator, build
from training.problems.problem import PROBLEMS, Problem
from training.recipe import Fit, Recipe

Example = Literal["burgers", "darcy", "darcy_inverse"]
EXAMPLES: tuple[Example, ...] = get_args(Example)

#: Their sections in the reference's YAML.
SECTIONS: dict[Example, str] = {"burgers": "ex1_burgers", "darcy": "ex2_darcy", "darcy_inverse": "ex3_darcy_inv"}
PROVENANCE = "imported from a checkpoint of the published implementation, scaomath/galerkin-transformer"
CAVEAT = (
    f"trained and evaluated with attention dropout {DROPOUT}, which the published code never switches off; "
    "deterministic here: published errors do not hold, re-measure"
)
LITE = "found the reference's 2D lite network, which belongs to none of the examples"
FREQUENCIES = "freq_regressor."  # a second head beside the field's, for numbers that no example has
FIELDS = 1024  # of the published training set
VALIDATION = 100  # samples; the reference chooses the epoch by its test samples
POINTS = 2048  # of the published fields in one dimension
MESH: dict[Example, int] = {"burgers": 8192, "darcy": 421, "darcy_inverse": 421}
#: The published schedules; the rates' bounds and the momentum are common to all.
SCHEDULES: dict[Example, dict[str, Any]] = {
    "burgers": {"batch": 8, "warmup": 0.2, "gamma": 0.1},
    "darcy": {"batch": 4, "warmup": 0.3, "gamma": 0.5},
    "darcy_inverse": {"batch": 4, "warmup": 0.3, "gamma": 0.0, "noise": (0.01,)},
}


@dataclass(frozen=True)
class Request:
    """What to import.

    Attributes:
        file: The reference's file.
        example: The example of the reference that it comes from.
        config: The reference's YAML, or YAML or JSON of the constructor's arguments. A state dict requires it; a
            pickled model has its own, and a config adds to them.
        normaliser: An .npz file of statistics.
        data: Samples in this project's layout, to compute statistics from and to measure with.
        grid: Points per axis of the fields that the network was trained on.
        whole_model: Whether the file is a pickled model, not a state dict.
    """

    file: Path
    example: Example
    config: Path | None = None
    normaliser: Path | None = None
    data: Path | None = None
    grid: int | None = None
    whole_model: bool = False


@dataclass(frozen=True)
class Imported:
    """A network of this project with the file's weights.

    Attributes:
        operator: The network, in the file's greatest precision.
        problem: Its problem, with the output's grid that it was built for.
        recipe: The published data and schedule.
        card: Provenance and measured errors.
        given: The reference's arguments, by the config or the pickled model.
        assumed: What follows from the example's defaults alone, and what the file has and the network has not.
    """

    operator: LineTransformer | PlaneTransformer
    problem: Problem
    recipe: Recipe
    card: CheckpointCard
    given: dict[str, Any]
    assumed: dict[str, Any]


def import_reference(request: Request) -> Imported:
    """Read, check and rebuild a network; nothing is written.

    Raises:
        ReferenceImportError: The file or the arguments for it cannot be used; the message says what to do about it.
    """
    state, given, output = _contents(request)
    operator: LineTransformer | PlaneTransformer
    if request.example == "burgers":
        if request.normaliser is not None:
            raise ReferenceImportError(f"{request.normaliser}: expected no normaliser, for {request.example} has none")
        operator, assumed = _line(given, state)
    else:
        operator, assumed = _plane(request, given, state, output)
    if any(key.startswith(FREQUENCIES) for key in state):
        assumed["frequency head"] = "left out: the output is the field"
    dtypes = (tensor.dtype for tensor in state.values() if tensor.is_floating_point())
    operator.to(reduce(torch.promote_types, dtypes, torch.float16))
    load_reference(operator.config, operator.state_dict(), state, left_out=FREQUENCIES)
    operator.eval()
    problem, recipe = _problem(request.example, operator.config), _recipe(request, operator.config)
    kind = "whole model" if request.whole_model else "state dict"
    made: dict[str, Any] = {
        "training": {
            "provenance": PROVENANCE,
            "caveat": CAVEAT,
            "file": {"sha256": hashlib.sha256(request.file.read_bytes()).hexdigest(), "kind": kind},
            "assumed": assumed,
            "distribution": problem.description.distribution,
            "preset": "imported",
        },
        "checkpoint": {"parameters": sum(parameter.numel() for parameter in operator.parameters())},
        "errors": [],
        "classical": [],
    }
    if request.data is not None:
        made |= _measure(request.data, operator, recipe)
    return Imported(operator, problem, recipe, CheckpointCard.model_validate(made), given, assumed)


def save(imported: Imported, folder: Path) -> None:
    """Write the checkpoint, weights in float32.

    Raises:
        ReferenceImportError: The folder holds a checkpoint already.
    """
    if (folder / checkpoint.WEIGHTS).exists():
        raise ReferenceImportError(f"{folder} holds a checkpoint already: give another --out, or remove it")
    checkpoint.save(folder, imported.operator.float(), imported.recipe, imported.problem, imported.card)


def _contents(request: Request) -> tuple[State, dict[str, Any], Statistics | None]:
    """Read the state dict, the constructor's arguments and, of a whole model, the output's statistics."""
    config = {} if request.config is None else read_config(request.config, SECTIONS[request.example])
    if not request.whole_model:
        if request.config is None:
            raise ReferenceImportError(
                f"{request.file}: a state dict does not hold its network's arguments: give --config FILE, the "
                "reference's config.yml that it was trained with, or the constructor's arguments as YAML or JSON"
            )
        return read_state(request.file), config, None
    model = read_whole_model(request.file)
    own = {name: value for name, value in model.settings.items() if name in Arguments.model_fields}
    if clash := [name for name in config if own.get(name, config[name]) != config[name]]:
        raise ReferenceImportError(f"the config contradicts the pickled model's own {', '.join(clash)}")
    return model.state, own | config, model.statistics


def _line(given: dict[str, Any], state: State) -> tuple[LineTransformer, dict[str, Any]]:
    """Build a network of one axis, which works in physical units."""
    if "feat_extract.id.weight" in state and any(key.endswith("fourier_weight.0") for key in state):
        raise ReferenceImportError(LITE)
    if any(key.startswith("downscaler.") for key in state):
        raise ReferenceImportError("found entries 'downscaler.…' of a network of two axes: it is no burgers")
    config = line_config(Arguments.of(given, "the config", axes=1))
    return LineTransformer(config), {} if config.graph is None else {"edges": "powers of the normalised Laplacian"}


def _plane(
    request: Request, given: dict[str, Any], state: State, output: Statistics | None
) -> tuple[PlaneTransformer, dict[str, Any]]:
    """Build a network of two axes with its statistics, in double precision until it is saved."""
    if "feat_extract.id.weight" in state:
        lite = any(key.endswith("fourier_weight.0") for key in state)
        raise ReferenceImportError(LITE if lite else f"found a network of one axis: it is no {request.example}")
    found = (None, None) if request.normaliser is None else read_statistics(request.normaliser)
    known = {"input": found[0], "output": found[1] or output}
    sides = {name: len(one.mean) if one else None for name, one in known.items()}
    config, assumed = plane_config(
        Arguments.of(given, "the config", axes=2),
        given,
        {"--grid": request.grid, "input_mean": sides["input"], "mean": sides["output"]},
        inverse=request.example == "darcy_inverse",
        scaled="downscaler.id.weight" not in state,
    )
    missing = [name for name, statistics in known.items() if statistics is None]
    if missing and request.data is None:
        raise ReferenceImportError(
            f"expected the {' and the '.join(missing)} normaliser, which the file does not hold and without which its "
            f"outputs mean nothing: give --normaliser FILE.npz (mean, std, eps; input_mean, input_std, input_eps) or "
            f"--data FILE.h5 of training samples"
        )
    network = PlaneTransformer(config)
    if missing and request.data is not None:
        train = _samples(request.data, "train", FIELDS, request.example, config.grid[0], config.output[0])
        computed = {"input": _statistics(train.inputs), "output": _statistics(train.outputs)}
        known |= {name: computed[name] for name in missing}
    for name, normaliser in (("input", network.input_normaliser), ("output", network.output_normaliser)):
        _fill(normaliser, known[name])
    return network, dict(assumed)


def _statistics(fields: NDArray[Any]) -> Statistics:
    r"""Compute :math:`z = (x - mean)/(std + 10^{-5})` of fields `[sample, row, column]`, as the reference does."""
    return Statistics(fields.mean(0, dtype=np.float64), fields.std(0, dtype=np.float64) + EPSILON)


def _fill(normaliser: Normaliser, found: Statistics | None) -> None:
    if found is not None:
        normaliser.double()
        normaliser.mean.copy_(torch.from_numpy(found.mean))
        normaliser.deviation.copy_(torch.from_numpy(found.deviation))


def _problem(example: Example, config: LineTransformerConfig | PlaneTransformerConfig) -> Problem:
    """Return the problem of an example, with the output's grid that the network was built for."""
    problem = PROBLEMS[example]
    if isinstance(config, LineTransformerConfig) or config.output in {problem.description.output_grid, config.grid}:
        return problem
    # Outputs are pooled to the native grid, then again; say which of the finest cells a block covers.
    native, output = config.grid[0], config.output[0]
    (first, skipped), (second, left) = _blocks(MESH["darcy"], native), _blocks(native, output)
    width, start = first * second, first * left + skipped
    points = (
        f"{problem.source.description.points}; the output's block j of {output} covers the cells {width}j-{start} to "
        f"{width}j+{width - start - 1} of the 421 on each axis, as far as they are inside"
    )
    if output > native:  # by transposed convolutions
        points = f"{problem.source.description.points}; the output has {output} points per axis over the same square"
    description = problem.description.model_copy(update={"output_grid": config.output, "points": points})
    return replace(problem, description=description)


def _blocks(points: int, side: int) -> tuple[int, int]:
    """Return the width of a block and the overhang of the first one."""
    width = -(-points // side)
    return width, (width * side - points) // 2


def _recipe(request: Request, config: LineTransformerConfig | PlaneTransformerConfig) -> Recipe:
    """Return the published data and schedule, so that the network can be evaluated and trained on like any other.

    How this file was trained is not known, and the card says so.
    """
    example = request.example
    points = config.grid[0] if isinstance(config, PlaneTransformerConfig) else request.grid or POINTS
    return Recipe(
        model=example,
        preset="imported",
        problem=example,
        data=DataConfig(mesh=MESH[example], train=FIELDS, validation=VALIDATION, test=100, grids=(points,)),
        operator=config,
        fit=Fit(
            epochs=100,
            learning_rate=1e-3,
            weight_decay=0.0,
            div_factor=1e4,
            final_div_factor=1e4,
            cycle_momentum=True,
            clip=0.999,
            loss="weighted",
            keep="best",
            symmetries=False,
            **SCHEDULES[example],
        ),
    )


def _samples(path: Path, split: Split, most: int, problem: str, grid: int, output: int) -> Samples:
    """Read the first samples as the reference has them: strided, and for the inverse problem pooled twice."""
    try:
        stored = SampleGroup(path, "test" if split == "test" else "train")
        with closing(stored):
            count = min(stored.finished(), most)
        if not count:
            raise ValueError(f"there are no finished samples in {split}")  # noqa: TRY301 - one error for all faults
        requested = PROBLEMS[problem]
        found = read(path, split, count, grid, problem=requested.source)
        if requested.source is requested:
            return found
        native, coarse, pair = (grid, grid), (output, output), only_pair(requested.description)
        with closing(stored):
            fields = stored.fields(pair.output.name, range(count))
            outputs = np.stack([block_mean(block_mean(field, native), coarse) for field in fields])
        # Without a fixed output grid: these outputs are pooled already.
        pooled = replace(requested, description=requested.description.model_copy(update={"output_grid": None}))
        return replace(found, tensors={pair.input.name: found.outputs, pair.output.name: outputs}, problem=pooled)
    except (OSError, ValueError, KeyError) as error:
        raise ReferenceImportError(f"{path}: expected samples of {problem} but {error}") from error


@torch.inference_mode()
def _measure(path: Path, operator: Operator, recipe: Recipe) -> dict[str, list[dict[str, Any]]]:
    """Measure a network on the grid of its training, and the classical solver unless it is slow: rows of the card."""
    config = recipe.operator
    points = recipe.drawn.grids[0]
    output = config.output[0] if isinstance(config, PlaneTransformerConfig) else points
    test = _samples(path, "test", recipe.drawn.test, str(recipe.problem), points, output)
    with closing(SampleGroup(path)) as stored:
        mesh = int(stored.attributes["mesh"])
    single = build(config)
    single.load_state_dict(operator.state_dict())
    stored_on = recipe.drawn.model_copy(update={"mesh": mesh})
    work, case = OperatorWorkload(recipe.model_copy(update={"data": stored_on}), path.parent), replace(test, mesh=mesh)
    return {
        "errors": [rows.errors(work, single.eval(), case)],
        "classical": [rows.classical(work, case)] if not test.problem.require_baseline().slow else [],
    }
