"""The models and versions that can be served now: those in the repository that Triton has loaded and we have warmed.

A version is *served* when its card can be read, Triton reports it ready, and one input of each declared grid has been
through it. The catalogue looks every second, so that a new version or a new model is served without a restart. When
Triton is lost, it forgets what is served, because a restarted Triton is cold.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from serving.catalogue.repository import Repository, only_loaded
from serving.catalogue.summary import Model, ModelSummary, Readiness
from serving.catalogue.warming import samples
from serving.problem_details import ModelNotReady, Problem, TritonUnavailable, UnknownModel, UnknownVersion

if TYPE_CHECKING:
    from pathlib import Path

    from serving.catalogue.card import Card
    from serving.catalogue.repository import Version, Versions
    from serving.catalogue.warming import Servers

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_LOOK_SECONDS_DOWN = 0.25  # nothing is served meanwhile


class Catalogue:
    """The models and versions that are served now.

    Args:
        repository: The model repository, for its cards.
        servers: The servers that run the models.
        warm_seconds: How long one warming call may take.
    """

    def __init__(self, repository: Path, servers: Servers, warm_seconds: float) -> None:
        self._repository = Repository(repository)
        self._servers = servers
        self._warm_seconds = warm_seconds
        self._present: Versions = {}
        self._served: Versions = {}
        self._faults: dict[tuple[str, int], str] = {}
        self._reachable = False
        self.draining = False

    def models(self) -> list[ModelSummary]:
        """Return the served models by name; `MODEL_FORMAT` is a further format of `MODEL` where both are served.

        Raises:
            TritonUnavailable: The inference server does not respond.
        """
        self._require_triton()
        formats: dict[str, list[str]] = {}
        for name in sorted(self._served):
            formats.setdefault(self._base(name), []).append(self._newest(name).format)
        return [self._summary(name, tuple(found)) for name, found in formats.items()]

    def served(self) -> dict[str, tuple[int, ...]]:
        """Return the served versions of every name that Triton knows, further formats of a model included.

        Raises:
            TritonUnavailable: The inference server does not respond.
        """
        self._require_triton()
        return {name: tuple(sorted(self._served[name])) for name in sorted(self._served)}

    def model(self, name: str) -> Model:
        """Return a served model with the card of its newest version.

        Raises:
            UnknownModel: Not in the repository.
            ModelNotReady: In the repository and not served yet.
            TritonUnavailable: The inference server does not respond.
        """
        newest = self.find(name)
        versions = tuple(sorted(self._served[name]))
        return Model(
            name=name,
            version=newest.card.version,
            versions=versions,
            card=newest.card,
            certificate=newest.certificate,
        )

    def find(self, name: str, version: int | None = None) -> Version:
        """Return a served version, the newest by default.

        Raises:
            UnknownModel: Not in the repository.
            UnknownVersion: The model is served and that version is not.
            ModelNotReady: In the repository and not served yet.
            TritonUnavailable: The inference server does not respond.
        """
        if name not in self._present:
            raise UnknownModel(f'no model "{name[:64]}"; there are {_listed(self._present)}')
        self._require_triton()
        versions = self._served.get(name, {})
        if not versions and (version is None or version in self._present[name]):
            raise ModelNotReady(f'"{name}" is not loaded and warm yet')
        if version is not None and version not in versions:
            raise UnknownVersion(f'"{name}" has no version {version} loaded; there are {_listed(versions)}')
        return versions[max(versions) if version is None else version]

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
            self._reachable = True
            self._served = only_loaded(self._served, loaded)
            for name, versions in only_loaded(self._present, loaded).items():
                for number in sorted(versions, reverse=True):
                    await self._admit(name, number, versions[number])
        except TritonUnavailable:
            self.lost()
        return _LOOK_SECONDS if self._reachable else _LOOK_SECONDS_DOWN

    def _require_triton(self) -> None:
        if not self._reachable:
            raise TritonUnavailable("the inference server does not respond; try again in a moment")

    async def _admit(self, name: str, number: int, version: Version) -> None:
        """Serve a version once it is warm; whatever fails concerns it alone, and it is tried again at the next look."""
        try:
            await self._servers.warm(name, number, partial(samples, version.card), self._warm_seconds)
        except TritonUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - logged; the other models are served
            self._report(name, number, error)
            return
        self._faults.pop((name, number), None)
        if version != self._served.get(name, {}).get(number):
            self._served = {**self._served, name: {**self._served.get(name, {}), number: version}}
            logger.info("%s version %d is served", name, number)

    def _report(self, name: str, number: int, error: Exception) -> None:
        """Keep the fault of a version for readiness, and log it once: with a traceback where it is unexpected."""
        fault = str(error) if isinstance(error, Problem) else type(error).__name__  # readiness is public
        if self._faults.get((name, number)) != fault:
            trace = None if isinstance(error, Problem) else error
            logger.warning("%s version %d cannot be warmed: %s", name, number, fault, exc_info=trace)
        self._faults[name, number] = fault

    def _with_fault(self, name: str) -> str:
        """Return the name of a model that is not served, with what its versions fail of, if they do."""
        present = sorted(self._present[name])
        faults = [f"version {number}: {fault}" for number in present if (fault := self._faults.get((name, number)))]
        return f"{name} ({'; '.join(faults)})" if faults else name

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
