"""The query parameters `tolerance` and `outside` of a prediction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, get_args

from serving.inference.policy import ANY, Outside, Policy
from serving.problem_details import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Mapping

PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "tolerance",
        "in": "query",
        "description": "The largest `error_bound` of any sample. A sample with a larger one is solved by the classical "
        "solver of the problem's equation; where there is none, the request is refused (422).",
        "schema": {"type": "number", "exclusiveMinimum": 0},
    },
    {
        "name": "outside",
        "in": "query",
        "description": "What happens to a sample that is unlike the training data: it is predicted like any other, "
        "solved by the classical solver, or refused (422).",
        "schema": {"type": "string", "enum": list(get_args(Outside)), "default": "answer"},
    },
]


def policy(query: Mapping[str, str]) -> Policy:
    """Return the policy that query parameters describe.

    Raises:
        InvalidParameter: The tolerance is no positive number, or `outside` is none of its values.
    """
    if not query:
        return ANY
    return Policy(_tolerance(query.get("tolerance")), _outside(query.get("outside", "answer")))


def _tolerance(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidParameter(f'tolerance: expected a positive number but got "{text[:32]}"')
    return value


def _outside(text: str) -> Outside:
    for known in get_args(Outside):
        if text == known:
            found: Outside = known
            return found
    raise InvalidParameter(f'outside: expected {" or ".join(get_args(Outside))} but got "{text[:32]}"')
