"""How much of a training is done: the share that its rate and its rollouts follow, and that ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Budget:
    """What a training may use: steps, or processor time and then steps at least and at most.

    Processor time is that of the training thread, validation included. On an idle machine it passes as the clock does.
    On a busy one it passes later, so that the result comes later and is the same.

    Attributes:
        steps: Most steps.
        seconds: Processor seconds; None for `steps` steps, however long they take.
        least: Least steps, also where they take longer than the seconds.
        used: Seconds so far, also of an interrupted run that this one continues.
        share: The share that is done, from 0 to 1.

    Example:
        >>> budget = Budget(steps=1000, seconds=60.0, least=10, clock=iter([5.0, 35.0, 125.0]).__next__)
        >>> budget.start()
        >>> budget.advance(100), budget.advance(200)
        (0.5, 1.0)
    """

    steps: int
    seconds: float | None = None
    least: int = 1
    clock: Callable[[], float] = time.thread_time
    used: float = 0.0
    share: float = 0.0
    began: float = 0.0

    def start(self) -> None:
        """Start the clock, after what has been used."""
        self.began = self.clock() - self.used

    def advance(self, step: int) -> float:
        """Return the share after some steps."""
        self.used = self.clock() - self.began
        done = step / self.steps
        if self.seconds is not None:
            done = max(done, min(self.used / self.seconds, step / self.least))
        self.share = min(1.0, done)
        return self.share
