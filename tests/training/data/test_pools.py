"""Samples are the same wherever they are computed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from training.commands import app
from training.data.generate import Request, prepare
from training.data.pools import LocalPool
from training.problems.problem import PROBLEMS

#: Two workers on the loopback with a store of 80 MB, and no dashboard.
SCRIPT = """
import sys
from pathlib import Path
import ray
from training.data.generate import Request, prepare
from training.data.pools import RayPool
from training.problems.problem import PROBLEMS

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, _node_ip_address="127.0.0.1")
prepare(Request(PROBLEMS["darcy"], 15, train=12, test=3, seed=4), Path(sys.argv[1]), RayPool(), progress=False)
ray.shutdown()
"""


def test_a_ray_cluster_computes_the_same_samples(tmp_path: Path) -> None:
    if find_spec("ray") is None and "CI" not in os.environ:
        pytest.skip("ray is not installed: pip install --group bulk -c constraints.txt")
    request = Request(PROBLEMS["darcy"], 15, train=12, test=3, seed=4)
    local = prepare(request, tmp_path / "local", LocalPool(1), progress=False)
    done = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path / "ray"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with h5py.File(local) as expected, h5py.File(tmp_path / "ray" / local.name) as found:
        names: list[str] = []
        expected.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert len(names) >= 4
        for name in names:
            assert np.array_equal(expected[name], found[name], equal_nan=True), name


def test_a_corpus_is_not_computed_on_ray(tmp_path: Path) -> None:
    failed = CliRunner().invoke(app, ["data", "listops-tiny", "--ray", "--data", str(tmp_path)])
    assert failed.exit_code == 2
    assert "only samples of fields are computed" in failed.stderr
