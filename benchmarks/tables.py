"""The tables of the documentation, made from the committed results; `benchmarks.pages` writes them into the pages.

Results are the JSON files of the runs, and the cards of the models.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Row, grouped, mean, over_seeds

ROOT = Path(__file__).parents[1]
DOCS, CHECKPOINTS = ROOT / "docs", ROOT / "checkpoints"
CLOSE = 1.05  # of the least error: what is more exact than that is not worth its time
README = "summary"  # the table of the README, a part of another one

Cells = Iterable[Sequence[str]]
Make = Callable[[Any], Cells]

GRID = "grid | fields | relative L2 | standard error | median | worst | solver's L2"
ROLLOUT = "method | milliseconds per frame | frame 1 | frame 5 | frame 10 | frame 20"
STEP = "attention | tokens | forward ms | backward ms | peak MB | forward, backward and memory grow as"
TRAINED = (
    "problem | network | processor seconds | test error | seeds | Petrov's error / this one's | parameters | epochs"
)
TYPES = "attention | seeds | score | spread | parameters | step in ms | peak in MB"


class Table(NamedTuple):
    """A table: its title, header and cells, made from a file of results or, without one, from the cards."""

    title: str
    file: str
    header: tuple[str, ...]
    cells: Make


TABLES: dict[str, Table] = {}


def made_of(name: str, file: str, title: str, header: str) -> Callable[[Make], Make]:
    """Add a table by its name: its cells are those that the function makes of the results in a file of `docs`."""

    def added(cells: Make) -> Make:
        TABLES[name] = Table(title, file, tuple(header.split(" | ")), cells)
        return cells

    return added


def table(name: str) -> tuple[Sequence[str], Cells]:
    """Return header and cells of a table."""
    if name.startswith("memorisation "):
        return memorisation()[name]
    found = TABLES[name]
    return found.header, found.cells(json.loads((DOCS / found.file).read_text()) if found.file else cards())


def markdown(header: Sequence[str], cells: Cells) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *cells]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines) + "\n"


def scientific(value: float | None) -> str:
    """Return an error with three digits."""
    return "" if value is None else f"{value:.2e}".replace("e-0", "e-") if value else "0"


def uncertain(mean: float, error: float, digits: int = 1) -> str:
    """Return a mean with its standard error."""
    return f"{mean:.{digits}e} ± {error:.0e}"


def milliseconds(seconds: float) -> str:
    """Return milliseconds with two digits, or without decimals and with a separator of thousands."""
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.01 else f"{1e3 * seconds:.2g}"


def square(points: int) -> str:
    """Return a grid of as many points along both axes."""
    return f"{points} x {points}"


def cards() -> dict[str, Any]:
    """Return the cards of the released models by name."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(CHECKPOINTS.glob("*/card.json"))}


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
        own = (scientific(network["error"]), milliseconds(network["seconds"]))
        other = (best["method"], scientific(best["error"]), milliseconds(best["seconds"]))
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
    "family | finite volumes | darcy | largest ratio | error bound | bound divided by distance | below the estimate"
    " | outside | solved by",
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


@made_of("tolerance", "bench/tolerance.json", "What a smaller bound costs", "grid | response | bound | error | ms")
def tolerance(found: Row) -> Cells:
    """Return a row per grid and response."""
    for row in found["rows"]:
        bound = "" if row["bound"] is None else f"{row['bound']:.1e}"
        yield square(row["grid"]), row["method"], bound, scientific(row["error"]), milliseconds(row["seconds"])


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
            f"{center:.2f} ± {doubt:.2f}", scientific(statistics.fmean(errors)),
        )  # fmt: skip


def case(row: Row) -> str:
    """Return the grid of a card's row, and the noise, source or conditions where there were any."""
    noise = f", {100 * row['noise']:g} % noise" if row.get("noise") else ""
    source = f", {row['source']} source" if "source" in row else ""
    frame = f", frame {row['frame']:g}, which is the worst" if "frame" in row else ""
    conditions = f", {row['conditions']}" if "conditions" in row else ""
    return " x ".join(map(str, row["grid"])) + noise + source + conditions + frame


# Accuracy.


@made_of("accuracy", "", "Accuracy of the released models", f"model | {GRID}")
def accuracy(found: Row) -> Cells:
    """Return a row per released model of fields and grid, beside the classical solver."""
    for name, card in found.items():
        if "errors" in card and "rollout" not in card:
            for network, solver in paired(card):
                yield (name, *network, *solver)


