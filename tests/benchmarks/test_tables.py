"""The tables: from committed results and cards, and by hand from small rows."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

from benchmarks import pages, pictures, tables

ROOT = Path(__file__).parents[2]


def point(name: str, method: str, error: float, seconds: float) -> dict[str, Any]:
    facts = {"model": "darcy", "input": name, "method": method, "fields": 24}
    return facts | {"error": error, "standard_error": error / 9, "seconds": seconds}


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_is_filled(name: str) -> None:
    header, cells = tables.table(name)
    rows = list(cells)
    assert rows
    assert {len(row) for row in rows} == {len(header)}
    assert all(isinstance(cell, str) for row in rows for cell in row)


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_generated_parts_of_a_page_are_those_of_the_results(page: Path) -> None:
    text = page.read_text()
    assert re.findall("<!-- (generated|end)\\b", text) == ["generated", "end"] * len(pages.GENERATED.findall(text))
    assert text == pages.filled(text), "run .venv/bin/python -m benchmarks pages"


def test_settings_without_a_default_show_none_that_could_be_set() -> None:
    assert "`None`" not in pages.settings()


def test_all_results_are_shown() -> None:
    names = {found[1] for page in pages.pages() for found in pages.GENERATED.findall(page.read_text())}
    assert {tables.README, *pages.PARTS} <= names
    shown = (ROOT / "docs/reference/tables.md").read_text()
    titles = [each.title for name, each in tables.TABLES.items() if name != tables.README]
    assert [title for title in titles if f"## {title}\n" not in shown] == []
    cards = (ROOT / "docs/reference/cards.md").read_text()
    assert re.findall("^## (.*)", cards, re.MULTILINE) == [*tables.cards()]


def test_the_baseline_is_the_fastest_method_that_is_accurate_enough() -> None:
    network = point("20", "network", 1e-3, 1.0)
    slow, fast, rough = point("20", "slow", 1e-6, 9), point("20", "fast", 5e-4, 3), point("20", "rough", 2e-3, 1)
    assert tables.baseline(network, [slow, fast, rough]) is fast
    nearly = point("20", "nearly", 2.05e-3, 0.5)
    assert tables.baseline(network, [rough, nearly]) is nearly


def test_means_of_the_solver_have_their_own_number_of_fields() -> None:
    shared = {"grid": [85, 85], "median": 2e-3, "worst": 9e-3}
    network = shared | {"fields": 300, "relative_l2": 2.5e-3, "standard_error": 5e-5}
    solver = shared | {"fields": 10, "relative_l2": 6.1e-3, "standard_error": 7e-4}
    card = {"errors": [network, network | {"grid": [43, 43]}], "classical": [solver]}
    assert [cells[3:5] + cells[7:] for cells in tables.TABLES["accuracy"].cells({"darcy": card})] == [
        ("2.50e-3", "5.00e-5", "6.10e-3 ± 7e-4", "10"),
        ("2.50e-3", "5.00e-5", "", ""),
    ]


def test_no_method_is_left_out_of_the_picture(tmp_path: Path) -> None:
    rows = [point("20", name, 1e-3, 1.0) for name in ("network", "interface reconstructed on 211 x 211")]
    pictures.methods(rows, tmp_path / "methods.png")
    assert (tmp_path / "methods.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="but got multigrid"):
        pictures.methods([*rows, point("20", "multigrid", 1e-3, 1.0)], tmp_path / "methods.png")


@pytest.mark.parametrize("high", [2.1, 9.0, 90.0, 300.0, 1e3, 1e5])
def test_labels_of_logarithmic_axes_say_where_they_are_and_do_not_overlap(high: float) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(12.6, 3.4), layout="constrained")
    axes[0].plot([41, 41 * high], [0.0121, 0.0121 * high])
    pictures.logarithmic(axes[0], "across", "up")
    figure.canvas.draw()
    for scale, side in ((axes[0].xaxis, "x"), (axes[0].yaxis, "y")):
        low, most = scale.get_view_interval()
        ticks = [tick for tick in scale.get_major_ticks() if low <= tick.get_loc() <= most]
        assert [float(tick.label1.get_text()) for tick in ticks] == pytest.approx([tick.get_loc() for tick in ticks])
        boxes = [getattr(tick.label1.get_window_extent(), f"interval{side}") for tick in ticks]
        assert len(boxes) > 1
        assert all(before[1] < after[0] for before, after in pairwise(boxes))
    plt.close(figure)


def test_the_fastest_of_the_better_methods_is_named() -> None:
    rows = [
        point("20", "network", 1e-2, 3e-3),
        point("20", "solver, 4 steps", 9e-3, 2e-3),
        point("20", "solver, 2 steps", 9.5e-3, 1e-3),
        point("40", "solver, 1 step", 1e-4, 1e-4),
    ]
    assert [row[-1] for row in tables.methods({"rows": rows})] == ["solver, 2 steps", "", "", ""]


def test_types_of_attention_have_mean_and_spread_and_those_with_fewer_seeds_are_left_out() -> None:
    common = {"metric": "accuracy", "parameters": 12345, "step_milliseconds": 10.0, "peak_megabytes": 3.0}
    rows = [{"attention": kind, "score": score} | common for kind, score in (("a", 0.5), ("a", 0.6), ("b", 0.9))]
    assert list(tables.attention_types({"rows": rows})) == [("a", "2", "55.0 %", "7.1 %", "12,345", "10", "3")]


def test_losses_are_shown_as_they_are_with_errors_of_samples_and_seeds() -> None:
    def row(title: str, errors: list[float], seed: int = 0, split: str = "test", seconds: float = 9) -> dict[str, Any]:
        training = {"problem": "heat", "title": title, "split": split, "seconds": seconds, "candidate": {}}
        training |= {"seed": seed}
        return {"training": training, "result": {"errors": errors, "parameters": 1234, "epochs": 5}}

    rows = [
        row("FNO", [0.1, 0.2]),
        row("FNO", [0.3, 0.4], 1),
        row("Petrov", [0.2, 0.4]),
        row("Petrov", [0.2, 0.4], 1),
        row("FNO", [0.5, 0.5], split="validation"),
        row("FNO", [0.9, 0.9], seconds=3),
    ]
    assert [cells[:6] for cells in tables.networks({"rows": rows})] == [
        # standard errors by samples and by seeds: .05 and .1; the logarithms of the ratios: .245, .1 and .45
        ("heat", "FNO", "9", "2.5e-01 ± 1e-01", "2", "1.28 ± 0.59"),
        ("heat", "Petrov", "9", "3.0e-01 ± 1e-01", "2", ""),
        ("heat", "FNO", "3", "9.0e-01 ± 0e+00", "1", ""),
    ]


def test_all_seeds_count_where_two_networks_have_unlike_numbers_of_them() -> None:
    def row(title: str, error: float, parameters: int = 1234) -> dict[str, Any]:
        training = {"problem": "heat", "title": title, "split": "test", "seconds": 9.0, "candidate": {}}
        training |= {"seed": parameters}
        return {"training": training, "result": {"errors": [error, error], "parameters": parameters, "epochs": 5}}

    rows = [row("FNO", 0.1), row("Petrov", 0.1), row("Petrov", 0.4, 567)]
    first, second = tables.networks({"rows": rows})
    assert first[5] == "2.00 ± 1.39"  # the root of 1 and 4; the logarithm of 4, over 2, by the seeds of one side
    assert (first[6], second[6]) == ("1,234", "567 to 1,234")


def test_errors_are_by_trajectories_and_seeds_and_a_seed_counts_once() -> None:
    def row(title: str, error: float, seed: int, **candidate: Any) -> dict[str, Any]:
        training = {"problem": "ks", "title": title, "split": "test", "seconds": 60.0, "seed": seed}
        result = {"errors": [error] * 20, "standard_errors": [error / 10] * 20, "parameters": 7}
        return {"training": training | {"candidate": candidate}, "result": result}

    rows = [row("FNO", 0.9, 0, rate=1), row("Petrov", 0.2, 0), row("FNO", 0.1, 0, rate=2), row("Petrov", 0.4, 1)]
    assert list(tables.own_trajectories({"rows": rows})) == [
        # the root of 2 and 4, without a standard error: FNO has one seed
        ("ks", "FNO", "7", "60", "1", *["1.0e-01 ± 1e-02"] * 3, "", *["2.83"] * 3),
        ("ks", "Petrov", "7", "60", "2", *["3.0e-01 ± 1e-01"] * 3, "", "", "", ""),
    ]
    alike = [row("Petrov", 0.2, 0), row("Petrov", 0.2, 1)]
    assert next(iter(tables.own_trajectories({"rows": alike})))[5] == "2.0e-01 ± 2e-02"  # seeds share trajectories
    *_, first, _, _ = next(iter(tables.own_trajectories({"rows": [*rows, row("FNO", 0.1, 1, rate=2)]})))
    assert first == "2.83 ± 0.98"  # the root of 2 and 4, and the deviation of their logarithms by the root of 2


def test_a_network_that_is_tuned_anew_is_no_further_seed() -> None:
    def row(title: str, error: float, seed: int, **candidate: Any) -> dict[str, Any]:
        training = {"problem": "heat", "title": title, "split": "test", "seconds": 300.0, "seed": seed}
        result = {"errors": [error, error], "epochs": 9, "parameters": 7}
        return {"training": training | {"candidate": candidate}, "result": result}

    rows = [row("FNO", 0.9, 0, rate=1), row("Petrov", 0.2, 0), row("FNO", 0.4, 0, rate=2)]
    assert [cells[3:6] for cells in tables.networks({"rows": rows})] == [
        ("4.0e-01 ± 0e+00", "1", "0.50 ± 0.00"),
        ("2.0e-01 ± 0e+00", "1", ""),
    ]


def test_choices_are_compared_with_the_first_after_the_same_time() -> None:
    def row(title: str, error: float, seconds: float = 60.0) -> dict[str, Any]:
        training = {"problem": "wind", "title": title, "samples": 384, "seconds": seconds}
        return {"training": training, "result": {"error": error, "standard_error": 0.01, "steps": 500}}

    rows = [row("preset", 0.2), row("other", 0.1), row("other", 0.4, 120.0), row("preset", 0.8, 120.0)]
    assert [cells[2:6] for cells in tables.few_samples({"rows": rows})] == [
        ("preset", "60", "2.00e-01 ± 1e-02", ""),
        ("other", "60", "1.00e-01 ± 1e-02", "-50 %"),
        ("other", "120", "4.00e-01 ± 1e-02", ""),
        ("preset", "120", "8.00e-01 ± 1e-02", "+100 %"),
    ]


def test_several_seeds_of_a_choice_have_the_standard_error_of_their_mean() -> None:
    def row(title: str, *errors: float) -> dict[str, Any]:
        training = {"problem": "wind", "title": title, "samples": 384, "seconds": 60.0}
        result = {"error": float(np.mean(errors)), "standard_error": 0.01, "steps": 500}
        return {"training": training, "result": result | ({"errors": errors} if len(errors) > 1 else {})}

    rows = [row("with samples", 0.1, 0.3), row("with samples", 0.3, 0.5), row("without", 0.2), row("without", 0.4)]
    assert [cells[4] for cells in tables.few_samples({"rows": rows})] == [
        "3.00e-01 ± 1e-01",  # 0.1 by samples and as much by seeds
        "3.00e-01 ± 1e-01",
    ]


def test_ways_to_learn_few_samples_are_compared_seed_by_seed() -> None:
    def row(title: str, error: float, seed: int, split: str = "test") -> dict[str, Any]:
        training = {"problem": "heat", "title": title, "seed": seed, "split": split, "candidate": {"samples": 10}}
        training |= {"seconds": 30.0}
        return {"training": training, "result": {"error": error, "standard_error": 0.02, "steps": 500}}

    rows = [row("from scratch", 0.2, 0), row("from scratch", 0.4, 1), row("other", 0.9, 0, "validation")]
    rows += [row("other", 0.1, 0), row("other", 0.1, 1), row("third", 0.1, 0)]
    assert list(tables.transfer({"rows": rows})) == [
        ("heat", "10", "from scratch", "30", "3.00e-01 ± 1e-01", "", "2", "500"),
        ("heat", "10", "other", "30", "1.00e-01 ± 2e-02", "-62 ± 12 %", "2", "500"),  # by samples, where seeds agree
        ("heat", "10", "third", "30", "1.00e-01 ± 2e-02", "-50 %", "1", "500"),
    ]


def test_disturbed_trainings_are_compared_seed_by_seed() -> None:
    def row(title: str, seed: int, *errors: float) -> dict[str, Any]:
        result = {"error": float(np.mean(errors)), "errors": errors, "epochs": 9, "wall_seconds": 60.0}
        return {"training": {"problem": "heat", "title": title, "seconds": 60.0, "seed": seed}, "result": result}

    rows = [row("undisturbed", 0, 0.1, 0.3), row("undisturbed", 1, 0.2, 0.2), row("killed", 0, 0.2, 0.6)]
    rows += [row("slowed", 0, 0.1, 0.6)]
    assert [cells[1:6] for cells in tables.disturbed({"rows": rows})] == [
        ("undisturbed", "60", "2.00e-01 ± 5e-02", "", "2"),
        ("killed", "60", "4.00e-01 ± 2e-01", "2.00 ± 0.00", "1"),  # of both samples
        ("slowed", "60", "3.50e-01 ± 2e-01", "1.41 ± 0.49", "1"),  # once and twice: one seed has an uncertainty, too
    ]


def test_coverage_is_the_mean_over_seeds_beside_that_of_each() -> None:
    def row(samples: int, seed: int, share: float) -> dict[str, Any]:
        known = {"calibration_samples": samples // 10, "between": [0.6915, 0.9975], "error": 0.01}
        return known | {"samples": samples, "seed": seed, "coverage": share}

    rows = [row(300, 0, 0.91), row(100, 0, 0.8), row(100, 1, 1.0)]
    assert list(tables.coverage({"rows": rows})) == [
        ("100", "10", "0.69 to 1.00", "0.80, 1.00", "0.90 ± 0.10", "1.00e-2 ± 0e+00"),
        ("300", "30", "0.69 to 1.00", "0.91", "0.91", "1.00e-2"),
    ]


def test_settings_of_a_solver_that_a_cheaper_one_beats_are_left_out(tmp_path: Path) -> None:
    def made(method: str, milliseconds: float, error: float) -> dict[str, Any]:
        errors = {"errors": [error] * 20, "standard_errors": [0.1 * error] * 20}
        return {"method": method, "milliseconds": milliseconds} | errors

    rows = [
        made("network", 5, 0.01),
        made("keeping the first frame", 0, 0.9),
        made("solver, slow", 3, 0.5),
        made("solver, fast", 1, 0.1),
    ]
    shown = list(tables.rollouts("toy")({"toy": rows}))
    assert [cells[0] for cells in shown] == ["network", "keeping the first frame", "solver, fast"]
    assert shown[0][2] == "0.01 ± 0.001"
    pictures.rollouts(rows, tmp_path / "rollouts.png")
    assert (tmp_path / "rollouts.png").stat().st_size > 1000


@pytest.mark.deep
def test_the_pictures_of_the_kept_runs_can_be_drawn(tmp_path: Path) -> None:
    def rows(file: str) -> Any:
        return json.loads((ROOT / "docs" / file).read_text())["rows"]

    pictures.methods(rows("bench/methods.json"), tmp_path / "methods.png")
    keys = ("route", "in_flight", "fields_per_second")
    pictures.lines(rows("bench/service.json"), keys, "in flight", "fields/s", tmp_path / "service.png")
    pictures.profile(rows("bench/attention.json"), tmp_path / "profile.png")
    pictures.learning(rows("research/listops.json"), tmp_path / "learning.png")
    pictures.own_data(rows("own-data.json"), tmp_path / "own-data.png")
    assert min(file.stat().st_size for file in tmp_path.iterdir()) > 10_000
