"""The API key: sent as a bearer token with every request, and masked in the `repr` of a client."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[!-~]+")


def bearer(api_key: str | None) -> dict[str, str]:
    """Return the headers, or gRPC metadata, that carry the key.

    Raises:
        ValueError: It holds a character that no header can carry; the message does not contain the key.
    """
    if api_key is None:
        return {}
    if not _TOKEN.fullmatch(api_key):
        raise ValueError("expected an API key of visible ASCII characters but got others, such as a space or a newline")
    return {"authorization": f"Bearer {api_key}"}


def shown(kind: str, address: str, headers: dict[str, str]) -> str:
    """Return the `repr` of a client, its key masked."""
    key = ", api_key='***'" if headers else ""
    return f"{kind}({address!r}{key})"
