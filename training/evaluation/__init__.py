"""Errors and times of an operator by grid, beside the classical baseline's."""

from training.evaluation.cases import Case, Sides, cases, measured_grids, noise_units
from training.evaluation.rows import beside, classical, errors, predict, report

__all__ = [
    "Case",
    "Sides",
    "beside",
    "cases",
    "classical",
    "errors",
    "measured_grids",
    "noise_units",
    "predict",
    "report",
]
