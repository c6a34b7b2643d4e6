"""The service one writes in an afternoon: takes fields, answers with the released `darcy` in eager torch, by FastAPI.

.venv/bin/python -m uvicorn --factory benchmarks.baselines.naive_service:create
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


class Question(BaseModel):
    """One field."""

    coefficient: list[list[float]]


def create(checkpoint: Path = Path("checkpoints/darcy")) -> FastAPI:
    """Give the app: JSON as such services have it, and .npy, so that the format can be told from the rest."""
    app, operator = FastAPI(), load_operator(checkpoint).operator

    @torch.inference_mode()
    def answer(fields: torch.Tensor) -> torch.Tensor:
        return operator(fields)

    @app.get("/health")
    def health() -> str:
        return "ok"

    @app.post("/predict")
    def predict(asked: Question) -> dict[str, list[list[float]]]:
        return {"solution": answer(torch.tensor([asked.coefficient]))[0].tolist()}

    @app.post("/predict_npy")
    async def predict_npy(request: Request) -> Response:
        field = np.lib.format.read_array(io.BytesIO(await request.body()), allow_pickle=False)
        found = await run_in_threadpool(answer, torch.from_numpy(field)[None])
        file = io.BytesIO()
        np.save(file, found[0].numpy())
        return Response(file.getvalue(), media_type="application/x-npy")

    return app
