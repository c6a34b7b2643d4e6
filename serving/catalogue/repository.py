"""The versions in a model repository: the card and the certificate of each version folder."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serving.catalogue.card import Card

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


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
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions: Versions = {}
        self._unreadable: set[Path] = set()

    def read(self) -> Versions:
        """Return the versions of every model.

        A model whose card cannot be read is kept without that version, so that readiness reports it as missing. A
        folder without any card is not a model of ours.
        """
        found: Versions = {}
        for path in sorted(self._folder.glob("*/*/card.json")):
            name, number = path.parent.parent.name, path.parent.name
            if number.isdecimal():
                version = self._versions.get(name, {}).get(int(number)) or self._version(path)
                found.setdefault(name, {}).update({} if version is None else {int(number): version})
        self._versions = found
        return found

    def _version(self, path: Path) -> Version | None:
        """Read one version folder; a fault is logged once."""
        try:
            return _read(path)
        except (OSError, ValueError, RecursionError) as error:
            if path not in self._unreadable:
                logger.warning("%s cannot be read: %s", path, error)
                self._unreadable.add(path)
            return None


def only_loaded(versions: Versions, loaded: frozenset[tuple[str, int]]) -> Versions:
    """Return those versions that Triton has loaded."""
    kept = {name: {n: v for n, v in numbered.items() if (name, n) in loaded} for name, numbered in versions.items()}
    return {name: numbered for name, numbered in kept.items() if numbered}


def _read(path: Path) -> Version:
    certificate = path.with_name("certificate.json")
    card = Card.model_validate_json(path.read_bytes())
    expected = path.parent.parent.name, int(path.parent.name)
    if (card.model, card.version) != expected:
        raise ValueError(
            f"expected the card of {expected[0]} version {expected[1]} but found that of {card.model} version "
            f"{card.version}"
        )
    return Version(card, json.loads(certificate.read_bytes()) if certificate.exists() else None)
