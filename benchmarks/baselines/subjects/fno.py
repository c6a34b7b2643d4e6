"""The forward pass of neuraloperator's Fourier neural operator in eager torch.

Random weights, four layers of 32 channels and 12 modes per side: the usual baseline of the papers.
"""

from __future__ import annotations

import numpy as np
import torch
from neuralop.models import FNO


class Forward:
    """The operator on a batch of fields."""

    def __init__(self, file: str, batch: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.fields = torch.from_numpy(np.load(file)[:batch])[:, None]
        self.model = FNO(n_modes=(24, 24), hidden_channels=32, n_layers=4, in_channels=1, out_channels=1).eval()
        self.facts = {"parameters": sum(each.numel() for each in self.model.parameters())}

    @torch.inference_mode()
    def step(self) -> torch.Tensor:
        """Compute the outputs."""
        output: torch.Tensor = self.model(self.fields)[:, 0]
        return output

    def write_output(self, file: str) -> None:
        """Write the outputs."""
        np.save(file, self.step().numpy())
