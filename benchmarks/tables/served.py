"""Tables of what is served: errors against time, the service, derivatives, and what is known about errors."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from benchmarks.harness import Row, mean
from benchmarks.tables.table import README, Cells, case, made_of, milliseconds, precise, square, uncertain
from training.evaluation.rows import scientific

CLOSE = 1.05  # of the least error: what is more exact than that is not worth its time


# Error against time.


def beside(rows: Sequence[Row]) -> Iterator[tuple[Row, list[Row]]]:
    """Yield each network with the methods on the same input."""
    for network in (row for row in rows if row["method"] == "network"):
        same = [row for row in rows if (row["model"], row["input"]) == (network["model"], network["input"])]
        yield network, [row for row in same if row is not network]


def baseline(network: Row, methods: Sequence[Row]) -> Row:
    """Return the fastest classical method that is as accurate as the network, or else nearly the most accurate one."""
    enough = max(network["error"], CLOSE * min(row["error"] for row in methods))
    return min((row for row in methods if row["error"] <= enough), key=lambda row: float(row["seconds"]))


@made_of(
    README,
    "bench/methods.json",
    "Networks and the best classical methods",
    "model | input | fields | network error | network ms | baseline | baseline error | baseline ms",
)
def summary(found: Row) -> Cells:
    """Return each network beside the best classical method at its accuracy."""
    for network, methods in beside(found["rows"]):
        best = baseline(network, methods)
        error, least = (precise(row["error"], row["standard_error"]) for row in (network, best))
        own, other = (error, milliseconds(network["seconds"])), (best["method"], least, milliseconds(best["seconds"]))
        yield (network["model"], network["input"], str(network["fields"]), *own, *other)


@made_of(
    "methods", "bench/methods.json", "Error against time", "model | input | method | fields | error | ms | dominated by"
)
def methods(found: Row) -> Cells:
    """Return a row per method, with the fastest one that is both faster and more accurate."""
    for row in found["rows"]:
        same = [each for each in found["rows"] if (each["model"], each["input"]) == (row["model"], row["input"])]
        better = [each for each in same if each["seconds"] < row["seconds"] and each["error"] < row["error"]]
        winner = min(better, key=lambda each: float(each["seconds"]), default={"method": ""})["method"]
        error = uncertain(row["error"], row["standard_error"], 2)
        yield row["model"], row["input"], row["method"], str(row["fields"]), error, milliseconds(row["seconds"]), winner


# The service and derivatives.


@made_of(
    "service",
    "bench/service.json",
    "Throughput of the service and of others",
    "in flight | route | fields/s | p50 ms | p95 ms | p99 ms | refused",
)
def service(found: Row) -> Cells:
    """Return a row per load and route."""
    for row in found["rows"]:
        cuts = (f"{1e3 * cut:.0f}" for cut in row["percentiles"])
        yield (str(row["in_flight"]), row["route"], f"{row['fields_per_second']:.1f}", *cuts, str(row["refused"]))


@made_of(
    "overhead",
    "bench/overhead.json",
    "The overhead of the gateway",
    "grid | route to the identity model | p50 ms | p95 ms | more than Triton, ms | requests/s, 16 in flight",
)
def overhead(found: Row) -> Cells:
    """Return a row per grid and route to the identity model, beside Triton's own."""
    for row in found["rows"]:
        [direct] = [each for each in found["rows"] if (each["grid"], each["route"]) == (row["grid"], "Triton, gRPC")]
        more = f"{1e3 * (row['p50'] - direct['p50']):.2f}"
        rate = f"{row['per_second']:.0f}" if "per_second" in row else ""  # measured at one grid
        yield square(row["grid"]), row["route"], f"{1e3 * row['p50']:.2f}", f"{1e3 * row['p95']:.2f}", more, rate


