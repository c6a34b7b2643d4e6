"""The base of every JSON document that the gateway reads or writes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """An immutable document; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
