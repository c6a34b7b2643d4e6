"""Losses and error measures of predicted fields."""

from training.losses.relative import relative_h1, relative_l2, training_loss
from training.losses.weighted import LineLoss, PlaneLoss, Reduction, Terms

__all__ = ["LineLoss", "PlaneLoss", "Reduction", "Terms", "relative_h1", "relative_l2", "training_loss"]
