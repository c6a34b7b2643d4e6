"""The import: takes a file of the reference and what the user knows of it, gives a checkpoint folder and a report.

The checkpoint's recipe holds what the reference's examples publish for data and schedule, so that it can be evaluated
and trained on like any other; what this very file was trained with is not known, and the card says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from training import checkpoint, evaluation
from training.data import store
from training.importing import arguments, statistics
from training.importing import sizes as grids
from training.importing.arguments import Example
from training.importing.errors import ReferenceImportError
from training.importing.inference import Inference, infer
from training.importing.network import DROPOUT, line_config, plane_config
from training.importing.reference_layout import reference_state
from training.importing.state_file import State, read_state
from training.importing.statistics import Pair, Statistics
from training.importing.whole_model import read_whole_model
from training.nn.normaliser import Normaliser
from training.operators import (
    LineTransformer,
    LineTransformerConfig,
    Operator,
    PlaneTransformer,
    PlaneTransformerConfig,
    build,
)
from training.problems.problem import Problem
from training.problems.registry import PROBLEMS
from training.recipes.recipe import DataConfig, FitConfig, Recipe

PROVENANCE = "imported from a checkpoint of the published implementation, scaomath/galerkin-transformer"
CAVEAT = (
    f"trained and evaluated with attention dropout {DROPOUT}, which the published code never switches off; "
    "deterministic here: published errors do not hold, re-measure"
)
#: The published schedules; the rates' bounds and the momentum are common to all.
PUBLISHED: dict[Example, dict[str, Any]] = {
    "burgers": {"batch": 8, "warmup": 0.2, "gamma": 0.1},
    "darcy": {"batch": 4, "warmup": 0.3, "gamma": 0.5},
    "darcy_inverse": {"batch": 4, "warmup": 0.3, "gamma": 0.0, "noise": (0.01,)},
}
MESH: dict[Example, int] = {"burgers": 8192, "darcy": 421, "darcy_inverse": 421}
POINTS = 2048  # of the published line


@dataclass(frozen=True)
class Request:
    """What to import.

    Attributes:
        file: the reference's file.
        example: which of its examples it comes from.
        config: constructor arguments for what shapes cannot tell, a JSON file.
        normaliser: an .npz file of statistics.
        data: samples in this project's layout, to compute statistics from and to measure with.
        grid: points per axis of the fields the network was trained on.
        whole_model: the file is a pickled model, not a state dict.
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
    """A network of ours with the file's weights, in the file's precision, and how it came about."""

    operator: Operator
    problem: Problem
    recipe: Recipe
    card: dict[str, Any]
    inference: Inference
    assumed: dict[str, Any]


def import_reference(request: Request) -> Imported:
    """Read, infer, check, rebuild; nothing is written.

    Raises:
        ReferenceImportError: the file or what was said of it cannot be used; the message says what to do about it.
    """
    state, settings, pair = contents(request)
    given = settings | ({} if request.config is None else arguments.read(request.config))
    if clash := [name for name in given if settings.get(name, given[name]) != given[name]]:
        raise ReferenceImportError(f"the config contradicts the pickled model's own {', '.join(clash)}")
    inference = infer(request.example, state, given)
    operator, assumed = line(request, inference) if inference.axes == 1 else plane(request, inference, pair)
    restore(operator, state)
    problem = answered(request.example, operator)
    recipe = published(request, operator)
    card = describe(request, operator, problem, recipe, inference.assumed | assumed)
    return Imported(operator, problem, recipe, card, inference, inference.assumed | assumed)


def save(imported: Imported, folder: Path) -> None:
    """Write the checkpoint, weights in float32.

    Raises:
        ReferenceImportError: the folder holds a checkpoint already.
    """
    if (folder / checkpoint.WEIGHTS).exists():
        raise ReferenceImportError(f"{folder} holds a checkpoint already: give another --out, or remove it")
    checkpoint.save(folder, imported.operator.float(), imported.recipe, imported.problem, imported.card)


def contents(request: Request) -> tuple[State, dict[str, Any], Pair]:
    """Read the file: its state dict and, of a whole model, arguments and the output's statistics."""
    if not request.whole_model:
        return read_state(request.file), {}, Pair()
    model = read_whole_model(request.file)
    found = statistics.statistics(model.statistics or {}, str(request.file))
    return model.state, arguments.settings(model.settings), Pair(output=found)


def line(request: Request, inference: Inference) -> tuple[LineTransformer, dict[str, Any]]:
    """Build the line's network, which works in physical units.

    Raises:
        ReferenceImportError: it was given statistics.
    """
    if request.normaliser is not None:
        raise ReferenceImportError(f"{request.normaliser}: expected no normaliser, for {request.example} has none")
    return LineTransformer(line_config(inference.arguments)), {}


def plane(request: Request, inference: Inference, pair: Pair) -> tuple[PlaneTransformer, dict[str, Any]]:
    """Build the plane's network with its statistics, and tell which of its sides were assumed.

    Raises:
        ReferenceImportError: there are no statistics, or their grids do not fit.
    """
    named = Pair() if request.normaliser is None else statistics.read(request.normaliser)
    pair = named.completed(pair)
    known = grids.Known(request.grid, *(found.side if found else None for found in (pair.input, pair.output)))
    sizes = grids.resolve(
        inference.arguments,
        inference.given,
        known,
        inverse=request.example == "darcy_inverse",
        convolutional=inference.convolutional,
    )
    network = PlaneTransformer(plane_config(inference.arguments, sizes))
    pair = complete(request, pair, sizes)
    fill(network.input_normaliser, pair.input)
    fill(network.output_normaliser, pair.output)
    return network, dict(sizes.assumed)


