"""The report of a run on a user's data: what the model is worth, and what would improve it next."""

from training.report.amounts import expected_seconds, shares, train_on_share
from training.report.collect import collect, load
from training.report.page import write
from training.report.terminal import show
from training.report.texts import duration

__all__ = ["collect", "duration", "expected_seconds", "load", "shares", "show", "train_on_share", "write"]
