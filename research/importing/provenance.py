"""The problem, the recipe and the card that are stored with an imported network.

The recipe has the published data and schedule of the reference's example, so that the network can be evaluated and
trained on like any other. How this file was trained is not known, and the card says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from research.importing.arguments import Example
from research.importing.network import DROPOUT
from research.importing.statistics import FIELDS
from training.operators import LineTransformerConfig, Operator, PlaneTransformerConfig
from training.problems.problem import Problem
from training.problems.registry import PROBLEMS
from training.recipes.recipe import DataConfig, FitConfig, Recipe

PROVENANCE = "imported from a checkpoint of the published implementation, scaomath/galerkin-transformer"
CAVEAT = (
    f"trained and evaluated with attention dropout {DROPOUT}, which the published code never switches off; "
    "deterministic here: published errors do not hold, re-measure"
)
#: The published schedules; the rates' bounds and the momentum are common to all.
SCHEDULES: dict[Example, dict[str, Any]] = {
    "burgers": {"batch": 8, "warmup": 0.2, "gamma": 0.1},
    "darcy": {"batch": 4, "warmup": 0.3, "gamma": 0.5},
    "darcy_inverse": {"batch": 4, "warmup": 0.3, "gamma": 0.0, "noise": (0.01,)},
}
MESH: dict[Example, int] = {"burgers": 8192, "darcy": 421, "darcy_inverse": 421}
VALIDATION = 100
"""Validation samples; the reference chooses the epoch by its test samples."""

POINTS = 2048
"""Points of the published fields in one dimension."""

Config = LineTransformerConfig | PlaneTransformerConfig


def imported_problem(example: Example, config: Config) -> Problem:
    """Return the problem of an example, with the output's grid that the network was built for."""
    problem = PROBLEMS[example]
    fixed = problem.description.output_grid
    if fixed is None or isinstance(config, LineTransformerConfig) or fixed == config.output:
        return problem
    native, output = config.grid[0], config.output[0]
    points = f"{problem.source.description.points}; the output's block j of {output} covers {cells(native, output)}"
    description = problem.description.model_copy(update={"output_grid": config.output, "points": points})
    return replace(problem, description=description)


def cells(native: int, output: int) -> str:
    """Describe which of the finest cells an output's block covers: they are pooled to the native grid, then again."""
    (first, skipped), (second, left) = (blocks(MESH["darcy"], native), blocks(native, output))
    width, start = first * second, first * left + skipped
    return (
        f"the cells {width}j-{start} to {width}j+{width - start - 1} of the 421 on each axis, as far as they are inside"
    )


def blocks(points: int, side: int) -> tuple[int, int]:
    """Return the width of a block and the overhang of the first one."""
    width = -(-points // side)
    return width, (width * side - points) // 2


def published_recipe(example: Example, config: Config, grid: int | None) -> Recipe:
    """Return the recipe with the published data and schedule.

    Args:
        example: The example of the reference.
        config: The network.
        grid: Points of the training fields in one dimension; None for the published number.

    Returns:
        The recipe.
    """
    points = config.grid[0] if isinstance(config, PlaneTransformerConfig) else grid or POINTS
    return Recipe(
        model=example,
        preset="imported",
        problem=example,
        data=DataConfig(mesh=MESH[example], train=FIELDS, validation=VALIDATION, test=100, grids=(points,)),
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
            **SCHEDULES[example],
        ),
    )


def card(source: Mapping[str, str], problem: Problem, operator: Operator, assumed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the card, still without errors.

    Args:
        source: Hash and kind of the file.
        problem: The network's problem.
        operator: The network.
        assumed: Arguments that follow from the example's defaults alone.

    Returns:
        The card.
    """
    return {
        "training": {
            "provenance": PROVENANCE,
            "caveat": CAVEAT,
            "file": dict(source),
            "assumed": dict(assumed),
            "distribution": problem.description.distribution,
            "preset": "imported",
        },
        "checkpoint": {"parameters": sum(parameter.numel() for parameter in operator.parameters())},
        "errors": [],
        "classical": [],
    }
