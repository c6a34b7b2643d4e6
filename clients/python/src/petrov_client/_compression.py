"""Compressed bodies over HTTP, for callers that ask for them: fields of numbers hardly shrink."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TypeGuard

LEAST_BYTES = 1024  # of a body that is worth compressing


@dataclass(frozen=True)
class Compression:
    """An encoding, as requests and responses name it, and what compresses a body so."""

    name: str
    compress: Callable[[bytes], bytes]

    def applies(self, body: bytes | None) -> TypeGuard[bytes]:
        """Whether a body is sent so."""
        return self.name != "identity" and body is not None and len(body) >= LEAST_BYTES


def compression(name: str | None) -> Compression:
    """Return a compression by its name; None stands for the one that leaves bodies as they are.

    Raises:
        ValueError: There is none of that name.
        ModuleNotFoundError: It needs a package that is not installed.
    """
    if name is None:
        return Compression("identity", bytes)
    if name == "gzip":
        return Compression(name, partial(gzip.compress, compresslevel=1))
    if name != "zstd":
        raise ValueError(f'expected compression "gzip" or "zstd" but got "{name}"')
    module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return Compression(name, import_module(module).compress)
    except ModuleNotFoundError as error:
        needed = f'compression="zstd" needs {module}, which is not installed: pip install "httpx2[zstd]"'
        raise ModuleNotFoundError(needed, name=module) from error
