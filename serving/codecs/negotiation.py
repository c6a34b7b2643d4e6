"""Which media type a body has, and which one the client accepts: `Content-Type`, `Content-Encoding` and `Accept`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.codecs import json_arrays, npy, safetensors
from serving.errors import Problem

if TYPE_CHECKING:
    from starlette.datastructures import Headers

MULTIPART = "multipart/mixed"  # of frames, whose own media type it leaves open
MEDIA_TYPES = (npy.MEDIA_TYPE, json_arrays.MEDIA_TYPE, safetensors.MEDIA_TYPE)


def request_type(headers: Headers) -> str:
    """Return the media type of the body.

    Raises:
        Problem: unsupported-media-type: The media type is none of `MEDIA_TYPES`, or the body is compressed.
    """
    check_uncompressed(headers)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise Problem(
            "unsupported-media-type",
            f'expected Content-Type {" or ".join(MEDIA_TYPES)} but got "{media_type[:64]}"',
            headers={"Accept-Post": ", ".join(MEDIA_TYPES)},
        )
    return media_type


def check_uncompressed(headers: Headers) -> None:
    """Refuse compressed bodies: arrays of floats hardly shrink, and the size is unknown before decompression.

    Raises:
        Problem: unsupported-media-type: The request has a `Content-Encoding`.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise Problem(
            "unsupported-media-type", f'Content-Encoding "{encoding[:32]}" is not read; send the body uncompressed'
        )


def response_type(headers: Headers, default: str) -> str:
    """Return the media type that `Accept` prefers, or the default where it leaves the choice.

    Raises:
        Problem: not-acceptable: `Accept` lists none of `MEDIA_TYPES`.
    """
    accept = headers.get("accept", "*/*")
    if accept in {"*/*", default}:
        return default
    weights = dict(_weight(part) for part in accept.split(",")[:32])
    order = [default, *(known for known in MEDIA_TYPES if known != default)]
    quality = {known: weights.get(known, weights.get("application/*", weights.get("*/*", 0.0))) for known in order}
    best = max(order, key=lambda known: quality[known])
    if quality[best] <= 0:
        raise Problem("not-acceptable", f'responses are {" or ".join(MEDIA_TYPES)}, not "{accept[:64]}"')
    return best


def part_type(headers: Headers, default: str) -> str:
    """Return the media type of the parts of a multipart response, as `response_type`; `Accept` may leave it open."""
    return default if headers.get("accept", "").strip().lower() == MULTIPART else response_type(headers, default)


def _weight(part: str) -> tuple[str, float]:
    """Return a media range of `Accept` and its q, which is 1 by default."""
    media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
    texts = [parameter[2:] for parameter in parameters if parameter.startswith("q=")]
    try:
        return media_range, float(texts[0]) if texts else 1.0
    except ValueError:
        return media_range, 0.0
