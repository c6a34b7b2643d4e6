"""Every kind of error that is raised is in the table, and every kind of the table is raised."""

from __future__ import annotations

import ast
from http import HTTPStatus
from pathlib import Path

import serving
from serving.errors import KINDS, Problem

MAKERS = {"Problem", "problem"}


def raised() -> set[str]:
    """Return the kinds of all `Problem(...)` and `problem(...)` in the source of the gateway."""
    calls = (
        node
        for path in Path(serving.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and {getattr(node.func, "id", ""), getattr(node.func, "attr", "")} & MAKERS
    )
    kinds = (leaf.value for call in calls for leaf in ast.walk(call.args[0]) if isinstance(leaf, ast.Constant))
    return {kind for kind in kinds if isinstance(kind, str)}


def test_the_table_lists_the_kinds_that_are_raised() -> None:
    assert raised() == KINDS.keys()


def test_the_statuses_are_errors_of_http() -> None:
    assert all(400 <= HTTPStatus(kind.status) < 600 for kind in KINDS.values())


def test_a_body_says_where() -> None:
    details = Problem("wrong-shape", "a is odd", array="a", index=[0, 3]).details().model_dump(exclude_none=True)
    assert details == {
        "type": "urn:petrov:problem:wrong-shape",
        "title": "Wrong shape",
        "status": 422,
        "detail": "a is odd",
        "where": {"array": "a", "index": [0, 3], "pointer": "/inputs/a/0/3"},
    }
    assert "where" not in Problem("overloaded", "full").details().model_dump(exclude_none=True)
