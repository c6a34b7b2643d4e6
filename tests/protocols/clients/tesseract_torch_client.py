"""Differentiate the toy `drift` through its URL with tesseract-torch; print gradients and tangents."""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from tesseract_core import Tesseract
from tesseract_torch import apply_tesseract
from torch.autograd import forward_ad

url, arrays = sys.argv[1], np.load(sys.argv[2])
names = ["density", "velocity", "time"]
drift = Tesseract.from_url(url)
inputs = {name: torch.from_numpy(arrays[name]).requires_grad_() for name in names}
outputs = apply_tesseract(drift, dict(inputs))
loss = outputs["moved"].sin().sum() + outputs["flux"].square().mean()
loss.backward()
with forward_ad.dual_level():
    duals = {
        name: forward_ad.make_dual(torch.from_numpy(arrays[name]), torch.from_numpy(arrays[f"tangent_{name}"]))
        for name in names
    }
    tangent = forward_ad.unpack_dual(apply_tesseract(drift, duals)["flux"]).tangent
one = drift.apply({"density": arrays["density"][0], "velocity": arrays["velocity"][0].astype("f8"), "time": 0.5})
try:
    drift.apply({"density": -arrays["density"], "velocity": arrays["velocity"]})
except Exception as error:  # noqa: BLE001 - the client raises what it makes of the response
    refusal = [type(error).__name__, str(error)]
print(
    json.dumps(
        {
            "health": drift.health(),
            "endpoints": drift.available_endpoints,
            "loss": loss.item(),
            "gradients": {name: tensor.grad.tolist() for name, tensor in inputs.items()},
            "flux_tangent": tangent.tolist(),
            "one": one["moved"].tolist(),
            "refusal": refusal,
        }
    )
)
