"""Training of general operators on a user's data."""

from __future__ import annotations

BATCH = 16  # samples of a batch that is only measured
