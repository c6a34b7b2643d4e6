"""How one model is loaded and warmed: what Triton is asked to load, and what is served once it answers.

A version that Triton cannot load, or whose graph is not that of its certificate, is left out, so that the ones before
it are served. Whatever fails concerns the model alone, is kept for readiness, and is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from google.protobuf.text_format import ParseError
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype

from schema.card import FRAME, GRID, Card
from serving.catalogue.budget import Budget
from serving.catalogue.entry import Entry
from serving.catalogue.repository import CERTIFICATE, IncompleteConfigError, Repository
from serving.errors import Problem
from serving.failures import lack
from serving.settings import Settings
from serving.triton import Batch, Run, Triton

logger = logging.getLogger(__name__)
LOAD_SECONDS = 25.0  # that a request waits at most until its model is loaded
LEAVING_PAUSE = 0.02
WAIT_SHARE = 0.9  # of the time that a request has: the refusal comes before its deadline
RETRY_SECONDS = 5
_VERSION_AT_FAULT = re.compile(r"version (\d+) is at UNAVAILABLE")


class Loading:
    """Loads and warms models.

    Args:
        settings: Of the service.
        repository: Where the models are.
        triton: What loads them.
        budget: What has to have room for them.
        index: Asks Triton which versions it has loaded, and notes them.
        lost: Called where Triton does not respond.

    Attributes:
        possible: Whether this Triton loads models on request.
        gpu: Whether they are loaded for one.
    """

    def __init__(
        self,
        settings: Settings,
        repository: Repository,
        triton: Triton,
        budget: Budget,
        index: Callable[[], Awaitable[dict[str, set[int]]]],
        lost: Callable[[], None],
    ) -> None:
        self._settings, self._repository, self._triton, self._budget = settings, repository, triton, budget
        self._index, self._lost = index, lost
        self.possible, self.gpu = True, False

    async def until_loaded(self, entry: Entry, version: int, run: Run) -> None:
        """Have a model loaded, once it is its turn; a `model-not-ready` where it cannot be, or not in time.

        What is held does not wait until a model has left that waits for its calls.
        """
        now = asyncio.get_running_loop().time()
        end = min(now + LOAD_SECONDS, now + WAIT_SHARE * (run.deadline - now))
        entry.waits += 1
        try:
            while (left := end - asyncio.get_running_loop().time()) > 0:
                if entry.leaving and not run.held:
                    await asyncio.sleep(min(left, LEAVING_PAUSE))
                elif version in entry.served or not entry.may_try:
                    break
                else:
                    task = self.begin(entry)
                    await asyncio.wait([task], timeout=left)
                    if task.done() and version not in entry.served and not entry.leaving:
                        break
                    if run.held and entry.leaving:
                        await asyncio.sleep(LEAVING_PAUSE)
        finally:
            entry.waits -= 1
        if version in entry.served and (run.held or not entry.leaving):
            return
        if entry.served and version not in entry.faults and not (entry.leaving or entry.is_loading):  # it is too old
            known = ", ".join(map(str, sorted(entry.served)))
            raise Problem("unknown-version", f'"{entry.name}" has no version {version} loaded; there are {known}')
        doing = "is being loaded" if entry.reserved else "waits for memory that other models take"
        fault, _ = entry.faults.get(version, (doing, ""))
        raise Problem("model-not-ready", f'"{entry.name}" version {version} {fault}', retry_after=RETRY_SECONDS)

    def due(self, entry: Entry, ready: Mapping[str, Collection[int]]) -> bool:
        """Return whether a model is to be loaded or warmed now, of those that Triton has loaded."""
        if entry.leaving:
            return False
        changed = entry.attempted not in {None, self._repository.stamps[entry.name]}
        if changed and entry.name not in self._repository.settled:
            return False  # its files are being written: Triton would load all of its versions anew at every look
        if changed:
            entry.again = entry.pause = 0.0
        if entry.on_demand and entry.used is None:
            # A fault is not for good: the next request tries again.
            if entry.faults and (changed or (entry.may_try and not self._budget.fits(entry))):
                entry.faults = {}
            if entry.base or (entry.tried and entry.fit) or not self._budget.fits(entry):
                return False
        return entry.may_try and bool(self._to_load(entry, ready) or entry.cold(ready))

    def _to_load(self, entry: Entry, ready: Mapping[str, Collection[int]]) -> bool:
        stamp, loaded = self._repository.stamps.get(entry.name), ready.get(entry.name, ())
        if stamp is None or not self.possible:
            return False
        if entry.stamp is None:  # perhaps it was loaded before we came
            return max(entry.present or (), default=0) not in loaded
        return entry.stamp != stamp or not loaded

    def begin(self, entry: Entry) -> asyncio.Task[None]:
        """Return the task that loads and warms a model, a new one unless there is one."""
        if not entry.is_loading:
            entry.tried, entry.began = True, time.monotonic()
            entry.used = entry.used or entry.began
            entry.loading = asyncio.create_task(self._load_and_warm(entry))
        assert entry.loading is not None  # noqa: S101
        return entry.loading

    async def _load_and_warm(self, entry: Entry) -> None:
        """Serve the versions of a model, the newest first; whatever fails concerns them alone and is tried again."""
        name, start, loaded = entry.name, time.monotonic(), False
        try:
            ready = await self._index()
            if entry.on_demand and not entry.loaded:
                if not await self._budget.admit(entry):
                    entry.used = None
                    return
                start, ready = time.monotonic(), await self._index()
            to_load = self._to_load(entry, ready)
            entry.stamp = entry.attempted = self._repository.stamps.get(name, frozenset())
            if to_load:
                loaded = await self._load(entry)
                ready = await self._index()
            failed = not all([await self._admit(entry, number) for number in sorted(entry.cold(ready), reverse=True)])
        except Problem as problem:
            if problem.kind == "triton-unavailable":
                self._lost()
                return
            failed = True
        except IncompleteConfigError as error:  # what was loaded before stays
            present = (entry.present or {}).keys()
            for number in {*(present - entry.served.keys()), *sorted(present)[-1:]}:  # a served newest one is in doubt
                entry.report(number, f"is not loaded: {error}", "")
            failed = True
        finally:
            entry.reserved = False
        if loaded:  # also where another gateway has unloaded it already
            await self._budget.loaded(entry, time.monotonic() - start)
        if failed or (self.possible and not entry.served):
            entry.delay()
        else:
            entry.again = entry.pause = 0.0

    async def _loaded_by_triton(self, entry: Entry, config: str | None) -> bool:
        """Have Triton load a model, as it is or with a configuration; a load that hangs is a fault of all versions."""
        try:
            return await self._triton.load(entry.name, config)
        except Problem as problem:
            if problem.kind == "deadline-exceeded":
                for number in entry.present or ():
                    entry.report(number, "is not loaded by Triton in time", problem.detail)
            raise

    async def _load(self, entry: Entry) -> bool:
        """Have Triton load a model, without the versions that it cannot load; return whether it has loaded any."""
        name, broken = entry.name, await self._uncertified(entry)
        # Triton is given what is checked here, since the file may be written anew before it reads it.
        config = await self._configuration(name, broken)
        if broken and config is None:  # what was loaded before stays
            raise Problem("model-failed", f'no version of "{name}" has the graph of its certificate')
        while True:
            try:
                self.possible = await self._loaded_by_triton(entry, config)
            except Problem as problem:
                if problem.kind != "model-failed":
                    raise
                reason = "\n".join(getattr(problem, "__notes__", ()))
                found = {int(number) for number in _VERSION_AT_FAULT.findall(reason)} - broken
                for number in found or set(entry.present or ()) - broken:
                    full = ": its shared memory (/dev/shm) is full" if lack(reason) == "shared-memory-full" else ""
                    entry.report(number, f"cannot be loaded by Triton{full}", reason)
                broken |= found
                if name in await self._triton.ready_versions():
                    return False  # what was loaded before stays
                config = await self._configuration(name, broken) if found else None
                if config is None:
                    raise
            else:
                entry.ours |= self.possible
                for number in entry.served.keys() - broken:  # from files that are right again
                    entry.faults.pop(number, None)
                return self.possible

    async def _uncertified(self, entry: Entry) -> set[int]:
        """Return the versions whose graph is not the one of their certificate, which is a fault of theirs."""
        wrong = await asyncio.to_thread(self._repository.uncertified, entry.name)
        for number, file in wrong.items():
            entry.report(number, f"is not loaded: {file} is not the graph of {CERTIFICATE}", "")
        return {*wrong}

    async def _configuration(self, name: str, without: Collection[int]) -> str | None:
        """Return a configuration without some versions; None if none is left, or if it cannot be read here.

        Of a fault Triton says more, and it may be newer than what reads it here.
        """
        with suppress(OSError, ValueError, ParseError):
            return await asyncio.to_thread(self._repository.configuration, name, without, gpu=self.gpu)
        return None

    async def _admit(self, entry: Entry, number: int) -> bool:
        """Serve a version, a plain one once it is warm; return whether it is served."""
        card = (entry.present or {}).get(number)
        if card is None:
            return True
        seconds, most = self._settings.request_seconds, self._settings.max_body_bytes
        entry.doubted.discard(number)
        try:
            for batch in () if entry.base else samples(card, most):
                await self._triton.infer(entry.name, number, batch, Run.within(seconds))
        except Exception as error:
            if isinstance(error, Problem) and error.kind == "triton-unavailable":
                raise
            known = isinstance(error, Problem)
            if entry.served.get(number) == card:  # and doubted
                if isinstance(error, Problem) and error.kind in {"deadline-exceeded", "overloaded"}:
                    return True  # it is busy
                entry.withdraw(number)
            fault = str(error) if known else type(error).__name__  # readiness is public
            notes = "\n".join(getattr(error, "__notes__", ()))
            entry.report(number, f"cannot be warmed: {fault}", notes, None if known else error)
            return False
        entry.faults.pop(number, None)
        if entry.served.get(number) != card:
            logger.info("%s version %d is served", entry.name, number)
        entry.served = {**entry.served, number: card}
        return True


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
