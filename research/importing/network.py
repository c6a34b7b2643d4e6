"""The reference's networks in terms of this project: constructor arguments become a config; see `weights` for the rest.

`scaomath/galerkin-transformer` (Cao, NeurIPS 2021): its `SimpleTransformer` is our `LineTransformer`,
`FourierTransformer2D` our `PlaneTransformer`, `FourierTransformer2DLite` our `GridTransformer`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from research.cao2021.layers import deconvolved, pooled
from research.cao2021.transformers import LineTransformerConfig, PlaneTransformerConfig
from research.importing.files import ReferenceImportError
from training.nn.attention import AttentionType
from training.nn.pointwise import Activation
from training.operators.grid_transformer import GridTransformerConfig

Size = tuple[PositiveInt, PositiveInt]
Rate = Annotated[float, Field(ge=0, le=1)]
Found = TypeVar("Found", bound=BaseModel)
Config = LineTransformerConfig | PlaneTransformerConfig | GridTransformerConfig

DROPOUT = 0.5
"""Dropout of the attention: a constant of the reference, in training and in evaluation."""
FORCED = 0.1
"""Dropout of both residual branches that the reference uses for linear and softmax attention."""
FINEST = 420  # cells between the outermost points of the stored fields
TYPES: dict[str, AttentionType] = {
    "fourier": "fourier",
    "integral": "fourier",
    "local": "fourier",
    "softmax": "softmax",
    "galerkin": "galerkin",
    "linear": "linear",
    "global": "linear",  # not galerkin, although the reference's help says so
}
GRAPHS = {"gcn": "graph-convolution", "gat": "graph-attention"}


class Arguments(BaseModel):
    """Constructor arguments of the reference's networks, and the two of its command line that fix the grids.

    A key that only steers what the reference returns or logs is accepted and has no effect.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Sizes, which the file's shapes have to equal.
    n_hidden: PositiveInt
    num_encoder_layers: NonNegativeInt
    n_head: PositiveInt
    node_feats: Literal[1] = 1
    n_targets: Literal[1] = 1
    pos_dim: int
    spacial_dim: int | None = None
    dim_feedforward: NonNegativeInt | None = None
    attention_type: Literal["fourier", "integral", "local", "softmax", "galerkin", "linear", "global"]
    layer_norm: bool | None = False
    attn_norm: bool | None = None
    batch_norm: bool | None = False
    decoder_type: Literal["ifft", "ifft2", "pointwise"]
    spacial_fc: bool | None = False
    freq_dim: NonNegativeInt | None = None
    fourier_modes: NonNegativeInt | None = None
    num_regressor_layers: PositiveInt = 2
    num_feat_layers: NonNegativeInt | None = 0
    feat_extract_type: Literal["gcn", "gat"] | None = None
    edge_feats: NonNegativeInt | None = None
    raw_laplacian: bool | None = False
    graph_activation: bool | None = None
    downsample_mode: Literal["interp", "conv"] | None = "interp"
    upsample_mode: Literal["interp", "conv", "deconv"] | None = "interp"
    # What shapes do not say.
    norm_type: Literal["layer", "instance"] | None = None
    norm_eps: PositiveFloat | None = None
    residual_type: str | None = None
    spacial_residual: bool | None = False
    attn_activation: str | None = None
    regressor_activation: str | None = None
    downscaler_activation: str | None = None
    upscaler_activation: str | None = None
    last_activation: bool | None = True
    boundary_condition: str | None = None
    downscaler_size: tuple[PositiveFloat, PositiveFloat] | tuple[Size, Size] | None = None
    upscaler_size: tuple[Size, Size] | None = None
    subsample_nodes: PositiveInt = 3  # of the command line: strides of 421 points to the fields and to the tokens
    subsample_attn: PositiveInt = 6
    # For the training only.
    xavier_init: NonNegativeFloat | None = 0.01
    diagonal_weight: float | None = 0.01
    symmetric_init: bool | None = False
    dropout: Rate | None = 0.0
    encoder_dropout: Rate | None = 0.0
    ffn_dropout: Rate | None = 0.0
    decoder_dropout: Rate | None = 0.0
    downscaler_dropout: Rate | None = 0.0
    upscaler_dropout: Rate | None = 0.0
    # Without effect: of the frequency head, whose numbers the examples do not have, and of the reference's logs.
    n_freq_targets: Any = None
    bulk_regression: Any = None
    pred_len: Any = None
    seq_len: Any = None
    return_attn_weight: Any = None
    return_latent: Any = None
    debug: Any = None

    @classmethod
    def of(cls, document: Mapping[str, Any], source: str, *, axes: int) -> Arguments:
        """Validate the arguments of a network of `axes` axes.

        Raises:
            ReferenceImportError: One is wrong; the message names the source, the argument and the reason.
        """
        try:
            a = cls.model_validate({name: value for name, value in document.items() if value is not None})
        except ValidationError as error:
            wrong = {str(fault["loc"][0]): f"{fault['msg']} (found {fault['input']!r})" for fault in error.errors()}
            raise ReferenceImportError(f"{source}: {'; '.join(map(': '.join, wrong.items()))}") from error
        for name in ("pos_dim", "spacial_dim"):
            if getattr(a, name) not in {axes, None}:
                raise ReferenceImportError(f"{source}: expected {name} = {axes} but found {getattr(a, name)}")
        spectral = {"freq_dim", "fourier_modes"} if a.decoder_type != "pointwise" else set()
        if missing := sorted(name for name in spectral if getattr(a, name) is None):
            raise ReferenceImportError(f"{source}: expected {' and '.join(missing)} for the decoder {a.decoder_type!r}")
        return a


