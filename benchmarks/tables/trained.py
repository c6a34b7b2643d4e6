"""Tables of trainings beside one another: other networks, numbers of samples, ways to train and types of attention."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Row, grouped, mean, over_seeds
from benchmarks.tables.table import DOCS, Cells, made_of, uncertain
from training.evaluation.rows import scientific

STEP = "attention | tokens | forward ms | backward ms | peak MB | forward, backward and memory grow as"
TRAINED = (
    "problem | network | processor seconds | test error | seeds | Petrov's error / this one's | parameters | epochs"
)
TYPES = "attention | seeds | score | deviation over seeds | parameters | step in ms | peak in MB"


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


def trained(row: Row) -> tuple[str, str]:
    """Return what a training is shown by: its problem and the title of its network or choice."""
    return row["training"]["problem"], row["training"]["title"]


def tested(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of test samples, one per seed: what is tuned or rolled out anew replaces what was before."""
    finals = [row for row in rows if row["training"]["split"] == "test"]
    return [*{(*timed(row), samples(row), row["training"]["seed"]): row for row in finals}.values()]


def timed(row: Row) -> tuple[str, str, float]:
    """Return the problem, the title and the processor seconds of a training."""
    return (*trained(row), row["training"]["seconds"])


def samples(row: Row) -> int | None:
    """Return the number of training samples of a training, where it does not have all of its problem."""
    found: int | None = row["training"].get("samples", row["training"]["candidate"].get("samples"))
    return found


@made_of(
    "few-samples",
    "few-samples.json",
    "Choices for few samples",
    "problem | training samples | choice | processor seconds | validation error | beside the first | seeds | steps",
)
def few_samples(found: Row) -> Cells:
    """Return a row per problem and choice: means over the seeds, on the same validation samples.

    Earlier results of one seed have its standard error alone, and not the errors of the samples.
    """
    first: dict[tuple[str, float], float] = {}
    for (problem, title, seconds), rows in grouped(found["rows"], timed).items():
        results = [row["result"] for row in rows]
        center, spread = results[0]["error"], results[0]["standard_error"]
        if all("errors" in each for each in results):
            center, spread = over_seeds(errors_of(rows))
        elif len(results) > 1:
            center, spread = mean(np.array([each["error"] for each in results]))
        difference = center / first.setdefault((problem, seconds), center) - 1
        change = f"{100 * difference:+.0f} %" if difference else ""
        count, steps = str(rows[0]["training"]["samples"]), statistics.fmean(each["steps"] for each in results)
        error = uncertain(center, spread, 2)
        yield (problem, count, title, f"{seconds:g}", error, change, str(len(rows)), f"{steps:.0f}")


@made_of(
    "transfer",
    "transfer.json",
    "Few samples from an earlier model and after coarse samples",
    "problem | training samples | way | processor seconds | test error | beside from scratch | seeds | steps",
)
def transfer(found: Row) -> Cells:
    """Return a row per problem, number of samples and way: means over the seeds, each of which has its own samples."""
    finals, scratch = tested(found["rows"]), dict[tuple[str, int | None, float, int], float]()

    def key(row: Row) -> tuple[str, int | None, float, str]:
        problem, title, seconds = timed(row)
        return problem, samples(row), seconds, title

    for row in finals:
        if key(row)[3] == "from scratch":
            scratch[(*key(row)[:3], row["training"]["seed"])] = row["result"]["error"]
    for (problem, count, seconds, title), rows in sorted(grouped(finals, key).items(), key=lambda each: each[0][:2]):
        error, by_seed = mean(np.array([row["result"]["error"] for row in rows]))
        by_sample = statistics.fmean(row["result"]["standard_error"] for row in rows)
        spread = by_sample if by_seed is None else math.hypot(by_seed, by_sample)
        ratios = [
            row["result"]["error"] / scratch[problem, count, seconds, row["training"]["seed"]]
            for row in rows
            if title != "from scratch" and (problem, count, seconds, row["training"]["seed"]) in scratch
        ]
        change, doubt = mean(100 * (np.array(ratios) - 1)) if ratios else (0.0, None)
        beside = f"{change:+.0f}{'' if doubt is None else f' ± {doubt:.0f}'} %" if ratios else ""
        steps = statistics.fmean(row["result"]["steps"] for row in rows)
        time = f"{seconds:g}"
        yield (problem, str(count), title, time, uncertain(error, spread, 2), beside, str(len(rows)), f"{steps:.0f}")


