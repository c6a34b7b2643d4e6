"""The published code's own names and sizes: takes its state dict, gives ours for the same network; and its size rule.

The layout is that of `scaomath/galerkin-transformer` (Cao, NeurIPS 2021). Its `SimpleTransformer` is our
`LineTransformer`, `FourierTransformer2D` our `PlaneTransformer`, `FourierTransformer2DLite` our `GridTransformer`.
Nothing is computed, only renamed, stacked and reordered, so the same function carries gradients.

| theirs | ours |
|---|---|
| one norm per head, `norm_K.{h}` | one for all heads, `[heads, 1, width]` |
| linear maps at a point of a grid | convolutions of width one |
| spectral weights `[in, out, *modes, 2]`, on a plane in two blocks | `[mode, in, out, 2]`, wave numbers ascending |
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from training.operators.grid_transformer import GridTransformerConfig
from training.operators.line_transformer import LineTransformerConfig
from training.operators.plane_transformer import PlaneTransformerConfig

#: Keys that keep their tensor, or gain axes of one point: pattern of theirs, ours.
NAMES = {
    r"downscaler\.downsample\.conv0\.conv\.0\.(\w+)": r"downscaler.stem.0.\1",
    r"downscaler\.downsample\.conv1\.conv\.0\.(\w+)": r"downscaler.chain.0.0.\1",
    r"downscaler\.downsample\.conv2\.conv\.0\.(\w+)": r"downscaler.chain.1.0.\1",
    r"downscaler\.downsample\.conv3\.conv\.0\.(\w+)": r"downscaler.chain.2.0.\1",
    r"upscaler\.upsample\.conv\.0\.conv\.0\.(\w+)": r"upscaler.convolution.0.\1",
    r"encoder_layers\.(\d+)\.attn\.linears\.0\.(\w+)": r"encoder.\1.attention.query.\2",
    r"encoder_layers\.(\d+)\.attn\.linears\.1\.(\w+)": r"encoder.\1.attention.key.\2",
    r"encoder_layers\.(\d+)\.attn\.linears\.2\.(\w+)": r"encoder.\1.attention.value.\2",
    r"encoder_layers\.(\d+)\.attn\.fc\.(\w+)": r"encoder.\1.attention.output.\2",
    r"encoder_layers\.(\d+)\.layer_norm([12])\.(\w+)": r"encoder.\1.norm\2.\3",
    r"encoder_layers\.(\d+)\.ff\.lr1\.(\w+)": r"encoder.\1.feedforward.0.\2",
    r"encoder_layers\.(\d+)\.ff\.bn\.(\w+)": r"encoder.\1.feedforward.1.norm.\2",
    r"encoder_layers\.(\d+)\.ff\.lr2\.(\w+)": r"encoder.\1.feedforward.2.\2",
}

#: Linear maps that are convolutions here.
POINTWISE = {
    r"(?:downscaler|feat_extract)\.id\.(\w+)": r"lift.linear.\1",
    r"regressor\.fc\.(\w+)": r"decoder.join.linear.\1",
    r"regressor\.spectral_conv\.(\d+)\.linear\.(\w+)": r"decoder.spectral.\1.residual.\2",
    r"regressor\.regressor\.([02])\.(\w+)": r"decoder.head.\1.\2",
    r"regressor\.ff\.(\d+)\.0\.(\w+)": r"decoder.hidden.\1.0.\2",
    r"regressor\.out\.(\w+)": r"decoder.head.\1",
}
LIFT = {r"feat_extract\.id\.(\w+)": r"lift.\1"}  # on the line, a linear map here too
NORM = re.compile(r"encoder_layers\.(\d+)\.attn\.norm_([QKV])\.(\d+)\.(\w+)")
SPECTRAL = re.compile(r"regressor\.spectral_conv\.(\d+)\.fourier_weight(?:\.[01])?")

Config = LineTransformerConfig | PlaneTransformerConfig | GridTransformerConfig


class LayoutError(ValueError):
    """A state dict of the reference has a key that no network of ours has a place for: the message names it."""


def reference_state(config: Config, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the state dict of our network `config` for the reference's `state`, normalisers left out.

    Raises:
        LayoutError: a key has no place.
    """
    line = isinstance(config, LineTransformerConfig)
    axes = 1 if line else 2
    plain = {key: tensor for key, tensor in state.items() if not (NORM.fullmatch(key) or SPECTRAL.fullmatch(key))}
    return renamed(plain, LIFT if line else {}, axes) | head_norms(state) | spectral_weights(state)


