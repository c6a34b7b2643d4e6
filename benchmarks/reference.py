"""The published implementation, galerkin-transformer in eager torch: the forward pass of its Darcy network.

It runs in the environment `reference`. Its attention dropout cannot be switched off: it is left on where time is
measured, and replaced where outputs are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from galerkin_transformer.model import FourierTransformer2D
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Effective settings of the reference's Darcy example (Cao, NeurIPS 2021), as `darcy-paper` has them.
ARGUMENTS: dict[str, Any] = {
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
    "attention_type": "galerkin",
    "n_hidden": 128,
    "dim_feedforward": 256,
    "decoder_type": "ifft2",
    "freq_dim": 32,
    "fourier_modes": 12,
    "num_regressor_layers": 2,
    "last_activation": True,
    "downscaler_activation": "relu",
    "boundary_condition": "dirichlet",
    "dropout": 0.0,
    "ffn_dropout": 0.1,
    "decoder_dropout": 0.0,
    "upscaler_dropout": 0.0,
}
drop = functional.dropout


class Forward:
    """The Darcy network on a batch of fields [batch, points, points].

    Args:
        sizes: Points per axis: of the field, between field and tokens, of the tokens, between tokens and output.
        eps: Of the layer norm.
        weights: The file to which its random weights are written.
        quiet: Whether the attention's dropout is left out.
    """

    def __init__(self, sizes: list[int], eps: float, weights: str, *, quiet: bool = False) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        grid, down, tokens, up = sizes
        scalers = {"downscaler_size": ((down,) * 2, (tokens,) * 2), "upscaler_size": ((up,) * 2, (grid,) * 2)}
        self.model = FourierTransformer2D(**ARGUMENTS, **scalers, norm_eps=eps).eval()
        torch.save(self.model.state_dict(), weights)
        self.tokens, self.points = square(tokens).flatten(0, 1), square(grid)
        if quiet:
            functional.dropout = without_dropout  # type: ignore[assignment]  # for the life of this process

    @torch.inference_mode()
    def __call__(self, fields: NDArray[Any]) -> Tensor:
        """Return the outputs [batch, points, points]."""
        places = (each.expand(len(fields), *each.shape) for each in (self.tokens, self.points))
        found: Tensor = self.model(torch.from_numpy(fields)[..., None], None, *places)["preds"][..., 0]
        return found


def without_dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Apply the dropout of modules, and none where the rate is only torch's default."""
    return drop(x, p, training, inplace) if p != 0.5 else x


def square(points: int) -> Tensor:
    """Return x and y [row, column, 2] of the package's grids."""
    line = torch.linspace(0, 1, points)
    return torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1)
