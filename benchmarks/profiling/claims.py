"""The paper's claims about memory and time, and the findings of a profile.

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
    """That a form costs less than its baseline."""

    title: str
    cost: Literal["memory", "backward"]
    form: str
    baseline: str
    published: str


CLAIMS = (
    Claim("memory, both as published", "memory", "fourier-explicit", "softmax-explicit", "33-40 % less"),
    Claim("memory, both in their best form", "memory", "fourier", "softmax", ""),
    Claim("memory, best form against published", "memory", "fourier", "softmax-explicit", ""),
    Claim("backward time", "backward", "galerkin", "linear", "20-100 % faster"),
)


class Finding(BaseModel):
    """The measurement of a claim at the largest length where both forms were measured."""

    model_config = FROZEN

    subject: str
    title: str
    length: int
    form: str
    baseline: str
    cost: float  # bytes, or the median of seconds
    baseline_cost: float
    found: float  # the share of memory that is saved, or by which share the form is faster
    published: str

    @property
    def unit(self) -> str:
        """The comparative that belongs to `found`."""
        return "less" if self.title.startswith("memory") else "faster"


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Return the finding of every claim whose forms were measured, subject by subject."""
    measured = {(row.subject, row.form, row.length): row for row in rows if row.skipped is None}
    subjects = dict.fromkeys(row.subject for row in rows)
    return [
        finding(claim, measured[subject, claim.form, max(common)], measured[subject, claim.baseline, max(common)])
        for subject in subjects
        for claim in CLAIMS
        if (common := lengths(measured, subject, claim.form) & lengths(measured, subject, claim.baseline))
    ]


def lengths(measured: dict[tuple[str, str, int], Row], subject: str, form: str) -> set[int]:
    """Return the lengths at which a subject was measured in a form.

    Args:
        measured: Rows by (subject, form, length).
        subject: The name of the subject.
        form: The name of the form.
    """
    return {length for name, kind, length in measured if (name, kind) == (subject, form)}


def finding(claim: Claim, row: Row, baseline: Row) -> Finding:
    """Return the finding of one claim; times are compared round by round, since other load slows both alike.

    Args:
        claim: The claim.
        row: The row of its form.
        baseline: The row of its baseline.
    """
    if claim.cost == "memory":
        costs: tuple[float, float] = (row.peak_bytes, baseline.peak_bytes)
        found = 1 - row.peak_bytes / baseline.peak_bytes
    else:
        costs = (row.backward, baseline.backward)
        rounds = zip(row.backward_seconds, baseline.backward_seconds, strict=True)
        found = statistics.median(slower / faster for faster, slower in rounds) - 1
    return Finding(
        subject=row.subject,
        title=claim.title,
        length=row.length,
        form=claim.form,
        baseline=claim.baseline,
        cost=costs[0],
        baseline_cost=costs[1],
        found=round(found, 4),
        published=claim.published,
    )