def line_config(a: Arguments) -> LineTransformerConfig:
    """Return the config of a network of one axis; its norms always have eps 1e-5.

    Raises:
        ReferenceImportError: The config's sizes do not fit each other.
    """
    graph: dict[str, Any] | None = None
    if a.num_feat_layers and a.feat_extract_type:
        graph = {"kind": GRAPHS[a.feat_extract_type], "layers": a.num_feat_layers}
        graph |= {} if a.graph_activation is None else {"activate": a.graph_activation}
        graph |= {"powers": a.edge_feats or 1, "keep": bool(a.raw_laplacian)} if a.feat_extract_type == "gcn" else {}
    return _valid(
        LineTransformerConfig,
        **_encoder(a, eps=1e-5, activation=_choose(a.attn_activation, "silu", "gelu", otherwise="relu")),
        graph=graph,
        residual="plus" if a.residual_type in {None, "add", "plus"} else "minus",
        feature_residual=bool(a.spacial_residual),
        latent_dropout=a.dropout or 0.0,
        # The reference does not pass the number of pointwise layers on: it is 2.
        decoder=_decoder(a, hidden=a.freq_dim, joined=None, gain=0.01, pointwise_layers=2),
    )


def plane_config(
    a: Arguments,
    given: Mapping[str, Any],
    sides: Mapping[str, int | None],
    *,
    inverse: bool,
    scaled: bool,
) -> tuple[PlaneTransformerConfig, dict[str, int]]:
    """Return the config of a network of two axes, and the sides of its grids that follow from defaults alone.

    A state dict fits any grid, so it does not contain the grids. They are completed as the reference chooses them; its
    fields are square.

    Args:
        a: The network's arguments.
        given: Those that the user gave.
        sides: Sides of the native grid by `--grid`, of the input's statistics and of the output's.
        inverse: Whether the output lies on the tokens' grid instead of the native one.
        scaled: Whether the network begins and ends with scalers.

    Raises:
        ReferenceImportError: Two sources contradict each other, a size is not square, or the sizes do not fit.
    """
    if a.num_feat_layers and a.feat_extract_type:
        raise ReferenceImportError(
            f"feat_extract_type {a.feat_extract_type!r}: no network of two axes of this project has layers on a graph"
        )
    pooling, deconvolution = a.downsample_mode == "conv", a.upsample_mode in {"conv", "deconv"}
    up = None if deconvolution else _square(a.upscaler_size)
    fine = {
        "--grid": sides["--grid"],
        "input_mean": sides["input_mean"],
        "mean": None if inverse or deconvolution else sides["mean"],
        "upscaler_size": up[1] if up and not inverse else None,
        "subsample_nodes": FINEST // a.subsample_nodes + 1 if "subsample_nodes" in given else None,
    }
    grid = _agreed("the native grid", fine) or FINEST // a.subsample_nodes + 1
    assumed = {} if any(fine.values()) else {"grid": grid}
    tokens, named = grid, {"grid": grid, "down_middle": None, "tokens": grid, "up_middle": None, "output": grid}
    if scaled:
        down = None if pooling else _reached(a, grid)
        coarse = {
            "downscaler_size": down[1] if down else None,
            "mean": sides["mean"] if inverse and not deconvolution else None,
            "upscaler_size": up[1] if up and inverse else None,
            "subsample_attn": FINEST // a.subsample_attn + 1 if "subsample_attn" in given and not pooling else None,
            "downsample_mode": pooled(grid) if pooling else None,
        }
        tokens = _agreed("the tokens' grid", coarse) or FINEST // a.subsample_attn + 1
        assumed |= {} if any(coarse.values()) else {"tokens": tokens}
        _, middle, by_factor = scaler_sizes(grid, tokens)
        down_middle = down[0] if down else by_factor[0] if by_factor[1] == tokens else middle
        up_middle = up[0] if up else tokens if inverse else middle
        named |= {
            "tokens": tokens,
            "down_middle": None if pooling else down_middle,
            "up_middle": None if deconvolution else up_middle,
            "output": deconvolved(tokens) if deconvolution else tokens if inverse else grid,
        }
    config = _valid(
        PlaneTransformerConfig,
        **_encoder(a, eps=a.norm_eps or (1e-5 if grid >= 211 else 1e-7), activation="relu"),
        **{name: None if side is None else (side, side) for name, side in named.items()},
        down_kind="pooling" if scaled and pooling else "interpolation",
        up_kind="deconvolution" if scaled and deconvolution else "interpolation",
        boundary="dirichlet" if a.boundary_condition == "dirichlet" else "free",
        down_activation=_silu_by_default(a.downscaler_activation),
        up_activation=_silu_by_default(a.upscaler_activation),
        down_dropout=a.downscaler_dropout or 0.0,
        up_dropout=a.upscaler_dropout or 0.0,
        latent_dropout=a.dropout or 0.0,
        decoder=_decoder(a, hidden=4 * (a.freq_dim or 0), joined=a.freq_dim, gain=None),
    )
    return config, assumed


