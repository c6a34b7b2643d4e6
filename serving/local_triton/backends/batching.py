"""Run the requests of one Triton batch together; shared by both backends, and copied beside each.

Triton merges requests of equal shape only, so their arrays always concatenate.
"""  # noqa: INP001 - a folder for Triton, not a package

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[[Sequence[np.ndarray[Any, Any]]], Sequence[np.ndarray[Any, Any]]]

#: The largest run on a processor: values of an input, and samples of two axes or more, since a network resamples them
#: to its own grids. An instance keeps the memory of its largest run for ever: a batch of 64 samples of 141 x 141 left
#: 1.0 GiB with each instance of `darcy`; in pieces it leaves 0.15 GiB and takes no longer.
VALUES, SAMPLES = 2**17, 4


def respond(requests: list[Any], run: Run, inputs: list[str], outputs: list[str], *, batched: bool) -> list[Any]:
    """Return one response per request: from one run for all of them or, where that fails, from a run per request.

    Args:
        requests: Triton's `InferenceRequest`s.
        run: The model; it takes arrays in the order of `inputs` and returns arrays in the order of `outputs`.
        inputs: Names of the inputs.
        outputs: Names of the outputs.
        batched: Whether the first axis of every array is the batch.

    Returns:
        Triton's `InferenceResponse`s, in the order of the requests.
    """
    feeds = [[pb.get_input_tensor_by_name(request, name).as_numpy() for name in inputs] for request in requests]
    if batched and len(feeds) > 1:
        try:
            merged = run([np.concatenate(arrays) for arrays in zip(*feeds, strict=True)])
        except Exception as error:  # noqa: BLE001 - each request is then run alone
            pb.Logger.log_verbose(f"a batch of {len(feeds)} requests is run one by one: {error}")
        else:
            ends = np.cumsum([len(feed[0]) for feed in feeds])[:-1]
            return [
                _response(parts, outputs) for parts in zip(*(np.split(array, ends) for array in merged), strict=True)
            ]
    return [_alone(feed, run, outputs) for feed in feeds]


def in_pieces(run: Run) -> Run:
    """Return a model that runs a large batch piece by piece, so that its memory is bounded."""

    def run_pieces(arrays: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        count = max(pieces(array) for array in arrays)
        if count <= 1:
            return run(arrays)
        feeds = zip(*(np.array_split(array, count) for array in arrays), strict=True)
        return [np.concatenate(parts) for parts in zip(*map(run, feeds), strict=True)]

    return run_pieces


def pieces(batch: np.ndarray[Any, Any]) -> int:
    """Return the number of pieces that a batch is cut into."""
    by_values, by_samples = -(-batch.size // VALUES), -(-len(batch) // SAMPLES) if batch.ndim > 2 else 1
    return min(max(by_values, by_samples), len(batch))


def _alone(feed: list[np.ndarray[Any, Any]], run: Run, outputs: list[str]) -> Any:
    try:
        return _response(run(feed), outputs)
    except Exception as error:  # noqa: BLE001 - an error is this request's response, and the server goes on
        return pb.InferenceResponse(error=pb.TritonError(str(error)))


def _response(arrays: Sequence[np.ndarray[Any, Any]], outputs: list[str]) -> Any:
    return pb.InferenceResponse([pb.Tensor(name, array) for name, array in zip(outputs, arrays, strict=True)])
