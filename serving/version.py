"""The version of Petrov: of the gateway, of its image, and of the client, which are released together."""

from __future__ import annotations

VERSION = "0.1.0"
