"""The files of `serving/playground` in, its routes out: the page at `/`, and what it loads under `/playground/`.

The page is an ordinary client of `/v1`: it comes from this origin and runs nothing from anywhere else. It holds nothing
secret, so it is read without a key; its questions carry the one that is entered there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from serving.problem_details import UnknownRoute

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parents[1] / "playground"
PAGE = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # kept, and asked about by its ETag: an upgrade is seen at once
}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class File:
    """What one address answers: the bytes, read once, and its headers."""

    content: bytes
    headers: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> File:
        """A file of the folder."""
        content = path.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        return cls(content, {**HEADERS, "Content-Type": MEDIA_TYPES[path.suffix], "ETag": tag})

    def answer(self, request: Request) -> Response:
        """All of it, or that it has not changed."""
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.headers["ETag"] in known:
            return Response(status_code=304, headers=dict(self.headers))
        return Response(self.content, headers=dict(self.headers))


FILES: Mapping[str, File] = {
    path.name: File.read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in MEDIA_TYPES
}


@router.get("/")
async def page(request: Request) -> Response:
    """The playground."""
    return FILES[PAGE].answer(request)


@router.get("/playground/{file}")
async def part(file: str, request: Request) -> Response:
    """What the page loads."""
    if file not in FILES or file == PAGE:
        raise UnknownRoute(f'the playground has no "{file[:64]}"')
    return FILES[file].answer(request)
