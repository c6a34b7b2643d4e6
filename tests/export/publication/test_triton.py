"""What export writes, a real Triton serves: both formats, any grid, and a new version without a restart."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from typing import TypeAlias

import httpx2
import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc

from export import parity, probes
from export import repository as repositories
from export.graphs.deployable import Deployable
from export.repository import Publication, publish
from export.signature import Signature
from export.triton_config import unnumbered
from petrov_client import Client
from physics import darcy
from schema.card import KINDS
from serving.local_triton.server import TritonServer
from serving.settings import Settings
from tests.conftest import RunService, load_models
from training import checkpoint

pytestmark = pytest.mark.deep

Published: TypeAlias = "tuple[Path, dict[str, Publication]]"


def infer(
    client: triton_grpc.InferenceServerClient, model: str, signature: Signature, arguments: tuple[np.ndarray, ...]
) -> list[np.ndarray]:
    """Send all arguments to Triton by the names of the signature, and return all results in its order."""
    tensors = []
    for spec, array in zip(signature.arguments, arguments, strict=True):
        tensor = triton_grpc.InferInput(spec.name, array.shape, spec.dtype)
        tensors.append(tensor.set_data_from_numpy(array))
    response = client.infer(model, tensors).get_response()
    shapes = {unnumbered(output.name): tuple(output.shape) for output in response.outputs}
    arrays = dict(zip(shapes, map(np.frombuffer, response.raw_output_contents, repeat("<f4")), strict=True))
    return [arrays[name].reshape(shapes[name]) for name in signature.result_names]


@pytest.mark.timeout(600)  # an export, on a busy machine
def test_triton_serves_every_format_and_the_two_newest_versions(
    all_published: Published,
    checkpoints: dict[str, Path],
    tmp_path: Path,
    save_checkpoint: Callable[[Path, str, int], Path],
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
) -> None:
    repository, models = tmp_path / "model_repository", ("darcy", "darcy_torchscript", "burgers", "burgers_torchscript")
    for model in models:
        shutil.copytree(all_published[0] / model, repository / model)
    for model in ("burgers", "burgers_torchscript"):
        shutil.copytree(repository / model / "1", repository / model / "2")
    derivatives = [repository / f"burgers_{kind}" for kind in KINDS]
    config = repository / "burgers" / "config.pbtxt"
    written = config.stat().st_mtime_ns, config.stat().st_ino
    settings = make_settings(repository)
    with (
        run_triton(settings),
        triton_grpc.InferenceServerClient(f"127.0.0.1:{settings.triton_grpc_port}") as client,
    ):
        for model in models:
            wait(lambda model=model: client.is_model_ready(model))
            loaded = checkpoint.load(checkpoints[model.removesuffix("_torchscript")])
            signature = Signature.of_checkpoint(loaded)
            network = Deployable(loaded.deployed, signature.argument_names)
            for sides in ((67, 89), (85, 85)):
                arguments = probes.draw((3, *sides[: len(signature.grid.axes)]), signature)
                output, *quality = infer(client, model, signature, arguments)
                with torch.inference_mode():
                    wanted = parity.eager(network, [torch.from_numpy(array) for array in arguments])[0]
                assert parity.difference(output, wanted).relative_l2 <= parity.TOLERANCE
                assert [array.shape for array in quality] == [(3, 1)] * len(signature.quality)
        for folder in derivatives:
            shutil.copytree(all_published[0] / folder.name, folder)
            shutil.copytree(folder / "1", folder / "2")
        publish(save_checkpoint(tmp_path / "burgers", "burgers", 4), repository)
        load_models(settings)  # as the gateway does within a second
        for model in ("burgers", "burgers_torchscript"):
            wait(lambda model=model: client.is_model_ready(model, "3"))
            wait(lambda model=model: not client.is_model_ready(model, "1"))
            assert client.is_model_ready(model, "2")
            assert sorted(path.name for path in (repository / model).iterdir()) == ["2", "3", "config.pbtxt"]
    assert all(repositories.versions(folder) == [2, 3] for folder in derivatives)
    assert (config.stat().st_mtime_ns, config.stat().st_ino) == written


@pytest.mark.timeout(600)  # two, and a start of Triton
def test_an_output_on_a_grid_of_its_own_passes_the_gateway_and_the_client(
    all_published: Published,
    checkpoints: dict[str, Path],
    tmp_path: Path,
    run_service: RunService,
) -> None:
    model = "darcy_inverse"
    for name in (model, f"{model}_torchscript"):
        shutil.copytree(all_published[0] / name, tmp_path / "model_repository" / name)
    operator = checkpoint.load(checkpoints[model]).operator
    with run_service(tmp_path / "model_repository") as gateway, Client(gateway.url) as client:
        assert [info.name for info in client.models()] == [model]
        for info in map(client.model, (model, f"{model}_torchscript")):
            assert info.inputs[0].shape == (None, None, None)
            assert info.outputs[0].shape == (None, 36, 36)
            for sides in ((67, 89), (85, 85)):
                field = probes.realistic((3, *sides), positive=False)
                output = client.predict(info.name, field)
                with torch.inference_mode():
                    wanted = operator(torch.from_numpy(field)).numpy()
                assert output.shape == (3, 36, 36)
                assert parity.difference(output, wanted).relative_l2 <= parity.TOLERANCE
            assert client.predict(info.name, field[0]).shape == (36, 36)
        example = httpx2.get(f"{gateway.url}/v1/models/{model}/example?seed=3&grid=29", timeout=60).json()
        reference = httpx2.post(f"{gateway.url}/v1/models/{model}/reference", json=example, timeout=60).json()
        found = np.array(reference["outputs"]["coefficient"])
    assert found.shape == (36, 36)
    assert found.min() >= darcy.LOW
    assert found.max() <= darcy.HIGH


def wait(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