def scaler_sizes(fine: int, coarse: int) -> tuple[float, int, tuple[int, int]]:
    """Compute the reference's sizes between two grids.

    Returns:
        The scale factor of the downscaler, the root of coarse/fine raised to a multiple of 0.005; the side between
        both grids where sizes are explicit, as in the upscaler; and the two sides that a downscaler reaches by applying
        the factor twice, which are usable only if the second one is the coarse side.
    """
    root = round(math.sqrt(coarse / fine), 4)
    raised = round(root, 3) + (0.005 if int(str(root)[-1]) < 5 else 0)
    factor = int(raised / 0.005 + 0.5) * 0.005
    first = math.floor(fine * factor)
    return factor, round(fine * factor) - 1, (first, math.floor(first * factor))


def _encoder(a: Arguments, *, eps: float, activation: Activation) -> dict[str, Any]:
    """Return the encoder's part of a config."""
    kind = TYPES[a.attention_type]
    normalised = not a.layer_norm if a.attn_norm is None else a.attn_norm
    return {
        "attention": kind,
        # The reference forces the norms of the attention where both are off.
        "attention_norm": (a.norm_type or "layer") if normalised or not a.layer_norm else "none",
        "attention_dropout": DROPOUT,
        "norm": "post" if a.layer_norm else "none",
        "eps": eps,
        "gain": a.xavier_init or 1.0,
        "diagonal": a.diagonal_weight or 0.0,
        "symmetric": bool(a.symmetric_init),
        "channels": a.n_hidden,
        "heads": a.n_head,
        "layers": a.num_encoder_layers,
        "feedforward": a.dim_feedforward or 2 * a.n_hidden,
        "activation": activation,
        "batch_norm": bool(a.batch_norm),
        "dropout": FORCED if kind in {"linear", "softmax"} else a.encoder_dropout or 0.0,
        "feedforward_dropout": a.ffn_dropout or 0.0,
        "identical": True,
    }


def _decoder(
    a: Arguments, *, hidden: int | None, joined: int | None, gain: float | None, pointwise_layers: int | None = None
) -> dict[str, Any]:
    """Return the decoder's part of a config; a spectral one has hidden and joined features, a pointwise one a gain."""
    common = {"coordinates": bool(a.spacial_fc), "dropout": a.decoder_dropout or 0.0}
    if a.decoder_type == "pointwise":
        activation = _choose(a.regressor_activation, "silu", otherwise="relu")
        layers = pointwise_layers or a.num_regressor_layers
        return {"kind": "pointwise", **common, "layers": layers, "activation": activation, "gain": gain}
    return {
        "kind": "spectral",
        **common,
        "layers": a.num_regressor_layers,
        "channels": a.freq_dim,
        "modes": a.fourier_modes,
        "hidden": hidden,
        "joined": joined,
        "activation": _silu_by_default(a.regressor_activation),
        "last_activation": a.last_activation is not False,
    }


def _valid(kind: type[Found], **options: Any) -> Found:
    try:
        return kind(**options)
    except ValidationError as error:
        faults = (": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"]))) for fault in error.errors())
        raise ReferenceImportError("; ".join(faults)) from error


def _choose(name: str | None, *known: Literal["silu", "gelu"], otherwise: Activation) -> Activation:
    """Return the activation of a name that the reference knows, else the one that it falls back to."""
    return next((activation for activation in known if activation == name), otherwise)


def _silu_by_default(name: str | None) -> Activation:
    return "silu" if name in {None, "silu"} else "relu"


def _agreed(what: str, sources: Mapping[str, int | None]) -> int | None:
    """Return the one side that all sources have, None if there is no source."""
    known = {source: side for source, side in sources.items() if side is not None}
    if len(set(known.values())) > 1:
        found = ", ".join(f"{side} by {source}" for source, side in known.items())
        raise ReferenceImportError(f"contradicting sides of {what}: {found}")
    return next(iter(known.values()), None)


def _square(pair: tuple[Size, Size] | None) -> tuple[int, int] | None:
    """Return the sides of two square sizes, None for None."""
    if pair is None:
        return None
    if any(rows != columns for rows, columns in pair):
        raise ReferenceImportError(f"expected square sizes, as the reference has them, but got {pair}")
    return pair[0][0], pair[1][0]


def _reached(a: Arguments, grid: int) -> tuple[int, int] | None:
    """Return the two sides of the downscaler's argument, which holds sizes or factors applied one after the other."""
    match a.downscaler_size:
        case (float() | int() as first, float() | int() as second):
            middle = math.floor(grid * first)
            return middle, math.floor(middle * second)
        case pair:
            return _square(pair)