def paired(card: Row) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield the figures of a network on each grid, and those of the solver."""
    classical = {case(row): row for row in card.get("classical", ())}
    for row in card["errors"]:
        other = classical.get(case(row), {})
        spread, median, worst = (scientific(row.get(key)) for key in ("standard_error", "median", "worst"))
        own = (case(row), str(row["fields"]), scientific(row["relative_l2"]), spread, median, worst)
        yield own, (scientific(other.get("relative_l2")),)


@made_of("neuralop", "neuralop.json", "neuraloperator's data set", GRID)
def neuralop(found: Row) -> Cells:
    """Return the card of a model of neuraloperator's data set."""
    for network, solver in paired(found):
        yield (*network, *solver)


@made_of(
    "ablation",
    "ablation.json",
    "Ablation of a Darcy network",
    "change | parameters | relative L2 | worst | gradient | minutes",
)
def ablation(found: Row) -> Cells:
    """Return a row per change of a recipe."""
    for row in found["rows"]:
        errors = (scientific(row[key]) for key in ("relative_l2", "worst", "relative_h1"))
        yield (row["change"], f"{row['parameters']:,}", *errors, f"{row['seconds'] / 60:.0f}")


@made_of(
    "training",
    "",
    "Trainings of the released models",
    "model | parameters | samples | epochs | minutes of one core | processor",
)
def training(found: Row) -> Cells:
    """Return what the training of each released model of fields and trajectories took."""
    for name, card in found.items():
        run = card["training"]
        if run["epochs"] and "fields" in run:
            parameters = f"{card['checkpoint']['parameters']:,}"
            minutes = f"{run['seconds'] / 60:.0f}"
            yield name, parameters, f"{run['fields']:,}", str(run["epochs"]), minutes, run.get("processor", "")


# Trained comparisons.


def trained(row: Row) -> tuple[str, str]:
    """Return what a training is shown by: its problem and the title of its network or choice."""
    return row["training"]["problem"], row["training"]["title"]


def tested(found: Row) -> list[Row]:
    """Return the rows of test samples, one per seed: what is tuned or rolled out anew replaces what was before."""
    rows = [row for row in found["rows"] if row["training"]["split"] == "test"]
    return [*{(*trained(row), row["training"]["seconds"], row["training"]["seed"]): row for row in rows}.values()]


@made_of(
    "few-samples",
    "few-samples.json",
    "Choices for few samples",
    "problem | training samples | choice | validation error | difference to the first | seeds | steps",
)
def few_samples(found: Row) -> Cells:
    """Return a row per problem and choice: means over the seeds, on the same validation samples."""
    first: dict[str, float] = {}
    for (problem, title), rows in grouped(found["rows"], trained).items():
        mean, spread, steps = (
            statistics.fmean(row["result"][key] for row in rows) for key in ("error", "standard_error", "steps")
        )
        difference = mean / first.setdefault(problem, mean) - 1
        change = f"{100 * difference:+.0f} %" if difference else ""
        count = str(rows[0]["training"]["samples"])
        yield (problem, count, title, uncertain(mean, spread, 2), change, str(len(rows)), f"{steps:.0f}")


@made_of(
    "transfer",
    "transfer.json",
    "Few samples from an earlier model and after coarse samples",
    "problem | training samples | way | test error | beside from scratch | seeds | steps",
)
def transfer(found: Row) -> Cells:
    """Return a row per problem, number of samples and way: means over the seeds, each of which has its own samples."""
    finals = [row for row in found["rows"] if row["training"]["split"] == "test"]
    scratch: dict[tuple[str, int, int], float] = {}

    def key(row: Row) -> tuple[str, int, str]:
        return row["training"]["problem"], row["training"]["candidate"]["samples"], row["training"]["title"]

    for row in finals:
        if key(row)[2] == "from scratch":
            scratch[(*key(row)[:2], row["training"]["seed"])] = row["result"]["error"]
    for (problem, count, title), rows in sorted(grouped(finals, key).items(), key=lambda each: each[0][:2]):
        error, spread = mean(np.array([row["result"]["error"] for row in rows]))
        spread = spread if len(rows) > 1 else rows[0]["result"]["standard_error"]
        ratios = [
            row["result"]["error"] / scratch[problem, count, row["training"]["seed"]]
            for row in rows
            if title != "from scratch" and (problem, count, row["training"]["seed"]) in scratch
        ]
        change, doubt = mean(100 * (np.array(ratios) - 1)) if ratios else (0.0, 0.0)
        beside = f"{change:+.0f}{f' ± {doubt:.0f}' if len(ratios) > 1 else ''} %" if ratios else ""
        steps = statistics.fmean(row["result"]["steps"] for row in rows)
        yield (problem, str(count), title, uncertain(error, spread, 2), beside, str(len(rows)), f"{steps:.0f}")


