"""The program of a worker process: it answers calls of one subject, in the environment of a baseline.

`python -m benchmarks.worker MODULE:CLASS ARGUMENTS` builds `CLASS(**ARGUMENTS)`, with ARGUMENTS as JSON. Each line of
its input names an .npz file of arrays; the subject is called with them, its output is written beside the file with the
suffix .npy, and the reply is a line of JSON: {"seconds": processor time} or {"error": "..."}. It needs NumPy alone.
What a library prints goes to the standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def reply(subject: Callable[..., Any], file: Path) -> dict[str, Any]:
    """Call the subject with the arrays of a file; a fault is a reply too."""
    try:
        with np.load(file) as arrays:
            inputs = [arrays[name] for name in arrays.files]
        started = time.process_time()
        output = subject(*inputs)
        seconds = time.process_time() - started
        np.save(file.with_suffix(".npy"), np.asarray(output))
    except Exception as error:  # noqa: BLE001 -- any fault of a baseline is reported to the other process
        return {"error": f"{type(error).__name__}: {error}"}
    return {"seconds": seconds}


def main(subject: str, arguments: str) -> None:
    """Build the subject, report that it is ready, and reply until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = subject.partition(":")
    made = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(reply(made, Path(line.strip()))), file=replies, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
