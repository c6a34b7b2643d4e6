"""Takes the service's settings, gives the rows of their table."""

from __future__ import annotations

from serving.settings import Settings

HEADER = ("variable", "default", "what it is")


def rows() -> list[tuple[str, ...]]:
    """Give a row for every `PETROV_*` variable."""
    return [
        (f"`PETROV_{name.upper()}`", default(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]


def default(value: object) -> str:
    """Give a default as code, and nothing for an empty one."""
    return "" if value in ((), "") else f"`{value}`"
