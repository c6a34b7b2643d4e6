"""Honest numbers: takes an operator and test samples, gives errors and times by grid beside the classical solver's."""

from training.evaluation.baselines import classical
from training.evaluation.case import Case
from training.evaluation.grids import Sides, measured_grids
from training.evaluation.network import answers, errors
from training.evaluation.noise import noise_units
from training.evaluation.report import beside, cases, report

__all__ = [
    "Case",
    "Sides",
    "answers",
    "beside",
    "cases",
    "classical",
    "errors",
    "measured_grids",
    "noise_units",
    "report",
]
