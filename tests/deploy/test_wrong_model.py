"""A model that is made wrong while it runs: the verification in the background finds it, and the alert fires."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import physics.darcy
from export.graphs import to_onnx
from export.released import FOLDER
from export.triton_config import CARD, CERTIFICATE, CONFIG
from petrov_client import Client, Unavailable
from tests.conftest import RunService, wait_until
from tests.deploy.conftest import Prometheus
from training.files import write_json

pytestmark = pytest.mark.timeout(900)  # a start of Triton, on a busy machine
ROOT = Path(__file__).parents[2]
ALERT = "PetrovWrong"


def publish(repository: Path) -> None:
    """Publish the released `darcy` as version 1."""
    shutil.copytree(ROOT / "checkpoints/darcy" / FOLDER / "darcy", repository / "darcy" / "1")
    shutil.copyfile(ROOT / "model_repository/darcy" / CONFIG, repository / "darcy" / CONFIG)


def publish_wrong(repository: Path) -> None:
    """Publish a version 2 whose last weights are noise, whatever its card says of its errors."""
    version, aside = repository / "darcy" / "2", repository.with_name("aside")
    shutil.copytree(repository / "darcy" / "1", aside)
    model = onnx.load(aside / to_onnx.FILE)
    [head] = [weights for weights in model.graph.initializer if weights.name.endswith("correction.head.weight")]
    noise = np.random.default_rng(0).standard_normal(head.dims).astype(np.float32)
    head.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(head) + noise, head.name))
    onnx.save(model, aside / to_onnx.FILE)
    write_json(aside / CARD, json.loads((aside / CARD).read_text()) | {"version": 2})
    (aside / CERTIFICATE).unlink()
    aside.rename(version)


def serves(client: Client, version: int) -> bool:
    """Return whether a version is the newest that is served; in between there may be none."""
    try:
        return client.model("darcy").version == version
    except Unavailable:
        return False


@pytest.mark.deep
def test_the_alert_on_wrong_predictions_fires(
    tmp_path: Path,
    run_service: RunService,
    run_prometheus: Callable[..., AbstractContextManager[Prometheus]],
) -> None:
    repository = tmp_path / "repository"
    publish(repository)
    with (
        run_service(repository, shadow_share=1.0) as gateway,
        Client(gateway.url, timeout=60) as client,
        run_prometheus({"petrov": gateway.settings.port}, at_once=True) as prometheus,
    ):

        def verify(seeds: range) -> None:
            """Predict fields like the trained ones, each verified before the next one."""
            for seed in seeds:
                verified = prometheus.value("petrov_true_error_count")
                _, quality = client.predict("darcy", physics.darcy.example(43, seed).astype(np.float32), quality=True)
                assert quality.solved_by == "network"
                wait_until(lambda verified=verified: prometheus.value("petrov_true_error_count") > verified)

        verify(range(3))
        wait_until(lambda: bool(prometheus.query("model:petrov_true_error:mean1h")))
        assert prometheus.firing(ALERT) == []
        publish_wrong(repository)
        wait_until(lambda: serves(client, 2), 120)
        verify(range(3, 9))
        wait_until(lambda: prometheus.firing(ALERT) == ["darcy"], 60)
