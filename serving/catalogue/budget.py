"""The memory that models may take together, and whose turn it is where not all of them fit.

A model's share is what its processes took when they were last measured; before, a stated estimate and the size of its
files. A request for a model that is not loaded waits until it fits: in the order of asking, so that none is passed
over. Models that no request has used for the longest time leave first. Where all are in use, one that has had its turn
takes no further requests, finishes those that it has, and leaves; its further requests wait for its next turn behind
the others. A turn is as long as the load before it at least, so that half of the time is work. A model with an open
stream stays, since its client would wait for the next frame.

Several gateways before one Triton see the same list of loaded models and when each was last used, and each of them may
unload any; Triton finishes the requests that a model has. None knows of another's streams and of its further calls of
a request: these wait until their model is loaded again. Two that load at one moment may exceed the budget by a model.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import Counter, Gauge

from serving.catalogue.entry import TURN_SECONDS, Entry
from serving.device import Device
from serving.errors import Problem
from serving.settings import Settings
from serving.triton import Triton

logger = logging.getLogger(__name__)
MEBIBYTE = 2**20
#: What the process of an instance takes before its first request, and how many processes a version has. On an H100 ten
#: models took 590 to 750 MiB each; of a machine's memory they took 30 to 60 MiB beside what they share.
INSTANCE_BYTES, INSTANCES = {"gpu": 750 * MEBIBYTE, "cpu": 100 * MEBIBYTE}, {"gpu": 1, "cpu": 2}
#: Of a card, for what grows with requests and for other programs: a tenth, and a gibibyte at least.
RESERVE, RESERVE_BYTES = 0.1, 2**30
UNUSED_SECONDS = 10.0  # after which a model leaves where the others have grown beyond the budget
MEASURE_SECONDS = 30.0  # between two measurements: memory grows with the largest batch so far
_PAUSE, _UNLOAD_SECONDS = 0.02, 30.0
_ASK_SECONDS = 0.5  # between two requests for when each model was used last


class Instruments(NamedTuple):
    """The metrics of a catalogue, of which `serving.observe` says what they mean."""

    newest_served: Gauge
    loads: Counter
    unloads: Counter
    models_bytes: Gauge
    models_limit: Gauge


@dataclass(frozen=True)
class Limit:
    """How many bytes of which memory all models may take."""

    bytes: int
    kind: str  # `gpu` or `cpu`

    @classmethod
    def of(cls, settings: Settings, device: Device | None) -> Limit | None:
        """Return the budget that the settings ask for, or that a card has; None where there is none."""
        wanted: int | None
        if device is not None and device.kind == "cpu":
            wanted, kind = settings.model_memory, "cpu"
        elif device is not None and settings.gpu_memory is None:
            wanted, kind = device.memory_bytes - max(RESERVE_BYTES, int(RESERVE * device.memory_bytes)), "gpu"
        else:  # of a Triton that runs elsewhere the settings alone say what it computes on
            kind = "cpu" if settings.gpu_memory is None else "gpu"
            wanted = settings.model_memory if settings.gpu_memory is None else settings.gpu_memory
        return cls(wanted, kind) if wanted and wanted > 0 else None


class Budget:
    """The budget of a catalogue; without a `limit`, every model fits.

    `measured` returns the bytes of each model of a local Triton; `index` asks Triton which models it has loaded, and
    notes that in the entries.
    """

    def __init__(
        self,
        triton: Triton,
        entries: Callable[[], Iterable[Entry]],
        index: Callable[[], Awaitable[object]],
        metrics: Instruments,
    ) -> None:
        self.limit: Limit | None = None
        self.measured: Callable[[], Mapping[str, int]] = dict
        self._triton, self._entries, self._index, self._metrics = triton, entries, index, metrics
        self._order = asyncio.Lock()  # whose waiting tasks go on in the order in which they came
        self._known: dict[str, int] = {}
        self._again = self._asked = 0.0  # when to measure, and to ask for the last uses

    def share(self, entry: Entry) -> int:
        """Return the bytes that a model takes or will take."""
        if (known := self._known.get(entry.name)) is not None:
            return known
        kind = self.limit.kind if self.limit else "cpu"
        files = sum(size for _, _, size in entry.files)
        return max(1, len(entry.present or ())) * INSTANCES[kind] * INSTANCE_BYTES[kind] + files

    def taken(self) -> dict[str, int]:
        """Return the bytes of each model that is loaded, or is about to be."""
        loading = self._triton.loading  # for other gateways, too
        there = (each for each in self._entries() if each.loaded or each.reserved or each.name in loading)
        return {each.name: self.share(each) for each in there}

    def fits(self, entry: Entry) -> bool:
        """Tell whether a model fits beside those that are loaded; one that is larger than the budget fits alone."""
        if self.limit is None:
            return True
        others = self.taken()
        others.pop(entry.name, None)
        return not others or sum(others.values()) + self.share(entry) <= self.limit.bytes

    async def admit(self, entry: Entry) -> bool:
        """Reserve the memory of a model, once it fits; False where no request waits for it any more."""
        async with self._order:
            await self._index()  # what another gateway has loaded since the last look takes memory, too
            while not self._has_room(entry):
                if not entry.waits or not await self._make_room(entry):
                    return False
                await self._index()
            entry.reserved = True
            return True

    def _has_room(self, entry: Entry) -> bool:
        return bool(entry.loaded) or self.fits(entry)  # another gateway may have loaded it, too

    async def _make_room(self, entry: Entry) -> bool:
        """Unload one model for another; False where no request waits for that any more."""
        leaving: Entry | None = None
        try:
            while entry.waits:
                if self._has_room(entry):  # another gateway has unloaded one, perhaps before any was chosen here
                    return True
                if leaving is None and (leaving := await self._next(entry)) is not None:
                    leaving.leaving = True
                if leaving is not None and not leaving.loaded:
                    return True
                if leaving is not None and leaving.holds:  # a stream has begun
                    leaving.leaving, leaving = False, None
                elif leaving is not None and not leaving.calls:
                    await self.unload(leaving, "memory")
                    return True
                await asyncio.sleep(_PAUSE)
            return False
        finally:
            if leaving is not None:
                leaving.leaving = False

    async def _next(self, entry: Entry) -> Entry | None:
        """Return the model that leaves next for another: an idle one, else one that has been loaded the longest.

        None while that one has not had its turn.
        """
        if time.monotonic() > self._asked:
            await asyncio.gather(*(self._note_use(each) for each in self._entries() if each.loaded))
            self._asked = time.monotonic() + _ASK_SECONDS
        may = [
            each
            for each in self._entries()
            if each.loaded and each is not entry and not (each.is_loading or each.holds)
        ]
        idle = [each for each in may if not each.calls and not each.waits]
        longest = min(may, key=lambda each: each.since, default=None)
        found = min(idle, key=lambda each: (each.last_use, each.uses)) if idle else longest
        return found if found is not None and found.stays <= time.monotonic() else None

    async def _note_use(self, entry: Entry) -> None:
        """Note when a model was used last, by another gateway perhaps."""
        if (last := await self._triton.last_use(entry.name)) is not None:
            entry.used = max(entry.used or -math.inf, time.monotonic() - last)

    async def unload(self, entry: Entry, reason: str) -> None:
        """Have Triton unload a model, and wait until its memory is free."""
        entry.stamp, entry.served, entry.used = None, {}, None
        logger.info("%s is unloaded: %s", entry.name, "no request needs it" if reason == "idle" else "others need room")
        entry.leaving = True  # until then Triton says that it is ready
        try:
            await self._triton.unload(entry.name, _UNLOAD_SECONDS if reason == "memory" else 0.0)
        except Problem as problem:
            if problem.kind != "model-failed":
                raise
        finally:
            entry.leaving = False
        entry.ours, entry.loaded = False, set()
        self._metrics.unloads.labels(entry.name, reason).inc()
        self._record()

    async def loaded(self, entry: Entry, seconds: float) -> None:
        """Note that a model has been loaded, which took so long, and measure what it takes."""
        entry.since = time.monotonic()
        entry.stays = entry.since + max(TURN_SECONDS, seconds)
        self._metrics.loads.labels(entry.name).inc()
        await self._measure()

    async def look(self) -> None:
        """Measure now and then; where models have grown beyond the budget, unload those that are not in use."""
        if self.limit is None:
            return
        if time.monotonic() > self._again:
            await self._measure()
        while sum(self.taken().values()) > self.limit.bytes:
            old = time.monotonic() - UNUSED_SECONDS
            may = [
                each
                for each in self._entries()
                if each.loaded and each.unneeded and not each.leaving and each.last_use < old
            ]
            if not may or self._order.locked():
                return
            await self.unload(min(may, key=lambda each: each.last_use), "memory")

    async def _measure(self) -> None:
        if self.limit is None:
            return
        self._again = time.monotonic() + MEASURE_SECONDS
        found = await asyncio.to_thread(self.measured)
        for entry in self._entries():
            if entry.name in found and entry.loaded and not entry.reserved:
                self._known[entry.name] = found[entry.name]
        self._record()

    def _record(self) -> None:
        if self.limit is not None:
            self._metrics.models_limit.set(self.limit.bytes)
            self._metrics.models_bytes.set(sum(self.taken().values()))