def complete(request: Request, pair: Pair, sizes: grids.Sizes) -> Pair:
    """Compute the statistics that are missing from the training fields.

    Raises:
        ReferenceImportError: there are no training fields.
    """
    missing = [name for name, found in (("input", pair.input), ("output", pair.output)) if found is None]
    if missing and request.data is None:
        raise ReferenceImportError(
            f"expected the {' and the '.join(missing)} normaliser, which the file does not hold and without which its "
            f"answers mean nothing: give --normaliser FILE.npz (mean, std, eps; input_mean, input_std, input_eps) or "
            f"--data FILE.h5 of training samples"
        )
    if not missing or request.data is None:
        return pair
    train = statistics.samples(request.data, "train", statistics.FIELDS, request.example, sizes.grid, sizes.answer)
    return pair.completed(Pair(statistics.of(train.inputs), statistics.of(train.outputs)))


def fill(normaliser: Normaliser, found: Statistics | None) -> None:
    """Put statistics into a network, in double precision until it is saved."""
    if found is not None:
        normaliser.double()
        normaliser.mean.copy_(torch.from_numpy(found.mean))
        normaliser.deviation.copy_(torch.from_numpy(found.deviation))


def restore(operator: LineTransformer | PlaneTransformer, state: State) -> None:
    """Put the file's weights into a network, in the file's precision."""
    precision = next(iter(state.values())).dtype
    operator.to(precision)
    renamed = reference_state(operator.config, state)
    own = {name: tensor for name, tensor in operator.state_dict().items() if "normaliser" in name}
    operator.load_state_dict(own | renamed)
    operator.eval()


def answered(example: Example, operator: LineTransformer | PlaneTransformer) -> Problem:
    """Give what the network answers; an inverse one answers on the grid it was built for."""
    problem, config = PROBLEMS[example], operator.config
    fixed = problem.description.output_grid
    if fixed is None or isinstance(config, LineTransformerConfig) or fixed == config.output:
        return problem
    native, output = config.grid[0], config.output[0]
    words = f"{problem.source.description.points}; the output's block j of {output} covers {cells(native, output)}"
    description = problem.description.model_copy(update={"output_grid": config.output, "points": words})
    return replace(problem, description=description)


def cells(native: int, answer: int) -> str:
    """Say which of the finest cells a block of the answer covers: they are pooled to the native grid, then again."""
    (first, skipped), (second, left) = (blocks(MESH["darcy"], native), blocks(native, answer))
    width, start = first * second, first * left + skipped
    return (
        f"the cells {width}j-{start} to {width}j+{width - start - 1} of the 421 on each axis, as far as they are inside"
    )


def blocks(points: int, side: int) -> tuple[int, int]:
    """Give the width of a block and how much of the first one hangs over."""
    width = -(-points // side)
    return width, (width * side - points) // 2


def published(request: Request, operator: LineTransformer | PlaneTransformer) -> Recipe:
    """Give the recipe with what is published about data and schedule."""
    config, example = operator.config, request.example
    points = config.grid[0] if isinstance(config, PlaneTransformerConfig) else request.grid or POINTS
    return Recipe(
        model=example,
        preset="imported",
        problem=example,
        data=DataConfig(mesh=MESH[example], train=statistics.FIELDS, validation=0, test=100, grids=(points,)),
        operator=config,
        fit=FitConfig(
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
            **PUBLISHED[example],
        ),
    )


def describe(
    request: Request, operator: Operator, problem: Problem, recipe: Recipe, assumed: dict[str, Any]
) -> dict[str, Any]:
    """Give the card: provenance, caveat, what was assumed, and the errors if there is data to measure with."""
    measured = {"errors": [], "classical": []} if request.data is None else measure(request.data, operator, recipe)
    return {
        "training": {
            "provenance": PROVENANCE,
            "caveat": CAVEAT,
            "file": {
                "sha256": hashlib.sha256(request.file.read_bytes()).hexdigest(),
                "kind": "whole model" if request.whole_model else "state dict",
            },
            "assumed": assumed,
            "distribution": problem.description.distribution,
            "preset": "imported",
        },
        "checkpoint": {"parameters": sum(parameter.numel() for parameter in operator.parameters())},
        **measured,
    }


@torch.inference_mode()
def measure(path: Path, operator: Operator, recipe: Recipe) -> dict[str, list[dict[str, Any]]]:
    """Measure the network on the grid of its training, and a forward problem's classical solver beside it."""
    config = recipe.operator
    points = recipe.data.grids[0]
    answer = config.output[0] if isinstance(config, PlaneTransformerConfig) else points
    test = statistics.samples(path, "test", recipe.data.test, recipe.problem, points, answer)
    with store.opened(path) as file:
        mesh = int(file.attrs["mesh"])
    single = build(config)
    single.load_state_dict(operator.state_dict())
    case = evaluation.Case(test, mesh)
    return {
        "errors": [evaluation.errors(single.eval(), case)],
        "classical": [evaluation.classical(case)] if not test.problem.require_baseline().slow else [],
    }
