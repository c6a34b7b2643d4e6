"""The tables, the list of runs, the targets and the break-even, computed from known samples."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.baselines.interleaving import MEBIBYTE, Measured
from benchmarks.profiling.report import Profile
from benchmarks.report import markdown, page
from benchmarks.service import published_network, servers, throughput
from benchmarks.service.load import Load
from benchmarks.tables import attention, forward, steps, targets
from benchmarks.tables.classical import breakeven, summary
from benchmarks.tables.classical.pareto import Point


def measured(name: str, seconds: float, facts: dict[str, Any] | None = None) -> Measured:
    return Measured(name, (seconds,) * 3, (seconds,) * 3, 30 * MEBIBYTE, 10 * MEBIBYTE, facts or {})


def cell(grid: int, scale: float) -> forward.Cell:
    seconds = {forward.REFERENCE: 8.0, forward.RUNTIME: 2.0, forward.RELEASED: 1.0, forward.LU: 4.0}
    sides = [measured(name, scale * each) for name, each in seconds.items()]
    eager = measured(forward.EXACT[0], 4 * scale, {"flops": int(100 * scale)})
    core = [measured(forward.PRODUCT, 1.0, {"work": 100}), measured(forward.COPY, 1.0, {"work": 10})]
    found = {forward.EXACT[0]: 1e-7, forward.RUNTIME: 2e-7, forward.RELEASED: 1e-3, forward.LU: 3e-3}
    return forward.Cell(grid, 1, (*sides, eager, *core), found)


def test_the_forward_tables_hold_ratios_growth_and_floor() -> None:
    found = [cell(10, 1.0), cell(20, 4.0)]
    tables = forward.tables(found)
    assert ("20", "1", forward.RUNTIME, "8000.0", "4.00", "20", "2e-07 from the reference") in tables["forward"][1]
    assert ("10", "1", forward.REFERENCE, "8000.0", "1.00", "20", "random weights") in tables["forward"][1]
    assert not {forward.PRODUCT, forward.COPY} & {row[2] for row in tables["forward"][1]}
    assert tables["growth"][0][2] == "time per point at 20 divided by that at 10"
    assert (forward.RELEASED, "n^1.00", "1.00") in tables["growth"][1]
    assert [row[-1] for row in tables["roofline"][1]] == ["2.00", "2.00"]


def test_one_grid_has_no_growth() -> None:
    assert forward.tables([cell(10, 1.0)])["growth"][1] == []


def test_a_steps_row_is_beside_the_reference() -> None:
    found = {"darcy": [measured(steps.REFERENCE, 6.0), measured(steps.QUIET, 5.0), measured(steps.PETROV, 2.0)]}
    assert steps.tables(found)["steps"][1][-1] == ("darcy", "4", "Petrov", "2.00", "3.00", "20", "100%")


def test_loads_are_relative_to_the_naive_service() -> None:
    naive, gateway = Load([0.2] * 10, 2.0), Load([0.1] * 30, 2.0)
    loads = {(1, 16, f"{servers.NAIVE}, JSON"): naive, (1, 16, "gateway, npy"): gateway}
    kept = {published_network.ALONE: 10.0, "gateway, npy": 9.0}
    found = throughput.Found(loads, [servers.Started("x", 1.5, 3 * MEBIBYTE)], kept)
    tables = throughput.tables(found)
    assert tables["service"][1][1] == ("one", "16", "gateway, npy", "15.0", "3.00", "100", "100", "100", "0")
    assert tables["starting"][1] == [("x", "1.5", "3")]
    assert tables["kept"][1][1] == ("gateway, npy", "9.0", "90%")


def test_solves_repay_the_cost_or_never_do() -> None:
    slower, faster = (
        breakeven.Pair("darcy", "splu", "9 x 9", solver=1.0, network=each, solver_error=1e-3, network_error=1e-3)
        for each in (1.5, 0.5)
    )
    assert breakeven.Balance(faster, data=60.0, training=40.0).solves == 200
    assert breakeven.row(breakeven.Balance(slower, data=60.0, training=40.0))[-1] == "never"


def test_the_solver_of_the_break_even_is_as_accurate_as_the_network() -> None:
    def point(name: str, method: str, error: float, seconds: float) -> Point:
        return Point("darcy", name, method, 24, error, 1e-5, seconds)

    points = [
        point("9 x 9", "network", 2e-3, 0.002),
        point("9 x 9", "steps", 6e-3, 0.001),
        point("17 x 17", "network", 1e-3, 0.003),
        point("17 x 17", "steps", 1.5e-3, 0.004),
        point("17 x 17", "more steps", 0.9e-3, 0.005),
    ]
    coarse, fine = breakeven.equals({"points": [asdict(each) for each in points]})
    assert (coarse.solver_name, coarse.solver, coarse.network) == ("steps, 17 x 17", 0.004, 0.002)
    assert (fine.solver_name, fine.solver_error) == ("more steps", 0.9e-3)
    [only] = breakeven.equals({"points": [asdict(each) for each in points[:-1]]})
    assert only == coarse


def test_a_run_is_written_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    page.PAGE.write_text("<!-- table: runs -->\n<!-- end -->\n<!-- table: toy -->\nold\n<!-- end -->\n")
    page.publish("toy", {"figure": 1}, {"toy": (("a",), [("1",)])}, quick=True, folder=tmp_path / "bench")
    assert "| a |\n| --- |\n| 1 |" in page.PAGE.read_text()
    assert "| toy | quick |" in page.PAGE.read_text()
    assert "old" not in page.PAGE.read_text()
    assert page.read("toy", tmp_path / "bench") == json.loads((tmp_path / "bench/toy.json").read_text())
    assert page.read("other", tmp_path / "bench") is None


def test_a_page_shows_the_kept_run_of_the_layers() -> None:
    kept = page.read("attention")
    assert kept is not None
    if kept["run"] == "quick":
        pytest.skip("a quick run leaves the page alone")
    rows = attention.layers(Profile.model_validate(kept["profile"]))
    text = markdown.page_of("layers").read_text()
    assert all(f"| {' | '.join(row)} |" in text for row in rows)


def test_a_target_without_its_grid_is_not_measured() -> None:
    single = forward.document([cell(141, 1.0)])
    assert targets.speedup(forward.RUNTIME, forward.REFERENCE)(single) == "4.0 times"
    assert targets.above_floor(single) == "2.00 of the floor"
    assert targets.beside(forward.LU)(single) == "4.0 times, errors 1.0e-03 and 3.0e-03"
    with pytest.raises(LookupError):
        targets.point_cost(forward.RUNTIME)(single)


def test_the_page_holds_every_table() -> None:
    known = {"runs", "targets", "forward", "growth", "roofline", "steps", "service", "starting", "kept"}
    known |= {"claims", "claims-growth", "solvers", "pareto", "breakeven"}
    text = page.PAGE.read_text()
    assert all(f"<!-- table: {name} -->" in text for name in known)


def test_the_readme_shows_the_kept_runs() -> None:
    first, second = page.read("pareto"), page.read("solvers")
    assert first is not None
    assert second is not None
    if "quick" in {first["run"], second["run"]}:
        pytest.skip("a quick run leaves the README alone")
    rows = summary.rows(first, second)
    assert {row[0] for row in rows} == {"darcy", "darcy_inverse", "burgers"}
    text = Path("README.md").read_text()
    assert all(f"| {' | '.join(row)} |" in text for row in rows)


def test_a_table_that_no_page_holds_is_named() -> None:
    with pytest.raises(ValueError, match="<!-- table: nothing -->"):
        markdown.page_of("nothing")


def test_the_baseline_is_the_fastest_method_that_is_accurate_enough() -> None:
    network = Point("toy", "20", "network", 2, 1e-3, 0.0, 1.0)
    slow, fast, rough = (
        Point("toy", "20", name, 2, error, 0.0, seconds)
        for name, error, seconds in (("slow", 1e-6, 9.0), ("fast", 5e-4, 3.0), ("rough", 2e-3, 1.0))
    )
    assert summary.baseline(network, [slow, fast, rough]) is fast
    nearly = Point("toy", "20", "nearly", 2, 2.05e-3, 0.0, 0.5)
    assert summary.baseline(network, [rough, nearly]) is nearly
