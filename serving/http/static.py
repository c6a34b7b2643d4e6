"""The files of the playground: the page at `/`, and what it loads under `/playground/`.

The page is an ordinary client of `/v1`: it comes from the gateway's origin and loads nothing from any other. It holds
no secret, so it is served without a key; its requests carry the key that the user enters.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.staticfiles import StaticFiles

from serving.auth.guard import OPEN
from serving.http.authorisation import requires

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

FOLDER = Path(__file__).parents[1] / "playground"
PAGE = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # cached, and validated by its ETag: an upgrade is seen at once
}


@requires(OPEN)
class Playground(StaticFiles):
    """The folder of the playground, with the headers that confine the page to its own origin."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file, or 304 if the client has it."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(HEADERS)
        return response


def mount(app: FastAPI) -> None:
    """Add the page and its files to the gateway."""
    playground = Playground()

    @requires(OPEN)
    async def page(request: Request) -> Response:
        return await playground.get_response(PAGE, request.scope)

    app.mount("/playground", playground)
    app.add_route("/", page, include_in_schema=False)
