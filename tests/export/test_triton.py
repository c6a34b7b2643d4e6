"""What export writes, a real Triton serves: both formats, any grid, and a new version without a restart."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc

from export import parity
from export.repository import publish
from export.signature import Signature
from training import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from export.repository import Publication
    from serving.settings import Settings
    from serving.triton_server import TritonServer

Published: TypeAlias = "tuple[Path, dict[str, Publication]]"


def ask(client: triton_grpc.InferenceServerClient, model: str, signature: Signature, field: np.ndarray) -> np.ndarray:
    """Send one field to Triton by the names of the signature."""
    tensor = triton_grpc.InferInput(signature.input.name, field.shape, signature.input.dtype)
    tensor.set_data_from_numpy(field)
    return client.infer(model, [tensor]).as_numpy(signature.output.name)


@pytest.mark.timeout(240)  # an export, on a busy machine
def test_triton_serves_every_format_and_the_two_newest_versions(
    published: Published,
    checkpoints: dict[str, Path],
    tmp_path: Path,
    save_checkpoint: Callable[[Path, str, int], Path],
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
) -> None:
    repository = Path(shutil.copytree(published[0], tmp_path / "model_repository"))
    for model in ("burgers", "burgers_torchscript"):
        shutil.copytree(repository / model / "1", repository / model / "2")
    config = repository / "burgers" / "config.pbtxt"
    written = config.stat().st_mtime_ns, config.stat().st_ino
    settings = make_settings(repository)
    with (
        run_triton(settings),
        triton_grpc.InferenceServerClient(f"127.0.0.1:{settings.triton_grpc_port}") as client,
    ):
        for model in ("darcy", "darcy_torchscript", "burgers", "burgers_torchscript"):
            wait(lambda model=model: client.is_model_ready(model))
            loaded = checkpoint.load(checkpoints[model.removesuffix("_torchscript")])
            signature = Signature.of(loaded.problem)
            for sides in ((67, 89), (85, 85)):
                field = parity.realistic((3, *sides[: len(signature.grid.axes)]), positive=signature.input.positive)
                answer = ask(client, model, signature, field)
                with torch.inference_mode():
                    wanted = loaded.operator(torch.from_numpy(field)).numpy()
                assert parity.difference(answer, wanted).relative_l2 <= parity.TOLERANCE
        publish(save_checkpoint(tmp_path / "burgers", "burgers", 4), repository)
        for model in ("burgers", "burgers_torchscript"):
            wait(lambda model=model: client.is_model_ready(model, "3"))
            wait(lambda model=model: not client.is_model_ready(model, "1"))
            assert client.is_model_ready(model, "2")
            assert sorted(path.name for path in (repository / model).iterdir()) == ["2", "3", "config.pbtxt"]
    assert (config.stat().st_mtime_ns, config.stat().st_ino) == written


def wait(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
