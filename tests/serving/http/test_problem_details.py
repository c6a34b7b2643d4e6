"""The tree of errors in the docstring is the tree of classes."""

from __future__ import annotations

import re
from http import HTTPStatus

from serving import problem_details
from serving.problem_details import Failed, Overloaded, Problem, Refused, WrongShape


def kinds(problem: type[Problem] = Problem) -> list[type[Problem]]:
    return [problem, *(leaf for child in problem.__subclasses__() for leaf in kinds(child))]


def test_the_docstring_lists_every_problem() -> None:
    rows = re.findall(r"(\w+) +(\d{3})  ([a-z-]+)", problem_details.__doc__ or "")
    documented = {(name, int(status), kind) for name, status, kind in rows}
    defined = {
        (leaf.__name__, leaf.status, leaf.kind)
        for leaf in kinds()
        if leaf.__name__ not in {"Problem", "Refused", "Failed"}
    }
    assert documented == defined


def test_types_are_unique_and_statuses_exist() -> None:
    named = [leaf.kind for leaf in kinds() if leaf not in {Problem, Refused, Failed}]
    assert len(set(named)) == len(named)
    assert all(HTTPStatus(leaf.status) for leaf in kinds())
    assert all(400 <= leaf.status < 500 for leaf in kinds(Refused)[1:])
    assert all(500 <= leaf.status < 600 for leaf in kinds(Failed))


def test_a_body_says_where() -> None:
    details = WrongShape("a is odd", array="a", index=[0, 3]).details().model_dump(exclude_none=True)
    assert details == {
        "type": "urn:petrov:problem:wrong-shape",
        "title": "Wrong shape",
        "status": 422,
        "detail": "a is odd",
        "where": {"array": "a", "index": [0, 3], "pointer": "/inputs/a/0/3"},
    }
    assert "where" not in Overloaded("full").details().model_dump(exclude_none=True)
