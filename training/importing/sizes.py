"""The grids inside a plane's network: takes what is known of them, gives them all, as the reference chooses them.

A state dict fits any grid, so the file says nothing. The reference's fields are square: one side says it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from training.importing.arguments import Arguments
from training.importing.errors import ReferenceImportError
from training.importing.reference_layout import scaler_sizes

FINEST = 420  # cells between the outermost points of the stored fields


@dataclass(frozen=True)
class Sizes:
    """Sides of the native grid, the tokens and the answer, and those between; None where a scaler is left out.

    `assumed` names those that nothing but the examples' own defaults fixed.
    """

    grid: int
    down_middle: int | None
    tokens: int
    up_middle: int | None
    answer: int
    assumed: dict[str, int]


@dataclass(frozen=True)
class Known:
    """Sides that were not given as arguments: asked for, or those of the statistics."""

    asked: int | None = None
    input: int | None = None
    output: int | None = None


def resolve(a: Arguments, given: dict[str, Any], known: Known, *, inverse: bool, convolutional: bool) -> Sizes:
    """Complete the sides.

    Args:
        a: the network's arguments.
        given: those of them that the user gave.
        known: what else is known.
        inverse: the answer lies on the tokens' grid instead of the native one.
        convolutional: there are scalers between the grids.

    Raises:
        ReferenceImportError: two sources contradict each other, or a size is not square.
    """
    up = sides(a.upscaler_size)
    native = {
        "--grid": known.asked,
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
    answer = tokens if inverse else grid
    return Sizes(grid, between(down, grid, tokens), tokens, up_middle(up, grid, tokens, inverse), answer, assumed)


def agreed(what: str, sources: dict[str, int | None]) -> int | None:
    """Give the one side that all sources name, None if there is no source.

    Raises:
        ReferenceImportError: they name different ones.
    """
    named = {source: side for source, side in sources.items() if side is not None}
    if len(set(named.values())) > 1:
        found = ", ".join(f"{side} by {source}" for source, side in named.items())
        raise ReferenceImportError(f"contradicting sides of {what}: {found}")
    return next(iter(named.values()), None)


def sides(pair: tuple[tuple[int, int], tuple[int, int]] | None) -> tuple[int, int] | None:
    """Give the sides of two square sizes.

    Raises:
        ReferenceImportError: one is not square.
    """
    if pair is None:
        return None
    if any(rows != columns for rows, columns in pair):
        raise ReferenceImportError(f"expected square sizes, as the reference has them, but got {pair}")
    return pair[0][0], pair[1][0]


def shrunk(a: Arguments, grid: int) -> tuple[int, int] | None:
    """Give the two sides that the downscaler's argument leads to: sizes, or factors applied one after the other."""
    match a.downscaler_size:
        case None:
            return None
        case (float() | int() as first, float() | int() as second):
            middle = math.floor(grid * first)
            return middle, math.floor(middle * second)
        case pair:
            return sides(pair)


def between(down: tuple[int, int] | None, grid: int, tokens: int) -> int:
    """Give the downscaler's middle side: by scale factors, as the examples do, unless these miss the tokens' grid."""
    if down is not None:
        return down[0]
    chosen = scaler_sizes(grid, tokens)
    return chosen.scaled[0] if chosen.scaled[1] == tokens else chosen.middle


def up_middle(up: tuple[int, int] | None, grid: int, tokens: int, inverse: bool) -> int:
    """Give the upscaler's middle side; for the inverse problem it has nothing to scale."""
    if up is not None:
        return up[0]
    return tokens if inverse else scaler_sizes(grid, tokens).middle
