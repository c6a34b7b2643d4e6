"""Errors are measured on every grid, oblong ones too, at known noise, beside the classical solver."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from physics import darcy
from schema.card import CheckpointCard
from schema.parts import Quantity
from training import recipes
from training.checkpoint import read_card
from training.data.generate import DataConfig, Request, prepare
from training.data.pools import LocalPool, ThisProcess
from training.data.views import Samples, Split, deviation, only_pair, read
from training.evaluation import rows
from training.evaluation.drawn import DrawnSamples, Sides, measured_grids, noise_units
from training.fit.operator_workload import OperatorWorkload
from training.fit.workload import Scope
from training.metrics import METRICS
from training.operators import Operator, build
from training.operators.darcy_inverse import DarcyInverseConfig
from training.problems.problem import PROBLEMS, Baseline, Conditions, Fields

BURGERS, DARCY, DARCY_INVERSE = (PROBLEMS[name] for name in ("burgers", "darcy", "darcy_inverse"))
DATA = DataConfig(mesh=141, train=6, validation=0, test=2, grids=(36,), seed=5)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    request = Request(DARCY_INVERSE, mesh=141, train=6, test=2, seed=5)
    return prepare(request, tmp_path_factory.mktemp("inverse"), LocalPool(2), progress=False)


@pytest.fixture(scope="module")
def operator() -> Operator:
    torch.manual_seed(0)
    return build(DarcyInverseConfig(layers=1, patch=8, channels=8, heads=2, feedforward=8)).eval()


@pytest.fixture(scope="module")
def work(stored: Path) -> OperatorWorkload:
    return workload("darcy_inverse", stored.parent)


def workload(model: str, folder: Path, data: DataConfig = DATA) -> OperatorWorkload:
    recipe = recipes.read_fields(recipes.find(f"{model}-tiny"), ["fit.noise=[0.0, 0.1]"])
    return OperatorWorkload(recipe.model_copy(update={"data": data}), folder)


@pytest.fixture(scope="module")
def card(work: OperatorWorkload, operator: Operator) -> CheckpointCard:
    return CheckpointCard.model_validate(work.measure(operator, DARCY_INVERSE, Scope(patient=True)))


def test_a_plane_is_measured_on_an_oblong_grid_too() -> None:
    whole = DataConfig(mesh=421, train=1, validation=0, test=1, grids=(85,))
    assert measured_grids(DARCY.description, whole) == [
        (85, 85),
        (141, 141),
        (211, 211),
        (421, 421),
        (141, 211),
    ]
    line = DataConfig(mesh=8192, train=1, validation=0, test=1, grids=(256,))
    assert measured_grids(BURGERS.description, line) == [(256,), (512,), (1024,), (2048,), (8192,)]


def test_the_unit_of_noise_is_the_training_inputs_deviation(stored: Path) -> None:
    fine = deviation(stored, 6, DARCY_INVERSE)
    inputs = read(stored, "train", 6, 141, problem=DARCY_INVERSE).inputs
    np.testing.assert_allclose(fine, inputs.std(axis=0), rtol=1e-4, atol=1e-9)
    [unit] = noise_units(DARCY_INVERSE, DATA, stored, [(36, 71)])
    np.testing.assert_array_equal(unit, fine[::4, ::2])


@pytest.mark.deep
def test_every_level_of_noise_has_its_row_and_its_baseline(
    work: OperatorWorkload, operator: Operator, card: CheckpointCard
) -> None:
    places = [(row["grid"], row.get("noise", 0)) for row in card.errors]
    assert places == [([n, m], level) for level in (0, 0.1) for n, m in ((36, 36), (141, 141), (36, 141))]
    baselines = [(ours, theirs) for ours, theirs in rows.beside(card) if theirs]
    assert [(ours["grid"], ours.get("noise", 0)) for ours, _ in baselines] == [([36, 36], 0), ([36, 36], 0.1)]
    assert all(theirs["relative_l2"] < 0.3 for _, theirs in baselines)
    assert work.measure(operator, DARCY_INVERSE, Scope(grid=36))["classical"] == []


def test_noise_makes_a_difference_and_is_the_same_at_every_call(
    work: OperatorWorkload, stored: Path, operator: Operator
) -> None:
    samples = read(stored, "test", 2, 141, problem=DARCY_INVERSE)
    unit = deviation(stored, 6, DARCY_INVERSE)
    clean, noisy, again = (replace(samples, noise=level, unit=unit).observed for level in (0.0, 0.1, 0.1))
    np.testing.assert_array_equal(clean, samples.inputs)
    np.testing.assert_array_equal(noisy, again)
    assert ((noisy - clean) / unit).std() == pytest.approx(0.1, rel=0.02)
    assert rows.errors(work, operator, replace(samples, noise=0.1, unit=unit))["fields"] == 2


def test_a_row_holds_errors_and_times_and_is_laid_out_below_its_place(card: CheckpointCard) -> None:
    row = card.errors[-1]
    assert row["median"] <= row["worst"]
    assert row["eager_milliseconds_of_8"] > 0
    assert card.clock["processor"]
    cells = [row for pair in rows.beside(card) for row in rows.cells(*pair)]
    first = cells.index(next(row for row in cells if row[0] == "36 x 36, 10 % noise"))
    assert [row[1] for row in cells[first : first + 2]] == ["network", "classical"]
    assert all(len(row) == len(rows.HEADER) for row in cells)
    assert rows.rich_table(card, "a title").row_count == len(cells) == 8


def test_measures_without_a_column_are_below_the_table(card: CheckpointCard) -> None:
    lines = rows.without_column(card).splitlines()
    assert len(lines) == len(card.errors)
    assert lines[0].startswith(
        f"36 x 36: largest error over the largest value {rows.scientific(card.errors[0]['relative_maximum'])}"
    )
    text = io.StringIO()
    Console(file=text, width=100).print(rows.rich_table(card, "a title"))
    assert "largest error over the largest value" in " ".join(text.getvalue().split())
    assert rows.without_column(CheckpointCard(errors=card.errors)) == ""


def test_the_error_over_the_deviation_from_the_mean_is_beside_the_relative_l2(card: CheckpointCard) -> None:
    row = card.errors[0]
    assert [*row].index("vrmse") == [*row].index("relative_l2") + 1
    for width in (80, 100):
        text = io.StringIO()
        Console(file=text, width=width).print(rows.rich_table(card, "a title", width))
        [header] = [line.split() for line in text.getvalue().splitlines() if "VRMSE" in line]
        assert header[header.index("L2") + 1] == "VRMSE"
        assert rows.scientific(row["vrmse"]) in text.getvalue()


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_of_a_card_cuts_nothing_off(width: int) -> None:
    card = read_card(Path(__file__).parents[3] / "checkpoints" / "darcy")
    text = io.StringIO()
    Console(file=text, width=width).print(rows.rich_table(card, "a title", width))
    assert "\N{HORIZONTAL ELLIPSIS}" not in text.getvalue()
    for row in card.errors:
        assert rows.scientific(row["relative_l2"]) in text.getvalue()


def test_a_row_has_every_error_measure_that_its_grid_has(card: CheckpointCard) -> None:
    """The output's means over blocks have no walls, and so no spectrum; the inverse problem has no energy."""
    named = {"relative_l2", "relative_h1", "relative_maximum", "vrmse"}
    assert card.measures is not None
    assert card.measures.keys() == named
    for row in (*card.errors, *card.classical):
        assert METRICS.items.keys() & row.keys() == named