@made_of(
    "disturbed",
    "disturbed.json",
    "Trainings that are killed or slowed",
    "problem | training | processor seconds | test error | / undisturbed | seeds | epochs | seconds on the clock",
)
def disturbed(found: Row) -> Cells:
    """Return a row per problem and way; a ratio is a geometric mean over the same samples and seeds."""
    groups = grouped(found["rows"], timed)
    for (problem, title, seconds), rows in groups.items():
        error, spread = over_seeds(errors_of(rows))
        alone = {row["training"]["seed"]: row["result"]["errors"] for row in groups[problem, "undisturbed", seconds]}
        pairs = [np.log(row["result"]["errors"]) - np.log(alone[row["training"]["seed"]]) for row in rows]
        beside = "" if title == "undisturbed" else quotient(*over_seeds(np.array(pairs)))
        epochs, clock = (statistics.fmean(row["result"][key] for row in rows) for key in ("epochs", "wall_seconds"))
        facts = (uncertain(error, spread, 2), beside, str(len(rows)), f"{epochs:.0f}", f"{clock:.0f}")
        yield (problem, title, f"{seconds:g}", *facts)


@made_of("own-data", "own-data.json", "Networks on other projects' data", TRAINED)
@made_of("darcy85", "darcy85.json", "Networks on the benchmark of Darcy flow", TRAINED)
@made_of("points", "points.json", "Networks on meshes and points", TRAINED)
def networks(found: Row) -> Cells:
    """Return a row per problem, network and time: means over seeds and test samples.

    A ratio is that of `ratio`.
    """
    groups = grouped(tested(found["rows"]), timed)
    for (problem, title, seconds), rows in groups.items():
        results = [row["result"] for row in rows]
        errors = errors_of(rows)
        ours = groups.get((problem, "Petrov", seconds), ())
        beside = ratio(errors_of(ours), errors) if title != "Petrov" and ours else ""
        facts = ["", ""]
        if "epochs" in results[0]:  # the floor is not trained
            facts = [parameters(rows), f"{statistics.fmean(each['epochs'] for each in results):.0f}"]
        time = f"{seconds:g}" if facts[0] else ""
        yield (problem, title, time, uncertain(*over_seeds(errors)), str(len(rows)), beside, *facts)


@made_of(
    "amounts",
    "amounts.json",
    "Networks on growing numbers of samples, with AdamW",
    "problem | training samples | network | processor seconds | test error | Petrov's error / this one's",
)
def by_amount(found: Row) -> Cells:
    """Return a row per problem, number of samples and network; a ratio is as in `networks`."""
    groups = grouped(tested(found["rows"]), lambda row: (*timed(row), row["training"]["samples"]))
    for (problem, title, seconds, count), rows in sorted(groups.items(), key=lambda each: (each[0][0], each[0][3])):
        errors = errors_of(rows)
        ours = groups[problem, "Petrov", seconds, count]
        beside = "" if title == "Petrov" else ratio(errors_of(ours), errors)
        yield (problem, str(count), title, f"{seconds:g}", uncertain(*over_seeds(errors)), beside)


def parameters(rows: Sequence[Row]) -> str:
    """Return the number of parameters; of races that seeds have decided otherwise, the least and the greatest."""
    counts = [row["result"]["parameters"] for row in rows]
    return " to ".join(f"{each:,}" for each in sorted({min(counts), max(counts)}))


