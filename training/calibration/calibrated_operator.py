"""An operator together with its calibration: what is exported."""

from __future__ import annotations

from torch import Tensor

from training.calibration.calibration import Calibration
from training.operators.operator import Operator


class CalibratedOperator(Operator):
    """Return an operator's outputs, and what is known about their errors.

    Args:
        operator: The operator. Its own quality outputs come before those of the calibration.
        calibration: Its calibration.
    """

    def __init__(self, operator: Operator, calibration: Calibration) -> None:
        super().__init__()
        self.operator, self.calibration = operator, calibration
        self.quality = (*operator.quality, *calibration.names)

    def forward(self, *fields: Tensor) -> Tensor | tuple[Tensor, ...]:
        found: Tensor | tuple[Tensor, ...] = self.operator(*fields)
        return found

    def with_quality(self, *fields: Tensor) -> tuple[Tensor, ...]:
        found = self.operator.with_quality(*fields) if self.operator.quality else self.operator(*fields)
        outputs = (found,) if isinstance(found, Tensor) else tuple(found)
        return (*outputs, *self.judged(*fields))

    def judged(self, *fields: Tensor) -> tuple[Tensor, ...]:
        """Return what the calibration reports of these arguments, `[batch, 1]` each."""
        found: tuple[Tensor, ...] = self.calibration(*self.operator.canonical(*fields))
        return found
