"""The tables of a profile in the terminal: rows with their exponents, and findings."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from benchmarks.profiling.claims import Finding
from benchmarks.profiling.growth import Growth
from benchmarks.profiling.report import Profile
from benchmarks.profiling.rows import Row

EXPONENT = "growth"


def tables(profile: Profile) -> Iterator[Table]:
    """Yield a table per subject, then the findings."""
    for subject in dict.fromkeys(row.subject for row in profile.rows):
        yield subject_table(profile, subject)
    if profile.claims:
        yield claims_table(profile)


def subject_table(profile: Profile, subject: str) -> Table:
    """Return medians length by length; one section per form, with its exponents as last row."""
    rows = [row for row in profile.rows if row.subject == subject]
    table = Table("type", "length", "forward ms", "backward ms", "peak MB", title=title(profile, rows[0]))
    for column in table.columns[1:]:
        column.justify = "right"
    exponents = {each.form: each for each in profile.growth if each.subject == subject}
    for form in dict.fromkeys(row.form for row in rows):
        for row in rows:
            if row.form == form:
                table.add_row(form, str(row.length), *cells(row))
        if form in exponents:
            table.add_row(form, EXPONENT, *powers(exponents[form]), style="bold")
        table.add_section()
    return table


def title(profile: Profile, row: Row) -> str:
    """Return the title: subject, batch, device, clock and threads."""
    conditions = f"{profile.settings.device}, {profile.settings.clock} time"
    threads = f", threads: {profile.threads}" if profile.settings.device == "cpu" else ""
    return f"{row.subject}, a training step of batch {row.batch}\n{conditions}{threads}"


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's figures, or dashes if it was skipped."""
    if row.skipped is not None:
        return "-", "-", "-"
    return f"{1e3 * row.forward:.1f}", f"{1e3 * row.backward:.1f}", f"{row.peak_bytes / 1e6:.1f}"


def powers(growth: Growth) -> tuple[str, ...]:
    """Return exponents as powers of the number of points."""
    return tuple(f"n^{value:.2f}" for value in (growth.forward, growth.backward, growth.memory))


def claims_table(profile: Profile) -> Table:
    """Return the findings beside the published figures."""
    table = Table("claim", "form", "baseline", "measured", "published", title="claims")
    for column in table.columns[1:4]:
        column.no_wrap = True
    for subject in dict.fromkeys(each.subject for each in profile.claims):
        for each in profile.claims:
            if each.subject == subject:
                found = f"{100 * each.found:.0f} % {each.unit}"
                claim = f"{subject} {each.length}: {each.title}"
                table.add_row(claim, *costs(each), found, each.published or "-")
        table.add_section()
    return table


def costs(finding: Finding) -> tuple[str, str]:
    """Return both forms with their costs."""
    unit, scale = ("MB", 1e-6) if finding.unit == "less" else ("ms", 1e3)
    pairs = ((finding.form, finding.cost), (finding.baseline, finding.baseline_cost))
    first, second = (f"{form}\n{scale * cost:.1f} {unit}" for form, cost in pairs)
    return first, second


def skipped(profile: Profile) -> Iterator[str]:
    """Yield the reasons of missing figures, one line each."""
    for row in profile.rows:
        if row.skipped is not None:
            yield f"{row.subject}, {row.form}, length {row.length}: skipped, {row.skipped}"
