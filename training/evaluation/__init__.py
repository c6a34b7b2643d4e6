"""Errors and times of an operator by grid, beside the classical baseline's."""

from training.evaluation.rows import (
    Case,
    Sides,
    beside,
    cases,
    classical,
    errors,
    measured_grids,
    noise_units,
    predict,
    report,
)

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
