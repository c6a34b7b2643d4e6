"""How many files the process may open: each connection needs one, and the limit of a shell is often low."""

from __future__ import annotations

import resource
from contextlib import suppress

from serving.startup_error import StartupError

WANTED = 65_536
OWN = 128  # files of the gateway and connections to Triton, besides those of its clients


def raise_limit(requests: int) -> None:
    """Raise the limit of open files as far as the system allows, up to `WANTED`; Triton inherits it.

    Args:
        requests: How many requests may be in flight at one time.

    Raises:
        StartupError: It is too low for so many requests.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # not every system allows what it names
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, WANTED)), hard))
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], requests + OWN
    if limit < needed:
        raise StartupError(
            f"at most {limit} files may be open; PETROV_MAX_REQUESTS_IN_FLIGHT={requests} needs {needed}: raise the "
            "limit (ulimit -n, LimitNOFILE)"
        )