def renamed(state: Mapping[str, Tensor], first: Mapping[str, str], axes: int) -> dict[str, Tensor]:
    """Rename single tensors; `first` is tried before the tables, `axes` is the number of axes of the grid.

    Raises:
        LayoutError: see `reference_state`.
    """
    ours = {}
    for key, tensor in state.items():
        if name := translated(key, {**first, **NAMES}):
            ours[name] = tensor
        elif name := translated(key, POINTWISE):
            ours[name] = tensor.reshape(*tensor.shape, *[1] * axes) if tensor.ndim == 2 else tensor
        else:
            raise LayoutError(f"no network here has a place for the reference's {key!r} {tuple(tensor.shape)}")
    return ours


def translated(key: str, names: Mapping[str, str]) -> str | None:
    """Give our name of a key by the first pattern it matches."""
    matches = ((re.fullmatch(pattern, key), ours) for pattern, ours in names.items())
    return next((match.expand(ours) for match, ours in matches if match), None)


def head_norms(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Stack the norms of the heads; the first norm is the query's or, where values are normalised, the key's."""
    found = sorted((match for match in map(NORM.fullmatch, state) if match), key=lambda match: int(match[3]))
    order = "KV" if any(match[2] == "V" for match in found) else "QK"
    stacks: dict[str, list[Tensor]] = {}
    for match in found:
        norm = ("first_norm", "second_norm")[order.index(match[2])]
        stacks.setdefault(f"encoder.{match[1]}.attention.{norm}.{match[4]}", []).append(state[match[0]])
    return {name: torch.stack(heads)[:, None] for name, heads in stacks.items()}


def spectral_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give one tensor [mode, in, out, 2] a layer, modes of the last axis slowest, wave numbers ascending."""
    layers = {match[1] for match in map(SPECTRAL.fullmatch, state) if match}
    key = "regressor.spectral_conv.{}.fourier_weight"
    return {f"decoder.spectral.{layer}.weight": modes_first(state, key.format(layer)) for layer in layers}


def modes_first(state: Mapping[str, Tensor], key: str) -> Tensor:
    """Reorder a line's [in, out, M, 2], or a plane's blocks [in, out, M, M, 2] of the rows 0..M-1 and -M..-1."""
    if key in state:
        return state[key].permute(2, 0, 1, 3)
    both = torch.cat([state[f"{key}.1"], state[f"{key}.0"]], dim=2)  # [in, out, row, column, 2]
    return both.permute(3, 2, 0, 1, 4).flatten(0, 1)


class ScalerSizes(NamedTuple):
    """Sides between a fine and a coarse grid, as the reference chooses them.

    `middle` is the side between both by explicit sizes, also of the upscaler; `scaled` are the two sides that a
    downscaler reaches by applying `factor` twice. The latter is usable only if its second side is the coarse one.
    """

    factor: float
    middle: int
    scaled: tuple[int, int]


def scaler_sizes(fine: int, coarse: int) -> ScalerSizes:
    """Give the reference's sizes: the factor is the root of coarse/fine, raised to a multiple of 0.005."""
    root = round(math.sqrt(coarse / fine), 4)
    raised = round(root, 3) + (0.005 if int(str(root)[-1]) < 5 else 0)
    factor = int(raised / 0.005 + 0.5) * 0.005
    first = math.floor(fine * factor)
    return ScalerSizes(factor, round(fine * factor) - 1, (first, math.floor(first * factor)))
