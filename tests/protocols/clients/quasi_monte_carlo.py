"""Integrate `darcy_kl` with QMCPy's wrapper of UM-Bridge; print its mean at the first sensors."""

from __future__ import annotations

import json
import sys

import qmcpy
import umbridge

url, samples = sys.argv[1], int(sys.argv[2])
model = umbridge.HTTPModel(url, "darcy_kl")
prior = qmcpy.Gaussian(qmcpy.DigitalNetB2(32, seed=7))
integrand = qmcpy.integrand.UMBridgeWrapper(prior, model, {"grid": 16}, parallel=False)
values = integrand(samples)
points = qmcpy.Gaussian(qmcpy.DigitalNetB2(32, seed=7))(samples)
print(json.dumps({"points": points.tolist(), "values": values.tolist()}))
