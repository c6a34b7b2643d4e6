"""The JSON documents in which a service describes models, read as values. They are not trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from petrov_client._errors import InvalidResponse
from petrov_client._models import GRADIENTS, TANGENTS, ModelInfo
from petrov_client._schema import FramesInfo, GridInfo, ParameterInfo, TensorInfo
from petrov_client._vocabulary import Vocabulary


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn the errors of reading a document of the service into one `InvalidResponse`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InvalidResponse(f"{what} is not readable: {error!r}") from error


def model_info(document: Any) -> ModelInfo:
    """Return the model of the gateway's description (`GET /v1/models/{model}`)."""
    with readable("the description of a model"):
        card = document["card"]
        described = signature(card)
        estimated = any(row.get("error_estimate") is not None for row in card.get("rollout", ()))
        if estimated and "error_estimate" not in described["quality"]:  # of trajectories it is measured per frame
            described["quality"] += ("error_estimate",)
        return ModelInfo(
            name=str(document["name"]),
            version=int(document["version"]),
            versions=tuple(int(version) for version in document["versions"]),
            batch=max(1, int(card["limits"]["batch"])),
            vocabulary=vocabulary(card["vocabulary"]) if card.get("vocabulary") else None,
            card=card,
            certificate=document.get("certificate") or {},
            **described,
        )


def signature(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a card says of tensors and grids, as arguments of `ModelInfo`; other errors if it is no card."""
    inputs, outputs = (tuple(map(_tensor, card[name])) for name in ("inputs", "outputs"))
    if not outputs:
        raise ValueError("expected outputs but got none")
    return {
        "inputs": inputs,
        "parameters": tuple(map(ParameterInfo.read, card.get("parameters", ()))),
        "outputs": outputs,
        "title": str(card["title"]),
        "grid": GridInfo.read(card["grid"]),
        "quality": tuple(str(name) for name in card.get("quality", ())),
        "mask": None if card.get("mask") is None else str(card["mask"]),
        "frames": None if card.get("frames") is None else _frames(card["frames"], inputs, outputs),
    }


def _frames(document: Mapping[str, Any], inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...]) -> FramesInfo:
    found = FramesInfo.read(document)
    fields = [each for each in outputs if not each.name.startswith((GRADIENTS, TANGENTS))]  # a derivative has both
    if found.history < 1 or len(found.states) != len(fields) or not set(found.states) <= {each.name for each in inputs}:
        raise ValueError(f"expected a state per output but got {found}")
    return found


def _tensor(document: Mapping[str, Any]) -> TensorInfo:
    found = TensorInfo.read(document)
    sizes = found.shape or (None,) * len(found.axes)
    if not found.axes or len(sizes) != len(found.axes):
        raise ValueError(f"expected as many sizes as axes but got {sizes} for {found.axes}")
    return replace(found, shape=sizes)


def vocabulary(document: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary of a card, or of Triton's configuration."""
    try:
        pattern = None if document["pattern"] is None else re.compile(document["pattern"]).pattern
    except (re.error, OverflowError) as error:
        raise ValueError(f"the pattern of words is not readable: {error}") from error
    labels = tuple(str(label) for label in document["labels"])
    if len(labels) < 2:
        raise ValueError(f"expected at least two labels but got {labels}")
    words = tuple(str(word) for word in document["words"])
    return Vocabulary(words, pattern, labels, str(document["answer"]))
