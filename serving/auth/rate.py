"""A token bucket that may go into debt.

The bucket holds up to `burst` samples and gains `rate` of them per second. A request of n samples is admitted when
min(n, burst) are in the bucket, and takes all n. A batch beyond the burst is admitted once the bucket is full, and the
debt has to flow back before the next request. Over any time t at most burst + rate t samples are begun, and one
request's excess over the burst, which the time after it pays.
"""

from __future__ import annotations


class Bucket:
    """A rate, and what is left of it now.

    Args:
        rate: Samples per second.
        burst: Samples at once, after a pause.
        now: Seconds on the clock of all later calls.
    """

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = float(burst)
        self._at = now

    def wait(self, count: int, now: float) -> float:
        """Return the seconds until a request of `count` samples is admitted; 0 if it is now."""
        self._level = min(self._burst, self._level + self._rate * max(0.0, now - self._at))
        self._at = now
        return max(0.0, min(count, self._burst) - self._level) / self._rate

    def take(self, count: int, now: float) -> float:
        """Take the samples of a request, if it need not wait.

        Returns:
            Seconds to wait. If it is more than 0, nothing was taken.
        """
        seconds = self.wait(count, now)
        if not seconds:
            self._level -= count
        return seconds
