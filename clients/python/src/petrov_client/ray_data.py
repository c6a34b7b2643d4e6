"""A Ray dataset of fields in, the same with the answers beside them out: the engine for a directory or a bucket.

    import ray
    from petrov_client.ray_data import scored

    fields = ray.data.read_numpy("s3://bucket/permeabilities")  # a column "data"
    scored(fields, "darcy", ["http://one:8080", "http://two:8080"], column="data").write_parquet("s3://bucket/pressures")

Ray reads, distributes, repeats and writes; this module only asks. Where there is no Ray it is not missed:
`petrov_client.score` does the same for a file.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from petrov_client._client import Client
from petrov_client._exceptions import ConnectionFailed, PetrovError, UnknownModel
from petrov_client._retry import TIMEOUT_SECONDS
from petrov_client._score import PASSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

Batch = dict[str, Any]


class Scorer:
    """What one worker of Ray does with a batch: it adds a column of answers.

    A gateway that cannot answer now is left for the next one; a worker begins with one drawn by lot.

    Args:
        model: The model's name.
        urls: The gateways.
        version: The version to ask.
        column: The fields, `[batch, …]`.
        answer: The name of the column of answers.
        api_key: Sent as a bearer token.
        timeout: Seconds for each request, its repetitions included.
    """

    def __init__(
        self,
        model: str,
        urls: Sequence[str],
        version: int,
        column: str,
        answer: str,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._model, self._version, self._column, self._answer = model, version, column, answer
        self._clients = [Client(url, api_key, timeout) for url in random.sample(list(urls), len(urls))]

    def __call__(self, batch: Batch) -> Batch:
        """The batch and its answers.

        Raises:
            PetrovError: The last gateway's, if none can answer; any other at once.
        """
        return {**batch, self._answer: self._solutions(batch[self._column])}

    def close(self) -> None:
        """Close the connections, where the end of the worker does not."""
        for client in self._clients:
            client.close()

    def _solutions(self, fields: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        fault: PetrovError = ConnectionFailed("expected gateways but got none")
        for client in list(self._clients):
            try:
                return client.predict(self._model, fields, version=self._version)
            except PASSING as passing:
                fault = passing
                self._clients.append(self._clients.pop(0))  # it is asked last from now on
        raise fault


def scored(
    dataset: Any,
    model: str,
    urls: Sequence[str] = ("http://127.0.0.1:8080",),
    *,
    column: str | None = None,
    version: int | None = None,
    workers: int = 4,
    api_key: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> Any:
    """Ask about every row of a dataset, lazily; nothing is sent but the question what the model is.

    Args:
        dataset: A `ray.data.Dataset` of fields of one grid in physical units.
        model: The model's name.
        urls: The gateways; the first one that answers tells what the model is.
        column: The fields; a column with the name of the model's input if None.
        version: A version of the model; the newest now if None, also of workers that start later.
        workers: Requests under way at a time. They wait more than they compute: a tenth of a processor each.
        api_key: Sent as a bearer token. It travels to the workers inside the job's description.
        timeout: Seconds for each request, its repetitions included.

    Returns:
        The dataset with a column more, float32, named for the model's output.

    Raises:
        UnknownModel: It has no such version.
        PetrovError: No gateway answers, or it does not know the model.
    """
    info = _described(model, urls, api_key, timeout)
    chosen = info.version if version is None else version
    if chosen not in info.versions:
        raise UnknownModel(f'"{model}" has the versions {info.versions} and no {chosen}')
    named = {"column": column or info.inputs[0].name, "answer": info.outputs[0].name}
    arguments = {
        "model": model,
        "urls": tuple(urls),
        "version": chosen,
        **named,
        "api_key": api_key,
        "timeout": timeout,
    }
    return dataset.map_batches(
        Scorer, fn_constructor_kwargs=arguments, batch_size=info.batch, concurrency=workers, num_cpus=0.1
    )


def _described(model: str, urls: Sequence[str], api_key: str | None, timeout: float) -> Any:
    fault: PetrovError = ConnectionFailed("expected gateways but got none")
    for url in urls:
        try:
            with Client(url, api_key, timeout) as client:
                return client.model(model)
        except PASSING as passing:
            fault = passing
    raise fault
