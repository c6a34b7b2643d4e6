"""The body of a request for a derivative, and the writer of its response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serving.codecs.formats import Body, Written
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from serving.catalogue.card import Card
    from serving.quality import Quality

VECTORS = {"vjp": "cotangents", "jvp": "tangents"}
GRADIENTS = "gradients."
PER_SAMPLE = ("batch", "value")  # axes of a gradient by a parameter


class DerivativeBody(Body):
    """A `Body` whose response names the model that is differentiated.

    The response has gradients of those inputs that the request sent. That of a parameter is one number per sample.

    Args:
        content: The request's body.
        request_type: Its media type.
        response_type: The media type of the response.
        card: The card of the derivative.
    """

    def __init__(self, content: bytearray, request_type: str, response_type: str, card: Card) -> None:
        super().__init__(content, request_type, response_type)
        self._card = card
        self._sent: frozenset[str] = frozenset()

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body.

        Raises:
            Problem: wrong-input: There is no cotangent or tangent, beside what `Body.read` refuses.
        """
        found = super().read(names, max_bytes, optional)
        product = self._card.product
        role = VECTORS[product.kind] if product else ""
        if not any(name.startswith(f"{role}.") for name in found):
            expected = [name for name in names if name.startswith(f"{role}.")]
            raise Problem("wrong-input", f"expected {' or '.join(expected)} but got none", array=expected[0])
        self._sent = frozenset(found)
        return found

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Written:
        """Return the response; see `Body.write`."""
        product = self._card.product
        shown = {
            tensor.name: outputs[tensor.name][..., 0] if tensor.axes == PER_SAMPLE else outputs[tensor.name]
            for tensor in self._card.outputs
            if not tensor.name.startswith(GRADIENTS) or tensor.name.removeprefix(GRADIENTS) in self._sent
        }
        return super().write(product.of if product else model, version, shown, quality)
