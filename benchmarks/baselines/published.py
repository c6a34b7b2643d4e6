"""The sizes of the published networks per grid, for the reference implementation and for this project.

Effective settings of the reference's examples (Cao, NeurIPS 2021), as
`training/recipes/*/paper.toml` has them.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Sides(NamedTuple):
    """Points per axis: of the field, between field and tokens, of the tokens, between tokens and output."""

    grid: int
    down: int
    tokens: int
    up: int


#: The published pairs of grid and tokens; at 421, which is not published, as many tokens per point as at 85.
DARCY = {85: Sides(85, 50, 29, 49), 141: Sides(141, 78, 43, 77), 211: Sides(211, 113, 61, 113)}
DARCY[421] = Sides(421, 244, 141, 243)
INVERSE = Sides(141, 71, 36, 36)
POINTS = 2048  # of the one-dimensional problem


def norm_eps(grid: int) -> float:
    """Return the layer norm's epsilon of the Galerkin type."""
    return 1e-5 if grid >= 211 else 1e-7


ENCODER: dict[str, Any] = {
    "node_feats": 1,
    "n_targets": 1,
    "num_feat_layers": 0,
    "n_freq_targets": 0,
    "feat_extract_type": None,
    "spacial_residual": False,
    "residual_type": "add",
    "attn_activation": None,
    "debug": False,
    "layer_norm": False,
    "attn_norm": True,
    "batch_norm": False,
    "xavier_init": 0.01,
    "diagonal_weight": 0.01,
    "symmetric_init": False,
    "return_attn_weight": False,
    "return_latent": False,
}
PLANE = ENCODER | {
    "pos_dim": 2,
    "spacial_dim": 2,
    "spacial_fc": True,
    "num_encoder_layers": 6,
    "n_head": 4,
    "downsample_mode": "interp",
    "upsample_mode": "interp",
    "regressor_activation": "silu",
    "upscaler_activation": "silu",
    "encoder_dropout": 0.05,
    "downscaler_dropout": 0.05,
}


def darcy(sides: Sides) -> dict[str, Any]:
    """Return the reference's arguments of the Darcy network."""
    return PLANE | {
        "attention_type": "galerkin",
        "n_hidden": 128,
        "dim_feedforward": 256,
        "decoder_type": "ifft2",
        "freq_dim": 32,
        "fourier_modes": 12,
        "num_regressor_layers": 2,
        "last_activation": True,
        "norm_eps": norm_eps(sides.grid),
        "downscaler_activation": "relu",
        "boundary_condition": "dirichlet",
        "dropout": 0.0,
        "ffn_dropout": 0.1,
        "decoder_dropout": 0.0,
        "upscaler_dropout": 0.0,
        **scalers(sides, sides.grid),
    }


def inverse(sides: Sides) -> dict[str, Any]:
    """Return the reference's arguments of the network for the inverse problem."""
    return PLANE | {
        "attention_type": "galerkin",
        "n_hidden": 192,
        "dim_feedforward": 384,
        "decoder_type": "pointwise",
        "num_regressor_layers": 1,
        "norm_eps": 1e-7,
        "downscaler_activation": "silu",
        "boundary_condition": "free",
        "dropout": 0.05,
        "ffn_dropout": 0.05,
        "decoder_dropout": 0.05,
        "upscaler_dropout": 0.05,
        **scalers(sides, sides.tokens),
    }


def scalers(sides: Sides, output: int) -> dict[str, Any]:
    """Return the sizes of both scalers."""
    return {
        "downscaler_size": ((sides.down,) * 2, (sides.tokens,) * 2),
        "upscaler_size": ((sides.up,) * 2, (output,) * 2),
    }


def burgers(attention: str) -> dict[str, Any]:
    """Return the reference's arguments of the Burgers network."""
    return ENCODER | {
        "attention_type": attention,
        "pos_dim": 1,
        "spacial_dim": 1,
        "spacial_fc": False,
        "num_encoder_layers": 4,
        "n_hidden": 96,
        "n_head": 1,
        "dim_feedforward": 192,
        "decoder_type": "ifft",
        "freq_dim": 48,
        "fourier_modes": 16,
        "num_regressor_layers": 2,
        "regressor_activation": "silu",
        "norm_type": "layer",
        "dropout": 0.0,
        "encoder_dropout": 0.0,
        "ffn_dropout": 0.0,
        "decoder_dropout": 0.0,
    }
