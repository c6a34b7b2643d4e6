"""Predictions for a Ray dataset of fields, such as the files of a directory or a bucket.

    import ray
    from petrov_client.ray_data import scored

    fields = ray.data.read_numpy("s3://bucket/permeabilities")  # a column "data"
    scored(fields, "darcy", ["http://one:8080", "http://two:8080"], column="data").write_parquet("s3://bucket/pressures")

Ray reads, distributes, repeats and writes; this module sends the requests. It needs the extra `[ray]`.
`petrov_client.score` does the same for a single file, without Ray.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from petrov_client._client import Client
from petrov_client._environment import RootCertificates
from petrov_client._errors import ConnectionFailed, PetrovError, UnknownModel
from petrov_client._flow import TIMEOUT_SECONDS
from petrov_client._score import TEMPORARY

Batch = dict[str, Any]


class Scorer:
    """The work of one Ray worker on a batch: add a column of outputs.

    A worker begins with a random gateway, and changes to the next one after a temporary fault.
    """

    def __init__(
        self,
        model: str,
        urls: Sequence[str],
        version: int,
        column: str,
        output: str,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        root_certificates: RootCertificates | None = None,
    ) -> None:
        self._model, self._version, self._column, self._output = model, version, column, output
        mixed = random.sample(list(urls), len(urls))
        self._clients = [Client(url, api_key, timeout, root_certificates=root_certificates) for url in mixed]

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with its outputs.

        Raises:
            PetrovError: The last gateway's, if all faults are temporary; any other at once.
        """
        fields = batch[self._column]
        found = _from_any(self._clients, lambda client: client.predict(self._model, fields, version=self._version))
        return {**batch, self._output: found}

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()


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
    root_certificates: RootCertificates | None = None,
) -> Any:
    """Add the predictions for every row of a dataset, lazily; this call itself only requests the model's description.

    Args:
        dataset: A `ray.data.Dataset` of fields of one grid in physical units.
        model: The model's name.
        urls: The gateways; the first one that responds describes the model.
        column: The fields; a column with the name of the model's input if None.
        version: A version of the model; the newest now if None, also of workers that start later.
        workers: Requests in flight at a time. Each worker reserves a tenth of a processor, since it mostly waits.
        api_key: Sent as a bearer token. It travels to the workers inside the job's description.
        timeout: Seconds for each request, its repetitions included.
        root_certificates: A file (PEM) of the authorities that are trusted, for https, at the same path for every
            worker. By default they are those of each worker's environment.

    Returns:
        The dataset with one more column, float32, with the name of the model's output.

    Raises:
        UnknownModel: It has no such version.
        PetrovError: No gateway responds, or it does not know the model.
    """
    of_clients: dict[str, Any] = {"api_key": api_key, "timeout": timeout, "root_certificates": root_certificates}
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(url, **of_clients)) for url in urls]
        info = _from_any(clients, lambda client: client.model(model))
    chosen = info.version if version is None else version
    if chosen not in info.versions:
        raise UnknownModel(f'"{model}" has the versions {info.versions} and no {chosen}')
    arguments = {"model": model, "urls": tuple(urls), "version": chosen, **of_clients}
    arguments |= {"column": column or info.inputs[0].name, "output": info.outputs[0].name}
    return dataset.map_batches(
        Scorer, fn_constructor_kwargs=arguments, batch_size=info.batch, concurrency=workers, num_cpus=0.1
    )


def _from_any(clients: list[Client], call: Callable[[Client], Any]) -> Any:
    """Return the result of the first gateway that responds; one with a temporary fault becomes the last choice."""
    fault: PetrovError = ConnectionFailed("expected gateways but got none")
    for client in clients[:]:
        try:
            return call(client)
        except TEMPORARY as temporary:
            fault = temporary
            clients.append(clients.pop(0))
    raise fault
