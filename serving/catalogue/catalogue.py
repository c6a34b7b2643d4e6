"""The models and versions that can be served now: those in the repository that Triton has loaded and we have warmed.

A plain model is *served* when its card can be read, Triton reports it ready, and one input of each declared grid has
been through it. The catalogue looks every second, so that a new version or a new model is served without a restart.
When Triton is lost, it forgets what is served, because a restarted Triton is cold. A busy Triton may be late with its
index without having lost a model; one that is late several times in a row is lost.

The catalogue loads and unloads models itself, by Triton's repository API (`--model-control-mode=explicit`), the most
used first, each served as soon as it is warm. *Companions* (derivatives, refinements, further formats of a model) are
loaded at their first use, which waits, and unloaded when they have been idle. With a budget for memory
(`serving.catalogue.budget`) so is every model: at the start those are loaded that fit, and the others are served from
their cards. `serving.catalogue.loading` has how one model is loaded. A Triton that loads its models itself (`poll`,
`none`) works as well.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from schema.card import KINDS, REFINED, Card, Kind
from serving.catalogue.budget import Budget, Instruments, Limit
from serving.catalogue.documents import Model, ModelSummary, Readiness
from serving.catalogue.entry import Entry
from serving.catalogue.loading import LEAVING_PAUSE, Loading
from serving.catalogue.repository import Repository, base
from serving.device import Device
from serving.errors import Problem
from serving.settings import Settings
from serving.triton import Run, Triton

logger = logging.getLogger(__name__)
_LOOK_SECONDS, _LOOK_SECONDS_DOWN = 1.0, 0.25  # between two looks; nothing is served while Triton is down
_LATE_LOOKS = 3  # in a row, each of some seconds
SUCCESSION_SECONDS, _SUCCESSION_PAUSE = 5.0, 0.02  # a look and the warming of a version
_AT_ONCE = max(1, (os.cpu_count() or 1) // 2)  # models: each has two instances, which Triton starts side by side
_SLOW_SECONDS = 5.0  # after which a model that is being loaded or warmed delays no other one


class Catalogue:
    """The models and versions that are served now; a gauge says by model whether the newest of the repository is."""

    def __init__(self, settings: Settings, triton: Triton, metrics: Instruments) -> None:
        self._settings, self._repository, self._triton = settings, Repository(settings.repository), triton
        self._newest_served = metrics.newest_served
        self._entries: dict[str, Entry] = {}  # by name, in order
        self._asked = -math.inf  # when Triton was asked for the index that was noted last
        self.budget = Budget(triton, lambda: self._present, self._index, metrics)
        self.budget.limit = Limit.of(settings, None) if not settings.embedded else None  # else once the device is known
        self._loading = Loading(settings, self._repository, triton, self.budget, self._index, self.lost)
        self._loading.gpu = self.budget.limit is not None and self.budget.limit.kind == "gpu"
        self._late = 0  # looks in a row
        self.restart: Callable[[], bool] = lambda: True  # a local Triton, unless it was restarted a moment ago
        self._exhausted = False  # a restart is due
        self._begun = False  # whether every model has been served at one time
        self.responds = False
        self.draining = False

    # What is served

    def models(self) -> list[ModelSummary]:
        """Return the served models by name; `MODEL_FORMAT` is a further format of `MODEL` where both are served."""
        formats, served = dict[str, list[str]](), self.served()
        cards = {name: self._versions(name)[numbers[-1]] for name, numbers in served.items()}
        for name, card in cards.items():
            formats.setdefault(self._entries[name].base or name, []).append(card.format)
        return [
            ModelSummary(
                name=name,
                versions=served[name],
                formats=tuple(each),
                state="loaded" if self._entries[name].loaded else "on demand",
                **cards[name].model_dump(include={"title", "problem", "version", "warnings"}),
            )
            for name, each in formats.items()
        ]

    def served(self) -> dict[str, tuple[int, ...]]:
        """Return the versions of every model that can be run, without the graphs that belong to others."""
        self._require_triton()
        found = {entry.name: self._versions(entry.name) for entry in self._present}
        return {
            name: tuple(sorted(versions))
            for name, versions in found.items()
            if versions and versions[max(versions)].product is None
        }

    def model(self, name: str) -> Model:
        """Return a served model with the card of its newest version; errors are those of `find`."""
        card, versions = self.find(name), tuple(sorted(self._versions(name)))
        if differentiable := self._derivatives(name):
            card = card.model_copy(update={"differentiable": differentiable})
        certificate = self._repository.certificates[name, card.version]
        return Model(name=name, version=card.version, versions=versions, card=card, certificate=certificate)

    def find(self, name: str, version: int | None = None) -> Card:
        """Return the card of a version that can be run, by default of the newest; a companion may be loaded for it."""
        entry = self._entries.get(name)
        if entry is None or entry.present is None:
            known = ", ".join(each.name for each in self._present if not each.base) or "none"
            raise Problem("unknown-model", f'no model "{name[:64]}"; there are {known}')
        versions = self._versions(name)
        if versions and (version is None or version in versions):
            return versions[max(versions) if version is None else version]
        self._require_triton()
        if not versions and (version is None or version in entry.present):
            entry.uses += 1  # so that it is loaded before those that no request is for
            raise Problem("model-not-ready", f'"{name}" is not loaded and warm yet')
        known = ", ".join(map(str, sorted(versions))) or "none"
        raise Problem("unknown-version", f'"{name}" has no version {version} loaded; there are {known}')

    async def newest(self, name: str, version: int | None = None, *, seconds: float = SUCCESSION_SECONDS) -> Card:
        """Return the card of a named version or of the newest; one whose predecessor has just gone is waited for.

        Triton unloads a version in the moment in which it has loaded one with other outputs, and the new one is warmed.
        """
        entry = self._entries.get(name)
        if entry is not None and version is None and not self._versions(name):
            end = min(entry.withdrawn + SUCCESSION_SECONDS, time.monotonic() + seconds)
            while entry.present is not None and not self._versions(name) and time.monotonic() < end:  # noqa: ASYNC110 - rare
                await asyncio.sleep(_SUCCESSION_PAUSE)
        return self.find(name, version)

    def derivative(self, name: str, kind: Kind, version: int | None = None) -> Card:
        """Return the card of the derivative of a served model, by default of the newest version that has one."""
        product = f"{name}_{kind}"
        if self.find(name, version).product or not self.knows(product):
            known = ", ".join(
                each.name for each in self._present if each.served and kind in self._derivatives(each.name)
            )
            raise Problem("not-differentiable", f'"{name}" has no {kind}; the models with one are {known or "none"}')
        if version is None:
            version = max(self._versions(name).keys() & (self._entries[product].present or {}).keys(), default=None)
        return self.find(product, version)

    def refinement(self, card: Card) -> Card | None:
        """Return the card of the graph that returns the same with smaller error bounds; None where there is none."""
        found = self._versions(f"{card.model}_{REFINED}").get(card.version)
        product = found and found.product
        return found if product and (product.of, product.kind) == (card.model, REFINED) else None

    def knows(self, name: str) -> bool:
        return name in self._entries and self._entries[name].present is not None

    def readiness(self) -> Readiness:
        """Return whether every plain model of the repository is served and, if not, why.

        What is new in the repository of a gateway that has been ready is a reason alone, as a newest version is that
        does not load, or no longer does: all gateways see a damaged model at one time, and none of them would serve the
        others any more.
        """
        plain, missing = self._plain, self._missing
        if self.draining:
            reason = "shutting down"
        elif not self.responds:
            reason = "the inference server does not respond"
        elif any(entry.expected or not self._begun for entry in missing):
            reason = f"not loaded and warm: {', '.join(map(str, missing))}"
        elif not self._present:
            reason = "the model repository is empty"
        else:
            newest = {each: max(self._versions(each.name), default=0) for each in plain}
            late = [each for each in plain if each in missing or max(each.faults, default=-1) >= newest[each]]
            found = f"not served: {', '.join(map(str, late))}" if late else None
            return Readiness(ready=True, reason=found, missing=tuple(entry.name for entry in missing))
        return Readiness(ready=False, reason=reason, missing=tuple(entry.name for entry in missing))

    @property
    def _plain(self) -> list[Entry]:
        return [entry for entry in self._present if not entry.base]

    @property
    def _missing(self) -> list[Entry]:
        """The plain models that are not served, and would not be at their first use."""
        return [entry for entry in self._plain if not entry.served and not (entry.on_demand and entry.fit)]

    @property
    def _present(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.present is not None]

    def _versions(self, name: str) -> dict[int, Card]:
        """Return the versions that can be run: the served ones of a plain model, those of a companion that belong.

        Of a plain model that is loaded at its first use those that may be loaded, while it is not.
        """
        entry = self._entries.get(name)
        if entry is None:
            return {}
        if not entry.base:
            return entry.served or ((entry.fit or entry.present or {}) if entry.on_demand and self.responds else {})
        present, served = entry.present or {}, self._versions(entry.base)
        if entry.newest is None or entry.newest.product is None:  # a further format
            return present if served else {}
        return {number: card for number, card in present.items() if number in served}

    def _derivatives(self, name: str) -> tuple[Kind, ...]:
        return tuple(kind for kind in KINDS if self._versions(f"{name}_{kind}"))

    def _require_triton(self) -> None:
        if not self.responds:
            raise Problem("triton-unavailable", "the inference server does not respond; try again in a moment")

    def computes_on(self, device: Device) -> None:
        """Take the budget of the device that the local Triton computes on, and load models for it."""
        self.budget.limit, self._loading.gpu = Limit.of(self._settings, device), device.kind == "gpu"

    # What has disappeared, and what is wanted

    def lost(self) -> None:
        """Forget what is served: Triton is lost, and the process that comes back is cold."""
        if self.responds:
            logger.warning("the inference server does not respond")
        self.responds, self._loading.possible, self._exhausted = False, True, False
        for entry in self._entries.values():
            entry.lose()

    def withdraw(self, card: Card) -> None:
        """Forget a version that Triton has unloaded, so that the one before it is served before the next look."""
        self._entries[card.model].withdraw(card.version)

    def exhaust(self, card: Card) -> None:
        """Forget a version that has run out of shared memory until it is warm again; a local Triton starts anew.

        An instance never returns what it has taken, so that other requests fail, too; and unloading one that has failed
        so may take for ever, or crash Triton 2.51.
        """
        if card.version in self._entries[card.model].served:  # else another request has found it so
            self._entries[card.model].report(card.version, "has run out of shared memory", "")
            self.withdraw(card)
        self._exhausted = not self.restart()

    def doubt(self, card: Card) -> None:
        """Warm a version again that a request has failed on: it is served as long as the simplest inputs succeed."""
        self._entries[card.model].doubt(card.version)

    @asynccontextmanager
    async def loaded(self, card: Card, run: Run) -> AsyncIterator[None]:
        """Return a context in which a version is loaded; what is on demand is loaded for it, until a deadline.

        A run within another such context, or within `held`, says so and goes on although the model is to leave.
        """
        entry = self._entries[card.model]
        entry.uses += 1
        if not entry.on_demand:
            yield
            return
        entry.used = time.monotonic()
        if card.version not in entry.served or (entry.leaving and not run.held):
            await self._loading.until_loaded(entry, card.version, run)
        entry.calls += 1
        entry.used = time.monotonic()
        try:
            yield
        finally:
            entry.calls -= 1
            entry.used = time.monotonic()

    @contextmanager
    def held(self, card: Card) -> Iterator[None]:
        """Return a context in which a model that is loaded stays so, also between two calls."""
        entry = self._entries[card.model]
        entry.holds += 1
        try:
            yield
        finally:
            entry.holds -= 1

    async def returns(self, card: Card, run: Run) -> bool:
        """Load a version that another gateway has unloaded during a call within `loaded`; False where it is gone."""
        entry = self._entries[card.model]
        if not entry.on_demand or card.version not in entry.fit or asyncio.get_running_loop().time() >= run.deadline:
            return False
        await asyncio.sleep(LEAVING_PAUSE)
        try:
            await self._loading.until_loaded(entry, card.version, replace(run, held=True))
        except Problem as problem:
            if problem.kind != "unknown-version":
                raise
            return False
        return True

    # Loading

    async def look(self) -> float:
        """Compare the repository with Triton, load and warm what is new; return the seconds until the next look."""
        self._adopt(await asyncio.to_thread(self._repository.read))
        try:
            ready = await self._index()
            self.responds, self._late = True, 0
            self._exhausted = self._exhausted and not self.restart()
            await self._unload_unused(ready)
            await self.budget.look()
        except Problem as problem:
            self._late += problem.kind == "deadline-exceeded"
            if problem.kind != "deadline-exceeded" or self._late >= _LATE_LOOKS:
                self.lost()
            self._record()
            return _LOOK_SECONDS_DOWN
        waiting = [entry for entry in self._present if entry.loading is None and self._loading.due(entry, ready)]
        # Plain models first, the most used of them first.
        waiting.sort(key=lambda entry: (bool(entry.base), -entry.uses, entry.name))
        end = time.monotonic() + _LOOK_SECONDS
        while (waiting or self._tasks) and (left := end - time.monotonic()) > 0:
            slow = time.monotonic() - _SLOW_SECONDS
            for entry in waiting[: max(0, _AT_ONCE - sum(each.began > slow for each in self._tasks.values()))]:
                waiting.remove(entry)
                self._loading.begin(entry)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=min(left, _SLOW_SECONDS), return_when=asyncio.FIRST_COMPLETED)
            for task, entry in self._tasks.items():
                if task.done():
                    entry.loading = None
                    task.result()
            self._record()
        self._record()
        return 0.0 if waiting or self._tasks else _LOOK_SECONDS

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _tasks(self) -> dict[asyncio.Task[None], Entry]:
        return {entry.loading: entry for entry in self._entries.values() if entry.loading is not None}

    def _adopt(self, found: Mapping[str, dict[int, Card]]) -> None:
        """Note what is in the repository, and which models are companions; those without a readable card are plain."""
        names = sorted(self._entries.keys() | found.keys())
        self._entries = {name: self._entries.get(name) or Entry(name) for name in names}
        for name, entry in self._entries.items():
            entry.present = found.get(name)
            entry.base = "" if (newest := entry.newest) is None else base(newest, found)
            entry.expected = entry.expected and entry.present is not None
            entry.files = self._repository.stamps.get(name, entry.files)
            entry.faults = {number: fault for number, fault in entry.faults.items() if number in (entry.present or ())}
            on_demand = bool(entry.base) or (self.budget.limit is not None and self._loading.possible)
            if on_demand and not entry.on_demand and entry.served:  # the budget is new
                entry.used = time.monotonic()
            entry.on_demand = on_demand

    async def _index(self) -> dict[str, set[int]]:
        """Return the versions that Triton has loaded, by any gateway, and note them unless later ones are noted."""
        asked = time.monotonic()
        ready = await self._triton.ready_versions()
        if asked >= self._asked:  # replies may come in another order
            self._asked = asked
            self._forget_gone(ready)
        return ready

    def _forget_gone(self, ready: Mapping[str, Collection[int]]) -> None:
        """Forget the versions that Triton has unloaded, and note the models that have no other one."""
        for name, entry in self._entries.items():
            gone = bool(entry.loaded) and name not in ready and (ready or not self._settings.embedded)
            if gone and entry.on_demand and entry.unneeded:
                entry.used = None  # another gateway has unloaded it; a Triton that was restarted has none at all
            entry.note(ready)
            if name not in ready and not entry.again and entry.loading is None:
                entry.stamp = None  # Triton has been restarted

    async def _unload_unused(self, ready: Mapping[str, Collection[int]]) -> None:
        """Unload what is on demand and idle, and models that are gone from the repository, if we loaded them."""
        seconds = self._settings.companion_idle_seconds
        for name, entry in self._entries.items():
            if entry.leaving or not entry.unneeded:
                continue
            if entry.used is not None and time.monotonic() - entry.used > seconds:
                # Another gateway before the same Triton may have used it.
                last = await self._triton.last_use(name) if name in ready else None
                entry.used = time.monotonic() - last if last is not None and last < seconds else None
            unused = entry.present is None or (entry.on_demand and entry.used is None)
            if entry.ours and unused and entry.unneeded and not entry.leaving:
                if name in ready:
                    await self.budget.unload(entry, "idle")
                else:
                    entry.ours, entry.stamp, entry.served = False, None, {}

    def _record(self) -> None:
        """Note which models are expected from now on, and update the gauge of newest versions, without what is gone.

        Companions that no request has used are not in it.
        """
        missing = self._missing
        self._begun = self._begun or (self.responds and bool(self._present) and not missing)
        for entry in self._plain:
            entry.expected = entry.expected or (self.responds and entry not in missing)
        self._newest_served.clear()
        for name, number in self._repository.newest.items():
            entry = self._entries[name]
            if not entry.base or entry.used is not None:
                waiting = entry.on_demand and not entry.base and number in entry.fit
                served = number in entry.served and number not in entry.faults  # else from files of before
                self._newest_served.labels(name).set(served or waiting)
