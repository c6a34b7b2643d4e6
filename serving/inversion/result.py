"""The result of an inversion as a body, in JSON or safetensors."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from serving.codecs import json_arrays, safetensors
from serving.errors import Problem

if TYPE_CHECKING:
    from serving.inversion.job import Job


def write(job: Job, media_type: str) -> bytes:
    """Return the body of the result of a job that has succeeded.

    Args:
        job: The job.
        media_type: One of `negotiation.MEDIA_TYPES`.

    Raises:
        Problem: not-acceptable: The media type has no room for several arrays.
    """
    if job.result is None or media_type not in {json_arrays.MEDIA_TYPE, safetensors.MEDIA_TYPE}:
        raise Problem("not-acceptable", f"a result is {json_arrays.MEDIA_TYPE} or {safetensors.MEDIA_TYPE}")
    found, summary = job.result
    arrays: dict[str, Any] = {
        field.name: getattr(summary, field.name) for field in fields(summary) if field.name != "optimum"
    }
    arrays |= {name: getattr(found, name).astype(np.float32) for name in ("coefficients", "predicted")}
    if media_type == safetensors.MEDIA_TYPE:
        about = {"model": job.model, "version": str(job.version), "misfit": repr(found.progress.misfit)}
        about["converged"] = "true" if found.converged else "false"
        return safetensors.write({job.unknown: summary.optimum, **arrays}, about)
    document = {"model": job.model, "version": job.version, "inputs": {job.unknown: summary.optimum}, **arrays}
    document |= {"misfit": found.progress.misfit, "converged": found.converged}
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
