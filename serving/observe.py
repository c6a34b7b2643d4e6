"""What the operator sees of the gateway: its log, an entry and a measurement per request, and metrics for Prometheus.

The log goes to standard error: sentences for people, or one JSON object per record for machines, which has `time`,
`level`, `logger`, then the fields of a request (`Entry`) or `message`; `exception` and, where there is a trace,
`trace_id` come last. A request is the sentence `POST /v1/models/darcy/predict 200 12.3 ms from 127.0.0.1 id=…`, without
payload, query or secret.

Labels of metrics are bounded: `model` is a name of the repository or `unknown`, `route` a template, `grid` a declared
size or `other`, `reason` the kind of a problem, `key` a name of the key file, `endpoint` a configured address.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
from numpy.typing import NDArray
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schema.card import Card
from serving.catalogue.budget import Instruments
from serving.connection import DRAINED
from serving.device import Device
from serving.errors import CLIENT_CLOSED, KINDS, PROBLEM, Problem, refusal
from serving.limits import ANYONE, Admission, Ticket
from serving.quality import BY, ERROR_BOUND, ERROR_ESTIMATE, MISFIT, Quality
from serving.settings import Settings
from serving.telemetry import Traces, trace_id

FIELDS = "fields"  # attribute of a record, passed as `extra`: the fields that JSON has in place of the message
# Plain: Rich takes a millisecond per record, which would delay every request.
_SENTENCES = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S")


class JsonLines(logging.Formatter):
    """One JSON object per record, with the id of the current trace where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **getattr(record, FIELDS, {"message": record.getMessage()}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if trace := trace_id():
            line["trace_id"] = trace
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def log_handler(form: str) -> logging.Handler:
    """Return what writes lines to standard error, as `json` or as text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else _SENTENCES)
    return handler


def configure_log(settings: Settings) -> None:
    """Configure every logger of the process."""
    logging.basicConfig(level=settings.log_level.upper(), handlers=[log_handler(settings.log_format)], force=True)
    # No format has them, and finding them takes a third of the time of a record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


logger = logging.getLogger("petrov.access")
ID_HEADER = "X-Request-Id"
_SAFE_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def request_id(proposed: str) -> str:
    """Return the id of a request: the client's own if its characters are safe in a log, else a new one."""
    return proposed if _SAFE_ID.fullmatch(proposed) else secrets.token_hex(16)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is measured and logged of a request once it has ended."""

    request_id: str  # that went back to the client
    method: str  # of HTTP, or `GRPC`
    route: str  # template of the path, or name of the gRPC method
    model: str  # `unknown` if the repository has none of that name
    version: str  # empty before one was found
    status: str  # of HTTP, or name of gRPC's
    problem: str  # kind of the problem that it ended in, empty without one
    seconds: float  # from the request line to the end of the response
    bytes_in: int  # as far as the body was read
    bytes_out: int
    client: str  # its address
    key: str  # name of its API key, empty without one

    def record(self, metrics: Metrics, path: str) -> None:
        """Measure and log it; the sentence for people has the path itself in place of its template."""
        metrics.request_seconds.labels(self.model, self.route, self.status).observe(self.seconds)
        if logger.isEnabledFor(logging.INFO):
            outcome = f"{self.status} {self.problem}" if self.problem else self.status
            client = quote(self.client[:64], ":")  # a header of a proxy, perhaps
            caller = f"{client} ({self.key})" if self.key else client
            values = (self.method, path, outcome, self.seconds * 1e3, caller, self.request_id)
            logger.info("%s %s %s %.1f ms from %s id=%s", *values, extra={FIELDS: vars(self)})


UNKNOWN = "unknown"
# A single 85 x 85 field takes a millisecond, a batch of 421 x 421 on a CPU seconds.
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_PHASES = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10)  # there are many phases, of models and grids
_BYTES = tuple(4.0**power for power in range(5, 15))
_ERRORS = tuple(digit * 10.0**power for power in range(-6, 1) for digit in (1, 2, 5))
_FIELDS = (1, 2, 4, 8, 16, 32, 64, 128)


disable_created_metrics()  # one more series for each counter and histogram, which Prometheus does not need


class Distribution(Histogram):
    """A histogram of many values at once: `observe` takes some microseconds for each, while the event loop waits."""

    def observe_all(self, values: NDArray[np.floating]) -> None:
        """Observe each of some values."""
        bounds = self._upper_bounds
        counts = np.bincount(np.searchsorted(bounds, values), minlength=len(bounds))
        for bucket, count in zip(self._buckets, counts.tolist(), strict=True):
            bucket.inc(count)
        self._sum.inc(float(values.sum(dtype=np.float64)))


class Metrics:
    """The gateway's instruments; dashboards depend on their names. With traces, a phase is a span, too."""

    def __init__(self, version: str, traces: Traces | None = None) -> None:
        self.registry = registry = CollectorRegistry()
        self._traces = traces

        # Looking up a child takes longer than using it, and there are few: those of counters and histograms are kept.
        def counter(name: str, meaning: str, *labels: str) -> Counter:
            found = Counter(f"petrov_{name}_total", meaning, labels, registry=registry)
            found.labels = cache(found.labels)  # type: ignore[method-assign]
            return found

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"petrov_{name}", meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, *labels: str, buckets: Sequence[float] = _SECONDS) -> Distribution:
            found = Distribution(f"petrov_{name}", meaning, labels, buckets=buckets, registry=registry)
            found.labels = cache(found.labels)  # type: ignore[method-assign]
            return found

        # Requests
        self.request_seconds = histogram(
            "request_duration_seconds",
            "Time from the request line to the end of the response.",
            *("model", "route", "code"),
        )
        self.request_bytes = histogram("request_bytes", "Size of request bodies.", buckets=_BYTES)
        self.rejected = counter("rejected", "Requests that ended in a problem.", "reason")
        list(map(self.rejected.labels, KINDS))  # from 0 on: a rate does not see the step with which a series begins
        self.inflight = gauge("inflight_requests", "Requests in flight.")
        self.inflight_limit = gauge("inflight_requests_limit", "Predictions that may be in flight at one time.")
        self.inflight_predictions, self.inflight_bytes, self.inflight_bytes_limit = (
            gauge("inflight_predictions", "Predictions in flight, which have a limit."),
            gauge("inflight_bytes", "Memory of all requests, with their arrays and responses."),
            gauge("inflight_bytes_limit", "Memory that all requests may take at one time."),
        )
        self.key_fields = counter("key_fields", "Samples requested with each API key.", "key")

        # Predictions
        phases = "Parts of a prediction: parse, triton, encode."
        self.phase_seconds = histogram("phase_duration_seconds", phases, "model", "grid", "phase", buckets=_PHASES)
        self.triton_seconds = histogram("triton_duration_seconds", "One call of Triton.", "model")
        self.fields = counter("fields", "Samples predicted.", "model", "grid")
        self.frames = counter("frames", "Frames of streamed rollouts, of every sample.", "model")
        self.batch_fields = histogram("batch_fields", "Samples in one call of Triton.", "model", buckets=_FIELDS)
        self.model_failures = counter(
            "model_failures",
            "Predictions that a version of a model failed on, some samples of a partial one included.",
            *("model", "version", "reason"),
        )
        self.inversions = gauge("inflight_inversions", "Inversions that wait or run.")
        self.ended_inversions = counter("inversions", "Inversions by their final state.", "state")

        # Quality
        self.outside = counter("outside", "Samples outside of a model's training distribution.", "model")
        self.solved_by = counter("solved_by", "Samples by what computed them.", "model", "by")
        self.error_bound = histogram("error_bound", "Guaranteed relative errors.", "model", buckets=_ERRORS)
        self.error_estimate = histogram("error_estimate", "Calibrated relative errors.", "model", buckets=_ERRORS)
        misfits = "Relative L2 distances of inverse models' inputs to the forward solutions of their outputs."
        self.misfit = histogram("misfit", misfits, "model", buckets=_ERRORS)
        errors = "Relative L2 distances to the classical solution on the same grid, for a share of the predictions."
        self.true_error = histogram("true_error", errors, "model", buckets=_ERRORS)

        # Service
        self.ready = gauge("ready", "Whether every model but new ones is served and the gateway is not shutting down.")
        newest_served = gauge(
            "newest_version_served", "Whether the newest version of a model in the repository is served.", "model"
        )
        self.endpoint_up = gauge("endpoint_up", "Whether requests are sent to a Triton.", "endpoint")
        self.retries = counter("retries", "Calls repeated after their connection to Triton was lost.", "endpoint")
        self.watcher_restarts = counter(
            "watcher_restarts", "Restarts of a watcher after an unexpected error.", "watcher"
        )
        self.keys_current = gauge("keys_current", "Whether the keys in use are those of the file; 1 without one.")
        ProcessCollector(registry=registry)  # memory, files and start time
        Info("petrov_build", "What is running.", registry=registry).info({"version": version})
        self._device = gauge("device", "Cards that the local Triton computes on; 1 for the processor.", "kind", "name")
        self._device_memory = gauge("device_memory_bytes", "Memory of the first card; 0 for the processor.")
        loads = counter("model_loads", "Loads of models on request of this gateway.", "model")
        why = "Unloads of models: since no request needed them (idle), or for others (memory)."
        unloads = counter("model_unloads", why, "model", "reason")
        models_bytes = gauge(
            "models_memory_bytes", "Memory of all loaded models, as measured or estimated; 0 without a budget."
        )
        models_limit = gauge("models_memory_limit_bytes", "Budget for the memory of models; 0 without one.")
        self.catalogue = Instruments(newest_served, loads, unloads, models_bytes, models_limit)

    def device(self, device: Device) -> None:
        self._device.clear()
        self._device.labels(device.kind, device.name).set(max(device.count, 1))
        self._device_memory.set(device.memory_bytes)

    @contextmanager
    def phase(self, model: str, grid: str, phase: str) -> Iterator[Mapping[str, str]]:
        """Return a context that is timed, as a span, too; it yields the headers of the trace for other servers."""
        start = time.perf_counter()
        try:
            with self._traces.phase(phase, model, grid) if self._traces else nullcontext(dict[str, str]()) as headers:
                yield headers
        finally:
            seconds = time.perf_counter() - start
            self.phase_seconds.labels(model, grid, phase).observe(seconds)
            if phase == "triton":
                self.triton_seconds.labels(model).observe(seconds)

    def parsed(self, model: str, grid: str, seconds: float) -> None:
        """Record the time of parsing, which begins before the grid is known."""
        self.phase_seconds.labels(model, grid, "parse").observe(seconds)
        if self._traces:
            self._traces.past("parse", model, grid, seconds)

    def quality(self, card: Card, quality: Quality) -> None:
        """Record what is known about the errors of a batch of outputs; of trajectories their worst frame.

        Intervals of numbers have units, so that no histogram of several models can hold them.
        """
        model, quality = card.model, quality.worst
        for by, count in zip(BY, np.bincount(quality.by, minlength=len(BY)).tolist(), strict=True):
            if count:
                self.solved_by.labels(model, by).inc(count)
        if quality.outside is not None:
            self.outside.labels(model).inc(int(quality.outside.sum()))
        histograms = {ERROR_BOUND: self.error_bound, MISFIT: self.misfit, ERROR_ESTIMATE: self.error_estimate}
        for name, histogram in histograms.items():
            if name in quality.numbers and card.interval_of(name) is None:
                values = quality.numbers[name]
                finite = values[np.isfinite(values)]  # an infinite bound would make every later sum infinite
                if finite.size:
                    histogram.labels(model).observe_all(finite)

    def text(self) -> bytes:
        return generate_latest(self.registry)


