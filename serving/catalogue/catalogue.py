"""What can be served now: cards in the repository on one side, what Triton has loaded and we have warmed on the other.

A version is *served* when its card can be read, Triton reports it ready, and one field of each declared grid has been
through it. The catalogue looks every second, so that a new version or a new model is served without a restart, and
forgets everything when Triton goes away, because the process that returns is cold.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from serving.inference import checks as fields
from serving.problem_details import ModelNotReady, Problem, TritonUnavailable, UnknownModel, UnknownVersion
from serving.schemas import Card, Model, ModelSummary, Readiness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from serving.inference.backend import Batch
    from serving.triton.pool import TritonPool

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_LOOK_SECONDS_DOWN = 0.25  # nobody is served meanwhile


@dataclass(frozen=True)
class Version:
    """One version folder: its card and its export certificate."""

    card: Card
    certificate: dict[str, Any] | None


Shelf = dict[str, dict[int, Version]]


class Catalogue:
    """Models and versions that answer now.

    Args:
        repository: The model repository, for its cards.
        tritons: The servers that have the models.
        warm_seconds: How long one warming call may take.
    """

    def __init__(self, repository: Path, tritons: TritonPool, warm_seconds: float) -> None:
        self._repository = repository
        self._tritons = tritons
        self._warm_seconds = warm_seconds
        self._present: Shelf = {}
        self._served: Shelf = {}
        self._unreadable: set[Path] = set()
        self._reachable = False
        self.draining = False

    def models(self) -> list[ModelSummary]:
        """The served models by name.

        Raises:
            TritonUnavailable: There are none because the server does not answer.
        """
        self._require_triton()
        return [self._summary(name) for name in sorted(self._served)]

    def model(self, name: str) -> Model:
        """A served model with the card of its newest version.

        Raises:
            UnknownModel: Not in the repository.
            ModelNotReady: In the repository and not served yet.
            TritonUnavailable: The server does not answer.
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
        """A served version, the newest if none is named.

        Raises:
            UnknownModel: Not in the repository.
            UnknownVersion: The model is served and that version is not.
            ModelNotReady: In the repository and not served yet.
            TritonUnavailable: The server does not answer.
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
        """Whether the repository holds a model of that name."""
        return name in self._present

    def readiness(self) -> Readiness:
        """Ready when every model of the repository is served."""
        missing = tuple(sorted(name for name in self._present if name not in self._served))
        if self.draining:
            reason = "shutting down"
        elif not self._reachable:
            reason = "the inference server does not answer"
        elif missing:
            reason = f"not loaded and warm: {', '.join(missing)}"
        elif not self._present:
            reason = "the model repository is empty"
        else:
            return Readiness(ready=True)
        return Readiness(ready=False, reason=reason, missing=missing)

    def lost(self) -> None:
        """Triton went away: whatever answers next is a new process, and cold."""
        if self._reachable:
            logger.warning("the inference server does not answer")
        self._reachable = False
        self._served = {}

    def withdraw(self, card: Card) -> None:
        """Triton unloaded a version: the one before it answers at once, not only after the next look."""
        self._served = {
            name: kept
            for name, versions in self._served.items()
            if (kept := {n: v for n, v in versions.items() if (name, n) != (card.model, card.version)})
        }

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS if self._reachable else _LOOK_SECONDS_DOWN)

    async def look(self) -> None:
        """Compare the repository with Triton once, and warm what is new."""
        self._present = await asyncio.to_thread(_read, self._repository, self._present, self._unreadable)
        try:
            loaded = await self._tritons.loaded()
            self._reachable = True
            self._served = _common(self._served, loaded)
            for name, versions in _common(self._present, loaded).items():
                for number in sorted(versions, reverse=True):
                    await self._admit(name, number, versions[number])
        except TritonUnavailable:
            self.lost()

    def _require_triton(self) -> None:
        if not self._reachable:
            raise TritonUnavailable("the inference server does not answer; try again in a moment")

    async def _admit(self, name: str, number: int, version: Version) -> None:
        """Serve a version once it is warm; a model that cannot be warmed is tried again at the next look."""
        try:
            await self._tritons.warm(name, number, partial(_questions, version.card), self._warm_seconds)
        except TritonUnavailable:
            raise
        except Problem as problem:
            logger.warning("%s version %d cannot be warmed: %s", name, number, problem)
            return
        if version != self._served.get(name, {}).get(number):
            self._served = {**self._served, name: {**self._served.get(name, {}), number: version}}
            logger.info("%s version %d is served", name, number)

    def _summary(self, name: str) -> ModelSummary:
        versions = self._served[name]
        card = versions[max(versions)].card
        return ModelSummary(
            name=name,
            title=card.title,
            problem=card.problem,
            version=card.version,
            versions=tuple(sorted(versions)),
        )


def _questions(card: Card) -> Iterator[Batch]:
    """A field of each declared grid, to warm a version with."""
    for points in card.grid.declared:
        yield fields.ones(card, points)


def _listed(names: dict[str, Any] | dict[int, Any]) -> str:
    return ", ".join(str(name) for name in sorted(names)) or "none"


def _common(shelf: Shelf, loaded: frozenset[tuple[str, int]]) -> Shelf:
    """The part of a shelf that Triton has loaded."""
    kept = {name: {n: v for n, v in versions.items() if (name, n) in loaded} for name, versions in shelf.items()}
    return {name: versions for name, versions in kept.items() if versions}


def _read(repository: Path, known: Shelf, unreadable: set[Path]) -> Shelf:
    """The cards on disk. A version folder is complete when it is there and never changes, so each is read once.

    A model whose card cannot be read is on the shelf without that version: readiness has to miss it. A model without
    any card is none of ours.
    """
    shelf: Shelf = {}
    for path in sorted(repository.glob("*/*/card.json")):
        name, number = path.parent.parent.name, path.parent.name
        if number.isdigit():
            version = known.get(name, {}).get(int(number)) or _version(path, unreadable)
            shelf.setdefault(name, {}).update({} if version is None else {int(number): version})
    return shelf


def _version(path: Path, unreadable: set[Path]) -> Version | None:
    certificate = path.with_name("certificate.json")
    try:
        card = Card.model_validate_json(path.read_bytes())
        return Version(card, json.loads(certificate.read_bytes()) if certificate.exists() else None)
    except (OSError, ValueError) as error:
        if path not in unreadable:  # said once, not at every look
            logger.warning("%s cannot be read: %s", path, error)
            unreadable.add(path)
        return None
