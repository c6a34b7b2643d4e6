"""The models and versions that can be served now: those in the repository that Triton has loaded and we have warmed.

A plain model is *served* when its card can be read, Triton reports it ready, and one input of each declared grid has
been through it. The catalogue looks every second, so that a new version or a new model is served without a restart.
When Triton is lost, it forgets what is served, because a restarted Triton is cold.

The catalogue loads and unloads models itself, by Triton's repository API (`--model-control-mode=explicit`), the most
used first, each served as soon as it is warm. *Companions* (derivatives, refinements, further formats of a model) are
loaded at their first use, which waits, and unloaded when they have been idle. A version that Triton cannot load is left
out, so that the ones before it are served. A Triton that loads its models itself (`poll`, `none`) works as well.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from serving.catalogue.card import FRAME, KINDS, REFINED, Model, ModelSummary, Readiness
from serving.catalogue.repository import Repository, only_loaded
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from numpy.typing import NDArray
    from prometheus_client import Gauge

    from serving.catalogue.card import Card, Kind
    from serving.catalogue.repository import Stamp, Version, Versions
    from serving.settings import Settings
    from serving.triton import Batch, Triton

logger = logging.getLogger(__name__)
_LOOK_SECONDS, _LOOK_SECONDS_DOWN = 1.0, 0.25  # between two looks; nothing is served while Triton is down
_SUCCESSION_SECONDS, _SUCCESSION_PAUSE = 5.0, 0.02  # a look and the warming of a version
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # between two attempts to load and warm a model
_AT_ONCE = max(1, (os.cpu_count() or 1) // 2)  # models: each has two instances, which Triton starts side by side
_SLOW_SECONDS = 5.0  # after which a model that is being loaded or warmed delays no other one
COMPANION_SECONDS = 25.0  # that a request waits at most until a companion is loaded
RETRY_SECONDS = 5
_DTYPES = {"FP32": np.float32, "INT32": np.int32}
_VERSION_AT_FAULT = re.compile(r"version (\d+) is at UNAVAILABLE")


class Catalogue:
    """The models and versions that are served now; the gauge says by model whether the newest of the repository is."""

    def __init__(self, settings: Settings, triton: Triton, newest_served: Gauge) -> None:
        self._settings, self._repository, self._triton = settings, Repository(settings.repository), triton
        self._newest_served = newest_served
        self._present: Versions = {}
        self._belongs: dict[str, str] = {}  # companions, and the models that they belong to
        self._served: Versions = {}
        self._loads = True  # whether this Triton loads models on request
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._began: dict[str, float] = {}  # when they were started
        self._stamps: dict[str, Stamp] = {}  # of the files that a model was loaded from
        self._ours = set[str]()  # models that were loaded on our request, and may be unloaded
        self._attempts: dict[str, tuple[float, float]] = {}  # of models that failed: when to try again, the pause then
        self._uses = Counter[str]()
        self._calls = Counter[str]()  # of companions, in flight
        self._used: dict[str, float] = {}  # companions that are wanted: when they were used last
        self._withdrawn: dict[str, float] = {}
        self._faults: dict[tuple[str, int], tuple[str, str]] = {}  # for readiness, and with details for the log
        self.responds = False
        self.draining = False

    # What is served

    def models(self) -> list[ModelSummary]:
        """Return the served models by name; `MODEL_FORMAT` is a further format of `MODEL` where both are served."""
        formats: dict[str, list[str]] = {}
        found = {name: self._versions(name) for name in self.served()}
        cards = {name: versions[max(versions)].card for name, versions in found.items()}
        for card in cards.values():
            formats.setdefault(self._belongs.get(card.model, card.model), []).append(card.format)
        return [
            ModelSummary(
                name=name,
                title=cards[name].title,
                problem=cards[name].problem,
                version=cards[name].version,
                versions=tuple(sorted(found[name])),
                formats=tuple(each),
                warnings=cards[name].warnings,
            )
            for name, each in formats.items()
        ]

    def served(self) -> dict[str, tuple[int, ...]]:
        """Return the versions of every model that can be run, without the graphs that belong to others."""
        self._require_triton()
        found = {name: self._versions(name) for name in sorted(self._present)}
        return {
            name: tuple(sorted(versions))
            for name, versions in found.items()
            if versions and versions[max(versions)].card.product is None
        }

    def model(self, name: str) -> Model:
        """Return a served model with the card of its newest version; errors are those of `find`."""
        newest = self.find(name)
        differentiable = self._derivatives(name)
        card = newest.card.model_copy(update={"differentiable": differentiable}) if differentiable else newest.card
        return Model(
            name=name,
            version=card.version,
            versions=tuple(sorted(self._versions(name))),
            card=card,
            certificate=newest.certificate,
        )

    def find(self, name: str, version: int | None = None) -> Version:
        """Return a version that can be run, the newest by default; a companion may have to be loaded for it."""
        if name not in self._present:
            raise Problem("unknown-model", f'no model "{name[:64]}"; there are {_listed(self._present)}')
        self._require_triton()
        versions = self._versions(name)
        if not versions and (version is None or version in self._present[name]):
            self._uses[name] += 1  # so that it is loaded before those that no request is for
            raise Problem("model-not-ready", f'"{name}" is not loaded and warm yet')
        if version is not None and version not in versions:
            raise Problem("unknown-version", f'"{name}" has no version {version} loaded; there are {_listed(versions)}')
        return versions[max(versions) if version is None else version]

    async def newest(self, name: str, seconds: float = _SUCCESSION_SECONDS) -> Version:
        """Return the newest version that is served; one whose predecessor has just gone is waited for so long.

        Triton unloads a version in the moment in which it has loaded one with other outputs, and the new one is warmed.
        """
        end = min(self._withdrawn.get(name, -math.inf) + _SUCCESSION_SECONDS, time.monotonic() + seconds)
        while name in self._present and not self._versions(name) and time.monotonic() < end:  # noqa: ASYNC110 - rare
            await asyncio.sleep(_SUCCESSION_PAUSE)
        return self.find(name)

    def derivative(self, name: str, kind: Kind, version: int | None = None) -> Version:
        """Return the derivative of a served model, by default of the newest version that has one."""
        product = f"{name}_{kind}"
        if self.find(name, version).card.product or product not in self._present:
            known = ", ".join(filter(self._derivatives, sorted(self._served))) or "none"
            raise Problem("not-differentiable", f'"{name}" has no {kind}; the models with derivatives are {known}')
        if version is None:
            version = max(self._versions(name).keys() & self._present[product].keys(), default=None)
        return self.find(product, version)

    def refinement(self, card: Card) -> Card | None:
        """Return the card of the graph that returns the same with smaller error bounds; None where there is none."""
        found = self._versions(f"{card.model}_{REFINED}").get(card.version)
        product = None if found is None else found.card.product
        return found.card if found and product and (product.of, product.kind) == (card.model, REFINED) else None

    def knows(self, name: str) -> bool:
        """Return whether the repository holds a model of that name."""
        return name in self._present

    def readiness(self) -> Readiness:
        """Return whether every plain model of the repository is served and, if not, why.

        A newest version that does not load is a reason, too, although the service is ready with the one before it.
        """
        plain = sorted(self._present.keys() - self._belongs.keys())
        missing = tuple(name for name in plain if name not in self._served)
        if self.draining:
            reason = "shutting down"
        elif not self.responds:
            reason = "the inference server does not respond"
        elif missing:
            reason = f"not loaded and warm: {', '.join(map(self._with_faults, missing))}"
        elif not self._present:
            reason = "the model repository is empty"
        else:
            newest = {name: max(self._served[name]) for name in plain}
            late = sorted({name for name, number in self._faults if name in newest and number > newest[name]})
            faults = f"not served: {', '.join(map(self._with_faults, late))}" if late else None
            return Readiness(ready=True, reason=faults)
        return Readiness(ready=False, reason=reason, missing=missing)

    # What has disappeared, and what is wanted

    def lost(self) -> None:
        """Forget what is served: Triton is lost, and the process that comes back is cold."""
        if self.responds:
            logger.warning("the inference server does not respond")
        self.responds = False
        self._served, self._stamps, self._attempts, self._loads = {}, {}, {}, True
        self._used = {name: used for name, used in self._used.items() if self._calls[name]}

    def withdraw(self, card: Card) -> None:
        """Forget a version that Triton has unloaded, so that the one before it is served before the next look."""
        self._withdrawn[card.model] = time.monotonic()
        self._served = only_loaded(self._served, _pairs(self._served) - {(card.model, card.version)})

    @asynccontextmanager
    async def loaded(self, card: Card, deadline: float) -> AsyncIterator[None]:
        """Return a context in which a version is loaded; a companion is loaded for it, until a deadline, and kept."""
        name = card.model
        self._uses[name] += 1
        if name not in self._belongs:
            yield
            return
        version = card.version
        self._calls[name] += 1
        self._used[name] = time.monotonic()
        try:
            if version not in self._served.get(name, {}) and self._may_try(name):
                left = min(COMPANION_SECONDS, deadline - asyncio.get_running_loop().time())
                await asyncio.wait([self._begin(name)], timeout=max(left, 0.0))
            if version not in self._served.get(name, {}):
                fault, _ = self._faults.get((name, version), ("is being loaded", ""))
                raise Problem("model-not-ready", f'"{name}" version {version} {fault}', retry_after=RETRY_SECONDS)
            yield
        finally:
            self._calls[name] -= 1
            self._used[name] = time.monotonic()

    # Loading

    async def look(self) -> float:
        """Compare the repository with Triton, load and warm what is new; return the seconds until the next look."""
        self._present = await asyncio.to_thread(self._repository.read)
        self._belongs = dict(filter(None, map(self._companion, self._present)))
        try:
            ready = await self._triton.ready_versions()
            self.responds = True
            self._forget_gone(ready)
            await self._unload_unused(ready)
        except Problem:
            self.lost()
            self._record()
            return _LOOK_SECONDS_DOWN
        waiting = [name for name in self._present if name not in self._loading and self._has_news(name, ready)]
        # Plain models first, the most used of them first.
        waiting.sort(key=lambda name: (name in self._belongs, -self._uses[name], name))
        end = time.monotonic() + _LOOK_SECONDS
        while (waiting or self._loading) and (left := end - time.monotonic()) > 0:
            slow = time.monotonic() - _SLOW_SECONDS
            for name in waiting[: max(0, _AT_ONCE - sum(self._began[each] > slow for each in self._loading))]:
                waiting.remove(name)
                self._begin(name)
            if self._loading:
                await asyncio.wait(
                    self._loading.values(), timeout=min(left, _SLOW_SECONDS), return_when=asyncio.FIRST_COMPLETED
                )
            for name in [name for name, task in self._loading.items() if task.done()]:
                self._loading.pop(name).result()
            self._record()
        self._record()
        return 0.0 if waiting or self._loading else _LOOK_SECONDS

    async def close(self) -> None:
        """Stop loading and warming."""
        for task in self._loading.values():
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    def _forget_gone(self, ready: frozenset[tuple[str, int]]) -> None:
        """Forget the versions that Triton has unloaded, and note the models that have no other one."""
        present = _pairs(self._present)
        kept = only_loaded(self._served, ready & present)
        for name in self._served.keys() - kept.keys():
            self._withdrawn[name] = time.monotonic()
        self._served = kept
        self._faults = {pair: fault for pair, fault in self._faults.items() if pair in present}
        for name in self._stamps.keys() - {name for name, _ in ready}:
            if name not in self._attempts and name not in self._loading:
                del self._stamps[name]  # Triton has been restarted

    async def _unload_unused(self, ready: frozenset[tuple[str, int]]) -> None:
        """Unload companions that have been idle, and models that are gone from the repository, if we loaded them."""
        idle = time.monotonic() - self._settings.companion_idle_seconds
        for name in [each for each, used in self._used.items() if used < idle and not self._calls[each]]:
            del self._used[name]
        loaded = {name for name, _ in ready}
        for name in [each for each in self._ours if each not in self._loading and not self._calls[each]]:
            if name not in self._present or (name in self._belongs and name not in self._used):
                self._ours.discard(name)
                self._stamps.pop(name, None)
                self._served = {each: found for each, found in self._served.items() if each != name}
                if name in loaded:
                    logger.info("%s is unloaded: no request needs it", name)
                    await self._triton.unload(name)

    def _has_news(self, name: str, ready: frozenset[tuple[str, int]]) -> bool:
        """Return whether a model has to be loaded or warmed."""
        if name in self._belongs and name not in self._used:
            return False
        stamp = self._repository.stamps[name]
        if self._stamps.get(name, stamp) != stamp:
            self._attempts.pop(name, None)
        return self._may_try(name) and bool(self._to_load(name, ready) or self._cold(name, ready))

    def _to_load(self, name: str, ready: frozenset[tuple[str, int]]) -> bool:
        """Return whether Triton has to load a model, or what has changed of it."""
        stamp, loaded = self._repository.stamps.get(name), {number for model, number in ready if model == name}
        if stamp is None or not self._loads:
            return False
        if name not in self._stamps:  # perhaps it was loaded before we came
            return max(self._present.get(name, ()), default=0) not in loaded
        return self._stamps[name] != stamp or not loaded

    def _cold(self, name: str, ready: frozenset[tuple[str, int]]) -> set[int]:
        """Return the versions of a model that Triton has loaded and that are not served."""
        return {
            number
            for number, version in self._present.get(name, {}).items()
            if (name, number) in ready and self._served.get(name, {}).get(number) != version
        }

    def _may_try(self, name: str) -> bool:
        return self._attempts.get(name, (0.0, 0.0))[0] <= time.monotonic()

    def _begin(self, name: str) -> asyncio.Task[None]:
        task = self._loading.get(name)
        if task is None or task.done():
            task = self._loading[name] = asyncio.create_task(self._load_and_warm(name))
            self._began[name] = time.monotonic()
        return task

    async def _load_and_warm(self, name: str) -> None:
        """Serve the versions of a model, the newest first; whatever fails concerns them alone and is tried again."""
        try:
            ready = await self._triton.ready_versions()
            to_load = self._to_load(name, ready)
            self._stamps[name] = self._repository.stamps.get(name, frozenset())
            if to_load:
                await self._load(name)
                ready = await self._triton.ready_versions()
            cold = sorted(self._cold(name, ready), reverse=True)
            failed = not all([await self._admit(name, number) for number in cold])
        except Problem as problem:
            if problem.kind == "triton-unavailable":
                self.lost()
                return
            failed = True
        if failed or (self._loads and name not in self._served):
            pause = min(max(_FIRST_PAUSE, 2 * self._attempts.get(name, (0.0, 0.0))[1]), _LONGEST_PAUSE)
            self._attempts[name] = time.monotonic() + pause, pause
        else:
            self._attempts.pop(name, None)

    async def _load(self, name: str) -> None:
        """Have Triton load a model; without the versions that it cannot load."""
        broken, config = set[int](), None
        while True:
            try:
                self._loads = await self._triton.load(name, config)
            except Problem as problem:
                if problem.kind != "model-failed":
                    raise
                reason = "\n".join(getattr(problem, "__notes__", ()))
                found = {int(number) for number in _VERSION_AT_FAULT.findall(reason)} - broken
                for number in found or self._present.get(name, {}).keys() - broken:
                    self._report(name, number, "cannot be loaded by Triton", reason)
                broken |= found
                if any(model == name for model, _ in await self._triton.ready_versions()):
                    return  # what was loaded before stays
                config = await asyncio.to_thread(self._repository.configuration, name, broken) if found else None
                if config is None:
                    raise
            else:
                if self._loads:
                    self._ours.add(name)
                return

    async def _admit(self, name: str, number: int) -> bool:
        """Serve a version, a plain one once it is warm; return whether it is served."""
        version = self._present.get(name, {}).get(number)
        if version is None:
            return True
        seconds, most = self._settings.request_seconds, self._settings.max_body_bytes
        try:
            for batch in () if name in self._belongs else samples(version.card, most):
                await self._triton.infer(name, number, batch, seconds=seconds, request_id="warm")
        except Exception as error:
            if isinstance(error, Problem) and error.kind == "triton-unavailable":
                raise
            known = isinstance(error, Problem)
            fault = str(error) if known else type(error).__name__  # readiness is public
            notes = "\n".join(getattr(error, "__notes__", ()))
            self._report(name, number, f"cannot be warmed: {fault}", notes, None if known else error)
            return False
        self._faults.pop((name, number), None)
        self._served = {**self._served, name: {**self._served.get(name, {}), number: version}}
        logger.info("%s version %d is served", name, number)
        return True

    def _report(self, name: str, number: int, fault: str, details: str, trace: BaseException | None = None) -> None:
        """Keep the fault of a version for readiness, and log it unless it was the last."""
        message = "\n".join(filter(None, [fault, details]))
        if self._faults.get((name, number)) != (fault, message):
            logger.warning("%s version %d %s", name, number, message, exc_info=trace)
        self._faults[name, number] = fault, message

    def _record(self) -> None:
        """Update the gauge of newest versions, without companions that no request has used, and forget what is gone."""
        unused = self._belongs.keys() - self._used.keys()
        newest = {name: number for name, number in self._repository.newest.items() if name not in unused}
        self._newest_served.clear()
        for name, number in newest.items():
            self._newest_served.labels(name).set(number in self._served.get(name, {}))

    # Plain models and their companions

    def _companion(self, name: str) -> tuple[str, str] | None:
        """Return a companion and the model that it belongs to: `darcy` for `darcy_vjp` and `darcy_torchscript`.

        A model without a readable card counts as plain.
        """
        if not (versions := self._present[name]):
            return None
        card = versions[max(versions)].card
        base = name.removesuffix(f"_{card.format}")
        if card.product is not None:
            return name, card.product.of
        return (name, base) if base != name and base in self._present else None

    def _versions(self, name: str) -> dict[int, Version]:
        """Return the versions that can be run: the served ones of a plain model, those of a companion that belong."""
        if name not in self._belongs:
            return self._served.get(name, {})
        versions, served = self._present.get(name, {}), self._served.get(self._belongs[name], {})
        if not versions or versions[max(versions)].card.product is None:  # a further format
            return versions if served else {}
        return {number: version for number, version in versions.items() if number in served}

    def _derivatives(self, name: str) -> tuple[Kind, ...]:
        """Return which derivatives of a model there are."""
        return tuple(kind for kind in KINDS if self._versions(f"{name}_{kind}"))

    def _with_faults(self, name: str) -> str:
        """Return a name with what its versions fail of, if they do."""
        found = sorted(self._faults.items())
        faults = [f"version {number} {fault}" for (model, number), (fault, _) in found if model == name]
        return f"{name} ({'; '.join(faults)})" if faults else name

    def _require_triton(self) -> None:
        if not self.responds:
            raise Problem("triton-unavailable", "the inference server does not respond; try again in a moment")


def samples(card: Card, max_bytes: int) -> Iterator[Batch]:
    """Yield the simplest inputs of each declared grid, one sample of ones, unless they are too large to be sent."""
    numbers: dict[str, NDArray[Any]] = {parameter.name: np.ones(1, np.float32) for parameter in card.parameters}
    if card.frames is not None:
        numbers[FRAME] = np.zeros((1, 1), np.int32)
    for grid in card.grid.shapes:
        shapes = {
            tensor.name: (1, *(size or 1 for size in tensor.leading), *(tensor.points or grid), *tensor.trailing)
            for tensor in card.inputs
        }
        if all(4 * math.prod(shape) <= max_bytes for shape in shapes.values()):
            yield {tensor.name: np.ones(shapes[tensor.name], _DTYPES[tensor.dtype]) for tensor in card.inputs} | numbers


def _pairs(versions: Versions) -> frozenset[tuple[str, int]]:
    return frozenset((name, number) for name, numbered in versions.items() for number in numbered)


def _listed(names: dict[str, Any] | dict[int, Any]) -> str:
    return ", ".join(str(name) for name in sorted(names)) or "none"
