"""Call `darcy_kl` and `darcy_posterior` with umbridge, emcee and tinyDA; print what they found."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import emcee
import numpy as np
import tinyDA
import umbridge
from scipy import stats
from umbridge.emcee import UmbridgeLogProb

url, seed = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(seed)
pressures, x = umbridge.HTTPModel(url, "darcy_kl"), rng.standard_normal(32)
weights, direction = rng.standard_normal(64), rng.standard_normal(32)
found = {
    "models": umbridge.supported_models(url),
    "sizes": [pressures.get_input_sizes(), pressures.get_output_sizes()],
    "supports": [
        pressures.supports_gradient(),
        pressures.supports_apply_jacobian(),
        pressures.supports_apply_hessian(),
    ],
    "pressures": pressures([x.tolist()], {"grid": 32}),
    "gradient": pressures.gradient(0, 0, [x.tolist()], weights.tolist(), {"grid": 32}),
    "jacobian": pressures.apply_jacobian(0, 0, [x.tolist()], direction.tolist(), {"grid": 32}),
}
try:
    pressures([x[:5].tolist()])
except Exception as error:  # noqa: BLE001 - the client raises what it makes of the response
    found["refusal"] = str(error)

log_density = UmbridgeLogProb(url, "darcy_posterior", {"grid": 16})
with ThreadPoolExecutor(16) as pool:
    sampler = emcee.EnsembleSampler(2 * log_density.ndim, log_density.ndim, log_density, pool=pool)
    sampler.run_mcmc(0.1 * rng.standard_normal((2 * log_density.ndim, log_density.ndim)), 1)
found["emcee"] = {"density": float(sampler.get_log_prob()[0, 0]), "at": sampler.get_chain()[0, 0].tolist()}

measured = np.array(pressures([np.zeros(32).tolist()], {"grid": 16})[0])
model = tinyDA.UmBridgeModel(pressures, umbridge_config={"grid": 16})
prior = stats.multivariate_normal(np.zeros(32), np.eye(32))
posterior = tinyDA.Posterior(prior, tinyDA.GaussianLogLike(measured, 1e-6 * np.eye(64)), model)
for proposal in (tinyDA.CrankNicolson(scaling=0.1), tinyDA.MALA(scaling=0.01)):
    chain = tinyDA.sample(posterior, proposal, iterations=5, n_chains=1, initial_parameters=np.zeros(32))["chain_0"]
    found[type(proposal).__name__] = [float(link.likelihood) for link in chain]
print(json.dumps(found))
