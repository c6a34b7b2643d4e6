"""Translation of the reference's state dict into the state dict of the same network of this project.

The layout is that of `scaomath/galerkin-transformer` (Cao, NeurIPS 2021). Its `SimpleTransformer` is our
`LineTransformer`, `FourierTransformer2D` our `PlaneTransformer`, `FourierTransformer2DLite` our `GridTransformer`.
Nothing is computed. Entries are only renamed, stacked and reordered, so the same function translates gradients.

| reference | this project |
|---|---|
| one norm per head, `norm_K.{h}` | one for all heads, `[heads, 1, width]` |
| linear maps at a point of a grid | convolutions of width one |
| spectral weights `[in, out, *modes, 2]`, in 2D as two blocks | `[mode, in, out, 2]`, ascending wave numbers |
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from training.operators.grid_transformer import GridTransformerConfig
from training.operators.line_transformer import LineTransformerConfig
from training.operators.plane_transformer import PlaneTransformerConfig

#: Keys whose tensor stays as it is: pattern of the reference's key, our key.
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

#: Linear maps that are convolutions here: their tensor gains axes of one point.
POINTWISE = {
    r"(?:downscaler|feat_extract)\.id\.(\w+)": r"lift.linear.\1",
    r"regressor\.fc\.(\w+)": r"decoder.join.linear.\1",
    r"regressor\.spectral_conv\.(\d+)\.linear\.(\w+)": r"decoder.spectral.\1.residual.\2",
    r"regressor\.regressor\.([02])\.(\w+)": r"decoder.head.\1.\2",
    r"regressor\.ff\.(\d+)\.0\.(\w+)": r"decoder.hidden.\1.0.\2",
    r"regressor\.out\.(\w+)": r"decoder.head.\1",
}
LIFT = {r"feat_extract\.id\.(\w+)": r"lift.\1"}  # in one dimension it is a linear map here, too
NORM = re.compile(r"encoder_layers\.(\d+)\.attn\.norm_([QKV])\.(\d+)\.(\w+)")
SPECTRAL = re.compile(r"regressor\.spectral_conv\.(\d+)\.fourier_weight(?:\.[01])?")

Config = LineTransformerConfig | PlaneTransformerConfig | GridTransformerConfig


class LayoutError(ValueError):
    """A state dict of the reference has a key that no network of this project has; the message names it."""


def reference_state(config: Config, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of the reference.

    Args:
        config: The network of this project.
        state: The reference's entries, or gradients under the same keys.

    Returns:
        The entries of our network, without its normalisers.

    Raises:
        LayoutError: A key is unknown.
    """
    axes = 1 if isinstance(config, LineTransformerConfig) else 2
    plain = {key: tensor for key, tensor in state.items() if not (NORM.fullmatch(key) or SPECTRAL.fullmatch(key))}
    return renamed(plain, LIFT if axes == 1 else {}, axes) | head_norms(state) | spectral_weights(state)


def renamed(state: Mapping[str, Tensor], first: Mapping[str, str], axes: int) -> dict[str, Tensor]:
    """Rename single tensors.

    Args:
        state: Entries of the reference.
        first: Patterns that are tried before `NAMES` and `POINTWISE`.
        axes: Axes of the grid.

    Returns:
        The tensors under our keys; linear maps that are convolutions here have `axes` further axes.

    Raises:
        LayoutError: A key is unknown.
    """
    ours = {}
    for key, tensor in state.items():
        if name := translated(key, {**first, **NAMES}):
            ours[name] = tensor
        elif name := translated(key, POINTWISE):
            ours[name] = tensor.reshape(*tensor.shape, *[1] * axes) if tensor.ndim == 2 else tensor
        else:
            raise LayoutError(f"no network of this project has the reference's {key!r} {tuple(tensor.shape)}")
    return ours


def translated(key: str, names: Mapping[str, str]) -> str | None:
    """Return our key by the first pattern that matches, None if none does."""
    matches = ((re.fullmatch(pattern, key), ours) for pattern, ours in names.items())
    return next((match.expand(ours) for match, ours in matches if match), None)


def head_norms(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Stack the norms of the heads; the first norm is the query's, or the key's where values are normalised."""
    found = sorted((match for match in map(NORM.fullmatch, state) if match), key=lambda match: int(match[3]))
    order = "KV" if any(match[2] == "V" for match in found) else "QK"
    stacks: dict[str, list[Tensor]] = {}
    for match in found:
        norm = ("first_norm", "second_norm")[order.index(match[2])]
        stacks.setdefault(f"encoder.{match[1]}.attention.{norm}.{match[4]}", []).append(state[match[0]])
    return {name: torch.stack(heads)[:, None] for name, heads in stacks.items()}


def spectral_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return one tensor [mode, in, out, 2] per layer, modes of the last axis slowest, wave numbers ascending."""
    layers = {match[1] for match in map(SPECTRAL.fullmatch, state) if match}
    key = "regressor.spectral_conv.{}.fourier_weight"
    return {f"decoder.spectral.{layer}.weight": modes_first(state, key.format(layer)) for layer in layers}


def modes_first(state: Mapping[str, Tensor], key: str) -> Tensor:
    """Reorder [in, out, M, 2] of one axis, or both blocks [in, out, M, M, 2] of the rows 0..M-1 and -M..-1."""
    if key in state:
        return state[key].permute(2, 0, 1, 3)
    both = torch.cat([state[f"{key}.1"], state[f"{key}.0"]], dim=2)  # [in, out, row, column, 2]
    return both.permute(3, 2, 0, 1, 4).flatten(0, 1)
