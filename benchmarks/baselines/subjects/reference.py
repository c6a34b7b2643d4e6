"""The published implementation, galerkin-transformer in eager torch: its forward pass and its training step.

Its attention dropout cannot be switched off. It is left on where time is measured, and replaced where outputs are
compared; `quiet` replaces it in a training step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import galerkin_transformer.ft as published_losses
import numpy as np
import torch
from galerkin_transformer.model import FourierTransformer2D, SimpleTransformer
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.baselines import published

if TYPE_CHECKING:
    from collections.abc import Callable

drop = functional.dropout


class Forward:
    """The Darcy network on a batch of fields."""

    def __init__(self, file: str, batch: int, weights: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        fields = torch.from_numpy(np.load(file)[:batch])
        sides = published.DARCY[fields.shape[1]]
        self.model = FourierTransformer2D(**published.darcy(sides)).eval()
        torch.save(self.model.state_dict(), weights)
        self.arguments = (fields[..., None], None, *plane(batch, sides.tokens, sides.grid))
        self.facts = {"parameters": sum(each.numel() for each in self.model.parameters())}

    @torch.inference_mode()
    def step(self) -> Tensor:
        """Compute the outputs."""
        output: Tensor = self.model(*self.arguments)["preds"][..., 0]
        return output

    def write_output(self, file: str) -> None:
        """Write the outputs, without the attention's dropout."""
        functional.dropout = without_dropout  # type: ignore[assignment]
        np.save(file, self.step().numpy())
        functional.dropout = drop


class Step:
    """One training step of an example: forward, published loss, backward, clipping, Adam."""

    def __init__(self, example: str, batch: int, quiet: bool = False) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        if quiet:
            functional.dropout = without_dropout  # type: ignore[assignment]  # for the life of this process
        self.model, self.arguments, self.loss = EXAMPLES[example](batch)
        self.model.train()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.facts = {"parameters": sum(each.numel() for each in self.model.parameters())}

    def step(self) -> None:
        """Take the step, as `train_batch_*` of the package does."""
        self.optimiser.zero_grad()
        loss, regulariser, *_ = self.loss(self.model(*self.arguments)["preds"][..., 0])
        (loss + regulariser).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.999)
        self.optimiser.step()


def without_dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Apply the dropout of modules, and none where the rate is only torch's default."""
    return drop(x, p, training, inplace) if p != 0.5 else x


def plane(batch: int, tokens: int, output: int) -> tuple[Tensor, Tensor]:
    """Return the coordinates of the tokens [batch, tokens^2, 2] and of the output [batch, output, output, 2].

    Args:
        batch: The number of fields.
        tokens: Tokens per axis.
        output: Points per axis of the output.
    """
    return square(tokens).flatten(0, 1).expand(batch, -1, -1), square(output).expand(batch, -1, -1, -1)


def square(points: int) -> Tensor:
    """Return x and y [row, column, 2] of the package's grids."""
    line = torch.linspace(0, 1, points)
    return torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1)


def darcy(batch: int) -> tuple[nn.Module, Any, Any]:
    """Return network, arguments and loss of the Darcy example."""
    sides = published.DARCY[141]
    fields, truth = torch.rand(2, batch, sides.grid, sides.grid)
    gradients = torch.rand(batch, sides.grid, sides.grid, 2)
    loss = published_losses.WeightedL2Loss2d(regularizer=True, h=1 / sides.grid, gamma=0.5)
    arguments = (fields[..., None], None, *plane(batch, sides.tokens, sides.grid))
    model = FourierTransformer2D(**published.darcy(sides))
    return model, arguments, lambda found: loss(found, truth, targets_prime=gradients, K=1 + fields[..., None])


def inverse(batch: int) -> tuple[nn.Module, Any, Any]:
    """Return network, arguments and loss of the inverse example."""
    sides = published.INVERSE
    fields, truth = torch.rand(batch, sides.grid, sides.grid), torch.rand(batch, sides.tokens, sides.tokens)
    loss = published_losses.WeightedL2Loss2d(regularizer=False, h=1 / sides.tokens)
    arguments = (fields[..., None], None, *plane(batch, sides.tokens, sides.tokens))
    return FourierTransformer2D(**published.inverse(sides)), arguments, lambda found: loss(found, truth)


def burgers(batch: int, attention: str) -> tuple[nn.Module, Any, Any]:
    """Return network, arguments and loss of the Burgers example."""
    fields, truth, slopes = torch.rand(3, batch, published.POINTS)
    positions = torch.linspace(0, 1, published.POINTS)[:, None].expand(batch, -1, -1)
    loss = published_losses.WeightedL2Loss(regularizer=True, h=1 / published.POINTS, gamma=0.1)
    model = SimpleTransformer(**published.burgers(attention))
    return (
        model,
        (fields[..., None], None, positions, positions),
        lambda found: loss(found, truth, targets_prime=slopes),
    )


EXAMPLES: dict[str, Callable[[int], tuple[nn.Module, Any, Any]]] = {
    "darcy": darcy,
    "darcy_inverse": inverse,
    "burgers_galerkin": lambda batch: burgers(batch, "galerkin"),
    "burgers_fourier": lambda batch: burgers(batch, "fourier"),
}