@made_of(
    "disturbed",
    "disturbed.json",
    "Trainings that are killed or slowed",
    "problem | training | test error | error / undisturbed | seeds | epochs | seconds on the clock",
)
def disturbed(found: Row) -> Cells:
    """Return a row per problem and way; ratios of mean errors are geometric means over the seeds."""
    groups = grouped(found["rows"], trained)
    for (problem, title), rows in groups.items():
        error, spread = over_seeds(np.array([row["result"]["errors"] for row in rows]))
        alone = {row["training"]["seed"]: row["result"]["error"] for row in groups[problem, "undisturbed"]}
        ratios = [row["result"]["error"] / alone[row["training"]["seed"]] for row in rows]
        center, doubt = mean(np.log(ratios))
        beside = "" if title == "undisturbed" else f"{math.exp(center):.2f} ± {math.exp(center) * doubt:.2f}"
        epochs, clock = (statistics.fmean(row["result"][key] for row in rows) for key in ("epochs", "wall_seconds"))
        yield (problem, title, uncertain(error, spread, 2), beside, str(len(rows)), f"{epochs:.0f}", f"{clock:.0f}")


@made_of("own-data", "own-data.json", "Networks on other projects' data", TRAINED)
@made_of("darcy85", "darcy85.json", "Networks on the benchmark of Darcy flow", TRAINED)
@made_of("points", "points.json", "Networks on meshes and points", TRAINED)
def networks(found: Row) -> Cells:
    """Return a row per problem, network and time: means over seeds and test samples.

    A ratio is a geometric mean over the test samples, paired.
    """
    finals = [row for row in found["rows"] if row["training"]["split"] == "test"]
    groups = grouped(finals, lambda row: (*trained(row), row["training"]["seconds"]))
    for (problem, title, seconds), rows in groups.items():
        results = [row["result"] for row in rows]
        errors = np.array([each["errors"] for each in results])
        ours = groups.get((problem, "Petrov", seconds), ())
        ratio = ratio_to(ours, errors) if title != "Petrov" and ours else ""
        facts = ["", ""]
        if "epochs" in results[0]:  # the floor is not trained
            facts = [f"{results[0]['parameters']:,}", f"{statistics.fmean(each['epochs'] for each in results):.0f}"]
        time = f"{seconds:g}" if facts[0] else ""
        yield (problem, title, time, uncertain(*over_seeds(errors)), str(len(rows)), ratio, *facts)


@made_of(
    "amounts",
    "amounts.json",
    "Networks on growing numbers of samples",
    "problem | training samples | network | processor seconds | test error | Petrov's error / this one's",
)
def by_amount(found: Row) -> Cells:
    """Return a row per problem, number of samples and network; a ratio is as in `networks`."""
    groups = grouped(found["rows"], lambda row: (*trained(row), row["training"]["samples"]))
    for (problem, title, count), rows in sorted(groups.items(), key=lambda each: (each[0][0], each[0][2])):
        errors = np.array([row["result"]["errors"] for row in rows])
        time, ours = f"{rows[0]['training']['seconds']:g}", groups[problem, "Petrov", count]
        ratio = "" if title == "Petrov" else ratio_to(ours, errors)
        yield (problem, str(count), title, time, uncertain(*over_seeds(errors)), ratio)


def ratio_to(ours: Sequence[Row], errors: NDArray[Any]) -> str:
    """Return the ratio of our errors to others `[seed, sample]`: a geometric mean over the same test samples."""
    return ratio(np.array([row["result"]["errors"] for row in ours]), errors)


def ratio(ours: NDArray[Any], others: NDArray[Any]) -> str:
    """Return the ratio of errors `[seed, sample]` to others: a geometric mean over the same samples and seeds."""
    both = min(len(ours), len(others))
    center, spread = over_seeds(np.log(ours[:both]) - np.log(others[:both]))
    return f"{math.exp(center):.2f} ± {math.exp(center) * spread:.2f}"


