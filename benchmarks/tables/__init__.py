"""The tables of the documentation, made from the committed results; `benchmarks.pages` writes them into the pages.

Results are the JSON files of the runs, and the cards of the models. A chapter of this package adds its tables where it
is imported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchmarks.tables.released import rollouts
from benchmarks.tables.served import baseline, coverage, methods
from benchmarks.tables.table import DOCS, README, TABLES, Cells, cards, markdown
from benchmarks.tables.trained import (
    attention_types,
    disturbed,
    few_samples,
    memorisation,
    networks,
    own_trajectories,
    transfer,
)

__all__ = [
    "README",
    "TABLES",
    "attention_types",
    "baseline",
    "cards",
    "coverage",
    "disturbed",
    "few_samples",
    "markdown",
    "memorisation",
    "methods",
    "networks",
    "own_trajectories",
    "rollouts",
    "table",
    "transfer",
]


def table(name: str) -> tuple[Sequence[str], Cells]:
    """Return header and cells of a table."""
    if name.startswith("memorisation "):
        return memorisation()[name]
    found = TABLES[name]
    return found.header, found.cells(json.loads((DOCS / found.file).read_text()) if found.file else cards())
