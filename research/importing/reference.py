"""Import of a file of the reference as a checkpoint of this project."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from research.importing import arguments, statistics
from research.importing import sizes as grids
from research.importing.arguments import Example
from research.importing.errors import ReferenceImportError
from research.importing.inference import Inference, infer
from research.importing.network import line_config, plane_config
from research.importing.provenance import card, imported_problem, published_recipe
from research.importing.reference_layout import reference_state
from research.importing.state_file import State, read_state
from research.importing.statistics import Pair, Statistics
from research.importing.whole_model import read_whole_model
from training import checkpoint, evaluation
from training.data import store
from training.nn.normaliser import Normaliser
from training.operators import (
    LineTransformer,
    Operator,
    PlaneTransformer,
    PlaneTransformerConfig,
    build,
)
from training.problems.problem import Problem
from training.recipes.recipe import Recipe


@dataclass(frozen=True)
class Request:
    """What to import.

    Attributes:
        file: The reference's file.
        example: The example of the reference that it comes from.
        config: A JSON file of constructor arguments that do not follow from the file.
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
        operator: The network, in the file's precision.
        problem: Its problem, with the output's grid that it was built for.
        recipe: The published data and schedule.
        card: Provenance and measured errors.
        inference: The reference's arguments and their sources.
        assumed: Arguments and sides that follow from the example's defaults alone.
    """

    operator: Operator
    problem: Problem
    recipe: Recipe
    card: dict[str, Any]
    inference: Inference
    assumed: dict[str, Any]


def import_reference(request: Request) -> Imported:
    """Read, check and rebuild a network; nothing is written.

    Raises:
        ReferenceImportError: The file or the arguments for it cannot be used; the message says what to do about it.
    """
    state, settings, pair = contents(request)
    given = settings | ({} if request.config is None else arguments.read(request.config))
    if clash := [name for name in given if settings.get(name, given[name]) != given[name]]:
        raise ReferenceImportError(f"the config contradicts the pickled model's own {', '.join(clash)}")
    inference = infer(request.example, state, given)
    operator, sides = one_axis(request, inference) if inference.axes == 1 else two_axes(request, inference, pair)
    restore(operator, state)
    assumed = inference.assumed | sides
    problem = imported_problem(request.example, operator.config)
    recipe = published_recipe(request.example, operator.config, request.grid)
    measured = {} if request.data is None else measure(request.data, operator, recipe)
    described = card(source(request), problem, operator, assumed) | measured
    return Imported(operator, problem, recipe, described, inference, assumed)


def save(imported: Imported, folder: Path) -> None:
    """Write the checkpoint, weights in float32.

    Raises:
        ReferenceImportError: The folder holds a checkpoint already.
    """
    if (folder / checkpoint.WEIGHTS).exists():
        raise ReferenceImportError(f"{folder} holds a checkpoint already: give another --out, or remove it")
    checkpoint.save(folder, imported.operator.float(), imported.recipe, imported.problem, imported.card)


def contents(request: Request) -> tuple[State, dict[str, Any], Pair]:
    """Read the file: its state dict and, of a whole model, arguments and the output's statistics.

    Raises:
        ReferenceImportError: It cannot be read.
    """
    if not request.whole_model:
        return read_state(request.file), {}, Pair()
    model = read_whole_model(request.file)
    found = statistics.statistics(model.statistics or {}, str(request.file))
    return model.state, arguments.settings(model.settings), Pair(output=found)


def source(request: Request) -> dict[str, str]:
    """Return hash and kind of the file."""
    digest = hashlib.sha256(request.file.read_bytes()).hexdigest()
    return {"sha256": digest, "kind": "whole model" if request.whole_model else "state dict"}


def one_axis(request: Request, inference: Inference) -> tuple[LineTransformer, dict[str, Any]]:
    """Build a network of one axis, which works in physical units.

    Raises:
        ReferenceImportError: There are statistics for it.
    """
    if request.normaliser is not None:
        raise ReferenceImportError(f"{request.normaliser}: expected no normaliser, for {request.example} has none")
    return LineTransformer(line_config(inference.arguments)), {}


def two_axes(request: Request, inference: Inference, pair: Pair) -> tuple[PlaneTransformer, dict[str, Any]]:
    """Build a network of two axes with its statistics.

    Args:
        request: What to import.
        inference: The network's arguments.
        pair: Statistics in the file.

    Returns:
        The network, and the sides of its grids that were assumed.

    Raises:
        ReferenceImportError: There are no statistics, or their grids do not fit.
    """
    given = Pair() if request.normaliser is None else statistics.read(request.normaliser)
    pair = given.completed(pair)
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
    """Compute missing statistics from the training fields.

    Args:
        request: What to import.
        pair: The known statistics.
        sizes: Sides of the network's grids.

    Returns:
        Statistics of input and output.

    Raises:
        ReferenceImportError: There are no training fields.
    """
    missing = [name for name, found in (("input", pair.input), ("output", pair.output)) if found is None]
    if missing and request.data is None:
        raise ReferenceImportError(
            f"expected the {' and the '.join(missing)} normaliser, which the file does not hold and without which its "
            f"outputs mean nothing: give --normaliser FILE.npz (mean, std, eps; input_mean, input_std, input_eps) or "
            f"--data FILE.h5 of training samples"
        )
    if not missing or request.data is None:
        return pair
    train = statistics.samples(request.data, "train", statistics.FIELDS, request.example, sizes.grid, sizes.output)
    return pair.completed(Pair(statistics.of(train.inputs), statistics.of(train.outputs)))


def fill(normaliser: Normaliser, found: Statistics | None) -> None:
    """Copy statistics into a normaliser, in double precision until it is saved."""
    if found is not None:
        normaliser.double()
        normaliser.mean.copy_(torch.from_numpy(found.mean))
        normaliser.deviation.copy_(torch.from_numpy(found.deviation))


def restore(operator: LineTransformer | PlaneTransformer, state: State) -> None:
    """Load the file's weights into a network, in the file's precision."""
    precision = next(iter(state.values())).dtype
    operator.to(precision)
    renamed = reference_state(operator.config, state)
    own = {name: tensor for name, tensor in operator.state_dict().items() if "normaliser" in name}
    operator.load_state_dict(own | renamed)
    operator.eval()


@torch.inference_mode()
def measure(path: Path, operator: Operator, recipe: Recipe) -> dict[str, list[dict[str, Any]]]:
    """Measure a network on the grid of its training, and the classical solver unless it is slow.

    Args:
        path: Samples in this project's layout.
        operator: The network.
        recipe: Its recipe.

    Returns:
        Rows of `errors` and of `classical` for the card.

    Raises:
        ReferenceImportError: The samples cannot be read.
    """
    config = recipe.operator
    points = recipe.data.grids[0]
    output = config.output[0] if isinstance(config, PlaneTransformerConfig) else points
    test = statistics.samples(path, "test", recipe.data.test, recipe.problem, points, output)
    with store.opened(path) as file:
        mesh = int(file.attrs["mesh"])
    single = build(config)
    single.load_state_dict(operator.state_dict())
    case = evaluation.Case(test, mesh)
    return {
        "errors": [evaluation.errors(single.eval(), case)],
        "classical": [evaluation.classical(case)] if not test.problem.require_baseline().slow else [],
    }
