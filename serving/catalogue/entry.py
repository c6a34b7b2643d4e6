"""One model as the catalogue knows it, and the inputs that warm it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype

from schema.card import FRAME, GRID, Card
from serving.catalogue.repository import Stamp
from serving.triton import Batch, lack

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # between two attempts to load and warm a model
TURN_SECONDS = 2.0  # that a model stays loaded at least where not all of them fit


@dataclass(eq=False)
class Entry:
    """What is known of one model, also while it is gone from the repository."""

    name: str
    present: dict[int, Card] | None = None  # its versions in the repository, by number; None if it is gone
    base: str = ""  # of a companion: the model that it belongs to
    served: dict[int, Card] = field(default_factory=dict)
    faults: dict[int, tuple[str, str]] = field(default_factory=dict)  # for readiness, and with details for the log
    loading: asyncio.Task[None] | None = None
    began: float = 0.0
    files: Stamp = frozenset()  # in the repository
    stamp: Stamp | None = None  # of the files that it was loaded from
    attempted: Stamp | None = None  # of those of the last attempt, also once it has been unloaded
    ours: bool = False  # whether it was loaded on our request, and may be unloaded
    doubted: set[int] = field(default_factory=set)  # served versions that a request has failed on, to be warmed again
    doubts: float = -math.inf  # when they were doubted last
    again: float = 0.0  # when to try again after a failure, and the pause then
    pause: float = 0.0
    uses: int = 0
    calls: int = 0  # in flight
    withdrawn: float = -math.inf
    # Of a model that is loaded at its first use
    on_demand: bool = False
    used: float | None = None  # when it was used last, as long as it is wanted
    waits: int = 0  # requests that wait until it is loaded
    holds: int = 0  # open streams
    tried: bool = False  # whether it has been loaded, or was to be
    reserved: bool = False  # whether it is about to be loaded
    loaded: set[int] = field(default_factory=set)  # versions that Triton has loaded, by us or by another gateway
    since: float = -math.inf  # when it was loaded
    stays: float = -math.inf  # until when it is not unloaded for another model
    leaving: bool = False  # whether it takes no further requests, and is unloaded once it has answered those it has

    @property
    def newest(self) -> Card | None:
        """The card of the newest version in the repository, if one can be read."""
        return self.present[max(self.present)] if self.present else None

    @property
    def fit(self) -> dict[int, Card]:
        """The versions in the repository that have not failed, or for lack of memory alone, which may be over."""
        faults = {number for number, (_, message) in self.faults.items() if lack(message) is None}
        return {number: card for number, card in (self.present or {}).items() if number not in faults}

    def note(self, ready: Mapping[str, Collection[int]]) -> None:
        """Note which versions Triton has loaded."""
        found = set(ready.get(self.name, ()))
        if found and not self.loaded:
            self.since = time.monotonic()
            self.stays = self.since + TURN_SECONDS
        self.loaded = found

    @property
    def last_use(self) -> float:
        return max(self.since, self.used or -math.inf)

    @property
    def unneeded(self) -> bool:
        """Whether no request is in flight or waits, no stream is open, and it is not being loaded."""
        return not (self.calls or self.waits or self.holds or self.is_loading)

    @property
    def is_loading(self) -> bool:
        return self.loading is not None and not self.loading.done()

    def cold(self, ready: Mapping[str, Collection[int]]) -> set[int]:
        """Return the versions that Triton has loaded and that are not served, or doubted."""
        loaded, present = ready.get(self.name, ()), self.present or {}
        new = {each for each, card in present.items() if self.served.get(each) != card}
        return (new | self.doubted) & set(loaded)

    def delay(self) -> None:
        """Wait before the next attempt, twice as long as before the last one."""
        self.pause = min(max(FIRST_PAUSE, 2 * self.pause), LONGEST_PAUSE)
        self.again = time.monotonic() + self.pause

    @property
    def may_try(self) -> bool:
        return self.again <= time.monotonic()

    def report(self, number: int, fault: str, details: str, trace: BaseException | None = None) -> None:
        """Keep the fault of a version for readiness, and log it unless it was the last."""
        message = "\n".join(filter(None, [fault, details]))
        if self.faults.get(number) != (fault, message):
            logger.warning("%s version %d %s", self.name, number, message, exc_info=trace)
        self.faults[number] = fault, message

    def __str__(self) -> str:
        faults = [f"version {number} {fault}" for number, (fault, _) in sorted(self.faults.items())]
        return f"{self.name} ({'; '.join(faults)})" if faults else self.name


def samples(card: Card, max_bytes: int) -> Iterator[Batch]:
    """Yield the simplest inputs of each declared grid, one sample of ones, unless they are too large to be sent."""
    numbers: dict[str, NDArray[Any]] = {
        each.name: np.ones([size or 1 for size in each.sizes], np.float32) for each in card.parameters
    }
    if card.frames is not None:
        numbers[FRAME] = np.zeros((1, 1), np.int32)
    for grid in card.grid.shapes:
        shapes = {
            tensor.name: (
                1,
                *(size or 1 for size in tensor.leading),
                *(grid if tensor.points is None else tensor.points),
                *tensor.trailing,
            )
            for tensor in card.inputs
        }
        if all(4 * math.prod(shape) <= max_bytes for shape in shapes.values()):
            yield (
                {tensor.name: np.ones(shapes[tensor.name], triton_to_np_dtype(tensor.dtype)) for tensor in card.inputs}
                | numbers
                | ({GRID: np.zeros((1, *grid), np.int32)} if card.takes_grid else {})
            )
