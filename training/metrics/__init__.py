"""Error measures: one table that losses, validation, cards, reports, the playground and benchmarks read.

A measure is a function of predictions, truth and their `Grid`, written once for tensors and used on arrays as well; see
`ErrorMeasure`. `METRICS` finds it by its name, which is its key in logs, cards and reports. A package of yours adds one
by an entry point of the group `petrov.metrics` whose object is an `ErrorMeasure`.
"""

from training.messages import Registry
from training.metrics.measure import ErrorMeasure, Grid, measured, relative

METRICS = Registry("error measure", ErrorMeasure, "training.metrics", "METRIC", "petrov.metrics")

__all__ = ["METRICS", "ErrorMeasure", "Grid", "measured", "relative"]
