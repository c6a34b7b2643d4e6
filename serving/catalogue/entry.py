"""One model as the catalogue knows it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from schema.card import Card
from serving.catalogue.repository import Stamp
from serving.failures import lack

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # between two attempts to load and warm a model
DOUBT_SECONDS = 30.0  # between two attempts to warm a model anew that fails
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
    expected: bool = False  # whether the gateway is ready only with it: it has been, since it was new
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
        """Note which versions Triton has loaded, and forget those that it has not."""
        found = set(ready.get(self.name, ()))
        if found and not self.loaded:
            self.since = time.monotonic()
            self.stays = self.since + TURN_SECONDS
        self.loaded = found
        kept = {number: card for number, card in self.served.items() if number in found & (self.present or {}).keys()}
        if self.served and not kept:
            self.withdrawn = time.monotonic()
        self.served = kept

    def lose(self) -> None:
        """Forget what Triton has loaded, and what has failed: the process that comes back is cold."""
        self.served, self.loaded, self.stamp = {}, set(), None
        self.again = self.pause = 0.0
        if self.base and not (self.calls or self.waits):
            self.used = None

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

    def withdraw(self, number: int) -> None:
        """Forget a version that Triton has unloaded, or that fails."""
        self.withdrawn = time.monotonic()
        self.served = {each: card for each, card in self.served.items() if each != number}

    def doubt(self, number: int) -> None:
        """Have a version warmed again that a request has failed on, unless that was done a moment ago."""
        if not self.base and number in self.served and time.monotonic() - self.doubts > DOUBT_SECONDS:
            self.doubts = time.monotonic()
            self.doubted.add(number)

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
