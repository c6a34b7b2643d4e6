"""The profiler: exact memory, exponents of known costs, and the command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.commands import app
from benchmarks.profile import PUBLISHED, SUFFIX, built, claims, exponent, growth, measure, peak_bytes

SMALL = {"repeats": 1, "channels": 32}


def row(form: str, length: int, *, backward: tuple[float, ...] = (1.0,)) -> dict[str, Any]:
    return {
        "form": form,
        "length": length,
        "forward_seconds": [1e-3 * length] * len(backward),
        "backward_seconds": list(backward),
        "peak_bytes": 1,
    }


def test_memory_of_a_product_is_its_matrix() -> None:
    Q = torch.randn(2, 300, 8)
    assert peak_bytes(lambda: Q @ Q.mT) == 2 * 300 * 300 * 4


def test_memory_is_that_of_the_peak_and_not_the_sum() -> None:
    def work() -> None:
        for _ in range(3):
            torch.empty(1000)  # allocated and released
        a, b = torch.empty(600), torch.empty(600)  # both exist at once
        del a, b
        torch.empty(100)

    assert peak_bytes(work) == 4800


def test_memory_sees_what_autograd_keeps() -> None:
    x = torch.ones(1000, requires_grad=True)

    def work() -> None:
        y = x.exp().exp().exp()  # each result is kept for its own derivative
        del y

    assert peak_bytes(work) == 3 * 4000
    with torch.no_grad():
        assert peak_bytes(work) == 2 * 4000


def test_work_without_memory_has_none() -> None:
    x = torch.ones(1000)
    assert peak_bytes(lambda: x.add_(x)) == 0


def test_memory_is_the_same_at_every_run() -> None:
    found = [[each["peak_bytes"] for each in measure(PUBLISHED, [64], **SMALL)] for _ in range(2)]
    assert found[0] == found[1]
    assert min(found[0]) > 0


def test_galerkin_and_fourier_grow_linearly_in_memory_and_explicit_softmax_does_not() -> None:
    found = {name: powers["memory"] for name, powers in growth(measure(PUBLISHED, [256, 512], **SMALL)).items()}
    assert max(found[form] for form in ("galerkin", "fourier", "linear", "softmax")) <= 1.1
    assert found["softmax-explicit"] > 1.7
    assert found["fourier-explicit"] > 1.7


@pytest.mark.deep
def test_fourier_takes_a_third_less_memory_than_softmax_as_the_paper_computes_both() -> None:
    found = {each["title"]: each["found"] for each in claims(measure(PUBLISHED, [1024], **SMALL))}
    assert 0.3 < found["memory, both as published"] < 0.4
    assert found["memory, best form against published"] > 0.9
    assert found["memory, both in their best form"] > 0


@pytest.mark.parametrize("form", ["fourier-explicit", "softmax-explicit"])
def test_explicit_forms_give_the_same_numbers(form: str) -> None:
    best, explicit = (built(name, 12, 3).double() for name in (form.removesuffix(SUFFIX), form))
    explicit.load_state_dict(best.state_dict())
    tokens, positions = torch.randn(2, 17, 12, dtype=torch.float64), torch.rand(17, 1)
    torch.testing.assert_close(explicit(tokens, positions=positions), best(tokens, positions=positions))


@given(power=st.floats(0.1, 3), factor=st.floats(1e-6, 1e6))
def test_exponents_are_those_of_the_costs(power: float, factor: float) -> None:
    points = [128, 256, 1024, 4096]
    assert exponent(points, [factor * n**power for n in points]) == pytest.approx(power, abs=1e-3)


def test_exponents_are_a_least_squares_fit() -> None:
    points = [1, 2, 4]
    assert exponent(points, [1.0, 2.0, 4 * math.e]) == pytest.approx(1 + 1 / (2 * math.log(2)), abs=1e-3)


@pytest.mark.parametrize(("points", "costs"), [([8], [1.0]), ([8, 8], [1.0, 1.0]), ([8, 16], [0.0, 1.0])])
def test_too_little_to_fit_is_refused(points: list[int], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="two or more lengths"):
        exponent(points, costs)


def test_backward_times_are_compared_round_by_round_at_the_largest_common_length() -> None:
    rows = [
        row("galerkin", 64, backward=(1.0,)),
        row("linear", 64, backward=(9.0,)),
        row("galerkin", 128, backward=(1.0, 2.0, 30.0)),
        row("linear", 128, backward=(1.5, 3.0, 33.0)),
        row("galerkin", 256, backward=(1.0,)),
    ]
    (found,) = claims(rows)
    assert (found["length"], found["found"], found["unit"]) == (128, 0.5, "faster")


@pytest.mark.parametrize(
    ("form", "heads", "message"),
    [("softmaxx", 4, "kind of attention to profile among galerkin, .*'softmaxx'"), ("softmax", 5, "multiple of heads")],
)
def test_an_impossible_profile_is_refused_with_the_reason(form: str, heads: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure([form], [64], channels=32, heads=heads)


def test_the_command_writes_its_profile(tmp_path: Path) -> None:
    written = tmp_path / "a" / "profile.json"
    options = ["--repeats", "2", "--lengths", "32,64", "--channels", "8", "--json", str(written)]
    done = CliRunner().invoke(app, ["attention", *options])
    assert done.exit_code == 0, done.output
    found = json.loads(written.read_text())
    assert {(each["form"], each["length"]) for each in found["rows"]} == {
        (form, length) for form in PUBLISHED for length in (32, 64)
    }
    assert all(len(each["forward_seconds"]) == len(each["backward_seconds"]) == 2 for each in found["rows"])
    assert found["channels"] == 8


def test_a_length_that_is_no_number_is_named() -> None:
    done = CliRunner().invoke(app, ["attention", "--lengths", "64,many"])
    assert done.exit_code != 0
    assert "many" in done.output
