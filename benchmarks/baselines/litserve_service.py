"""The released `darcy` in LitServe, eager torch: takes a port, serves fields as JSON, batched as far as shapes agree.

.third_party/rivals/litserve/bin/python -m benchmarks.baselines.litserve_service PORT
"""

# No `from __future__ import annotations`: LitServe reads the type of `decode_request`, and cannot read its name.
import sys
from pathlib import Path
from typing import Any

import litserve
import torch

from training.checkpoint import load_operator

PATIENCE = 300  # seconds, as long as the benchmark waits: with LitServe's own 30 a busy machine gets refusals
BATCH, WAIT = 8, 0.002  # fields at most, and seconds for company: without any, LitServe forms no batches


class Darcy(litserve.LitAPI):
    """The operator; a batch stays a list, for its fields may be of several grids."""

    def setup(self, device: str) -> None:  # noqa: ARG002 -- LitServe's own signature; one processor is all there is
        self.operator = load_operator(Path("checkpoints/darcy")).operator

    def decode_request(self, request: dict[str, Any]) -> torch.Tensor:
        return torch.tensor(request["coefficient"])

    def batch(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(inputs)

    @torch.inference_mode()
    def predict(self, x: list[torch.Tensor]) -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for shape in {field.shape for field in x}:
            places = [n for n, field in enumerate(x) if field.shape == shape]
            answers = self.operator(torch.stack([x[n] for n in places]))
            found |= dict(zip(places, answers, strict=True))
        return [found[n] for n in range(len(x))]

    def unbatch(self, output: list[torch.Tensor]) -> list[torch.Tensor]:
        return output

    def encode_response(self, output: torch.Tensor) -> dict[str, Any]:
        return {"solution": output.tolist()}


if __name__ == "__main__":
    api = Darcy(max_batch_size=BATCH, batch_timeout=WAIT)
    litserve.LitServer(api, accelerator="cpu", timeout=PATIENCE).run(
        port=int(sys.argv[1]), host="127.0.0.1", generate_client_file=False
    )