def test_the_energy_is_that_of_the_coefficient_on_the_grid(tmp_path: Path) -> None:
    a = np.stack([darcy.example(29, seed=seed) for seed in (1, 2)])
    u = np.stack([darcy.solve(one) for one in a])
    tensors = {"coefficient": a.astype(np.float32), "solution": u.astype(np.float32)}
    case = Samples(tensors, DARCY, "drawn", mesh=421)
    work = workload("darcy", tmp_path, DATA.model_copy(update={"mesh": 421}))
    found = work.measures([torch.from_numpy(1.5 * case.targets)], case.whole)
    errors = [found[name].numpy() for name in ("relative_energy", "relative_l2", "relative_h1")]
    np.testing.assert_allclose(errors, np.full((3, 2), 0.5), rtol=1e-6)


@pytest.mark.parametrize(("problem", "shape"), [("darcy", (3, 12, 15)), ("burgers", (3, 64))])
def test_pictures_are_drawn_of_planes_and_lines(problem: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    from training.evaluation import pictures  # noqa: PLC0415 - slow to import, and one test needs it

    inputs, outputs, found = np.random.default_rng(0).standard_normal((3, *shape), dtype=np.float32)
    pair = only_pair(PROBLEMS[problem].description)
    case = Samples({pair.input.name: inputs, pair.output.name: outputs}, PROBLEMS[problem], "drawn", mesh=64)
    pictures.draw(case, found, tmp_path / "deep" / "picture.png", "a title")
    assert (tmp_path / "deep" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_numbers_have_a_panel_each_and_no_more() -> None:
    from training.evaluation import measures, pictures  # noqa: PLC0415 - slow to import

    values = np.arange(3.0)
    numbers = [measures.Parity(name, "", "N", 1.0, values, values + 1) for name in "abcde"]
    assert [panel.get_title() for panel in pictures.parity(numbers).axes if panel.axison] == [
        f"{name} in N" for name in "abcde"
    ]


def test_scales_of_pictures_are_robust() -> None:
    from training.evaluation import pictures  # noqa: PLC0415 - slow to import

    rng = np.random.default_rng(0)

    def ends(field: Any) -> tuple[str, float, float]:
        norm = pictures.scale("viridis", [field]).norm
        return type(norm).__name__, float(norm.vmin or 0), float(norm.vmax or 0)

    noise = rng.standard_normal((64, 64))
    spike = noise.copy()
    spike[3, 4] = 1e6
    assert ends(spike)[2] < 50
    x, y = np.meshgrid(np.linspace(0, 1, 64), np.linspace(0, 1, 64))
    source = 1e20 * np.exp(-((x - 0.5) ** 2 + (y - 0.5) ** 2) / 2e-3)  # its tails fade to 1e-90
    assert ends(source)[:2] == ("Normalize", pytest.approx(0, abs=1e-20))
    assert ends(source)[2] == source.max()
    assert ends(10**noise)[0] == "LogNorm"
    _, low, high = ends(np.full((8, 8), 3.0))
    assert low < 3 < high
    assert ends(np.zeros((8, 8)))[1:] == (-1, 1)
    assert ends(1e20 + 0 * noise)[1] < 1e20 < ends(1e20 + 0 * noise)[2]
    assert ends(np.full((8, 8), np.nan))[1:] == (0, 1)
    assert pictures.even([0 * noise]).norm.vmax == 1


class Watched(DrawnSamples):
    """PredictedSample samples that note which grids are read."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen = list[int | Sides]()

    def read(self, path: Path, split: Split, count: int, points: int | Sides, *, after: int = 0) -> Samples:
        self.seen.append(points)
        return super().read(path, split, count, points, after=after)


def forced(inputs: Fields, conditions: Conditions) -> Fields:
    """Solve an equation that has parameters with defaults, and an input that may be varied."""
    del conditions
    return {"final": inputs["viscosity"] * inputs["initial"] + inputs["time"] + inputs.get("force", 0)}


def drawn(seed: np.random.SeedSequence, mesh: int) -> Fields:
    rng = np.random.default_rng(seed)
    found = {"initial": rng.random(mesh), "viscosity": rng.uniform(0.003, 0.03), "time": rng.uniform(0.1, 2)}
    return found | forced(found, Conditions(mesh))


def test_the_mesh_is_read_once_for_defaults_and_varied_inputs(tmp_path: Path) -> None:
    problem = replace(
        PROBLEMS["burgers_flow"],
        sampler=drawn,
        baseline=Baseline("a sum", forced),
        optional=(Quantity(name="force", default=0.0),),
        vary=lambda rng, mesh: {"force": rng.random(mesh)},
    )
    path = prepare(Request(problem, 16, 0, 4, 0), tmp_path, ThisProcess(), progress=False)
    data = DataConfig(mesh=16, train=1, validation=0, test=4, grids=(8,))
    recipe = recipes.read_fields(recipes.find("burgers-tiny"), ["fit.noise=[]"])
    stored = Watched(recipe.model_copy(update={"data": data}), tmp_path)
    stored.problem = problem
    [cases] = stored.kinds(path, "test", 4, vary=True, apart=False)
    assert stored.seen == [16, (8,)]
    for case in cases:  # drawn, at the defaults, and varied: the solution of each has its own parameters
        initial, *force, viscosity, time = case.arguments
        expected = viscosity[:, None] * initial + time[:, None] + sum(force)
        np.testing.assert_allclose(case.targets, expected, rtol=1e-6)
    assert [len(case) for case in cases] == [2, 4, 2]
