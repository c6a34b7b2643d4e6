"""A reverse proxy that publishes a service under a path, as nginx, Traefik or an ingress does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import ClientSession, web

_OWN = {"connection", "content-length", "transfer-encoding"}  # headers of one connection alone


@contextmanager
def published(upstream: str, port: int, prefix: str, says: dict[str, str], *, remove: bool = True) -> Iterator[str]:
    """Yield the URL under which a proxy publishes a service, until the context ends.

    Args:
        upstream: URL of the service.
        port: A free port of 127.0.0.1.
        prefix: The path; other paths are 404.
        says: Headers that it adds to requests.
        remove: Whether the service gets the path without the prefix.
    """
    loop = asyncio.new_event_loop()

    async def handle(request: web.Request) -> web.Response:
        path = request.raw_path
        if path == prefix:
            raise web.HTTPMovedPermanently(f"{prefix}/")  # as nginx does
        if not path.startswith(f"{prefix}/"):
            return web.Response(status=404, text=f"there is only {prefix}/")
        sent = {name: value for name, value in request.headers.items() if name.lower() not in _OWN} | says
        url = upstream + (path.removeprefix(prefix) if remove else path)
        options = {"headers": sent, "data": await request.read(), "allow_redirects": False}
        async with (
            ClientSession(auto_decompress=False) as session,
            session.request(request.method, url, **options) as got,
        ):
            back = [(name, value) for name, value in got.headers.items() if name.lower() not in _OWN]
            return web.Response(status=got.status, body=await got.read(), headers=back)

    async def start() -> web.AppRunner:
        application = web.Application(client_max_size=2**27)
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://127.0.0.1:{port}{prefix}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
