"""Whether a server can listen at an address, and why not."""

from __future__ import annotations

import errno
import os
import socket


def fault(host: str, port: int, variable: str) -> str | None:
    """Return why no server can listen at an address, in one sentence, or None if one can.

    Args:
        host: An address or a name.
        port: The port.
        variable: The setting that chooses the port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # as servers do: closed connections do not count
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        return _sentence(host, port, variable, error)
    return None


def _sentence(host: str, port: int, variable: str, error: OSError | UnicodeError) -> str:
    number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    if number == errno.EADDRINUSE:
        return f"port {port} is in use: set {variable} to a free one"
    if number == errno.EACCES:
        return f"port {port} needs more rights than this user has: set {variable} to one above 1023"
    if number is None or number == errno.EADDRNOTAVAIL:
        return f'"{host}" is no address of this machine: set PETROV_HOST to one, such as 127.0.0.1 or 0.0.0.0'
    return f"no server can listen on {host}:{port}: {os.strerror(number)}"
