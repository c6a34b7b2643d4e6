"""The race of own data: candidates train alternately, half of them go after each round, and the winner trains on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from schema.parts import Quantity
from training import checkpoint
from training import report as reports
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.evaluation import measures
from training.files import read_json, write_json
from training.fit import search
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import PRESETS, network, recipe
from training.fit.run import train
from training.fit.run_folder import RunFolder, read_log, training_seconds
from training.fit.search import Plan, Race
from training.fit.start import HANDICAP, LINEAR, ProblemRun, candidates, possible_sources, with_candidates
from training.fit.turns import Turn, TurnResult, unpack
from training.operators.field import FieldConfig
from training.problems.problem_file import ProblemFile
from training.recipe import Candidate, Recipe, changed
from training.report.page import choice

SMALL = (
    "operator.channels=4",
    "operator.heads=1",
    "operator.feedforward=4",
    "operator.layers=0",
    "operator.spectral=1",
)
SPLITS = ("train", "validation")
COUNTED = ("fit.epochs=12", "fit.seconds=1e9", "fit.batch=4")  # steps decide, on any machine


def problem(name: str = "line", **changes: object) -> ProblemFile:
    document: dict[str, object] = {
        "name": name,
        "data": {"files": ["line.npz"], "validation": 8, "test": 4},
        "inputs": {"k": {}},
        "outputs": {"u": {}},
        "axes": {"x": {"boundary": "periodic", "points": "left"}},
    }
    return ProblemFile.model_validate(document | changes)


@pytest.fixture
def samples(tmp_path: Path) -> SampleFile:
    """Return samples whose equation is the same at every point, but not for a flip of the axis."""
    k = np.random.default_rng(0).standard_normal((44, 12))
    np.savez(tmp_path / "line.npz", k=k, u=k + np.roll(k, 1, axis=1))
    return SampleFile(prepare(problem(), tmp_path, tmp_path), problem())


@pytest.fixture
def raced(samples: SampleFile) -> Recipe:
    found = changed(recipe(samples, "tiny"), [*SMALL, *COUNTED])
    entries = tuple(Candidate(name=f"{detail} channels", operator={"detail": detail}) for detail in (4, 2, 3))
    return found.model_copy(update={"race": entries})


class Trainings:
    """Stands for trainings of candidates, whose errors are known by their channels."""

    def __init__(self, errors: dict[int, float], last: int = 100) -> None:
        self.errors, self.last = errors, last
        self.turns: list[tuple[str, int, tuple[str, ...], float]] = []

    def __call__(self, turn: Turn) -> TurnResult:
        if len(self.turns) == self.last:
            raise KeyboardInterrupt
        entry, run = turn.recipe, turn.run
        assert run.newest() is not None or not entry.fit.symmetries
        self.turns.append((run.path.name, entry.operator.detail, entry.fit.symmetries, turn.until))
        run.state.mkdir(parents=True, exist_ok=True)
        torch.save({}, run.state / f"epoch={len(self.turns)}.ckpt")
        return TurnResult(self.errors[entry.operator.detail] - 0.01 * len(entry.fit.symmetries), 1.0)


def flips(entry: Recipe, state: Path) -> tuple[str, ...]:
    del entry
    assert state.is_file()
    return ("flip_x",)


def test_the_better_half_goes_on_and_the_symmetries_are_last(raced: Recipe, tmp_path: Path) -> None:
    trainings = Trainings({4: 0.3, 2: 0.2, 3: 0.4})
    event = Race(raced, RunFolder(tmp_path / "run"), (12,), trainings, flips)
    winner = event.winner()
    assert event.symmetries == ("flip_x", "shift_x", "negate")
    assert [turn[:3] for turn in trainings.turns] == [
        ("0", 4, ()), ("1", 2, ()), ("2", 3, ()),
        ("1", 2, ()), ("0", 4, ()),
        ("1-with", 2, ("flip_x",)), ("1", 2, ()),
    ]  # fmt: skip
    assert (winner.operator.detail, winner.fit.symmetries, winner.race) == (2, ("flip_x",), ())
    account = event.account()
    assert account["winner"] == "2 channels with flip_x"
    assert [round_["validation_error"] for round_ in account["rounds"]] == [
        {"4 channels": 0.3, "2 channels": 0.2, "3 channels": 0.4},
        {"2 channels": 0.2, "4 channels": 0.3},
        {"2 channels with flip_x": 0.19, "2 channels": 0.2},
    ]


def test_a_race_uses_a_third_and_the_winner_the_rest() -> None:
    plan = Plan.of(3, symmetries=True)
    used = float(np.dot(plan.counts, np.diff([0, *plan.shares])))
    assert used == pytest.approx(1 / 3)
    assert plan.shares[-1] + 2 / 3 == pytest.approx(1 - plan.race_budget)
    assert plan.until(2) == pytest.approx(plan.shares[2] / (1 - plan.race_budget))


def test_a_handicap_counts_in_the_comparison_alone(raced: Recipe, tmp_path: Path) -> None:
    first, *others = raced.race
    quick = raced.model_copy(update={"race": (first.model_copy(update={"handicap": 2.0}), *others)})
    event = Race(quick, RunFolder(tmp_path / "run"), (12,), Trainings({4: 0.1, 2: 0.18, 3: 0.19}), flips)
    assert event.winner().operator.detail == 2
    assert event.account()["rounds"][1]["validation_error"] == {"2 channels": 0.18, "3 channels": 0.19}


class Late(Trainings):
    """Trainings of which that of 4 channels learns nothing for two turns, and is by far the best later."""

    def __call__(self, turn: Turn) -> TurnResult:
        found, turns = super().__call__(turn), sum(done[0] == turn.run.path.name for done in self.turns)
        late = turn.recipe.operator.detail == 4 and (turns > 2 or turn.recipe.fit.symmetries)
        return TurnResult(0.1, 1.0) if late else found


def test_a_network_that_learns_late_does_not_lose_before_it_has_learned_anything(raced: Recipe, tmp_path: Path) -> None:
    """After its first turn it is behind by a difference that says nothing."""
    trainings = Late({4: 0.75, 2: 0.743, 3: 0.748})
    event = Race(raced, RunFolder(tmp_path / "run"), (12,), trainings, flips, naive=0.76)
    assert event.winner().operator.detail == 4
    rounds = [[*round_["validation_error"]] for round_ in event.account()["rounds"]]
    assert [len(names) for names in rounds] == [3, 3, 3, 2, 1 + 1]
    assert event.account()["naive"] == 0.76
    turns = [until for _, detail, symmetries, until in trainings.turns if detail == 4 and not symmetries]
    assert np.diff(turns) == pytest.approx(turns[0])  # each is as long as the first


def test_a_network_that_never_learns_is_dropped_in_the_end(raced: Recipe, tmp_path: Path) -> None:
    event = Race(raced, RunFolder(tmp_path / "run"), (12,), Trainings({4: 0.3, 2: 0.74, 3: 0.5}), flips, naive=0.76)
    assert event.winner().operator.detail == 4
    rounds = [[*round_["validation_error"]] for round_ in event.account()["rounds"]]
    assert [sorted(names) for names in rounds[:-1]] == [
        ["2 channels", "3 channels", "4 channels"],
        ["2 channels", "3 channels", "4 channels"],
        ["3 channels", "4 channels"],
    ]


@pytest.mark.parametrize(("error", "rounds"), [(measures.LOST, [3, 3]), (search.LOST, [3, 2])])
def test_a_network_whose_rollouts_overflow_may_learn_late_and_one_that_diverges_may_not(
    raced: Recipe, tmp_path: Path, error: float, rounds: list[int]
) -> None:
    event = Race(raced, RunFolder(tmp_path / "run"), (12,), Trainings({4: 0.3, 2: error, 3: 0.5}), flips, naive=0.76)
    event.winner()
    assert [len(each["validation_error"]) for each in event.account()["rounds"]][:2] == rounds


def test_no_symmetry_is_found_by_a_network_that_has_learned_nothing(raced: Recipe, tmp_path: Path) -> None:
    """Its errors of moved samples are as large as those of all others, whatever the equation is."""
    event = Race(raced, RunFolder(tmp_path / "run"), (12,), Trainings({4: 0.75, 2: 0.74, 3: 0.745}), flips, naive=0.76)
    assert event.winner().fit.symmetries == ()
    account = event.account()
    assert account["symmetries"]["not_contradicted"] is None
    assert choice(account).endswith("No symmetry was tried, since no network had learned anything yet.")
    assert "the validation samples contradict" not in choice(account)


def test_what_is_predicted_without_a_network_is_the_mean(raced: Recipe, samples: SampleFile) -> None:
    outputs = {split: samples.file["u"][samples.split(split).start : samples.split(split).stop] for split in SPLITS}
    truth, mean = outputs["validation"], outputs["train"].mean(axis=0)
    errors = np.linalg.norm(truth - mean, axis=1) / np.linalg.norm(truth, axis=1)
    assert search.naive_error(OperatorWorkload(raced, samples.path.parent)) == pytest.approx(errors.mean(), rel=1e-5)


def test_the_last_frame_says_nothing_where_frames_are_far_apart(tmp_path: Path) -> None:
    """As in a chaotic flow: to repeat it has an error of 1.4, to predict the mean one of 1, both without a network."""
    file = problem("far", inputs={"start": {"key": "u"}}, time={"step": 1.0})
    np.savez(tmp_path / "line.npz", u=np.random.default_rng(0).standard_normal((24, 9, 64)))
    samples = SampleFile(prepare(file, tmp_path, tmp_path), file)
    assert search.naive_error(OperatorWorkload(recipe(samples, "tiny"), tmp_path)) == pytest.approx(1, rel=0.02)


def test_the_mean_frame_has_components_and_is_nothing_outside_a_domain(tmp_path: Path) -> None:
    """Means of 3 and -1 beside deviations of 1, on half of the line: their error is the root of 1/6."""
    vector = {"components": ["x", "y"]}
    file = problem(
        "half", inputs={"start": {"key": "u"} | vector}, outputs={"u": vector}, mask={"key": "in"}, time={"step": 1.0}
    )
    inside = np.broadcast_to(np.arange(32) < 16, (24, 32))
    u = np.random.default_rng(0).standard_normal((24, 9, 2, 32)) + np.array([3, -1])[:, None]
    np.savez(tmp_path / "line.npz", u=u * inside[:, None, None], **{"in": inside.astype(np.float32)})
    samples = SampleFile(prepare(file, tmp_path, tmp_path), file)
    assert search.naive_error(OperatorWorkload(recipe(samples, "tiny"), tmp_path)) == pytest.approx(6**-0.5, rel=0.05)


def test_a_killed_race_repeats_no_turn(raced: Recipe, tmp_path: Path) -> None:
    errors, run = {4: 0.3, 2: 0.2, 3: 0.4}, RunFolder(tmp_path / "run")
    whole = Trainings(errors)
    expected = Race(raced, RunFolder(tmp_path / "other"), (12,), whole, flips).winner()
    found = []
    for last in (0, 1, 2, 2, 100):
        part = Trainings(errors, last)
        with suppress(KeyboardInterrupt):
            winner = Race(raced, run, (12,), part, flips).winner()
        found += part.turns
    assert winner == expected
    assert found == whole.turns


@pytest.mark.parametrize("release", ["this", "an earlier one"])
def test_what_is_decided_stays_decided_when_the_rule_is_another_one(
    raced: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    """As in a run that an earlier release began: nothing was learned, and half of the networks went."""
    errors, run = {4: 0.95, 2: 0.93, 3: 0.97}, RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(search, "PATIENCE", {False: 0, True: 0})
        with suppress(KeyboardInterrupt):
            Race(raced, run, (12,), Trainings(errors, last=4), flips, naive=1.0).winner()
    file = run.state / "race" / "race.json"
    if release != "this":
        write_json(file, {key: each for key, each in read_json(file).items() if key != "left"})
    rest = Trainings(errors)
    event = Race(raced, run, (12,), rest, flips, naive=1.0)
    assert event.winner().operator.detail == 2
    assert {turn[0] for turn in rest.turns} == {"0", "1"}
    assert not event.run_of("3 channels").path.exists()


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        ("metrics.csv", set()),
        ("state/epoch=1.ckpt", {"metrics.csv"}),
        ("recipe.json", {"metrics.csv", "state/epoch=1.ckpt"}),
    ],
)
def test_files_that_come_back_in_part_are_those_of_a_run_that_goes_on(
    tmp_path: Path, fails: str, expected: set[str]
) -> None:
    """The log is first, as rows of epochs that are repeated are dropped; the recipe, of a run that has begun, last."""
    files = dict.fromkeys(("state/epoch=1.ckpt", "recipe.json", "metrics.csv"), b"")
    (tmp_path / fails).mkdir(parents=True)  # where no file can be written
    with pytest.raises(OSError, match=fails):
        unpack(files, tmp_path)
    assert {name for name in files if (tmp_path / name).is_file()} == expected


def test_a_race_is_trained_and_reported_and_a_killed_one_gives_the_same_model(
    raced: Recipe, samples: SampleFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = samples.path.parent
    first = checkpoint.load(train(raced, tmp_path / "1", data))
    assert first.recipe.race == ()
    assert first.card.race["winner"].startswith(f"{first.recipe.operator.detail} channels")
    assert [len(each["validation_error"]) for each in first.card.race["rounds"]] == [3, 3, 3, 2, 2]
    rows = read_log(tmp_path / "1/metrics.csv")
    assert [float(row["share"]) for row in rows] == sorted(float(row["share"]) for row in rows)
    assert float(rows[0]["share"]) < 0.1
    assert float(rows[-1]["share"]) == 1
    assert not (tmp_path / "1/state").exists()
    report = reports.collect(tmp_path / "1", data)
    page = reports.write(report, tmp_path / "1").read_text()
    assert "Choice of the network" in page
    assert f"Network: {first.card.race['winner'].partition(' with ')[0]}, the best of 3 in the first 52 %" in page
    assert report.times.training > training_seconds(tmp_path / "1/metrics.csv")

    def killed(*_: object) -> float:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(search, "supported", killed)
        with pytest.raises(KeyboardInterrupt):
            train(raced, tmp_path / "2", data)
    second = checkpoint.load(train(raced, tmp_path / "2", data, resume=True))
    assert second.card.race["rounds"] == first.card.race["rounds"]
    for one, other in zip(second.operator.parameters(), first.operator.parameters(), strict=True):
        assert torch.equal(one, other)


def test_symmetries_that_samples_contradict_are_found(raced: Recipe, samples: SampleFile) -> None:
    """The equation of the fixture is that of a shift: a perfect network is as good on shifted samples alone."""

    class Exact(torch.nn.Module):
        def forward(self, k: torch.Tensor) -> torch.Tensor:
            return k + k.roll(1, 1) + 0.01 * torch.sin(7 * k)

    work = OperatorWorkload(raced, samples.path.parent)
    task = work.task()
    task.network = Exact()
    assert search.supported(work, task, ("flip_x", "shift_x", "negate")) == ("shift_x", "negate")


@pytest.mark.parametrize("wind", [0.5, 0.05, 0.0])
def test_symmetries_that_the_wind_of_the_samples_contradicts_are_not_found(wind: float, tmp_path: Path) -> None:
    """A constant wind along the columns is in no input: it forbids their flip and the transpose, and no other."""
    plane = problem("wind", axes={name: {"boundary": "periodic", "points": "left"} for name in ("row", "column")})
    k = np.random.default_rng(0).standard_normal((44, 8, 8))
    np.savez(tmp_path / "line.npz", k=k, u=k + wind * (np.roll(k, 1, axis=2) - np.roll(k, -1, axis=2)))
    samples = SampleFile(prepare(plane, tmp_path, tmp_path), plane)

    class Trained(torch.nn.Module):
        """Has learned the wind, but for a tenth of it, and no symmetry."""

        def forward(self, k: torch.Tensor) -> torch.Tensor:
            return k + 0.9 * wind * (k.roll(1, 2) - k.roll(-1, 2)) + 0.01 * torch.sin(7 * k + k.roll(1, 2))

    recipe_ = changed(recipe(samples, "tiny"), [*SMALL, *COUNTED])
    raced = recipe_.model_copy(update={"race": (Candidate(name="a"), Candidate(name="b"))})
    asked: list[tuple[str, ...]] = []

    def find_symmetries(entry: Recipe, state: Path) -> tuple[str, ...]:
        del state
        work = OperatorWorkload(entry, tmp_path)
        task = work.task()
        task.network = Trained()
        asked.append(search.supported(work, task, event.symmetries))
        return asked[-1]

    trainings = Trainings({raced.operator.detail: 0.2})
    event = Race(raced, RunFolder(tmp_path / "run"), samples.sides, trainings, find_symmetries)
    winner = event.winner()
    contradicted = {"flip_column", "transpose"} if wind else set()
    assert {*event.symmetries} - {*asked[0]} == contradicted
    assert contradicted < {*event.symmetries}
    assert contradicted.isdisjoint(winner.fit.symmetries)
    assert all(contradicted.isdisjoint(turn[2]) for turn in trainings.turns)


def test_candidates_are_kinds_and_sizes_of_what_the_preset_chooses(samples: SampleFile) -> None:
    found = candidates(network(samples, PRESETS["quick"]), samples.problem.inputs)
    assert {one.name: one.handicap for one in found} == {
        "U-Net and gated spectral layers, 32 channels": 1.0,
        "gated spectral layers, 32 channels": 1.0,
        "layers linear in k, 32 channels": 1 / LINEAR,
    }
    made = with_candidates(recipe(samples, "quick"), samples)
    for one in made.race:
        OperatorWorkload(changed(made, one.overrides), samples.path.parent).network()
    assert with_candidates(recipe(samples, "tiny"), samples).race == ()


def test_spectral_layers_alone_have_a_handicap_on_planes_and_linear_ones_an_advantage() -> None:
    sizes: dict[str, Any] = {"periodic": (False, False), "points": ("nodes", "nodes"), "working": (8, 8)}
    fields: dict[str, Any] = {"input_components": (0,), "input_scales": ("linear",)}
    outputs: dict[str, Any] = {"output_components": (0,), "output_scales": ("linear",)}
    plain = FieldConfig(**fields, **outputs, **sizes, layers=1, detail=16)
    source, coefficient = Quantity(name="f"), Quantity(name="k", positive=True)
    gated = plain.model_copy(update={"layers": 0, "gated": True, "linear": (False,), "unet": 1, "gate": "sigmoid"})
    found = {one.name: one.handicap for one in candidates(gated, (coefficient,))}
    assert found == {
        "U-Net and gated spectral layers, 16 channels": 1.0,
        "gated spectral layers, 16 channels": HANDICAP,
    }
    assert [one.handicap for one in candidates(gated, (source,))] == [1.0, HANDICAP, 1 / LINEAR]
    assert [one.operator.get("unet", 1) for one in candidates(gated, (source,))] == [1, 0, 0]
    declared = candidates(gated.model_copy(update={"linear": (True,), "unet": 0}), (source,))
    assert [one.name for one in declared] == ["linear layers, 16 channels", "U-Net and linear layers, 16 channels"]
    assert [one.handicap for one in candidates(plain, (source,))] == [1.0, 1.0, HANDICAP] * 2


def test_an_equation_may_be_linear_in_fields_of_both_signs() -> None:
    fields = [Quantity(name="k", positive=True), Quantity(name="f"), Quantity(name="v", components=("x", "y"))]
    assert possible_sources(fields) == [("f",), ("v",), ("f", "v")]
    assert possible_sources(fields[:1]) == []


def test_a_declared_input_is_linear_in_every_network(samples: SampleFile) -> None:
    declared = SampleFile(samples.path, problem(inputs={"k": {"linear": True}}))
    made = with_candidates(recipe(declared, "quick"), declared)
    assert [one.name for one in made.race] == ["linear layers, 32 channels", "U-Net and linear layers, 32 channels"]
    assert [changed(made, one.overrides).operator.linear for one in made.race] == [(True,)] * 2
    assert recipe(declared, "tiny").operator.linear == (True,)
    assert declared.described == samples.described


@pytest.mark.usefixtures("samples")
def test_a_network_that_is_chosen_has_no_race(tmp_path: Path) -> None:
    def raced(*overrides: str) -> Sequence[Candidate]:
        return ProblemRun(problem(), "quick", overrides, tmp_path, folder=tmp_path).recipe().race

    assert len(raced()) == 3
    assert raced("operator.layers=2") == raced("race=[]") == ()
    assert len(raced("fit.seconds=60")) == 3
