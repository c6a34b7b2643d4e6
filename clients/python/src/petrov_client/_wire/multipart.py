"""The parts of a `multipart/mixed` response (RFC 2046) as its bytes arrive; each part says how long it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from petrov_client._values.exceptions import ConnectionFailed, InvalidResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MEDIA_TYPE = "multipart/mixed"
LONGEST_HEAD = 2**14
LONGEST_PART = 256 * 2**20
_BOUNDARY = "boundary="


@dataclass(frozen=True)
class Part:
    """One part; header names in lower case."""

    headers: Mapping[str, str]
    body: bytes


class Parts:
    """A reader of parts.

    Args:
        content_type: The `Content-Type` of the response.

    Raises:
        InvalidResponse: It names no boundary.
    """

    def __init__(self, content_type: str) -> None:
        kind, _, rest = content_type.partition(";")
        if kind.strip().lower() != MEDIA_TYPE or _BOUNDARY not in rest:
            raise InvalidResponse(f'expected {MEDIA_TYPE} but got "{content_type[:80]}"')
        self._boundary = rest.partition(_BOUNDARY)[2].partition(";")[0].strip().strip('"').encode()
        self._bytes = bytearray()
        self._complete = False

    def feed(self, chunk: bytes) -> Iterator[Part]:
        """Yield the parts that are complete with these bytes.

        Raises:
            InvalidResponse: The bytes are no multipart response.
        """
        self._bytes += chunk
        while part := self._next():
            yield part

    def end(self) -> None:
        """Check that the response is complete.

        Raises:
            ConnectionFailed: It is not.
        """
        if not self._complete:
            raise ConnectionFailed("the response ended before its last frame")

    def _next(self) -> Part | None:
        delimiter = b"--" + self._boundary
        if bytes(self._bytes[: len(delimiter) + 2]) == delimiter + b"--":
            self._complete = True
            return None
        end = self._bytes.find(b"\r\n\r\n", 0, LONGEST_HEAD)
        if end < 0:
            if len(self._bytes) >= LONGEST_HEAD:
                raise InvalidResponse("expected the head of a part but got none")
            return None
        first, *lines = bytes(self._bytes[:end]).split(b"\r\n")
        if first != delimiter:
            raise InvalidResponse(f"expected a part but got {first[:60]!r}")
        headers = _headers(lines)
        size, start = _size(headers), end + 4
        if len(self._bytes) < start + size + 2:
            return None
        part = Part(headers, bytes(self._bytes[start : start + size]))
        del self._bytes[: start + size + 2]
        return part


def _headers(lines: list[bytes]) -> dict[str, str]:
    split = [line.decode("latin-1").partition(":") for line in lines]
    return {name.strip().lower(): value.strip() for name, _, value in split}


def _size(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length", "")
    if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) <= LONGEST_PART):
        raise InvalidResponse(f'expected the size of a part, at most {LONGEST_PART} bytes, but got "{text[:32]}"')
    return int(text)
