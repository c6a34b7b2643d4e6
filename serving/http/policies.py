"""The query parameters `tolerance`, `outside`, `partial`, `frames` and `after` of a prediction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_args

from serving.errors import Problem
from serving.quality import ANY, Outside, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_DIGITS = 9
PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "tolerance",
        "in": "query",
        "description": "The largest `error_bound` of any sample. A sample with a larger one is computed with more "
        "iterations where the model has a graph for that, and then by the classical solver of the problem's equation; "
        "where neither meets it, the request is refused (422).",
        "schema": {"type": "number", "exclusiveMinimum": 0},
    },
    {
        "name": "outside",
        "in": "query",
        "description": "What happens to a sample that is unlike the training data: it is predicted like any other, "
        "solved by the classical solver, or refused (422).",
        "schema": {"type": "string", "enum": list(get_args(Outside)), "default": "answer"},
    },
    {
        "name": "partial",
        "in": "query",
        "description": "What happens to a batch where the model's output for some samples is not finite: all of it "
        "fails (502), or these samples alone, whose outputs are NaN (null in JSON) and which `failed` marks. In a "
        "rollout they stay so from there on, and it ends once all samples have failed.",
        "schema": {"type": "boolean", "default": False},
    },
    {
        "name": "frames",
        "in": "query",
        "description": "How many frames of a trajectory follow, for models of trajectories; by default as many as a "
        "training trajectory has.",
        "schema": {"type": "integer", "minimum": 1},
    },
]
AFTER: dict[str, Any] = {
    "name": "after",
    "in": "query",
    "description": "How many frames of the trajectory the caller has already, where the state that is sent is not its "
    "first: frames are counted, and their errors estimated, from there.",
    "schema": {"type": "integer", "minimum": 0, "default": 0},
}
_NAMES = frozenset(each["name"] for each in (*PARAMETERS, AFTER))


def of_query(query: Mapping[str, str]) -> Policy:
    """Return the policy that the query of an HTTP request describes; a misspelled parameter would demand nothing.

    Raises:
        Problem: invalid-parameter: A parameter is not known; or as `policy`.
    """
    if unknown := sorted(set(query) - _NAMES):
        names = ", ".join(sorted(_NAMES))
        raise Problem("invalid-parameter", f'there is no parameter "{unknown[0][:32]}"; there are {names}')
    return policy(query)


def policy(query: Mapping[str, str]) -> Policy:
    """Return the policy that query parameters describe.

    Raises:
        Problem: invalid-parameter: The tolerance is no positive number, or another parameter is none of its values.
    """
    if not query:
        return ANY
    partial = _boolean("partial", query.get("partial", "false"))
    return Policy(
        _tolerance(query.get("tolerance")),
        _outside(query.get("outside", "answer")),
        partial,
        _count("frames", query.get("frames"), 1),
        _count("after", query.get("after"), 0) or 0,
    )


def _tolerance(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise Problem("invalid-parameter", f'tolerance: expected a positive number but got "{text[:32]}"')
    return value


def _outside(text: str) -> Outside:
    for known in get_args(Outside):
        if text == known:
            found: Outside = known
            return found
    raise Problem("invalid-parameter", f'outside: expected {" or ".join(get_args(Outside))} but got "{text[:32]}"')


def _count(name: str, text: str | None, least: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) >= least):
        raise Problem("invalid-parameter", f'{name}: expected a whole number from {least} but got "{text[:32]}"')
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise Problem("invalid-parameter", f'{name}: expected true or false but got "{text[:32]}"')
    return text.lower() == "true"
