"""A number of fields in, the seconds to wait for them out: a token bucket that may go into debt.

The bucket holds up to `burst` fields and gains `rate` of them a second. A question of n fields is taken when
min(n, burst) are there, and takes all n: so a batch beyond the burst is answered once the bucket is full, and what it
took beforehand has to flow back before the next question. Over any time t at most burst + rate t fields are begun,
and one question's excess over the burst, which the time after it pays.
"""

from __future__ import annotations


class Bucket:
    """What is left of a rate.

    Args:
        rate: Fields per second.
        burst: Fields at once, after a pause.
        now: Seconds on the clock of all later calls.
    """

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = float(burst)
        self._at = now

    def wait(self, count: int, now: float) -> float:
        """Seconds until a question of so many fields is taken; 0 if it is now."""
        self._level = min(self._burst, self._level + self._rate * max(0.0, now - self._at))
        self._at = now
        return max(0.0, min(count, self._burst) - self._level) / self._rate

    def take(self, count: int, now: float) -> float:
        """Take the fields of a question, if it need not wait.

        Returns:
            Seconds to wait. If it is more than 0, nothing was taken.
        """
        seconds = self.wait(count, now)
        if not seconds:
            self._level -= count
        return seconds
