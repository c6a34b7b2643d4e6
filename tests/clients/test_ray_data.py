"""A folder of fields on a local Ray with two processes, and a real service."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petrov_client import ConnectionFailed, UnknownModel
from petrov_client.ray_data import Scorer, scored

#: Two workers on the loopback with a store of 80 MB, and no dashboard.
SCRIPT = """
import sys
import numpy as np
import ray
from petrov_client.ray_data import scored

source, target, *urls = sys.argv[1:]
ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, _node_ip_address="127.0.0.1")
context = ray.data.DataContext.get_current()
context.execution_options.preserve_order = True
context.enable_progress_bars = False
rows = scored(ray.data.read_numpy(source), "blur", urls, column="data", workers=2).take_all()
np.savez(target, fields=np.stack([row["data"] for row in rows]), outputs=np.stack([row["solution"] for row in rows]))
ray.shutdown()
"""


@pytest.mark.deep
def test_a_folder_is_computed_by_two_processes(gateway: Any, blur: Any, closed_port: str, tmp_path: Path) -> None:
    if find_spec("ray") is None and "CI" not in os.environ:
        pytest.skip("ray is not installed: pip install --group bulk -c constraints.txt")
    fields = np.random.default_rng(4).uniform(3, 12, (3, 20, 16, 12)).astype(np.float32)
    folder = tmp_path / "fields"
    folder.mkdir()
    for number, part in enumerate(fields):
        np.save(folder / f"{number}.npy", part)
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    command = [sys.executable, "-c", SCRIPT, folder, tmp_path / "out.npz", f"http://{closed_port}", gateway.url]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_array_equal(out["fields"], fields.reshape(60, 16, 12))
        np.testing.assert_allclose(out["outputs"], blur(out["fields"]), rtol=1e-5)


def test_a_worker_leaves_a_gateway_that_is_gone(gateway: Any, blur: Any, closed_port: str) -> None:
    fields = np.full((3, 9, 9), 5, np.float32)
    gone = f"http://{closed_port}"
    with closing(Scorer("blur", [gone, gateway.url], 1, "data", "solution")) as scorer:
        for _ in range(2):
            np.testing.assert_allclose(scorer({"data": fields, "name": "a"})["solution"], blur(fields), rtol=1e-5)
    with closing(Scorer("blur", [gone], 1, "data", "solution")) as alone, pytest.raises(ConnectionFailed):
        alone({"data": fields})


def test_a_missing_version_or_gateway_is_refused_before_the_work(gateway: Any, closed_port: str) -> None:
    with pytest.raises(UnknownModel, match="no 7"):
        scored(None, "blur", [gateway.url], version=7)
    with pytest.raises(ConnectionFailed):
        scored(None, "blur", [f"http://{closed_port}"])
    with pytest.raises(ConnectionFailed, match="expected gateways"):
        scored(None, "blur", [])