@made_of(
    "wire",
    "bench/wire.json",
    "Large bodies at one time",
    "format | bodies, MiB each | served | peak above the start, MiB | live, 99 % and worst, ms | empty server, ms",
)
def wire(found: Row) -> Cells:
    """Return a row per format."""
    for row in found["rows"]:
        live, empty = (" and ".join(f"{1e3 * each:.0f}" for each in row[name]) for name in ("live", "empty"))
        bodies = f"{row['bodies']} x {row['body_bytes'] / 2**20:.1f}"
        served = str(row["statuses"].get("200", 0))
        yield row["format"], bodies, served, f"{row['peak_bytes'] / 2**20:.0f}", live, empty


@made_of(
    "nodes",
    "bench/nodes.json",
    "Three nodes while one of them fails",
    "what happens | requests | failed | repeated by Envoy | p50, ms | p99, ms | p99 / calm p99 | longest, s",
)
def nodes(found: Row) -> Cells:
    """Return a row per trouble."""
    for row in found["rows"]:
        p50, p99, longest = row["seen"]
        counts = (str(row[name]) for name in ("requests", "failed", "repeated"))
        times = f"{1e3 * p50:.0f}", f"{1e3 * p99:.0f}", f"{p99 / row['calm'][1]:.1f}", f"{longest:.1f}"
        yield row["trouble"], *counts, *times


@made_of(
    "load",
    "bench/load.json",
    "The queue of three nodes, measured and simulated",
    "load | requests | between batches, ms | mean, s: measured | simulated | ratio"
    " | p95, s: measured | simulated | ratio | in the queue, s: measured | simulated"
    " | requests per batch: measured | simulated | instances busy: measured | simulated",
)
def load(found: Row) -> Cells:
    """Return a row per load."""
    for row in found["rows"]:
        pairs = [(row["measured"][which], row["simulated"][which]) for which in (0, 2)]
        cells = [cell for one, other in pairs for cell in (f"{one:.2f}", f"{other:.2f}", f"{one / other:.2f}")]
        cells += [f"{each:.2f}" for name in ("queued", "sizes") for each in row[name]]
        cells += [f"{100 * each:.0f} %" for each in row["busy"]]
        between = f"{1e3 * row['between_seconds']:.0f}"
        yield f"{100 * row['load']:.0f} %", str(row["requests"]), between, *cells


@made_of(
    "plan",
    "bench/plan.json",
    "Nodes for a number of requests per second",
    "model | grid | file, MB | memory, MB | a request alone, ms | in a full batch, ms | a node computes, 1/s"
    " | load of 4 nodes | queue there, ms | of the computation | nodes for 1,000/s | nodes for 100,000/s",
)
def plan(found: Row) -> Cells:
    """Return a row per model and grid."""
    for row in found["rows"]:
        times = f"{1e3 * row['seconds'][0]:.2f}", f"{1e3 * row['seconds'][-1] / row['batch']:.2f}"
        sizes = (f"{row[name] / 1e6:.1f}" for name in ("file_bytes", "resident_bytes"))
        load = f"{100 * row['loads']['4']:.0f} %", f"{1e3 * row['queued']:.1f}", f"{100 * row['queued_share']:.0f} %"
        counts = (f"{each:,}" for each in row["nodes"].values())
        yield row["model"], " x ".join(map(str, row["grid"])), *sizes, *times, f"{row['per_node']:.0f}", *load, *counts


@made_of(
    "derivatives",
    "bench/derivatives.json",
    "The cost of derivatives",
    "model | input | prediction, ms | value and gradient, ms | value and tangent, ms | gradient / prediction",
)
def derivatives(found: Row) -> Cells:
    """Return a row per model and input."""
    for row in found["rows"]:
        times = [f"{1e3 * row[kind]:.1f}" for kind in ("prediction", "gradient", "tangent")]
        yield (row["model"], row["input"], *times, f"{row['gradient'] / row['prediction']:.1f}")


# What is known about errors.


