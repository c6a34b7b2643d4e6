"""Constructor arguments of the reference's networks, under the reference's names.

Arguments that follow from a file's keys and shapes are inferred (`inference`). The others are given by the user, or are
those that the reference's examples effectively use. These values are taken from its code, not from its documents,
because the two differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from research.importing.errors import ReferenceImportError

Example = Literal["burgers", "darcy", "darcy_inverse"]
EXAMPLES: tuple[Example, ...] = get_args(Example)

Attention = Literal["fourier", "integral", "local", "softmax", "galerkin", "linear", "global"]
QUADRATIC = frozenset({"fourier", "integral", "local", "softmax"})
"""Types that normalise queries and keys; the others normalise keys and values."""

Size = tuple[int, int]


class Arguments(BaseModel):
    """Constructor arguments of the reference's networks, and the two of its command line that fix the grids.

    A key that only steers what the reference returns or logs is accepted and has no effect.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Inferred from keys and shapes.
    node_feats: int = 1
    pos_dim: int = 1
    n_targets: int = 1
    n_hidden: int = 96
    n_head: int = 1
    dim_feedforward: int | None = None
    num_encoder_layers: int = 4
    layer_norm: bool | None = False
    attn_norm: bool | None = None
    batch_norm: bool | None = False
    decoder_type: Literal["ifft", "ifft2", "pointwise"] = "ifft"
    spacial_dim: int | None = None
    spacial_fc: bool | None = False
    freq_dim: int | None = None
    fourier_modes: int | None = None
    num_regressor_layers: int = 2
    # Not contained in keys and shapes.
    attention_type: Attention = "fourier"
    norm_type: Literal["layer", "instance"] | None = None
    norm_eps: float | None = None
    residual_type: str | None = None
    spacial_residual: bool | None = False
    attn_activation: str | None = None
    regressor_activation: str | None = None
    downscaler_activation: str | None = None
    upscaler_activation: str | None = None
    last_activation: bool | None = True
    boundary_condition: str | None = None
    downscaler_size: tuple[float, float] | tuple[Size, Size] | None = None
    upscaler_size: tuple[Size, Size] | None = None
    subsample_nodes: int = 3  # of the command line: strides of 421 points to the fields and to the tokens
    subsample_attn: int = 6
    # For the training only.
    xavier_init: float | None = 0.01
    diagonal_weight: float | None = 0.01
    symmetric_init: bool | None = False
    dropout: float | None = 0.0
    encoder_dropout: float | None = 0.0
    ffn_dropout: float | None = 0.0
    decoder_dropout: float | None = 0.0
    downscaler_dropout: float | None = 0.0
    upscaler_dropout: float | None = 0.0
    # Features that no network of this project has: only these values are accepted.
    num_feat_layers: Literal[0] | None = 0
    n_freq_targets: Literal[0] | None = 0
    bulk_regression: Literal[False] | None = False
    feat_extract_type: None = None
    downsample_mode: Literal["interp"] | None = "interp"
    upsample_mode: Literal["interp"] | None = "interp"
    # Without effect.
    edge_feats: Any = None
    graph_activation: Any = None
    raw_laplacian: Any = None
    pred_len: Any = None
    seq_len: Any = None
    return_attn_weight: Any = None
    return_latent: Any = None
    debug: Any = None


#: What the reference's examples effectively pass.
EFFECTIVE: dict[Example, dict[str, Any]] = {
    "burgers": {"attention_type": "fourier", "norm_eps": 1e-5},
    "darcy": {
        "attention_type": "galerkin",
        "downscaler_activation": "relu",
        "upscaler_activation": "silu",
        "regressor_activation": "silu",
        "boundary_condition": "dirichlet",
        "encoder_dropout": 0.05,
        "ffn_dropout": 0.1,
        "downscaler_dropout": 0.05,
    },
    "darcy_inverse": {
        "attention_type": "galerkin",
        "norm_eps": 1e-7,
        "downscaler_activation": "silu",
        "upscaler_activation": "silu",
        "regressor_activation": "silu",
        "boundary_condition": "free",
        **dict.fromkeys(("dropout", "encoder_dropout", "ffn_dropout", "decoder_dropout"), 0.05),
        **dict.fromkeys(("downscaler_dropout", "upscaler_dropout"), 0.05),
    },
}


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object of constructor arguments; sizes become tuples.

    Raises:
        ReferenceImportError: The file cannot be read, or a key or a value is not accepted.
    """
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ReferenceImportError(f"{path}: expected a JSON object but {error}") from error
    if not isinstance(document, dict):
        raise ReferenceImportError(f"{path}: expected a JSON object but found {type(document).__name__}")
    return canonical(document, str(path))


def validate(document: dict[str, Any], source: str) -> Arguments:
    """Validate arguments.

    Raises:
        ReferenceImportError: One is wrong; the message names the source, the argument and the reason.
    """
    try:
        return Arguments.model_validate(document)
    except ValidationError as error:
        wrong = {str(fault["loc"][0]): f"{fault['msg']} (found {fault['input']!r})" for fault in error.errors()}
        raise ReferenceImportError(f"{source}: {'; '.join(map(': '.join, wrong.items()))}") from error


def settings(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return those attributes of a pickled model that are constructor arguments.

    Raises:
        ReferenceImportError: One has a value that no network of this project has.
    """
    known = {name: attributes[name] for name in Arguments.model_fields if attributes.get(name) is not None}
    return canonical(known, "the pickled model")


def canonical(document: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the same arguments in the types of `Arguments`.

    Raises:
        ReferenceImportError: One is wrong.
    """
    checked = validate(document, source)
    return {name: getattr(checked, name) for name in document}
