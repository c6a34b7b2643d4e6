"""Documents in JSON, which the gateway reads and writes: their base, their validation, schemas and shared names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from serving.errors import Problem

JSON = "application/json"
JSON_BYTES = "Inference-Header-Content-Length"  # the header that says where the JSON of Open Inference ends
MOST_KEYS = 1024  # of an object that is validated: pydantic describes an error per unknown key
Model = TypeVar("Model", bound=BaseModel)


class Document(BaseModel):
    """An immutable document; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def validated(model: type[Model], value: Any, name: str = "", kind: str = "unreadable-body") -> Model:
    """Return a document of parsed JSON, or refuse it with an error of a kind, which names the first fault.

    Error messages say which member `name` holds it; without one it is a whole body.
    """
    try:
        if isinstance(value, dict) and len(value) > MOST_KEYS:
            raise Problem(kind, f"{name or 'the JSON body'} has {len(value)} keys; expected at most {MOST_KEYS}")
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        location = ".".join(str(part)[:64] for part in (*filter(None, [name]), *first["loc"]))
        # pydantic names the class that was expected
        fault = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        raise Problem(kind, f"{location or 'the JSON body'}: {fault}") from error


def object_schema(
    properties: Mapping[str, Any], required: Iterable[str] | None = None, *, closed: bool = True
) -> dict[str, Any]:
    """Return the JSON schema of an object with these members, all of them required unless it is said which are."""
    listed = list(properties if required is None else required)
    schema = {"type": "object", "properties": dict(properties), "required": listed}
    return schema | {"additionalProperties": False} if closed else schema


def inlined_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a document without references, which would be wrong inside of another document."""
    schema = model.model_json_schema()
    inlined: dict[str, Any] = _inlined(schema, schema.get("$defs", {}))
    return inlined


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    # The mapping of a discriminator consists of references, and a validator does not need it.
    return {key: _inlined(value, definitions) for key, value in schema.items() if key not in {"$defs", "discriminator"}}
