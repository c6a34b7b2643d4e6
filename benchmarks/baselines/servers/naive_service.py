"""A simple service of the released `darcy`: FastAPI and eager torch, without batching.

.venv/bin/python -m uvicorn --factory benchmarks.baselines.servers.naive_service:create
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from training.checkpoint import load_operator


class PredictionRequest(BaseModel):
    """One field."""

    coefficient: list[list[float]]


def create(checkpoint: Path = Path("checkpoints/darcy")) -> FastAPI:
    """Return the app: JSON, as such services use it, and .npy, which shows the cost of the format."""
    app, operator = FastAPI(), load_operator(checkpoint).operator

    @torch.inference_mode()
    def compute(fields: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = operator(fields)
        return output

    @app.get("/health")
    def health() -> str:
        return "ok"

    @app.post("/predict")
    def predict(field: PredictionRequest) -> dict[str, list[list[float]]]:
        return {"solution": compute(torch.tensor([field.coefficient]))[0].tolist()}

    @app.post("/predict_npy")
    async def predict_npy(request: Request) -> Response:
        field = np.lib.format.read_array(io.BytesIO(await request.body()), allow_pickle=False)
        found = await run_in_threadpool(compute, torch.from_numpy(field)[None])
        file = io.BytesIO()
        np.save(file, found[0].numpy())
        return Response(file.getvalue(), media_type="application/x-npy")

    return app
