"""The versions in a model repository: the card and the certificate of each version folder."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from serving import regular_file
from serving.catalogue.card import Card

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)
MAX_BYTES = 16 * 2**20  # of a card or a certificate; ours have some ten kilobytes


@dataclass(frozen=True)
class Version:
    """One version folder: its card and its export certificate."""

    card: Card
    certificate: dict[str, Any] | None


Versions = dict[str, dict[int, Version]]


class Repository:
    """A model repository on disk.

    A version folder is complete when it appears and never changes, so each card is read once.

    Args:
        folder: The repository.

    Attributes:
        newest: The highest version number of each model, whether its card can be read or not.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions: Versions = {}
        self._faults: dict[Path, str] = {}
        self.newest: dict[str, int] = {}

    def read(self) -> Versions:
        """Return the versions of every model.

        A model whose card cannot be read is kept without that version, so that readiness reports it as missing. A
        folder without any card is not a model of ours.
        """
        found: Versions = {}
        newest: dict[str, int] = {}
        for path in sorted(self._folder.glob("*/*/card.json")):
            name, number = path.parent.parent.name, _number(path.parent.name)
            if number is not None:
                version = self._versions.get(name, {}).get(number) or self._version(path)
                found.setdefault(name, {}).update({} if version is None else {number: version})
                newest[name] = max(number, newest.get(name, number))
        self._versions, self.newest = found, newest
        return found

    def _version(self, path: Path) -> Version | None:
        """Read one version folder; a fault is logged once, and again when it changes."""
        try:
            return _read(path)
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            if self._faults.get(path) != str(error):
                logger.warning("%s cannot be read: %s", path, error)
                self._faults[path] = str(error)
            return None


def only_loaded(versions: Versions, loaded: frozenset[tuple[str, int]]) -> Versions:
    """Return those versions that Triton has loaded."""
    kept = {name: {n: v for n, v in numbered.items() if (name, n) in loaded} for name, numbered in versions.items()}
    return {name: numbered for name, numbered in kept.items() if numbered}


def _number(name: str) -> int | None:
    """Return the number of a version folder, None for any other folder."""
    number = int(name) if name.isascii() and name.isdecimal() else 0
    return number if str(number) == name else None


def _read(path: Path) -> Version:
    card = Card.model_validate(_document(path))
    expected = path.parent.parent.name, int(path.parent.name)
    if (card.model, card.version) != expected:
        raise ValueError(
            f"expected the card of {expected[0]} version {expected[1]} but found that of {card.model} version "
            f"{card.version}"
        )
    certificate = path.with_name("certificate.json")
    return Version(card, _document(certificate) if certificate.exists() else None)


def _document(path: Path) -> dict[str, Any]:
    """Return a JSON object that can be sent on as JSON: of finite numbers, at most 200 levels deep."""
    document = from_json(regular_file.read(path, MAX_BYTES), allow_inf_nan=False)
    if not isinstance(document, dict):
        raise ValueError(f"{path.name}: expected a JSON object but found {type(document).__name__}")  # noqa: TRY004  the content is at fault
    return document
