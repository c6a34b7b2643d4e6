"""What the protocols in JSON share: reading documents, describing them, and the shapes of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from serving.codecs.json_arrays import MEDIA_TYPE
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from serving.catalogue.card import Card
    from serving.codecs.binary import Buffer

Model = TypeVar("Model", bound=BaseModel)
MOST_KEYS = 1024  # of an object that is validated: pydantic describes an error per unknown key


def parsed(content: Buffer) -> Any:
    """Return parsed JSON.

    Raises:
        Problem: unreadable-body: It is none.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        detail = f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        raise Problem("unreadable-body", detail) from error


def validated(model: type[Model], value: Any, name: str = "", kind: str = "unreadable-body") -> Model:
    """Return a document of parsed JSON.

    Args:
        model: Its class.
        value: The parsed JSON.
        name: The member that holds it, for error messages; empty for a whole body.
        kind: Of the error.

    Raises:
        Problem: Of that kind: The value is no such document; the first fault is named.
    """
    try:
        if isinstance(value, dict) and len(value) > MOST_KEYS:
            raise Problem(kind, f"{name or 'the JSON body'} has {len(value)} keys; expected at most {MOST_KEYS}")
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        location = ".".join(str(part)[:64] for part in (*filter(None, [name]), *first["loc"]))
        raise Problem(kind, f"{location or 'the JSON body'}: {first['msg']}") from error


def object_schema(
    properties: Mapping[str, Any], required: Iterable[str] | None = None, *, closed: bool = True
) -> dict[str, Any]:
    """Return the JSON schema of an object with these members, all of them required unless it is said which are."""
    listed = list(properties if required is None else required)
    schema = {"type": "object", "properties": dict(properties), "required": listed}
    return schema | {"additionalProperties": False} if closed else schema


def json_route(body: dict[str, Any], response: dict[str, Any], *media_types: str) -> dict[str, Any]:
    """Return the documentation of a route by the schemas of its JSON body and of its response."""
    content = {media_type: {"schema": response} for media_type in media_types or (MEDIA_TYPE,)}
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": body}}}},
        "responses": {200: {"content": content}},
    }


def shapes(card: Card, points: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of one sample of every input, parameter and output, by name.

    Args:
        card: Of the model.
        points: The points per axis of the grid, and the frames of a trajectory.

    Raises:
        Problem: wrong-shape: That of an output does not follow from them.
    """
    found = {}
    for tensor in (*card.arguments, *card.outputs):
        axes = zip(tensor.axes[1:], tensor.sizes[1:], strict=True)
        sizes = [points.get(axis) if size is None else size for axis, size in axes]
        if None in sizes:
            detail = f"the shape of {tensor.name} is known only once it is computed"
            raise Problem("wrong-shape", detail, array=tensor.name)
        found[tensor.name] = tuple(size for size in sizes if size is not None)
    return found
