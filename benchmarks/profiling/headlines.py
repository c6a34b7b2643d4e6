"""The paper's claims: takes rows of a profile, gives what they say to the two headlines.

Cao, NeurIPS 2021, arXiv 2105.14995, as its repository states them: Fourier type attention takes 33-40 % less memory
than softmax, and Galerkin type attention goes backward 20-100 % faster than linear attention.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from benchmarks.profiling.rows import FROZEN, Row


@dataclass(frozen=True)
class Claim:
    """That `ours` costs less than `other`."""

    title: str
    cost: Literal["memory", "backward"]
    ours: str
    other: str
    published: str


CLAIMS = (
    Claim("memory, both as published", "memory", "fourier-explicit", "softmax-explicit", "33-40 % less"),
    Claim("memory, both in their best form", "memory", "fourier", "softmax", ""),
    Claim("memory, best form against published", "memory", "fourier", "softmax-explicit", ""),
    Claim("backward time", "backward", "galerkin", "linear", "20-100 % faster"),
)


class Headline(BaseModel):
    """A claim at the largest length where both sides were measured."""

    model_config = FROZEN

    subject: str
    title: str
    length: int
    ours: str
    other: str
    our_cost: float  # bytes, or the median of seconds
    other_cost: float
    found: float  # the share of memory that is saved, or by which share of our speed we are faster than the other
    published: str

    @property
    def unit(self) -> str:
        """What `found` is a share of, in a word."""
        return "less" if self.title.startswith("memory") else "faster"


def headlines(rows: Sequence[Row]) -> list[Headline]:
    """Give every claim that the rows can answer, subject by subject."""
    measured = {(row.subject, row.form, row.length): row for row in rows if row.skipped is None}
    subjects = dict.fromkeys(row.subject for row in rows)
    return [
        headline(claim, measured[subject, claim.ours, max(common)], measured[subject, claim.other, max(common)])
        for subject in subjects
        for claim in CLAIMS
        if (common := lengths(measured, subject, claim.ours) & lengths(measured, subject, claim.other))
    ]


def lengths(measured: dict[tuple[str, str, int], Row], subject: str, form: str) -> set[int]:
    """Give the lengths at which a subject was measured in a form."""
    return {length for name, kind, length in measured if (name, kind) == (subject, form)}


def headline(claim: Claim, ours: Row, other: Row) -> Headline:
    """Answer one claim; times are compared round by round, so that other load on the machine hits both sides alike."""
    if claim.cost == "memory":
        costs: tuple[float, float] = (ours.peak_bytes, other.peak_bytes)
        found = 1 - ours.peak_bytes / other.peak_bytes
    else:
        costs = (ours.backward, other.backward)
        rounds = zip(ours.backward_seconds, other.backward_seconds, strict=True)
        found = statistics.median(theirs / mine for mine, theirs in rounds) - 1
    return Headline(
        subject=ours.subject,
        title=claim.title,
        length=ours.length,
        ours=claim.ours,
        other=claim.other,
        our_cost=costs[0],
        other_cost=costs[1],
        found=round(found, 4),
        published=claim.published,
    )
