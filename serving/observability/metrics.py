"""The gateway's metrics for Prometheus: one registry per application, histograms in base units.

Labels are bounded: `model` is a name of the repository or `unknown`, `route` a template, `grid` a declared size or
`other`, `reason` the kind of a problem, `key` a name of the key file, `endpoint` a configured address.
"""

from __future__ import annotations

import math
import time
from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from serving.quality import ERROR_BOUND, ERROR_ESTIMATE, MISFIT

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from serving.quality import Quality

UNKNOWN = "unknown"
# A single 85 x 85 field takes a millisecond, a batch of 421 x 421 on a CPU seconds.
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_BYTES = tuple(4.0**power for power in range(5, 15))
_ERRORS = tuple(digit * 10.0**power for power in range(-6, 1) for digit in (1, 2, 5))
_FIELDS = (1, 2, 4, 8, 16, 32, 64, 128)


class Stopwatch:
    """Records the time of a block, whether it succeeds or not; a generator would be slower than what it measures.

    Args:
        histogram: Records the seconds.
    """

    __slots__ = ("_histogram", "_start")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._histogram.observe(time.perf_counter() - self._start)


class Metrics:
    """The gateway's instruments; dashboards depend on their names.

    Args:
        version: Version of the software.
    """

    def __init__(self, version: str) -> None:
        self.registry = registry = CollectorRegistry()
        self.request_seconds = Histogram(
            "petrov_request_duration_seconds",
            "Time from the request line to the end of the response.",
            ("model", "route", "code"),
            buckets=_SECONDS,
            registry=registry,
        )
        self.triton_seconds = Histogram(
            "petrov_triton_duration_seconds", "One call of Triton.", ("model",), buckets=_SECONDS, registry=registry
        )
        self.phase_seconds = Histogram(
            "petrov_phase_duration_seconds",
            "Parts of a prediction: parse, triton, encode.",
            ("model", "grid", "phase"),
            buckets=_SECONDS,
            registry=registry,
        )
        self.inflight = Gauge("petrov_inflight_requests", "Requests in flight.", registry=registry)
        self.inflight_limit = Gauge(
            "petrov_inflight_requests_limit",
            "Predictions that may be in flight at one time.",
            registry=registry,
        )
        self.inversions = Gauge(
            "petrov_inflight_inversions",
            "Inversions that wait or run.",
            registry=registry,
        )
        self.ended_inversions = Counter(
            "petrov_inversions_total", "Inversions by their final state.", ("state",), registry=registry
        )
        self.ready = Gauge(
            "petrov_ready",
            "Whether every model is served and the gateway is not shutting down.",
            registry=registry,
        )
        self.newest_served = Gauge(
            "petrov_newest_version_served",
            "Whether the newest version of a model in the repository is served.",
            ("model",),
            registry=registry,
        )
        self.request_bytes = Histogram(
            "petrov_request_bytes", "Size of request bodies.", buckets=_BYTES, registry=registry
        )
        self.fields = Counter("petrov_fields_total", "Samples predicted.", ("model", "grid"), registry=registry)
        self.frames = Counter(
            "petrov_frames_total", "Frames of streamed rollouts, of every sample.", ("model",), registry=registry
        )
        self.batch_fields = Histogram(
            "petrov_batch_fields", "Samples in one call of Triton.", ("model",), buckets=_FIELDS, registry=registry
        )
        self.rejected = Counter(
            "petrov_rejected_total", "Requests that ended in a problem.", ("reason",), registry=registry
        )
        self.model_failures = Counter(
            "petrov_model_failures_total",
            "Predictions that a version of a model failed on, some samples of a partial one included.",
            ("model", "version", "reason"),
            registry=registry,
        )
        self.key_fields = Counter(
            "petrov_key_fields_total", "Samples requested with each API key.", ("key",), registry=registry
        )
        self.outside = Counter(
            "petrov_outside_total", "Samples outside of a model's training distribution.", ("model",), registry=registry
        )
        self.error_bound = Histogram(
            "petrov_error_bound", "Guaranteed relative errors.", ("model",), buckets=_ERRORS, registry=registry
        )
        self.error_estimate = Histogram(
            "petrov_error_estimate", "Calibrated relative errors.", ("model",), buckets=_ERRORS, registry=registry
        )
        self.misfit = Histogram(
            "petrov_misfit",
            "Relative L2 distances between the inputs of inverse models and the forward solutions of their outputs.",
            ("model",),
            buckets=_ERRORS,
            registry=registry,
        )
        self.true_error = Histogram(
            "petrov_true_error",
            "Relative L2 distances to the classical solution on the same grid, for a share of the predictions.",
            ("model",),
            buckets=_ERRORS,
            registry=registry,
        )
        self.solved_by = Counter(
            "petrov_solved_by_total", "Samples by what computed them.", ("model", "by"), registry=registry
        )
        self.endpoint_up = Gauge(
            "petrov_endpoint_up",
            "Whether requests are sent to a Triton.",
            ("endpoint",),
            registry=registry,
        )
        self.retries = Counter(
            "petrov_retries_total",
            "Calls repeated after their connection to Triton was lost.",
            ("endpoint",),
            registry=registry,
        )
        self.watcher_restarts = Counter(
            "petrov_watcher_restarts_total",
            "Restarts of a watcher after an unexpected error.",
            ("watcher",),
            registry=registry,
        )
        # Looking up a child takes longer than using it, and there are few.
        self._phase, self._triton = cache(self.phase_seconds.labels), cache(self.triton_seconds.labels)
        ProcessCollector(registry=registry)  # memory, files and start time
        Info("petrov_build", "What is running.", registry=registry).info({"version": version})

    def phase(self, model: str, grid: str, phase: str) -> AbstractContextManager[None]:
        """Return a context that times a phase of a prediction, whether it succeeds or not.

        Args:
            model: Name of the model.
            grid: Label of the grid.
            phase: Name of the phase.
        """
        return Stopwatch(self._phase(model, grid, phase))

    def parsed(self, model: str, grid: str, seconds: float) -> None:
        """Record the time of parsing, which ends before the grid is known.

        Args:
            model: Name of the model.
            grid: Label of the grid.
            seconds: Its time.
        """
        self._phase(model, grid, "parse").observe(seconds)

    def quality(self, model: str, quality: Quality) -> None:
        """Record what is known about the errors of a batch of outputs; of trajectories their worst frame."""
        quality = quality.worst
        solved = int(quality.solved.sum())
        for by, count in (("solver", solved), ("network", len(quality.solved) - solved)):
            if count:
                self.solved_by.labels(model, by).inc(count)
        if quality.outside is not None:
            self.outside.labels(model).inc(int(quality.outside.sum()))
        histograms = {ERROR_BOUND: self.error_bound, MISFIT: self.misfit, ERROR_ESTIMATE: self.error_estimate}
        for name, histogram in histograms.items():
            for value in quality.numbers.get(name, ()):
                if math.isfinite(value):  # an infinite bound would make every later sum infinite
                    histogram.labels(model).observe(float(value))

    def triton(self, model: str) -> AbstractContextManager[None]:
        """Return a context that times a call of Triton."""
        return Stopwatch(self._triton(model))

    def text(self) -> bytes:
        """Return the metrics in the exposition format."""
        return generate_latest(self.registry)
