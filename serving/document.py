"""The base of every JSON document that the gateway reads or writes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """An immutable document; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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