@made_of(
    "mesh-trajectories",
    "mesh-trajectories.json",
    "Networks on trajectories on meshes",
    "problem | network | processor seconds | frame 1 | frame 10 | frame 50 | seeds | Petrov's error / this one's at 10 "
    "| at 50 | finite | parameters",
)
def mesh_trajectories(found: Row) -> Cells:
    """Return a row per problem, network and time: means over seeds and test trajectories, and paired ratios."""

    def errors(rows: Sequence[Row], frame: str) -> NDArray[Any]:
        return np.array([row["result"]["errors"][frame] for row in rows])

    def time_of(row: Row) -> float:  # none of what is not trained, whose rows are all the same
        return float(row["training"]["seconds"]) if "parameters" in row["result"] else 0.0

    groups = grouped(tested(found), lambda row: (*trained(row), time_of(row)))
    ours = {key: rows for key, rows in groups.items() if key[1] == "Petrov"}
    problems = [*dict.fromkeys(problem for problem, _, _ in groups)]
    for (problem, title, seconds), rows in sorted(
        groups.items(), key=lambda group: (problems.index(group[0][0]), group[0][2])
    ):
        has_training = seconds > 0
        rows = rows if has_training else rows[:1]  # noqa: PLW2901
        # What is not trained is beside every seed of our first time.
        known = [each for key, each in ours.items() if key[0] == problem and (key[2] == seconds or not has_training)]
        beside = known[0] if known and title != "Petrov" else None
        others = rows if has_training or not beside else rows[:1] * len(beside)
        ratios = [ratio(errors(beside, each), errors(others, each)) if beside else "" for each in ("10", "50")]
        least = min(rows, key=lambda row: row["result"]["finite"])
        count, frames = least["result"]["samples"], least["training"]["candidate"]["frames"]
        lasting = f"{least['result']['finite']} of {count} for {frames} frames"
        shown = [uncertain(*over_seeds(errors(rows, each)), 1) for each in ("1", "10", "50")]
        time, size = (f"{seconds:g}", f"{rows[0]['result']['parameters']:,}") if has_training else ("", "")
        yield (problem, title, time, *shown, str(len(rows)), *ratios, lasting, size)


@made_of("listops", "research/listops.json", "Attention types on ListOps", TYPES)
@made_of("darcy", "research/darcy.json", "Attention types on Darcy's flow", TYPES)
def attention_types(found: Row) -> Cells:
    """Return a row per type of attention that has as many seeds as any other; costs are medians over its seeds."""
    groups = grouped(found["rows"], lambda row: row["attention"])
    seeds = max(map(len, groups.values()))

    def score(value: float | None, metric: str) -> str:
        return "" if value is None else f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.2e}"

    for kind, rows in groups.items():
        if len(rows) == seeds:
            metric, scores = rows[0]["metric"], [row["score"] for row in rows]
            mean, spread = statistics.mean(scores), statistics.stdev(scores) if seeds > 1 else None
            costs = (statistics.median(row[key] for row in rows) for key in ("step_milliseconds", "peak_megabytes"))
            figures = (*(score(each, metric) for each in (mean, spread)), f"{rows[0]['parameters']:,}")
            yield (kind, str(seeds), *figures, *(f"{cost:.0f}" for cost in costs))


@made_of(
    "trajectories",
    "own-trajectories.json",
    "Networks on exponax's trajectories",
    "trajectories | network | parameters | processor seconds | seeds | frame 1 | frame 10 | frame 20 | frame 40",
)
def own_trajectories(found: Row) -> Cells:
    """Return a row per set, network and time of training: means over its seeds, or over the trajectories of one."""
    groups = grouped(tested(found), lambda row: (*trained(row), row["training"]["seconds"]))
    for (problem, title, seconds), each in groups.items():
        errors, single = np.array([row["result"]["errors"] for row in each]), each[0]["result"]

        def shown(frame: int, errors: NDArray[Any] = errors, single: Row = single) -> str:
            if frame > errors.shape[1]:
                return ""
            center, spread = mean(errors[:, frame - 1])
            if len(errors) == 1:
                [spread] = single.get("standard_errors", [0.0] * frame)[frame - 1 : frame]
            return uncertain(center, spread) if spread else f"{center:.1e}"

        yield (
            problem,
            title,
            f"{each[0]['result']['parameters']:,}",
            f"{seconds:g}",
            str(len(each)),
            *map(shown, (1, 10, 20, 40)),
        )


