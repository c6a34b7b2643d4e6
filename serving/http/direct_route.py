"""A FastAPI route for the hot path: documented as any other, and called without FastAPI's dependency injection.

For a small model, dependency injection takes as long as the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi.routing import APIRoute

from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from fastapi import Request, Response


class DirectRoute(APIRoute):
    """A route whose endpoint takes its path parameters, `request` and `service`, and returns a response."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that calls the endpoint; FastAPI's documented way to customise a route."""
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            parameters: dict[str, Any] = dict(request.path_params)
            if "version" in parameters:
                parameters["version"] = version_number(parameters["version"])
            response: Response = await endpoint(**parameters, request=request, service=request.app.state.service)
            return response

        return handle


def version_number(text: str) -> int:
    """Return the number of a model version.

    Raises:
        Problem: invalid-parameter: The text is no number of at most nine digits.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem("invalid-parameter", f'expected a number as model version but got "{text[:32]}"')
    return int(text)
