"""The report of a run on a user's data: what the model is worth, and what would improve it next."""

from training.report.collect import collect, expected_seconds, load, shares, train_on_share
from training.report.page import is_missing, report_command, show, source_of, write
from training.report.verdict import duration

__all__ = [
    "collect",
    "duration",
    "expected_seconds",
    "is_missing",
    "load",
    "report_command",
    "shares",
    "show",
    "source_of",
    "train_on_share",
    "write",
]
