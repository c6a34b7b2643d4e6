"""The page of a report: one HTML file that holds its figures, and the same numbers as JSON beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from training.files import write_json, write_text
from training.report import figures, texts
from training.report.advice import advise
from training.report.collect import Report

PAGE, NUMBERS = "report.html", "report.json"
TEMPLATE = "page.html.jinja"


def write(report: Report, folder: Path) -> Path:
    """Write the page and its numbers into a run's folder.

    Args:
        report: The report.
        folder: The folder.

    Returns:
        The page.
    """
    write_text(folder / PAGE, render(report))
    write_json(folder / NUMBERS, numbers(report))
    return folder / PAGE


def render(report: Report) -> str:
    """Return the page."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(TEMPLATE).render(
        report=report,
        texts=texts,
        curve=figures.image(figures.learning_curve(report)),
        distribution=figures.image(figures.distribution(report)),
        amounts=figures.image(figures.amounts(report)) if report.amounts else None,
        rollout=figures.image(figures.rollout(report)) if report.rollout else None,
        samples={name: figures.image(figure) for name, figure in figures.samples(report).items()},
    )


def numbers(report: Report) -> dict[str, Any]:
    """Return the numbers of a report as a JSON document."""
    evidence, times = report.evidence, report.times
    return {
        "run": report.run,
        "samples": dict(zip(("training", "validation", "test"), report.counts, strict=True)),
        "errors": report.figures,
        "error_by_sample": {split: [*map(float, errors)] for split, errors in report.errors.items()},
        "mean_output_error": report.baseline,
        "amounts": [{"samples": one.samples, "relative_l2": float(one.errors.mean())} for one in report.amounts],
        "rollout": [dict(row) for row in report.rollout],
        "seconds": {"network": times.network, "solver": times.solver, "training": times.training},
        "evidence": {"gap": evidence.gap, "fall": evidence.fall, "doubling": evidence.doubling},
        "next": advise(evidence).value,
    }
