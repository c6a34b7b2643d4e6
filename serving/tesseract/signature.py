"""The inputs and outputs of a model as a Tesseract: which arrays there are, of which shapes, and what fits together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from serving.codecs import buffers
from serving.codecs.names import check_names
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from serving.catalogue.card import Card, Parameter, Tensor

    Shape = tuple[int, ...]


def is_batch(shape: Sequence[int], argument: Tensor | Parameter) -> bool:
    """Return whether an array of that shape has an axis of samples."""
    return len(shape) == len(argument.axes)


def broadcast(arrays: Mapping[str, NDArray[Any]], card: Card) -> dict[str, NDArray[Any]]:
    """Repeat batches of one sample, so that all batches have as many samples.

    `vmap_method="expand_dims"` of tesseract-jax sends what is not mapped as a batch of one.

    Args:
        arrays: Arrays by name.
        card: The card whose arguments they are.

    Returns:
        The arrays, as views where they are repeated.
    """
    arguments = {argument.name: argument for argument in card.arguments}
    batches = {name for name, array in arrays.items() if is_batch(array.shape, arguments[name])}
    count = max((len(arrays[name]) for name in batches), default=1)
    return {
        name: np.broadcast_to(array, (count, *array.shape[1:])) if name in batches and len(array) == 1 else array
        for name, array in arrays.items()
    }


def fitted(gradient: NDArray[Any], shape: Shape, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the gradient by an array that was sent, in the array's own shape.

    Args:
        gradient: The gradient by what the array was repeated to.
        shape: The shape of the array.
        dtype: Its type; the gradient by float64 is float64, as automatic differentiation expects.
    """
    repeated = gradient.size != int(np.prod(shape))
    whole = gradient.sum(axis=0) if repeated else gradient
    return whole.reshape(shape).astype(np.float64 if dtype == np.float64 else np.float32, copy=False)


def results(card: Card, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the shapes of all outputs and of the numbers about their quality.

    Args:
        card: The card of the model.
        shapes: The shapes of the inputs and parameters that are sent.

    Raises:
        Problem: wrong-input: An input is missing, or the model does not have one, or none says the grid.
        Problem: wrong-shape: A rank is neither a sample's nor a batch's, or an output's shape does not follow from
            the inputs.
    """
    check_names(shapes, card.names, card.optional)
    arguments = {argument.name: argument for argument in card.arguments}
    for name, shape in shapes.items():
        if len(shape) > buffers.MAX_RANK or len(arguments[name].axes) - len(shape) not in {0, 1}:
            raise Problem(
                "wrong-shape",
                f"{name}: expected axes ({', '.join(arguments[name].axes)}), with or without the batch, but got "
                f"shape {list(shape[:8])}",
                array=name,
            )
    counts = [shape[0] for name, shape in shapes.items() if is_batch(shape, arguments[name])]
    free = [tensor.name for tensor in card.inputs if tensor.points is None]
    lead = next((name for name in free if name in shapes), None)
    if lead is None:
        raise Problem(
            "wrong-input", f"no input was sent, so the grid is unknown; send {' or '.join(free)}", array=free[0]
        )
    points = dict(zip(card.grid.axes, shapes[lead][-len(card.grid.axes) :], strict=True))
    batch = (max(counts),) if counts and is_batch(shapes[lead], arguments[lead]) else ()
    found = {tensor.name: (*batch, *_sizes(tensor, points)) for tensor in card.outputs}
    return found | dict.fromkeys(card.quality, batch)


def _sizes(tensor: Tensor, points: Mapping[str, int]) -> Shape:
    """Return the shape of one sample of an output."""
    sizes = [points.get(axis) if size is None else size for axis, size in zip(tensor.axes, tensor.sizes, strict=True)]
    if None in sizes[1:]:
        raise Problem("wrong-shape", f"the shape of {tensor.name} is known only once it is computed", array=tensor.name)
    return tuple(size for size in sizes[1:] if size is not None)
