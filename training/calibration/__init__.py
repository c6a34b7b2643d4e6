"""What a trained network says about its own error: a calibrated estimate, and how unusual an input is.

Both are conformal: they rest on the ranks of calibration samples, not on a model of the errors. They are modules, so
that an exported graph holds them beside the operator.
"""

from training.calibration.calibration import FILE, CalibratedOperator, Calibration, Channel, Layout, account, load, save
from training.calibration.error_estimate import ErrorEstimate, guarantee
from training.calibration.fitting import (
    FEWEST_FITTED,
    MOST_FITTED,
    affordable,
    calibrate,
    calibrated,
    calibration_samples,
)
from training.calibration.samples import CalibrationSamples, Measured, joined
from training.calibration.statistics import InputStatistics, Novelty

__all__ = [
    "FEWEST_FITTED",
    "FILE",
    "MOST_FITTED",
    "CalibratedOperator",
    "Calibration",
    "CalibrationSamples",
    "Channel",
    "ErrorEstimate",
    "InputStatistics",
    "Layout",
    "Measured",
    "Novelty",
    "account",
    "affordable",
    "calibrate",
    "calibrated",
    "calibration_samples",
    "guarantee",
    "joined",
    "load",
    "save",
]
