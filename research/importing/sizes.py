"""The grids inside a network of two axes, completed as the reference chooses them.

A state dict fits any grid, so the file does not contain them. The reference's fields are square: a grid has one side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from research.importing.arguments import Arguments
from research.importing.errors import ReferenceImportError

FINEST = 420  # cells between the outermost points of the stored fields


@dataclass(frozen=True)
class Sizes:
    """Sides of all grids.

    Attributes:
        grid: The native grid of the input.
        down_middle: Inside the downscaler; None if there is none.
        tokens: The grid of the tokens.
        up_middle: Inside the upscaler; None if there is none.
        output: The grid of the output.
        assumed: The sides that follow from the defaults of the examples alone.
    """

    grid: int
    down_middle: int | None
    tokens: int
    up_middle: int | None
    output: int
    assumed: dict[str, int]


@dataclass(frozen=True)
class Known:
    """Sides that are known from elsewhere than the arguments.

    Attributes:
        requested: The native grid by `--grid`.
        input: The grid of the input's statistics.
        output: The grid of the output's statistics.
    """

    requested: int | None = None
    input: int | None = None
    output: int | None = None


def resolve(a: Arguments, given: dict[str, Any], known: Known, *, inverse: bool, convolutional: bool) -> Sizes:
    """Complete the sides.

    Args:
        a: The network's arguments.
        given: Those of them that the user gave.
        known: Sides from elsewhere.
        inverse: Whether the output lies on the tokens' grid instead of the native one.
        convolutional: Whether there are scalers between the grids.

    Returns:
        All sides.

    Raises:
        ReferenceImportError: Two sources contradict each other, or a size is not square.
    """
    up = sides(a.upscaler_size)
    native = {
        "--grid": known.requested,
        "input_mean": known.input,
        "mean": None if inverse else known.output,
        "upscaler_size": up[1] if up and not inverse else None,
        "subsample_nodes": FINEST // a.subsample_nodes + 1 if "subsample_nodes" in given else None,
    }
    grid = agreed("the native grid", native) or FINEST // a.subsample_nodes + 1
    assumed = {} if any(native.values()) else {"grid": grid}
    if not convolutional:
        return Sizes(grid, None, grid, None, grid, assumed)
    down = shrunk(a, grid)
    coarse = {
        "downscaler_size": down[1] if down else None,
        "mean": known.output if inverse else None,
        "upscaler_size": up[1] if up and inverse else None,
        "subsample_attn": FINEST // a.subsample_attn + 1 if "subsample_attn" in given else None,
    }
    tokens = agreed("the tokens' grid", coarse) or FINEST // a.subsample_attn + 1
    assumed |= {} if any(coarse.values()) else {"tokens": tokens}
    output = tokens if inverse else grid
    return Sizes(grid, between(down, grid, tokens), tokens, up_middle(up, grid, tokens, inverse), output, assumed)


def agreed(what: str, sources: dict[str, int | None]) -> int | None:
    """Return the one side that all sources have, None if there is no source.

    Raises:
        ReferenceImportError: They differ.
    """
    known = {source: side for source, side in sources.items() if side is not None}
    if len(set(known.values())) > 1:
        found = ", ".join(f"{side} by {source}" for source, side in known.items())
        raise ReferenceImportError(f"contradicting sides of {what}: {found}")
    return next(iter(known.values()), None)


def sides(pair: tuple[tuple[int, int], tuple[int, int]] | None) -> tuple[int, int] | None:
    """Return the sides of two square sizes, None for None.

    Raises:
        ReferenceImportError: One is not square.
    """
    if pair is None:
        return None
    if any(rows != columns for rows, columns in pair):
        raise ReferenceImportError(f"expected square sizes, as the reference has them, but got {pair}")
    return pair[0][0], pair[1][0]


def shrunk(a: Arguments, grid: int) -> tuple[int, int] | None:
    """Return the two sides of the downscaler's argument, which holds sizes or factors applied one after the other."""
    match a.downscaler_size:
        case None:
            return None
        case (float() | int() as first, float() | int() as second):
            middle = math.floor(grid * first)
            return middle, math.floor(middle * second)
        case pair:
            return sides(pair)


def between(down: tuple[int, int] | None, grid: int, tokens: int) -> int:
    """Return the downscaler's middle side: by scale factors, as in the examples, if they meet the tokens' grid."""
    if down is not None:
        return down[0]
    chosen = scaler_sizes(grid, tokens)
    return chosen.scaled[0] if chosen.scaled[1] == tokens else chosen.middle


def up_middle(up: tuple[int, int] | None, grid: int, tokens: int, inverse: bool) -> int:
    """Return the upscaler's middle side; for the inverse problem it is that of the tokens."""
    if up is not None:
        return up[0]
    return tokens if inverse else scaler_sizes(grid, tokens).middle


class ScalerSizes(NamedTuple):
    """Sides between a fine and a coarse grid, as the reference chooses them.

    Attributes:
        factor: The scale factor of the downscaler.
        middle: The side between both grids where sizes are explicit, as in the upscaler.
        scaled: The two sides that a downscaler reaches by applying `factor` twice. They are usable only if the second
            one is the coarse side.
    """

    factor: float
    middle: int
    scaled: tuple[int, int]


def scaler_sizes(fine: int, coarse: int) -> ScalerSizes:
    """Compute the reference's sizes: the factor is the root of coarse/fine, raised to a multiple of 0.005."""
    root = round(math.sqrt(coarse / fine), 4)
    raised = round(root, 3) + (0.005 if int(str(root)[-1]) < 5 else 0)
    factor = int(raised / 0.005 + 0.5) * 0.005
    first = math.floor(fine * factor)
    return ScalerSizes(factor, round(fine * factor) - 1, (first, math.floor(first * factor)))
