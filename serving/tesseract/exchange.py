"""The body of a request to a Tesseract, and the writer of its response.

    apply                     {"inputs": {…}}
    vector_jacobian_product   {"inputs": {…}, "vjp_inputs": […], "vjp_outputs": […], "cotangent_vector": {…}}
    jacobian_vector_product   {"inputs": {…}, "jvp_inputs": […], "jvp_outputs": […], "tangent_vector": {…}}

A response holds arrays by the names of outputs, or for a vector-Jacobian product by those of `vjp_inputs`. Beside the
outputs of `apply` is what is known about the error: one number per sample by name, such as `error_bound`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from serving.codecs.names import check_names
from serving.errors import Problem
from serving.tesseract.arrays import decode, encode
from serving.tesseract.signature import broadcast, fitted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from serving.catalogue.card import Card
    from serving.quality import Quality
    from serving.tesseract.arrays import Encoding


@dataclass(frozen=True)
class Vector:
    """The vector of a product in a request.

    Attributes:
        member: The member of the body that holds it.
        role: What the tensors of the product are called, `cotangents` or `tangents`.
        named: The member that lists its names.
        wanted: The member that lists the results.
        results: What the tensors of the results are called.
    """

    member: str
    role: str
    named: str
    wanted: str
    results: str


VECTORS = {
    "vjp": Vector("cotangent_vector", "cotangents", "vjp_outputs", "vjp_inputs", "gradients"),
    "jvp": Vector("tangent_vector", "tangents", "jvp_inputs", "jvp_outputs", "tangents"),
}


class TesseractBody:
    """A request to a Tesseract: an `Exchange` of `serving.predict`.

    Args:
        content: The request's body.
        card: The card of the model, or of the product for a derivative.
        encoding: How the response encodes arrays.
    """

    frames: int | None = None  # models of trajectories are no Tesseracts

    def __init__(self, content: bytearray, card: Card, encoding: Encoding) -> None:
        self.size = len(content)
        self._content = content
        self._card = card
        self._encoding = encoding
        self._vector = VECTORS[card.product.kind] if card.product else None
        self._sent: dict[str, NDArray[Any]] = {}
        self._wanted: list[str] = []

    def read(self, names: Sequence[str], max_bytes: int, optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body.

        Raises:
            Problem: unreadable-body: The body is not such a document.
            Problem: wrong-input, wrong-dtype or wrong-shape: An array is missing, unknown or not numeric, or a list
                names another than those
                that are sent.
            Problem: body-too-large: An array would be too large as float32.
        """
        document, vector = self._document(), self._vector
        arrays = dict(document["inputs"])
        if vector is not None:
            sent = document[vector.member]
            _check_same(document[vector.named], sent, vector)
            self._wanted = document[vector.wanted]
            self._check_results(vector)
            arrays |= {f"{vector.role}.{name}": value for name, value in sent.items()}
        check_names(arrays, names, optional)
        self._sent = {name: decode(value, name, max_bytes) for name, value in arrays.items()}
        return broadcast(self._sent, self._card)

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> bytes:
        """Return the body of the response."""
        del model, version  # the URL says them
        shown = self._products(outputs) if self._vector else {**outputs, **self._known(outputs, quality)}
        encoded = {name: encode(array, self._encoding) for name, array in shown.items()}
        return orjson.dumps(encoded, option=orjson.OPT_SERIALIZE_NUMPY)

    def _document(self) -> dict[str, Any]:
        """Return the members of the body, each of its own type."""
        try:
            document = orjson.loads(self._content)
        except orjson.JSONDecodeError as error:
            raise Problem(
                "unreadable-body", f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
            ) from error
        vector = self._vector
        types: dict[str, type] = {"inputs": dict}
        if vector is not None:
            types |= {vector.named: list, vector.wanted: list, vector.member: dict}
        if not isinstance(document, dict) or document.keys() != types.keys():
            raise Problem("unreadable-body", f"expected a JSON object with {', '.join(types)}")
        for name, kind in types.items():
            if not isinstance(document[name], kind):
                raise Problem(
                    "unreadable-body", f"{name}: expected {'an object' if kind is dict else 'a list of names'}"
                )
        return document

    def _check_results(self, vector: Vector) -> None:
        prefix = f"{vector.results}."
        known = [each.name.removeprefix(prefix) for each in self._card.outputs if each.name.startswith(prefix)]
        if not self._wanted:
            raise Problem(
                "wrong-input", f"{vector.wanted} is empty; expected some of {', '.join(known)}", array=known[0]
            )
        for name in self._wanted:
            if name not in known:
                shown = str(name)[:64]
                raise Problem(
                    "wrong-input",
                    f'{vector.wanted}: expected some of {", ".join(known)} but got "{shown}"',
                    array=shown,
                )

    def _products(self, outputs: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[Any]]:
        """Return the requested results; a gradient has shape and type of the input that was sent."""
        vector = self._vector
        if vector is None or vector.role == vector.results:
            return {name: outputs[f"tangents.{name}"] for name in self._wanted}
        found: dict[str, NDArray[Any]] = {}
        for name in self._wanted:
            gradient, sent = outputs[f"{vector.results}.{name}"], self._sent.get(name)
            found[name] = gradient if sent is None else fitted(gradient, sent.shape, sent.dtype)
        return found

    def _known(self, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> dict[str, NDArray[np.float32]]:
        first = self._card.outputs[0]
        single = outputs[first.name].ndim < len(first.axes)
        return {name: array[0] if single else array for name, array in quality.numbers.items()}


def _check_same(listed: list[Any], sent: dict[str, Any], vector: Vector) -> None:
    """Refuse a vector whose names are not those that the request lists."""
    if not sent:
        raise Problem(
            "wrong-input", f"{vector.member} is empty; expected the arrays of {vector.named}", array=vector.member
        )
    if len(listed) != len(sent) or not all(isinstance(name, str) and name in sent for name in listed):
        raise Problem(
            "wrong-input",
            f"{vector.named} and the names of {vector.member} differ; expected the same",
            array=vector.member,
        )
