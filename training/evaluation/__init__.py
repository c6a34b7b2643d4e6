"""Errors and times of an operator by grid, beside the classical baseline's."""

from training.evaluation.baselines import classical
from training.evaluation.case import Case
from training.evaluation.grids import Sides, measured_grids
from training.evaluation.network import errors, predict
from training.evaluation.noise import noise_units
from training.evaluation.report import beside, cases, report

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
