"""Ctrl-C stops a training even where Python drops it."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

import lightning.pytorch as pl


class Interrupts(pl.Callback):
    """Stop a training at Ctrl-C, before its next batch at the latest.

    An exception that is raised in a finaliser, or in what a library calls back, is printed and dropped by Python, and
    so is a KeyboardInterrupt that comes then. Where another handler is installed, or SIGINT is ignored as by `nohup`,
    nothing is changed.
    """

    def __init__(self) -> None:
        self.pressed = False

    def setup(self, *_: Any, **__: Any) -> None:
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._press)

    def teardown(self, *_: Any, **__: Any) -> None:
        if signal.getsignal(signal.SIGINT) == self._press:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def on_exception(self, *_: Any) -> None:
        self.teardown()  # which Lightning leaves out then; another training of this process has its own

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        if self.pressed:
            raise KeyboardInterrupt

    def _press(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        signal.default_int_handler(number, frame)
