"""The profiler: exact memory, exponents of known costs, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

from benchmarks.commands import app
from benchmarks.profile import (
    PUBLISHED,
    ProfileError,
    Settings,
    attention_type,
    claims,
    compute_as,
    exponent,
    growth,
    measure,
    pair_bytes,
    peak_bytes,
)
from training.nn.attention import build_attention

CPU = torch.device("cpu")
SMALL = Settings(batch=1, repeats=1, channels=32, heads=4, layers=2)


def row(form: str, length: int, *, backward: tuple[float, ...] = (1.0,), why: str | None = None) -> dict[str, Any]:
    return {
        "subject": "attention",
        "form": form,
        "length": length,
        "points": length,
        "forward_seconds": [1e-3 * length] * len(backward),
        "backward_seconds": list(backward),
        "peak_bytes": 1,
        "skipped": why,
    }


def test_memory_of_a_product_is_its_matrix() -> None:
    Q = torch.randn(2, 300, 8)
    assert peak_bytes(lambda: Q @ Q.mT, CPU) == 2 * 300 * 300 * 4


def test_memory_is_that_of_the_peak_and_not_the_sum() -> None:
    def work() -> None:
        for _ in range(3):
            torch.empty(1000)  # allocated and released
        a, b = torch.empty(600), torch.empty(600)  # both exist at once
        del a, b
        torch.empty(100)

    assert peak_bytes(work, CPU) == 4800


def test_memory_sees_what_autograd_keeps() -> None:
    x = torch.ones(1000, requires_grad=True)

    def work() -> None:
        y = x.exp().exp().exp()  # each result is kept for its own derivative
        del y

    assert peak_bytes(work, CPU) == 3 * 4000
    with torch.no_grad():
        assert peak_bytes(work, CPU) == 2 * 4000


def test_work_without_memory_has_none() -> None:
    x = torch.ones(1000)
    assert peak_bytes(lambda: x.add_(x), CPU) == 0


def test_memory_is_the_same_at_every_run() -> None:
    found = [[each["peak_bytes"] for each in measure(["attention"], lengths(64))] for _ in range(2)]
    assert found[0] == found[1]
    assert min(found[0]) > 0


def lengths(*values: int) -> Settings:
    return replace(SMALL, lengths=values)


def test_galerkin_and_fourier_grow_linearly_in_memory_and_explicit_softmax_does_not() -> None:
    rows = measure(["attention", "encoder"], lengths(256, 512))
    found = {name: powers["memory"] for name, powers in growth(rows).items()}
    for subject in ("attention", "encoder"):
        assert max(found[subject, form] for form in ("galerkin", "fourier", "linear", "softmax")) <= 1.1
        assert found[subject, "softmax-explicit"] > 1.7
        assert found[subject, "fourier-explicit"] > 1.7


def test_fourier_takes_a_third_less_memory_than_softmax_as_the_paper_computes_both() -> None:
    found = {each["title"]: each["found"] for each in claims(measure(["attention"], lengths(1024)))}
    assert 0.3 < found["memory, both as published"] < 0.4
    assert found["memory, best form against published"] > 0.9
    assert found["memory, both in their best form"] > 0


@pytest.mark.parametrize("form", ["fourier-explicit", "softmax-explicit"])
def test_explicit_forms_give_the_same_numbers(form: str) -> None:
    attention = build_attention(attention_type(form), 12, 3, 1).double()
    tokens, positions = torch.randn(2, 17, 12, dtype=torch.float64), torch.rand(17, 1)
    best = attention(tokens, positions=positions)
    compute_as(form, nn.ModuleList([attention]))
    torch.testing.assert_close(attention(tokens, positions=positions), best)


@pytest.mark.parametrize("form", ["fourier-explicit", "softmax-explicit"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_estimate_of_pairs_is_close_to_what_is_measured(form: str, dropout: float) -> None:
    settings = replace(lengths(512), types=(form,), dropout=dropout, limit_gb=1.0)
    (measured,) = measure(["encoder"], settings)
    layers = nn.ModuleList(build_attention(attention_type(form), 32, 4, 1, dropout=dropout) for _ in range(2))
    assert 0.7 < pair_bytes(layers, [512, 512], batch=1) / measured["peak_bytes"] < 1.4


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
        row("linear", 256, why="too large"),
    ]
    (found,) = claims(rows)
    assert (found["length"], found["found"], found["unit"]) == (128, 0.5, "faster")


def test_pairs_beyond_the_limit_are_skipped_with_the_reason() -> None:
    settings = replace(lengths(256), limit_gb=1e-4)
    explicit = {each["form"]: each["skipped"] for each in measure(["attention"], settings)}
    assert [form for form, why in explicit.items() if why] == ["fourier-explicit", "softmax-explicit"]
    assert "its n x n matrices would take 0.0" in explicit["softmax-explicit"]


def test_dropout_makes_fourier_form_pairs() -> None:
    settings = replace(lengths(256), limit_gb=1e-4, dropout=0.5, types=("galerkin", "fourier"))
    galerkin, fourier = measure(["attention"], settings)
    assert galerkin["skipped"] is None
    assert fourier["skipped"] is not None


@pytest.mark.parametrize(
    ("subject", "change", "message"),
    [
        ("attention", {"types": ("softmaxx",)}, "galerkin, fourier.*'softmaxx'"),
        ("attention", {"device": "cud"}, "'cud'"),
        ("attention", {"heads": 5}, "multiple of heads"),
        ("attentoin", {}, "no recipe 'attentoin'"),
    ],
)
def test_an_impossible_profile_is_refused_with_the_reason(subject: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        measure([subject], replace(SMALL, **change))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_cuda_device_is_named() -> None:
    with pytest.raises(ProfileError, match="--device cpu"):
        measure(["attention"], replace(SMALL, device="cuda"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_memory_of_a_product_is_its_matrix() -> None:
    Q = torch.randn(2, 512, 8, device="cuda")
    Q @ Q.mT  # the library allocates its own workspace once
    assert peak_bytes(lambda: Q @ Q.mT, Q.device) == 2 * 512 * 512 * 4


@pytest.mark.parametrize("recipe", ["burgers-paper", "darcy-paper", "darcy_inverse-paper"])
def test_whole_examples_are_profiled(recipe: str) -> None:
    settings = Settings(batch=1, repeats=1, lengths=(64,) if recipe == "burgers-paper" else None)
    (found,) = measure([recipe], settings)
    assert found["form"] == ("fourier" if recipe == "burgers-paper" else "galerkin")
    assert found["points"] == (64 if recipe == "burgers-paper" else 141**2)
    assert found["peak_bytes"] > 0


def test_the_command_writes_its_profile_and_its_chart(tmp_path: Path) -> None:
    written, drawn = tmp_path / "a" / "profile.json", tmp_path / "b" / "profile.png"
    options = [
        "--batch",
        "1",
        "--repeats",
        "2",
        "--layers",
        "2",
        "--lengths",
        "32,64",
        "--channels",
        "8",
        "--heads",
        "2",
    ]
    done = CliRunner().invoke(
        app, ["profile", "attention", "encoder", *options, "--json", str(written), "--plot", str(drawn)]
    )
    assert done.exit_code == 0, done.output
    assert "growth" in done.output
    found = json.loads(written.read_text())
    assert {(each["subject"], each["form"], each["length"]) for each in found["rows"]} == {
        (subject, form, length) for subject in ("attention", "encoder") for form in PUBLISHED for length in (32, 64)
    }
    assert all(len(each["forward_seconds"]) == len(each["backward_seconds"]) == 2 for each in found["rows"])
    assert found["settings"]["channels"] == 8
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_the_help_names_forms_and_options() -> None:
    printed = CliRunner().invoke(app, ["profile", "--help"], env={"COLUMNS": "200"}).output
    assert all(text in printed for text in ("fourier-explicit", "--lengths", "--limit-gb", "darcy-paper"))


def test_a_length_that_is_no_number_is_named() -> None:
    done = CliRunner().invoke(app, ["profile", "attention", "--lengths", "64,many"])
    assert done.exit_code != 0
    assert "many" in done.output
