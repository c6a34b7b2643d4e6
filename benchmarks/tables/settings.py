"""The table of the service's settings in docs/settings.md."""

from __future__ import annotations

from serving.settings import Settings

HEADER = ("variable", "default", "meaning")


def rows() -> list[tuple[str, ...]]:
    """Return a row per `PETROV_*` variable."""
    return [
        (f"`PETROV_{name.upper()}`", default(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    ]


def default(value: object) -> str:
    """Return a default as code, and nothing for an empty one."""
    return "" if value in ((), "") else f"`{value}`"
