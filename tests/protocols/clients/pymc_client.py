"""Let PyMC verify the gradients of `darcy_kl` and `darcy_posterior`, and sample with them; print the chain's shape."""

from __future__ import annotations

import json
import os
import sys

url, folder = sys.argv[1:]
os.environ["PYTENSOR_FLAGS"] = f"base_compiledir={folder},cxx="  # no compiler is needed for two operators

import numpy as np  # noqa: E402 - after the flags
import pymc  # noqa: E402
from pytensor.gradient import verify_grad  # noqa: E402
from umbridge.pymc import UmbridgeOp  # noqa: E402

rng, config = np.random.default_rng(0), {"grid": 16}
at = 0.1 * rng.standard_normal(32)
log_density = UmbridgeOp(url, "darcy_posterior", config)
verify_grad(log_density, [at], rng=rng, eps=1e-2, rel_tol=0.05, abs_tol=0.5)
verify_grad(UmbridgeOp(url, "darcy_kl", config), [at], rng=rng, eps=3e-3, rel_tol=0.05, abs_tol=1e-5)
with pymc.Model():
    x = pymc.Normal("x", 0, 1, shape=32)
    pymc.Potential("density", log_density(x)[0])
    step = pymc.HamiltonianMC(path_length=0.05, step_scale=0.02)
    options = {"chains": 1, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
    trace = pymc.sample(draws=2, tune=2, step=step, initvals={"x": at}, random_seed=0, **options)
print(json.dumps(list(trace.posterior["x"].shape)))
