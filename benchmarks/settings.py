"""Takes the service's settings, gives the rows of their table."""

from __future__ import annotations

from serving.settings import Settings

HEADER = ("variable", "default", "what it is")


def rows() -> list[tuple[str, ...]]:
    """Give a row for every `PETROV_*` variable."""
    return [
        (f"`PETROV_{name.upper()}`", f"`{field.default}`" if field.default not in ((), "") else "", field.description or "")
        for name, field in Settings.model_fields.items()
    ]
