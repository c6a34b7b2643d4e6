r"""The frequency head of the paper's encoder: a short list of numbers per sample, such as eigenvalues.

.. math::
    \text{per token:}\quad y_{k} = B\,\mathrm{relu}(A x_k + a) + b,\ k < m, \qquad
    \text{in bulk:}\quad y_{\cdot t} = B_t\,\mathrm{leaky}(A_t\,(x c_t + d_t) + a_t) + b_t
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, PositiveInt
from torch import Tensor, nn

from training.nn.dropout import Dropout
from training.nn.shapes import Tokens

HIDDEN = 4  # hidden features of the bulk form, per number
DROPOUT = 0.1


class FrequencyHeadConfig(BaseModel):
    """Sizes of a frequency head."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["frequency"] = "frequency"
    targets: PositiveInt = 1  # lists per sample
    length: PositiveInt = 1  # numbers of a list, m
    points: PositiveInt | None = None  # tokens of every sample, for the bulk form; None: the form per token


class FrequencyHead(nn.Module):
    """Predict `length` numbers per target from the tokens of a sample; see the formulas of the module.

    The form per token takes any number of tokens, at least `length`, and predicts the numbers of the first ones. The
    bulk form sees all tokens at once, and is for one number of them.

    Args:
        config: The sizes.
        inputs: The number of features per token.

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), `BulkRegressor` of its code
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> FrequencyHead(FrequencyHeadConfig(targets=2, length=3), 48)(torch.randn(5, 100, 48)).shape
        torch.Size([5, 3, 2])
        >>> FrequencyHead(FrequencyHeadConfig(length=3, points=100), 48)(torch.randn(5, 100, 48)).shape
        torch.Size([5, 3, 1])
    """

    def __init__(self, config: FrequencyHeadConfig, inputs: int) -> None:
        super().__init__()
        self.config = config
        self.linear: nn.Module
        self.bulk = nn.ModuleList()
        if config.points is None:
            self.linear = nn.Sequential(nn.Linear(inputs, inputs), nn.ReLU(), nn.Linear(inputs, config.targets))
            return
        self.linear = nn.Linear(inputs, config.targets)
        hidden = HIDDEN * config.length
        self.bulk.extend(
            nn.Sequential(nn.Linear(config.points, hidden), nn.LeakyReLU(), nn.Linear(hidden, config.length))
            for _ in range(config.targets)
        )
        self.dropout = Dropout(DROPOUT)

    def forward(self, tokens: Tokens) -> Float[Tensor, "batch number target"]:
        mapped = self.linear(tokens)
        if self.config.points is None:
            return mapped[:, : self.config.length]
        lists = [each(mapped[..., target]) for target, each in enumerate(self.bulk)]
        return self.dropout(torch.stack(lists, dim=-1))
