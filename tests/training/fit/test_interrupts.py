"""A Ctrl-C that Python drops stops a training before its next batch."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from training.fit.interrupts import Interrupts


class Finaliser:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield Interrupts()
    signal.signal(signal.SIGINT, before)


def test_one_that_is_dropped_stops_the_next_batch(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: dropped.append(each.exc_type))
    interrupts.setup()
    interrupts.on_train_batch_start()
    Finaliser()
    assert dropped == [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        interrupts.on_train_batch_start()


@pytest.mark.parametrize("end", ["teardown", "on_exception"])
def test_any_other_raises_at_once_and_the_handler_is_put_back(end: str, interrupts: Interrupts) -> None:
    interrupts.setup()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    getattr(interrupts, end)()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_so(interrupts: Interrupts) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.setup()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