def errors_of(rows: Sequence[Row]) -> NDArray[Any]:
    """Return the errors of networks `[seed, sample]`, or `[seed, frame]` of trajectories."""
    return np.array([row["result"]["errors"] for row in rows])


def ratio(ours: NDArray[Any], others: NDArray[Any]) -> str:
    """Return the ratio of errors `[seed, sample]` to others: a geometric mean over the same samples and all seeds.

    The samples are paired. The seeds are not: two networks may have unlike numbers of them, and what they draw has
    nothing in common. The standard error is that by samples and, of each side of several seeds, by seeds.
    """
    each = [np.log(ours), np.log(others)]
    apart = each[0].mean(axis=0) - each[1].mean(axis=0)
    spreads = [mean(apart)[1], *(mean(one.mean(axis=1))[1] for one in each)]
    return quotient(float(apart.mean()), math.hypot(*(spread for spread in spreads if spread is not None)))


def quotient(center: float, spread: float | None) -> str:
    """Return a ratio by the mean of its logarithms, and its standard error where it is known."""
    return f"{math.exp(center):.2f}" + ("" if spread is None else f" ± {math.exp(center) * spread:.2f}")


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

    groups = grouped(tested(found["rows"]), lambda row: (*trained(row), time_of(row)))
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
        ratios = [ratio(errors(beside, each), errors(rows, each)) if beside else "" for each in ("10", "50")]
        least = min(rows, key=lambda row: row["result"]["finite"])
        count, frames = least["result"]["samples"], least["training"]["candidate"]["frames"]
        lasting = f"{least['result']['finite']} of {count} for {frames} frames"
        shown = [uncertain(*over_seeds(errors(rows, each)), 1) for each in ("1", "10", "50")]
        time, size = (f"{seconds:g}", parameters(rows)) if has_training else ("", "")
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
    "trajectories | network | parameters | processor seconds | seeds | frame 1 | frame 10 | frame 20 | frame 40"
    " | Petrov's error / this one's at 1 | at 10 | at 20",
)
def own_trajectories(found: Row) -> Cells:
    """Return a row per set, network and time of training: means over its seeds and the test trajectories.

    Standard errors are by trajectories, the mean over the seeds, and by seeds. Earlier rows of one seed have none.
    Ratios are geometric means over the seeds of both networks, with a standard error where both have several.
    """
    groups = grouped(tested(found["rows"]), timed)
    for (problem, title, seconds), each in groups.items():
        errors = errors_of(each)
        spreads = np.array([row["result"]["standard_errors"] for row in each if "standard_errors" in row["result"]])
        known = groups.get((problem, "Petrov", seconds), []) if title != "Petrov" else []
        ours = errors_of(known)

        def beside(frame: int, errors: NDArray[Any] = errors, ours: NDArray[Any] = ours) -> str:
            if not len(ours) or frame > errors.shape[1]:
                return ""
            (ours_, doubt), (theirs, other) = (mean(np.log(one[:, frame - 1])) for one in (ours, errors))
            return quotient(ours_ - theirs, None if doubt is None or other is None else math.hypot(doubt, other))

        def shown(frame: int, errors: NDArray[Any] = errors, spreads: NDArray[Any] = spreads) -> str:
            if frame > errors.shape[1]:
                return ""
            center, by_seed = mean(errors[:, frame - 1])
            by_trajectory = float(spreads[:, frame - 1].mean()) if len(spreads) else None
            parts = [each for each in (by_seed, by_trajectory) if each is not None]
            return uncertain(center, math.hypot(*parts) if parts else None)

        yield (
            problem,
            title,
            parameters(each),
            f"{seconds:g}",
            str(len(each)),
            *map(shown, (1, 10, 20, 40)),
            *map(beside, (1, 10, 20)),
        )


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
