"""Progress of a long batch: to a function, as a bar of rich, or none."""

from __future__ import annotations

import importlib.util

import pytest

from petrov_client import _flow as progress
from petrov_client._flow import reporting


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Hide these libraries, as if they were not installed."""
    monkeypatch.setattr(progress, "find_spec", lambda name: None if name in missing else importlib.util.find_spec(name))


def test_a_function_receives_the_numbers_done_and_in_all() -> None:
    seen: list[tuple[int, int]] = []
    with reporting(lambda done, total: seen.append((done, total)), "toy", 5) as advance:
        advance(2)
        advance(3)
    assert seen == [(2, 5), (5, 5)]


def test_no_report_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting(progress=False, title="toy", total=5) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_drawn_with_rich(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting(progress=True, title="toy", total=5) as advance:
        advance(5)
    assert "100%" in capsys.readouterr().err


def test_a_bar_without_rich_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "rich")
    with (
        pytest.raises(ModuleNotFoundError, match="pip install rich"),
        reporting(progress=True, title="toy", total=5),
    ):
        pass
