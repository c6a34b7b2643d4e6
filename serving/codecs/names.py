"""The names of a request's inputs, compared with those of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def check_names(sent: Mapping[str, Any] | Sequence[str], names: Sequence[str], optional: Collection[str] = ()) -> None:
    """Check that a request has the inputs of the model and no others.

    Args:
        sent: The names in the request.
        names: Inputs and parameters of the model.
        optional: Those that a request may leave out.

    Raises:
        Problem: wrong-input: One is missing, or the model does not have one.
    """
    for name in names:
        if name not in sent and name not in optional:
            raise Problem("wrong-input", f'input "{name}" is missing; got {_quoted(sent)}', array=name)
    for name in sent:
        if name not in names:
            raise Problem(
                "wrong-input", f'there is no input "{name[:64]}"; the model takes {_quoted(names)}', array=name[:64]
            )


def _quoted(names: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(f'"{name[:64]}"' for name in list(names)[:8]) or "none"
