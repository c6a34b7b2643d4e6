"""An API key: a bearer token in the headers of every request, and three stars wherever a client is shown."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[!-~]+")


def bearer(api_key: str | None) -> dict[str, str]:
    """Headers, or gRPC metadata, that carry the key.

    Raises:
        ValueError: It holds a space, a line's end or anything else that no header can carry; it is not repeated here.
    """
    if api_key is None:
        return {}
    if not _TOKEN.fullmatch(api_key):
        raise ValueError("expected an API key of visible ASCII characters but got others: a space or a line's end?")
    return {"authorization": f"Bearer {api_key}"}


def shown(kind: str, address: str, headers: dict[str, str]) -> str:
    """A client in a line, its key masked."""
    key = ", api_key='***'" if headers else ""
    return f"{kind}({address!r}{key})"