_SMALL_BYTES = 2**16  # as many as a connection takes at once


class Access:
    """ASGI middleware that identifies, measures and logs requests.

    `admission` counts what they hold until the client has read the response; names that `knows` does not know share one
    label.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, admission: Admission, knows: Callable[[str], bool]) -> None:
        self._app = app
        self._admission = admission
        self._metrics = metrics
        self._knows = knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = request_id(Headers(scope=scope).get(ID_HEADER, ""))
        ticket = Ticket(self._admission)
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"  # of the routes
        scope.setdefault("state", {}).update(request_id=name, ticket=ticket, caller=ANYONE, path=path)
        drained = scope.get("extensions", {}).get(DRAINED)
        status, written = CLIENT_CLOSED, 0

        async def sending(message: Message) -> None:
            nonlocal status, written
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[ID_HEADER] = name
            written += (size := len(message.get("body", b"")))
            ticket.add(size)
            await send(message)
            if drained and size > _SMALL_BYTES:
                await drained["call"]()
            ticket.add(-size)

        start = time.perf_counter()
        with self._metrics.inflight.track_inprogress():
            try:
                await self._app(scope, receive, sending)
            except asyncio.CancelledError:  # by the server, when the time to drain is over
                if status != CLIENT_CLOSED:
                    raise
                problem = Problem("unavailable", "the service is shutting down", headers={"Connection": "close"})
                await refusal(problem, path, self._metrics.rejected)(scope, receive, sending)
            except Exception:
                logger.exception("%s %s id=%s", scope["method"], quote(path[:128]), name)
                if status != CLIENT_CLOSED:
                    raise  # a response has begun: the server closes the connection
                problem = Problem("internal-error", f"an internal error; the log has it under the id {name}")
                await refusal(problem, path, self._metrics.rejected)(scope, receive, sending)
            finally:
                ticket.end()
                state = scope["state"]
                route = getattr(scope.get("route"), "path", None) or state.get("route", UNKNOWN)
                model = state.get("model") or scope.get("path_params", {}).get("model", "")
                Entry(
                    request_id=name,
                    method=scope["method"],
                    route=route,
                    model=model if self._knows(model) else UNKNOWN,
                    version=str(state.get("version", "")),
                    status=str(status),
                    problem=state.get(PROBLEM, ""),
                    seconds=time.perf_counter() - start,
                    bytes_in=ticket.received,
                    bytes_out=written,
                    client=(scope.get("client") or ("",))[0],
                    key=state["caller"].name,
                ).record(self._metrics, quote(path[:128]))
