"""Every kind of error that is raised is in the table, and every kind of the table is raised."""

from __future__ import annotations

import ast
from http import HTTPStatus
from pathlib import Path

import serving
from serving.errors import KINDS, Problem

SOURCES = [path for path in Path(serving.__path__[0]).rglob("*.py") if path.name != "errors.py"]


def literals(tree: ast.AST) -> set[str]:
    """Return the strings in a part of the source."""
    return {leaf.value for leaf in ast.walk(tree) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}


def test_the_table_lists_the_kinds_that_are_raised() -> None:
    trees = [ast.parse(path.read_text()) for path in SOURCES]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    raised = set().union(*(literals(call.args[0]) for call in calls if getattr(call.func, "id", "") == "Problem"))
    assert raised <= KINDS.keys()
    assert KINDS.keys() <= set().union(*map(literals, trees))  # some kinds are passed on to where they are raised


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
