"""The next thing to do for a smaller error: more data, a longer training or a larger network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

GAP = 1.25  # a network whose validation error is this many times its training error has learned its samples too well
GAIN = 0.05  # a relative decrease of the error that is worth the effort


class Next(StrEnum):
    """What is changed next."""

    DATA = "more data"
    TRAINING = "a longer training"
    NETWORK = "a larger network"
    TRAINING_OR_NETWORK = "a longer training or a larger network (trainings on parts of the data tell which)"
    NONE = "none of more data, a longer training and a larger network"


@dataclass(frozen=True)
class Evidence:
    """What the decision is made from; test samples take no part in it."""

    training: float  # mean error of the trained network on training samples
    validation: float  # its mean error on validation samples
    curve: Sequence[float]  # mean error on validation samples after every epoch
    # Mean error on validation samples after a training on half of the data; None where there was none.
    half: float | None = None

    @property
    def gap(self) -> float:
        """The validation error in units of the training error."""
        return self.validation / self.training

    @property
    def doubling(self) -> float | None:
        """The relative decrease of the validation error from half of the data, and of the steps, to all of them."""
        return None if self.half is None else 1 - self.validation / self.half

    @property
    def fall(self) -> float:
        """The relative decrease of the validation error over the last quarter of the epochs."""
        return 1 - self.curve[-1] / self.curve[-1 - len(self.curve) // 4]


def advise(evidence: Evidence) -> Next:
    """Decide what would improve the model next.

    Where the validation error is at least `GAP` times the training error, the network knows its samples too well:

    1. More data, if the last doubling of the data decreased the validation error by at least `GAIN`, or was not tried.
    2. Otherwise none of the three: the samples may hold noise, or the outputs may depend on what is no input.

    Where it is not, the number of different samples does not limit the network:

    3. A longer training, if the error still decreases with the number of steps: by at least `GAIN` over the last
       quarter of the epochs, or from the training on half of the data, which has the same epochs and half of the steps.
    4. Otherwise a larger network. Where no training on half of the data was tried, it may be a longer training as well:
       a learning curve is flat at its end because the learning rate goes to zero.
    """
    if evidence.gap >= GAP:
        return Next.DATA if evidence.doubling is None or evidence.doubling >= GAIN else Next.NONE
    if max(evidence.fall, evidence.doubling or 0.0) >= GAIN:
        return Next.TRAINING
    return Next.TRAINING_OR_NETWORK if evidence.doubling is None else Next.NETWORK


def sentence(evidence: Evidence) -> str:
    """Say what to do next and why."""
    facts = [
        f"The validation error is {evidence.gap:.3g} times the training error",
        f"{changed(evidence.fall)} over the last quarter of the epochs",
    ]
    if evidence.doubling is not None:
        facts.append(f"{changed(evidence.doubling)} from half of the data to all of them")
    return f"Next: {advise(evidence)}. {'; it '.join(facts)}."


def changed(decrease: float) -> str:
    """Say by how much an error changed."""
    return f"{'fell' if decrease >= 0 else 'rose'} by {abs(100 * decrease):.2g} %"
