"""The limit of the training pipeline of built-in problems: one scalar input and one scalar output, and any parameters.

A problem's description may have several inputs and outputs. The store keeps them all; reading samples, batches, noise,
pictures and errors by grid handle one of each. Samples do not hold inputs that have a default.
"""

from __future__ import annotations

from typing import NamedTuple

from training.problems.schema import Description, Quantity


class Pair(NamedTuple):
    """The only input without a default and the only output of a problem."""

    input: Quantity
    output: Quantity


def only_pair(description: Description) -> Pair:
    """Return the only input without a default and the only output of a problem.

    Raises:
        NotImplementedError: The problem has vector fields, or several such inputs or outputs.
    """
    fields = (*(one for one in description.inputs if one.default is None), *description.outputs)
    if len(fields) != 2 or any(quantity.components for quantity in fields):
        raise NotImplementedError(
            f"training supports one scalar input and one scalar output but {description.name} has "
            f"{', '.join(tensor.name for tensor in description.tensors)}"
        )
    return Pair(*fields)
