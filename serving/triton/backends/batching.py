"""The requests of one batch in, a response for each out: shared by both backends, and copied beside each.

Triton merges requests of equal shape only, so their arrays always concatenate.
"""  # noqa: INP001 - a folder of Triton's, no package

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[[Sequence[np.ndarray[Any, Any]]], Sequence[np.ndarray[Any, Any]]]

#: What a processor is given at once: so many values of an input, and so many fields of two axes or more, which cost a
#: network its own grids whatever theirs. An instance keeps the memory of its largest run for ever: a batch of 64 fields
#: of 141 x 141 left 1.0 GiB with each of `darcy`; in pieces it leaves 0.15, and is answered no later.
VALUES, FIELDS = 2**17, 4


def answer(requests: list[Any], run: Run, inputs: list[str], outputs: list[str], *, batched: bool) -> list[Any]:
    """One response for each request: from one run for all of them or, where that fails, from a run for each.

    Args:
        requests: Triton's `InferenceRequest`s.
        run: The model; arrays in the order of `inputs` in, arrays in the order of `outputs` out.
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
        except Exception as error:  # noqa: BLE001 - one request's fault is not the others'
            pb.Logger.log_verbose(f"a batch of {len(feeds)} requests is run one by one: {error}")
        else:
            ends = np.cumsum([len(feed[0]) for feed in feeds])[:-1]
            return [
                _response(parts, outputs) for parts in zip(*(np.split(array, ends) for array in merged), strict=True)
            ]
    return [_alone(feed, run, outputs) for feed in feeds]


def in_pieces(run: Run) -> Run:
    """The model, given a large batch piece by piece, so that the memory it takes is bounded."""

    def run_pieces(arrays: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        count = max(pieces(array) for array in arrays)
        if count <= 1:
            return run(arrays)
        feeds = zip(*(np.array_split(array, count) for array in arrays), strict=True)
        return [np.concatenate(parts) for parts in zip(*map(run, feeds), strict=True)]

    return run_pieces


def pieces(batch: np.ndarray[Any, Any]) -> int:
    """The number of pieces that a batch is cut into."""
    by_values, by_fields = -(-batch.size // VALUES), -(-len(batch) // FIELDS) if batch.ndim > 2 else 1
    return min(max(by_values, by_fields), len(batch))


def _alone(feed: list[np.ndarray[Any, Any]], run: Run, outputs: list[str]) -> Any:
    try:
        return _response(run(feed), outputs)
    except Exception as error:  # noqa: BLE001 - an error is this request's answer, never the end of the server
        return pb.InferenceResponse(error=pb.TritonError(str(error)))


def _response(arrays: Sequence[np.ndarray[Any, Any]], outputs: list[str]) -> Any:
    return pb.InferenceResponse([pb.Tensor(name, array) for name, array in zip(outputs, arrays, strict=True)])
