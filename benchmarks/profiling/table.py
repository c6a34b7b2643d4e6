"""For the eye: takes a profile, gives rich tables of its rows with their exponents, and of its headlines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from benchmarks.profiling.growth import Growth
from benchmarks.profiling.headlines import Headline
from benchmarks.profiling.report import Profile
from benchmarks.profiling.rows import Row

EXPONENT = "growth"


def tables(profile: Profile) -> Iterator[Table]:
    """Give a table for each subject, then the headlines."""
    for subject in dict.fromkeys(row.subject for row in profile.rows):
        yield subject_table(profile, subject)
    if profile.headlines:
        yield headline_table(profile)


def subject_table(profile: Profile, subject: str) -> Table:
    """Give medians length by length, one section for each form, closed by its exponents."""
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
    """Say what was measured on what."""
    where = f"{profile.settings.device}, {profile.settings.clock} time"
    threads = f", threads: {profile.threads}" if profile.settings.device == "cpu" else ""
    return f"{row.subject}, a training step of batch {row.batch}\n{where}{threads}"


def cells(row: Row) -> tuple[str, ...]:
    """Give a row's figures, or dashes; the reasons for dashes are told below the table."""
    if row.skipped is not None:
        return "-", "-", "-"
    return f"{1e3 * row.forward:.1f}", f"{1e3 * row.backward:.1f}", f"{row.peak_bytes / 1e6:.1f}"


def powers(growth: Growth) -> tuple[str, ...]:
    """Give exponents as powers of the number of points."""
    return tuple(f"n^{value:.2f}" for value in (growth.forward, growth.backward, growth.memory))


def headline_table(profile: Profile) -> Table:
    """Give what was found beside what is published."""
    table = Table("claim", "ours", "against", "found", "published", title="headlines")
    for column in table.columns[1:4]:
        column.no_wrap = True
    for subject in dict.fromkeys(each.subject for each in profile.headlines):
        for each in profile.headlines:
            if each.subject == subject:
                found = f"{100 * each.found:.0f} % {each.unit}"
                claim = f"{subject} {each.length}: {each.title}"
                table.add_row(claim, *costs(each), found, each.published or "-")
        table.add_section()
    return table


def costs(headline: Headline) -> tuple[str, str]:
    """Give both sides' costs with their forms."""
    unit, scale = ("MB", 1e-6) if headline.unit == "less" else ("ms", 1e3)
    sides = ((headline.ours, headline.our_cost), (headline.other, headline.other_cost))
    ours, other = (f"{form}\n{scale * cost:.1f} {unit}" for form, cost in sides)
    return ours, other


def skipped(profile: Profile) -> Iterator[str]:
    """Say why figures are missing, a line for each."""
    for row in profile.rows:
        if row.skipped is not None:
            yield f"{row.subject}, {row.form}, length {row.length}: skipped, {row.skipped}"
