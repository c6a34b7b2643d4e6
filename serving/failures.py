"""What an error of Triton means: a problem for the caller, whose note for the log has what Triton said."""

from __future__ import annotations

import re

from serving.errors import Problem
from serving.http_client import Reply

NOT_ALLOWED = "load / unload is not allowed"
_SHARED_MEMORY_REMEDY = (
    "give the container of Triton more (Docker: --shm-size=1g; Kubernetes: an emptyDir with medium: Memory, mounted at "
    "/dev/shm)"
)
# What Triton, its Python backend, ONNX Runtime, torch, NumPy and CUDA say in lower case.
_SHARED_MEMORY_FULL = re.compile(r"shared memory pool|shared memory key|grown shared memory|--shm-size")
_OUT_OF_MEMORY = re.compile(
    r"failed to allocate memory|bad_alloc|bad allocation|memoryerror|unable to allocate|not enough memory|"
    r"can't allocate memory|cannot allocate memory|out of memory"
)


def silent(error: OSError, address: str) -> Problem:
    """Return the problem that Triton is late, where its time is over, or does not respond at all."""
    if isinstance(error, TimeoutError):
        return Problem("deadline-exceeded", f"Triton at {address} did not respond in time")
    return Problem("triton-unavailable", f"Triton at {address} does not respond")


def uncontrolled(model: str, action: str, status: int | str, text: str) -> bool:
    """Return False where a Triton loads no models on request; raise any other reason not to load or unload one."""
    if NOT_ALLOWED in text:
        return False
    problem = Problem("model-failed", f'the inference server could not {action} "{model}"')
    problem.add_note(f"{status}: {text[:2000]}")
    raise problem


def unreadable(model: str, version: int, reply: Reply, error: Exception) -> Problem:
    """Return the problem for the caller, with a note for the log of what was found instead of the protocol's JSON."""
    problem = Problem("model-failed", f'the inference server\'s reply for "{model}" version {version} cannot be read')
    problem.add_note(f"reply cannot be read ({error!r}): {(reply.head or reply.data)[:80]!r}")
    return problem


def problem_of(reply: Reply, model: str, version: int) -> Problem:
    """Return Triton's error as a problem; its message is a note for the log, since it may hold a traceback."""
    text, status = (reply.head + reply.data)[:2000].decode("utf-8", "replace"), reply.status
    message, lacking = text.lower(), lack(text)
    missing = "not at ready state" in message or "unknown model" in message
    ended = "stub process" in message and "is not healthy" in message  # of an instance, which Triton or we start anew
    if "timeout expired" in message:
        problem = Problem("deadline-exceeded", f'"{model}" version {version} did not respond in time')
    elif "maximum queue size" in message:
        problem = Problem("overloaded", f'the queue of "{model}" is full')
    elif status == 404 or missing or ended:
        problem = Problem("model-not-ready", f'"{model}" version {version} is not loaded')
    elif lacking == "shared-memory-full":
        remedy = f"try again with fewer or smaller samples, or {_SHARED_MEMORY_REMEDY}"
        problem = Problem("shared-memory-full", f'the shared memory for "{model}" (/dev/shm) is full: {remedy}')
    elif lacking:
        remedy = "try again with fewer or smaller samples, or give Triton more memory or its models fewer instances"
        problem = Problem("out-of-memory", f'the memory for "{model}" does not suffice: {remedy}')
    elif status in {499, 503}:
        problem = Problem("triton-unavailable", "the inference server is shutting down; try again in a moment")
    else:
        problem = Problem("model-failed", f'the inference server could not run "{model}" version {version}')
    problem.add_note(f"{status}: {text}")
    return problem


def lack(text: str) -> str | None:
    """Return the kind of problem that an error of Triton is if it lacks memory or shared memory."""
    message = text.lower()
    kinds = {"shared-memory-full": _SHARED_MEMORY_FULL, "out-of-memory": _OUT_OF_MEMORY}
    return next((kind for kind, pattern in kinds.items() if pattern.search(message)), None)
