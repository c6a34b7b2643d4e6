"""Which service runs on this machine for a repository: a record in the runtime folder, locked while the service lives.

A second `make serve` finds it and says where the models are served. The kernel frees the lock with the process, however
it ends, so a record that is left behind counts for nothing. Needs no package, as `deploy/requirements.py` does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from serving.system import StartupError

logger = logging.getLogger(__name__)
PATTERN = "service-*.json"
MAX_BYTES = 2**16  # of a record; ours have a hundred bytes
LOADING_SECONDS = 600.0  # that a second start waits for models, which is longer than any start takes
QUIET_SECONDS = 30.0  # in which a newer version that can be served has begun to be
PAUSE_SECONDS = 2.0  # longer than the service takes to notice a new model


@contextlib.contextmanager
def recorded(runtime: Path, url: str, repository: Path) -> Iterator[None]:
    """Say, while the context is open, that a service of the repository listens at `url`; for this user's eyes alone.

    Raises:
        StartupError: Another process has begun to start there, too.
    """
    path = runtime / PATTERN.replace("*", url.rpartition(":")[2])
    runtime.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, stat.S_IRUSR | stat.S_IWUSR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(f"another service is being started on {url}") from None
        os.ftruncate(descriptor, 0)
        try:
            os.write(descriptor, json.dumps({"url": url, "repository": str(repository.absolute())}).encode())
        except OSError as error:  # a full disk keeps no service from its start
            logger.warning("another start will not find this service: %s: %s", path, error.strerror)
        yield
    finally:
        os.close(descriptor)


def address(runtime: Path, repository: Path) -> str | None:
    """Return the URL of a running service of the repository, or None where there is none."""
    for path in sorted(runtime.glob(PATTERN)):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = _running(path)
            if found and Path(found["repository"]).resolve() == repository.resolve():
                return str(found["url"])
    return None


def _running(path: Path) -> dict[str, Any] | None:
    """Return a record that a living process holds, and that this user has written."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)) as file:
        if os.fstat(file.fileno()).st_uid != os.getuid():
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return dict(json.loads(file.read(MAX_BYTES)))
    return None


def wait_for_models(url: str, newest: dict[str, int]) -> str:
    """Wait until a running service serves what its repository holds, and say so in a sentence.

    Args:
        url: Where it listens.
        newest: The highest version of each model in the repository.

    Returns:
        What is served at the end, and what is not yet. A service that requires keys names no model.
    """
    end, before, since = time.monotonic() + LOADING_SECONDS, None, time.monotonic()
    time.sleep(PAUSE_SECONDS)
    while True:
        readiness, served = _get(f"{url}/health/ready") or {}, _get(f"{url}/v1/models")
        versions = {model["name"]: model["version"] for model in served["models"]} if served else {}
        late = [f"{name} version {newest[name]}" for name in versions if newest.get(name, 0) > versions[name]]
        if (readiness, versions) != before:
            before, since = (readiness, versions), time.monotonic()
        # A model is away for a moment while its next version takes its place, and a version may be unreadable.
        quiet = PAUSE_SECONDS / 2 if readiness.get("reason") or not late else QUIET_SECONDS
        done = readiness.get("ready") and not readiness.get("missing") and time.monotonic() - since > quiet
        if done or time.monotonic() > end:
            reason = readiness.get("reason") or (f"not served: {', '.join(late)}" if late else "")
            names = f": {', '.join(versions)}" if versions else ""
            return f"This repository is served already on {url}{names}" + (f" ({reason})" if reason else "")
        time.sleep(PAUSE_SECONDS / 4)


def _get(url: str) -> dict[str, Any] | None:
    """Return a JSON document of the service on this machine, None where there is none; no proxy is asked."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=10) as response:
            return dict(json.load(response))
    except URLError as error:  # a refusal has a document, too: that of readiness has the reason
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return dict(json.load(error)) if getattr(error, "code", 0) == 503 else None  # type: ignore[arg-type]
    except (OSError, ValueError):
        pass
    return None
