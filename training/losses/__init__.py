"""Losses of predicted fields."""

from training.losses.relative import Batch, Loss, relative_differences, training_loss
from training.losses.weighted import LineLoss, PlaneLoss, Reduction, Terms
from training.messages import Registry

LOSSES = Registry("loss", Loss, "training.losses", "LOSS", "petrov.losses")

__all__ = [
    "LOSSES",
    "Batch",
    "LineLoss",
    "Loss",
    "PlaneLoss",
    "Reduction",
    "Terms",
    "relative_differences",
    "training_loss",
]
