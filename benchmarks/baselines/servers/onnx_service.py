"""The exported `darcy` in FastAPI, with ONNX Runtime in the same process: the least that serves it over HTTP.

.venv/bin/python -m benchmarks.baselines.servers.onnx_service model_repository/darcy/1/model.onnx PORT
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from benchmarks.baselines.servers.naive_service import PredictionRequest  # noqa: TC001  FastAPI reads annotations
from benchmarks.repository import feed

if TYPE_CHECKING:
    from numpy.typing import NDArray


def create(graph: Path) -> FastAPI:
    """Return the app: JSON and .npy bodies of one field, computed in a thread of the server's process.

    Args:
        graph: The exported graph; ONNX Runtime has its default settings.
    """
    app, session = FastAPI(), onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    output = session.get_outputs()[0].name

    def compute(field: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = session.run([output], feed(session, field[None]))[0][0]
        return found

    @app.get("/health")
    def health() -> str:
        return "ok"

    @app.post("/predict")
    def predict(field: PredictionRequest) -> dict[str, list[list[float]]]:
        return {"solution": compute(np.array(field.coefficient, np.float32)).tolist()}

    @app.post("/predict_npy")
    async def predict_npy(request: Request) -> Response:
        field = np.lib.format.read_array(io.BytesIO(await request.body()), allow_pickle=False)
        file = io.BytesIO()
        np.save(file, await run_in_threadpool(compute, field))
        return Response(file.getvalue(), media_type="application/x-npy")

    return app


if __name__ == "__main__":
    uvicorn.run(create(Path(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
