"""The released `darcy` in LitServe with eager torch, batched where shapes are equal, in its environment.

`python -m benchmarks.lit_server KIND PORT` serves fields as JSON (`json`) or as .npy files (`npy`).
"""

# Without `from __future__ import annotations`: LitServe reads the annotation of `decode_request` as a type.
import io
import sys
from typing import Annotated, Any

import litserve
import numpy as np
import torch
from fastapi import Body, Response

from benchmarks.servers import CHECKPOINT, npy
from training.checkpoint import load_operator

PATIENCE = 300  # seconds, as in the benchmark: with LitServe's default of 30 a busy machine refuses requests
BATCH, WAIT = 8, 0.002  # fields, and seconds to wait for further ones: with 0, LitServe forms no batches


class Darcy(litserve.LitAPI):  # type: ignore[misc] # litserve is not installed where types are checked
    """The operator; a batch stays a list, since its fields may have several grids."""

    def setup(self, device: str) -> None:  # noqa: ARG002 -- LitServe's own signature; it runs on the processor
        self.operator = load_operator(CHECKPOINT).operator

    def decode_request(self, request: dict[str, Any]) -> torch.Tensor:
        return torch.tensor(request["coefficient"])

    def batch(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(inputs)

    @torch.inference_mode()
    def predict(self, x: list[torch.Tensor]) -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for shape in {field.shape for field in x}:
            indices = [n for n, field in enumerate(x) if field.shape == shape]
            outputs = self.operator(torch.stack([x[n] for n in indices]))
            found |= dict(zip(indices, outputs, strict=True))
        return [found[n] for n in range(len(x))]

    def unbatch(self, output: list[torch.Tensor]) -> list[torch.Tensor]:
        return output

    def encode_response(self, output: torch.Tensor) -> dict[str, Any]:
        return {"solution": output.tolist()}


class RawDarcy(Darcy):
    """The same operator, with the bytes of .npy files as bodies: the cost of JSON is not LitServe's own."""

    def decode_request(  # type: ignore[override]
        self, request: Annotated[bytes, Body(media_type="application/x-npy")]
    ) -> torch.Tensor:
        return torch.from_numpy(np.lib.format.read_array(io.BytesIO(request), allow_pickle=False))

    def encode_response(self, output: torch.Tensor) -> Response:  # type: ignore[override]
        return npy(output)


if __name__ == "__main__":
    kind = RawDarcy if sys.argv[1] == "npy" else Darcy
    api = kind(max_batch_size=BATCH, batch_timeout=WAIT)
    litserve.LitServer(api, accelerator="cpu", timeout=PATIENCE).run(
        port=int(sys.argv[2]), host="127.0.0.1", generate_client_file=False
    )
