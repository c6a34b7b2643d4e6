"""The models and versions that can be served now: those in the repository that Triton has loaded and we have warmed.

A version is *served* when its card can be read, Triton reports it ready, and one input of each declared grid has been
through it. The catalogue looks every second, so that a new version or a new model is served without a restart. When
Triton is lost, it forgets what is served, because a restarted Triton is cold.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from serving.catalogue.card import KINDS, REFINED
from serving.catalogue.repository import Repository, only_loaded
from serving.catalogue.summary import Model, ModelSummary, Readiness
from serving.catalogue.warming import samples
from serving.errors import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Gauge

    from serving.catalogue.card import Card, Kind
    from serving.catalogue.repository import Version, Versions
    from serving.catalogue.warming import Servers

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_SUCCESSION_SECONDS, _SUCCESSION_PAUSE = 5.0, 0.02  # a look and the warming of a version
_LOOK_SECONDS_DOWN = 0.25  # nothing is served meanwhile


class Catalogue:
    """The models and versions that are served now.

    Args:
        repository: The model repository, for its cards.
        servers: The servers that run the models.
        warm_seconds: How long one warming call may take.
        warm_bytes: The largest input of a warming call.
        newest_served: Gauge by model: whether the newest version of the repository is served.
    """

    def __init__(
        self, repository: Path, servers: Servers, warm_seconds: float, warm_bytes: int, newest_served: Gauge
    ) -> None:
        self._repository = Repository(repository)
        self._servers = servers
        self._warm_seconds = warm_seconds
        self._warm_bytes = warm_bytes
        self._newest_served = newest_served
        self._known = frozenset[str]()
        self._admitting: dict[str, asyncio.Task[None]] = {}
        self._retry_at: dict[tuple[str, int], float] = {}
        self._withdrawn: dict[str, float] = {}
        self._present: Versions = {}
        self._served: Versions = {}
        self._faults: dict[tuple[str, int], str] = {}
        self._logged: dict[tuple[str, int], str] = {}
        self._reachable = False
        self.draining = False

    def models(self) -> list[ModelSummary]:
        """Return the served models by name; `MODEL_FORMAT` is a further format of `MODEL` where both are served.

        Raises:
            Problem: triton-unavailable: The inference server does not respond.
        """
        formats: dict[str, list[str]] = {}
        for name in self.served():
            formats.setdefault(self._base(name), []).append(self._newest(name).format)
        return [self._summary(name, tuple(found)) for name, found in formats.items()]

    def served(self) -> dict[str, tuple[int, ...]]:
        """Return the served versions of every name that Triton knows, without the graphs that belong to others.

        Raises:
            Problem: triton-unavailable: The inference server does not respond.
        """
        self._require_triton()
        names = (name for name in sorted(self._served) if self._newest(name).product is None)
        return {name: tuple(sorted(self._served[name])) for name in names}

    def model(self, name: str) -> Model:
        """Return a served model with the card of its newest version.

        Raises:
            Problem: unknown-model: Not in the repository.
            Problem: model-not-ready: In the repository and not served yet.
            Problem: triton-unavailable: The inference server does not respond.
        """
        newest = self.find(name)
        versions = tuple(sorted(self._served[name]))
        return Model(
            name=name,
            version=newest.card.version,
            versions=versions,
            card=self._with_derivatives(newest.card),
            certificate=newest.certificate,
        )

    def find(self, name: str, version: int | None = None) -> Version:
        """Return a served version, the newest by default.

        Raises:
            Problem: unknown-model: Not in the repository.
            Problem: unknown-version: The model is served and that version is not.
            Problem: model-not-ready: In the repository and not served yet.
            Problem: triton-unavailable: The inference server does not respond.
        """
        if name not in self._present:
            raise Problem("unknown-model", f'no model "{name[:64]}"; there are {_listed(self._present)}')
        self._require_triton()
        versions = self._served.get(name, {})
        if not versions and (version is None or version in self._present[name]):
            raise Problem("model-not-ready", f'"{name}" is not loaded and warm yet')
        if version is not None and version not in versions:
            raise Problem("unknown-version", f'"{name}" has no version {version} loaded; there are {_listed(versions)}')
        return versions[max(versions) if version is None else version]

    async def newest(self, name: str, seconds: float = _SUCCESSION_SECONDS) -> Version:
        """Return the newest version that is served; one whose predecessor has just gone is waited for.

        Triton unloads a version in the moment in which it has loaded one with other outputs, and the new one is warmed.

        Args:
            name: The model's name.
            seconds: How long to wait at most.

        Raises:
            UnknownModel, ModelNotReady, TritonUnavailable: As `find`.
        """
        end = min(self._withdrawn.get(name, -math.inf) + _SUCCESSION_SECONDS, time.monotonic() + seconds)
        while name in self._present and name not in self._served and time.monotonic() < end:  # noqa: ASYNC110 - rare
            await asyncio.sleep(_SUCCESSION_PAUSE)
        return self.find(name)

    async def successor(self, card: Card, seconds: float) -> Card:
        """Return the card of the version that is served instead of one that Triton has just unloaded.

        Args:
            card: Of the one that is gone.
            seconds: How long to wait at most.

        Raises:
            UnknownModel, ModelNotReady, TritonUnavailable: As `find`.
        """
        return (await self.newest(card.model, seconds)).card

    def derivative(self, name: str, kind: Kind, version: int | None = None) -> Version:
        """Return the derivative of a served model, by default of the newest version that has one.

        Raises:
            Problem: not-differentiable: The model has no such derivative.
            Problem: As `find`.
        """
        product = f"{name}_{kind}"
        if self.find(name, version).card.product or product not in self._present:
            known = ", ".join(sorted(each for each in self._served if self._derivatives(each)))
            raise Problem(
                "not-differentiable", f'"{name}" has no {kind}; the models with derivatives are {known or "none"}'
            )
        if version is None:
            both = self._served[name].keys() & self._served.get(product, {}).keys()
            version = max(both, default=None)
        return self.find(product, version)

    def refinement(self, card: Card) -> Card | None:
        """Return the card of the graph that returns the same with smaller error bounds; None where none is served."""
        found = self._served.get(f"{card.model}_{REFINED}", {}).get(card.version)
        product = None if found is None else found.card.product
        return found.card if found and product and (product.of, product.kind) == (card.model, REFINED) else None

    def knows(self, name: str) -> bool:
        """Return whether the repository holds a model of that name."""
        return name in self._present

    def readiness(self) -> Readiness:
        """Return whether every model of the repository is served and, if not, why."""
        missing = tuple(sorted(name for name in self._present if name not in self._served))
        if self.draining:
            reason = "shutting down"
        elif not self._reachable:
            reason = "the inference server does not respond"
        elif missing:
            reason = f"not loaded and warm: {', '.join(map(self._with_fault, missing))}"
        elif not self._present:
            reason = "the model repository is empty"
        else:
            return Readiness(ready=True)
        return Readiness(ready=False, reason=reason, missing=missing)

    def lost(self) -> None:
        """Forget what is served: Triton is lost, and the process that comes back is cold."""
        if self._reachable:
            logger.warning("the inference server does not respond")
        self._reachable = False
        self._served = {}

    def withdraw(self, card: Card) -> None:
        """Forget a version that Triton has unloaded, so that the one before it is served before the next look."""
        self._withdrawn[card.model] = time.monotonic()
        self._served = {
            name: kept
            for name, versions in self._served.items()
            if (kept := {n: v for n, v in versions.items() if (name, n) != (card.model, card.version)})
        }

    async def look(self) -> float:
        """Compare the repository with Triton and warm what is new; return the seconds until the next look."""
        self._present = await asyncio.to_thread(self._repository.read)
        try:
            loaded = await self._servers.loaded()
        except Problem as problem:
            if problem.kind != "triton-unavailable":
                raise
            self.lost()
        else:
            self._reachable = True
            self._note_withdrawals(loaded)
            self._served = only_loaded(self._served, loaded)
            await self._admit_all(only_loaded(self._present, loaded))
        self._record()
        return _LOOK_SECONDS if self._reachable else _LOOK_SECONDS_DOWN

    async def close(self) -> None:
        """Stop warming."""
        for task in self._admitting.values():
            task.cancel()
        await asyncio.gather(*self._admitting.values(), return_exceptions=True)

    def _require_triton(self) -> None:
        if not self._reachable:
            raise Problem("triton-unavailable", "the inference server does not respond; try again in a moment")

    def _note_withdrawals(self, loaded: frozenset[tuple[str, int]]) -> None:
        """Note the models of which Triton has unloaded every version that is served."""
        kept = only_loaded(self._served, loaded)
        for name in self._served.keys() - kept.keys():
            self._withdrawn[name] = time.monotonic()

    async def _admit_all(self, loaded: Versions) -> None:
        """Warm each model in a task of its own; one that takes longer than a look delays no other model."""
        for name, versions in loaded.items():
            if name not in self._admitting:
                self._admitting[name] = asyncio.create_task(self._admit_model(name, versions))
        if self._admitting:
            await asyncio.wait(self._admitting.values(), timeout=_LOOK_SECONDS)
        done = [name for name, task in self._admitting.items() if task.done()]
        for task in [self._admitting.pop(name) for name in done]:
            task.result()

    async def _admit_model(self, name: str, versions: dict[int, Version]) -> None:
        """Serve the versions of a model, the newest first."""
        try:
            for number in sorted(versions, reverse=True):
                if self._retry_at.get((name, number), 0.0) <= time.monotonic():
                    await self._admit(name, number, versions[number])
        except Problem as problem:
            if problem.kind != "triton-unavailable":
                raise
            self.lost()

    async def _admit(self, name: str, number: int, version: Version) -> None:
        """Serve a version once it is warm; whatever fails concerns it alone, and it is tried again later."""
        start = time.monotonic()
        inputs = partial(samples, version.card, self._warm_bytes)
        try:
            await self._servers.warm(name, number, inputs, self._warm_seconds)
        except Exception as error:
            if isinstance(error, Problem) and error.kind == "triton-unavailable":
                raise
            self._report(name, number, error)
            now = time.monotonic()
            self._retry_at[name, number] = now + (now - start) - _LOOK_SECONDS  # a slow failure is rarer
            return
        self._faults.pop((name, number), None)
        self._logged.pop((name, number), None)
        if version != self._served.get(name, {}).get(number):
            self._served = {**self._served, name: {**self._served.get(name, {}), number: version}}
            logger.info("%s version %d is served", name, number)

    def _report(self, name: str, number: int, error: Exception) -> None:
        """Keep the fault of a version for readiness, and log it unless it was the last, with a trace if unexpected."""
        fault = str(error) if isinstance(error, Problem) else type(error).__name__  # readiness is public
        message = "\n".join([fault, *getattr(error, "__notes__", ())])
        if self._logged.get((name, number)) != message:
            trace = None if isinstance(error, Problem) else error
            logger.warning("%s version %d cannot be warmed: %s", name, number, message, exc_info=trace)
        self._faults[name, number], self._logged[name, number] = fault, message

    def _record(self) -> None:
        """Update the gauge of newest versions, and forget models that are gone."""
        newest = self._repository.newest
        for name in self._known - newest.keys():
            self._newest_served.remove(name)
        for name, number in newest.items():
            self._newest_served.labels(name).set(number in self._served.get(name, {}))
        self._known = frozenset(newest)

    def _with_fault(self, name: str) -> str:
        """Return the name of a model that is not served, with what its versions fail of, if they do."""
        present = sorted(self._present[name])
        faults = [f"version {number}: {fault}" for number in present if (fault := self._faults.get((name, number)))]
        return f"{name} ({'; '.join(faults)})" if faults else name

    def _derivatives(self, name: str) -> tuple[Kind, ...]:
        """Return which derivatives of a model are served."""
        found = (self._served.get(f"{name}_{kind}") for kind in KINDS)
        return tuple(kind for kind, served in zip(KINDS, found, strict=True) if served)

    def _with_derivatives(self, card: Card) -> Card:
        """Return the card with the derivatives that are served, if there are any."""
        found = self._derivatives(card.model)
        return card.model_copy(update={"differentiable": found}) if found else card

    def _newest(self, name: str) -> Card:
        versions = self._served[name]
        return versions[max(versions)].card

    def _base(self, name: str) -> str:
        """Return the name under which a model is listed: `darcy` for `darcy_torchscript`, its own for most."""
        base = name.removesuffix(f"_{self._newest(name).format}")
        return base if base in self._served else name

    def _summary(self, name: str, formats: tuple[str, ...]) -> ModelSummary:
        card = self._newest(name)
        return ModelSummary(
            name=name,
            title=card.title,
            problem=card.problem,
            version=card.version,
            versions=tuple(sorted(self._served[name])),
            formats=formats,
        )


def _listed(names: dict[str, Any] | dict[int, Any]) -> str:
    return ", ".join(str(name) for name in sorted(names)) or "none"
