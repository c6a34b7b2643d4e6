"""Configs of this project's networks that compute the same as the reference's, apart from dropout."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationError

from research.importing.arguments import Arguments, Attention
from research.importing.errors import ReferenceImportError
from research.importing.sizes import Sizes
from training.nn.activations import Activation
from training.nn.attention import AttentionType
from training.nn.decoders import PointwiseDecoderConfig, SpectralDecoderConfig
from training.operators import LineTransformerConfig, PlaneTransformerConfig

DROPOUT = 0.5
"""Dropout of the attention: a constant of the reference, in training and in evaluation."""
FORCED = 0.1
"""Dropout of both residual branches that the reference uses for linear and softmax attention."""
TYPES: dict[Attention, AttentionType] = {
    "fourier": "fourier",
    "integral": "fourier",
    "local": "fourier",
    "softmax": "softmax",
    "galerkin": "galerkin",
    "linear": "linear",
    "global": "linear",  # not galerkin, although the reference's help says so
}


def line_config(a: Arguments) -> LineTransformerConfig:
    """Return the config of a network of one axis; its norms always have eps 1e-5.

    Raises:
        ReferenceImportError: The network has several inputs or outputs, or further coordinates.
    """
    expect_field_to_field(a, axes=1)
    return LineTransformerConfig(
        **encoder(a, eps=1e-5, activation=choose(a.attn_activation, "silu", "gelu", otherwise="relu")),
        residual="plus" if a.residual_type in {None, "add", "plus"} else "minus",
        feature_residual=bool(a.spacial_residual),
        latent_dropout=a.dropout or 0.0,
        decoder=decoder(a, hidden=a.freq_dim, joined=None, gain=0.01),
    )


def plane_config(a: Arguments, sizes: Sizes) -> PlaneTransformerConfig:
    """Return the config of a network of two axes.

    Raises:
        ReferenceImportError: As in `line_config`, or the sizes do not fit each other.
    """
    expect_field_to_field(a, axes=2)
    try:
        return PlaneTransformerConfig(
            **encoder(a, eps=a.norm_eps or (1e-5 if sizes.grid >= 211 else 1e-7), activation="relu"),
            **squares(sizes),
            boundary="dirichlet" if a.boundary_condition == "dirichlet" else "free",
            down_activation=silu_by_default(a.downscaler_activation),
            up_activation=silu_by_default(a.upscaler_activation),
            down_dropout=a.downscaler_dropout or 0.0,
            up_dropout=a.upscaler_dropout or 0.0,
            latent_dropout=a.dropout or 0.0,
            decoder=decoder(a, hidden=2 * (a.spacial_dim or 0) * (a.freq_dim or 0), joined=a.freq_dim, gain=None),
        )
    except ValidationError as error:
        raise ReferenceImportError("; ".join(fault["msg"] for fault in error.errors())) from error


def expect_field_to_field(a: Arguments, *, axes: int) -> None:
    """Refuse networks of several inputs or outputs, and those whose coordinates are not the grid's.

    Raises:
        ReferenceImportError: It is one.
    """
    required = {"node_feats": 1, "n_targets": 1, "pos_dim": axes, "spacial_dim": axes}
    wrong = {name: getattr(a, name) for name, value in required.items() if getattr(a, name) != value}
    if wrong:
        expected = ", ".join(f"{name} = {required[name]}" for name in wrong)
        raise ReferenceImportError(f"expected {expected} but the file has {', '.join(map(str, wrong.values()))}")


def encoder(a: Arguments, *, eps: float, activation: Activation) -> dict[str, Any]:
    """Return the encoder's part of a config.

    Args:
        a: The reference's arguments.
        eps: Of the norms.
        activation: Of the feed-forward part.

    Returns:
        Fields of `EncoderConfig`.
    """
    kind = TYPES[a.attention_type]
    return {
        "attention": kind,
        "attention_norm": (a.norm_type or "layer") if a.attn_norm else "none",
        "attention_dropout": DROPOUT,
        "norm": "post" if a.layer_norm else "none",
        "eps": eps,
        "gain": a.xavier_init or 1.0,
        "diagonal": a.diagonal_weight or 0.0,
        "symmetric": bool(a.symmetric_init),
        "channels": a.n_hidden,
        "heads": a.n_head,
        "layers": a.num_encoder_layers,
        "feedforward": a.dim_feedforward,
        "activation": activation,
        "batch_norm": bool(a.batch_norm),
        "dropout": FORCED if kind in {"linear", "softmax"} else a.encoder_dropout or 0.0,
        "feedforward_dropout": a.ffn_dropout or 0.0,
        "identical": True,
    }


def decoder(
    a: Arguments, *, hidden: int | None, joined: int | None, gain: float | None
) -> SpectralDecoderConfig | PointwiseDecoderConfig:
    """Return the decoder's config.

    Args:
        a: The reference's arguments.
        hidden: Hidden features of a spectral decoder.
        joined: Features of a spectral decoder after the coordinates are joined.
        gain: Gain of a pointwise decoder's initial weights.

    Returns:
        The config.
    """
    common: dict[str, Any] = {
        "coordinates": bool(a.spacial_fc),
        "dropout": a.decoder_dropout or 0.0,
        "layers": a.num_regressor_layers,
    }
    if a.decoder_type == "pointwise":
        activation = choose(a.regressor_activation, "silu", otherwise="relu")
        return PointwiseDecoderConfig(**common, activation=activation, gain=gain)
    sizes: dict[str, Any] = {"channels": a.freq_dim, "modes": a.fourier_modes, "hidden": hidden, "joined": joined}
    return SpectralDecoderConfig(
        **common,
        **sizes,
        activation=silu_by_default(a.regressor_activation),
        last_activation=a.last_activation is not False,
    )


def choose(name: str | None, *known: Literal["silu", "gelu"], otherwise: Activation) -> Activation:
    """Return the activation of a name that the reference knows, else the one that it falls back to."""
    return next((activation for activation in known if activation == name), otherwise)


def silu_by_default(name: str | None) -> Activation:
    """Return silu for its name or for None, else relu, as the reference does."""
    return "silu" if name in {None, "silu"} else "relu"


def squares(sizes: Sizes) -> dict[str, Any]:
    """Return rows and columns of every grid."""
    named = {name: getattr(sizes, name) for name in ("grid", "down_middle", "tokens", "up_middle", "output")}
    return {name: None if side is None else (side, side) for name, side in named.items()}