@made_of(
    "families",
    "bench/families.json",
    "Bounds and estimates of darcy by family",
    "family | finite volumes | darcy | largest ratio | largest error bound | bound divided by distance"
    " | below the estimate | outside | solved by",
)
def families(found: Row) -> Cells:
    """Return a row per family: errors at 141 x 141, and the extremes of ratios and bounds over all grids."""
    for family in dict.fromkeys(row["family"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["family"] == family]
        shown = next(row for row in rows if row["grid"] == 141)
        errors = (
            uncertain(shown[name], shown[spread])
            for name, spread in (("finite_volumes", "finite_volumes_standard_error"), ("error", "standard_error"))
        )
        worst = f"{max(row['ratio'] for row in rows):.2f}"
        quotients = f"{min(row['closest'] for row in rows):.2f} to {max(row['loosest'] for row in rows):.2f}"
        known = [row["covered"] for row in rows if row["covered"] is not None]
        covered = f"{statistics.fmean(known):.2f}" if known else "none"
        outside = f"{statistics.fmean(row['outside'] for row in rows):.2f}"
        by = ", ".join(name for name in shown["solved_by"] if any(row["solved_by"][name] for row in rows))
        yield (family, *errors, worst, f"{shown['error_bound']:.1e}", quotients, covered, outside, by)


@made_of(
    "foreign",
    "bench/foreign.json",
    "Foreign inputs of models with a solver",
    "model | inputs | network | method | response | continued",
)
def foreign(found: Row) -> Cells:
    """Return a row per model and family of inputs."""
    for row in found["rows"]:
        errors = [uncertain(row[name], row[f"{name}_standard_error"]) for name in ("network", "method", "response")]
        yield row["model"], row["family"], *errors, f"{row['continued']} of {row['fields']}"


@made_of(
    "tolerance",
    "bench/tolerance.json",
    "What a smaller bound costs",
    "grid | fields | response | largest bound | error | ms",
)
def tolerance(found: Row) -> Cells:
    """Return a row per grid and response."""
    for row in found["rows"]:
        bound = "" if row["bound"] is None else f"{row['bound']:.1e}"
        error = precise(row["error"], row.get("standard_error"))
        yield square(row["grid"]), str(row["fields"]), row["method"], bound, error, milliseconds(row["seconds"])


@made_of(
    "calibration",
    "",
    "Estimates and novelty on test fields",
    "model | grid | fields | error below estimate | mean estimate | mean error | outside",
)
def calibration(found: Row) -> Cells:
    """Return a row per model and grid: how estimates and novelty do on test fields."""
    for name, card in found.items():
        for row in card.get("calibration", {}).get("test", ()):
            known = ["", "", ""]
            if "coverage" in row:
                errors = (scientific(row[key]) for key in ("mean_estimate", "mean_error"))
                spread = f" ± {row['coverage_standard_error']:.2f}" if "coverage_standard_error" in row else ""
                known = [f"{row['coverage']:.2f}{spread}", *errors]
            yield (name, case(row), str(row.get("trajectories", row["fields"])), *known, f"{row['outside']:.2f}")


@made_of(
    "coverage",
    "coverage.json",
    "Estimates of models of few samples",
    "samples | calibration samples | guarantee for one calibration | error below estimate, by seed | mean | mean error",
)
def coverage(found: Row) -> Cells:
    """Return a row per number of samples: the coverage on new ones of every seed's model, and its mean."""
    for samples, rows in groupby(sorted(found["rows"], key=itemgetter("samples")), itemgetter("samples")):
        group = list(rows)
        shares, errors = ([row[key] for row in group] for key in ("coverage", "error"))
        center, doubt = mean(np.array(shares))
        least, most = group[0]["between"]
        each = ", ".join(f"{share:.2f}" for share in shares)
        yield (
            str(samples), str(group[0]["calibration_samples"]), f"{least:.2f} to {most:.2f}", each,
            f"{center:.2f}" + ("" if doubt is None else f" ± {doubt:.2f}"), precise(*mean(np.array(errors))),
        )  # fmt: skip
