"""Operators: complete networks between fields in physical units, one per file, found by their kind.

An installed package adds one by an entry point of the group `petrov.operators` whose object is an `OperatorKind`.
"""

from training.operators.operator import OPERATORS, Operator, OperatorConfig, OperatorKind, build, parse

__all__ = ["OPERATORS", "Operator", "OperatorConfig", "OperatorKind", "build", "parse"]