def rollouts(name: str) -> Callable[[Row], Cells]:
    """Return the table of a released model: of its solver's settings those that no cheaper one beats."""

    def cells(found: Row) -> Cells:
        def is_setting(row: Row) -> bool:
            return str(row["method"]).startswith("solver,")

        rows = [row for row in found[name] if not is_setting(row)]
        best = 1.0  # a solver that overflows is not shown
        for row in sorted(filter(is_setting, found[name]), key=lambda row: float(row["milliseconds"])):
            if row["errors"][0] < best:
                best = row["errors"][0]
                rows.append(row)
        for row in rows:
            errors = (f"{row['errors'][n - 1]:.2g} ± {row['standard_errors'][n - 1]:.1g}" for n in (1, 5, 10, 20))
            yield (row["method"], f"{row['milliseconds']:.3g}" if row["milliseconds"] else "", *errors)

    return cells


@made_of(
    "inversion",
    "inversion.json",
    "Inversion from sensors",
    "permeability | forward model | error of the mean | of the optimum | coverage of 90 % | steps | s",
)
def inversion(found: Row) -> Cells:
    """Return means over the cases, a row per prior and method."""
    for names, rows in grouped(found["rows"], lambda row: (row["prior"], row["method"])).items():
        spread = statistics.stdev(row["error"] for row in rows) / len(rows) ** 0.5 if len(rows) > 1 else 0.0
        mean = {key: statistics.fmean(row[key] for row in rows) for key in rows[0] if key not in {"prior", "method"}}
        figures = (f"{mean['coverage']:.2f}", f"{mean['iterations']:.0f}", f"{mean['seconds']:.1f}")
        yield (*names, f"{mean['error']:.3f} ± {spread:.3f}", f"{mean['optimum']:.3f}", *figures)


# Profiles of attention.


@made_of(
    "claims",
    "bench/attention.json",
    "The paper's claims about cost",
    "claim | tokens | form | baseline | measured | published",
)
def claims(found: Row) -> Cells:
    """Return the paper's claims beside what was measured."""
    from benchmarks import profile  # noqa: PLC0415 -- imports torch

    for row in profile.claims(found["rows"]):
        scale, unit = (1e-6, "MB") if row["unit"] == "less" else (1e3, "ms")
        costs = (
            f"{row[k]}: {scale * cost:.0f} {unit}" for k, cost in zip(("form", "baseline"), row["costs"], strict=True)
        )
        yield (row["title"], f"{row['length']:,}", *costs, f"{row['found']:.0%} {row['unit']}", row["published"])


@made_of("attention", "bench/attention.json", "The cost of attention types", STEP)
@made_of("lengths", "research/lengths.json", "The cost of trained kernels", STEP)
def costs(found: Row) -> Cells:
    """Return time and memory of a step per form at the largest length, and their growth."""
    from benchmarks import profile  # noqa: PLC0415 -- imports torch

    longest, grown = max(row["length"] for row in found["rows"]), profile.growth(found["rows"])
    for row in (each for each in found["rows"] if each["length"] == longest):
        figures = {cost: of(row) for cost, of in profile.COSTS.items()}
        powers = ", ".join(f"n^{power:.2f}" for power in grown.get(row["form"], {}).values())
        times = (f"{1e3 * figures[cost]:.0f}" for cost in ("forward", "backward"))
        yield (row["form"], f"{longest:,}", *times, f"{figures['memory'] / 1e6:.0f}", powers)


def memorisation() -> dict[str, tuple[Sequence[str], Cells]]:
    """Return all tables of the experiments on memorisation, by their names on the page."""
    from research.memorisation.curves import cells  # noqa: PLC0415 -- imports torch
    from research.memorisation.trials import Record  # noqa: PLC0415

    records = [Record.model_validate_json(path.read_text()) for path in sorted((DOCS / "memorisation").glob("*.json"))]
    return {f"memorisation {each.experiment}: {found.what}": found[1:] for each in records for found in cells(each)}


made_of("kuramoto_sivashinsky", "trajectories.json", "Kuramoto-Sivashinsky", ROLLOUT)(rollouts("kuramoto_sivashinsky"))

made_of("navier_stokes", "trajectories.json", "Navier-Stokes", ROLLOUT)(rollouts("navier_stokes"))
