"""The error of numbers, in units of their deviation over the training samples: no unit and no offset changes it."""

from __future__ import annotations

from torch import Tensor


def scalar_squares(prediction: Tensor, truth: Tensor, deviation: Tensor) -> Tensor:
    """Return the square of the error of every sample `[batch]` in deviations, the mean over the components.

    A prediction of the mean of the training samples has an error near 1.

    Args:
        prediction: Numbers `[batch, (component)]`.
        truth: The true ones.
        deviation: Of the training samples, `[(component)]`.

    Example:
        >>> import torch
        >>> scalar_squares(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 2.0]))
        tensor([0.5000])
    """
    squares = ((prediction - truth) / deviation).square()
    return squares if squares.ndim == 1 else squares.mean(dim=1)


def scalar_errors(prediction: Tensor, truth: Tensor, deviation: Tensor) -> Tensor:
    """Return the error of every sample `[batch]` in deviations; see `scalar_squares`."""
    return scalar_squares(prediction, truth, deviation).sqrt()
