"""Servers that the gateway is compared with, each of one field of the released `darcy` as JSON or .npy.

`python -m benchmarks.servers KIND PORT` runs one: `naive` (FastAPI and eager torch), `onnx` (FastAPI with ONNX Runtime
in the same process, the least that serves the graph), `litserve` and `litserve-npy` (eager torch, batched where shapes
are equal, in the environment `litserve`).
"""

# Without `from __future__ import annotations`: FastAPI and LitServe read the annotations of local functions.
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import Body, FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

MODEL, CHECKPOINT, REPOSITORY = "darcy", Path("checkpoints/darcy"), Path("model_repository")
PATIENCE = 300  # seconds, as in the benchmark: with LitServe's default of 30 a busy machine refuses requests
BATCH, WAIT = 8, 0.002  # fields, and seconds to wait for further ones: with 0, LitServe forms no batches


def npy(field: Any) -> Response:
    """Return an array as a response."""
    file = io.BytesIO()
    np.save(file, np.asarray(field))
    return Response(file.getvalue(), media_type="application/x-npy")


def app(compute: Callable[[Any], Any]) -> FastAPI:
    """Return a service without batching, which computes in threads."""
    service = FastAPI()

    @service.get("/health")
    def health() -> str:
        return "ok"

    @service.post("/predict")
    def predict(document: dict[str, list[list[float]]]) -> dict[str, Any]:
        return {"solution": compute(np.array(document["coefficient"], np.float32)).tolist()}

    @service.post("/predict_npy")
    async def predict_npy(request: Request) -> Response:
        field = np.lib.format.read_array(io.BytesIO(await request.body()), allow_pickle=False)
        return npy(await run_in_threadpool(compute, field))

    return service


def eager() -> Callable[[Any], Any]:
    """Return the network in eager torch as a map of one field."""
    import torch  # noqa: PLC0415 -- not every server has it

    from training.checkpoint import load_operator  # noqa: PLC0415

    operator = load_operator(CHECKPOINT).operator

    @torch.inference_mode()
    def compute(field: Any) -> Any:
        return operator(torch.from_numpy(field)[None])[0]

    return compute


def runtime() -> Callable[[Any], Any]:
    """Return the graph in ONNX Runtime, with its default settings, as a map of one field."""
    import onnxruntime  # noqa: PLC0415 -- not every server has it

    from benchmarks.harness import feed, newest_graph  # noqa: PLC0415

    session = onnxruntime.InferenceSession(newest_graph(REPOSITORY / MODEL), providers=["CPUExecutionProvider"])
    output = session.get_outputs()[0].name
    return lambda field: session.run([output], feed(session, field[None]))[0][0]


def litserve(port: int, *, raw: bool) -> None:
    """Run LitServe; with `raw`, bodies are .npy files, since the cost of JSON is not its own."""
    import litserve as lit  # noqa: PLC0415 -- only its environment has it
    import torch  # noqa: PLC0415

    from training.checkpoint import load_operator  # noqa: PLC0415

    class Darcy(lit.LitAPI):  # type: ignore[misc] # litserve is not installed where types are checked
        def setup(self, device: str) -> None:  # noqa: ARG002 -- LitServe's own signature; it runs on the processor
            self.operator = load_operator(CHECKPOINT).operator

        def decode_request(self, request: dict[str, Any]) -> Any:
            return torch.tensor(request["coefficient"])

        def batch(self, inputs: list[Any]) -> list[Any]:
            return list(inputs)  # fields may have several grids

        @torch.inference_mode()
        def predict(self, x: list[Any]) -> list[Any]:
            found: dict[int, Any] = {}
            for shape in {field.shape for field in x}:
                indices = [n for n, field in enumerate(x) if field.shape == shape]
                outputs = self.operator(torch.stack([x[n] for n in indices]))
                found |= dict(zip(indices, outputs, strict=True))
            return [found[n] for n in range(len(x))]

        def unbatch(self, output: list[Any]) -> list[Any]:
            return output

        def encode_response(self, output: Any) -> Any:
            return {"solution": output.tolist()}

    class RawDarcy(Darcy):
        def decode_request(  # type: ignore[override]
            self, request: Annotated[bytes, Body(media_type="application/x-npy")]
        ) -> Any:
            return torch.from_numpy(np.lib.format.read_array(io.BytesIO(request), allow_pickle=False))

        def encode_response(self, output: Any) -> Any:
            return npy(output)

    api = (RawDarcy if raw else Darcy)(max_batch_size=BATCH, batch_timeout=WAIT)
    lit.LitServer(api, accelerator="cpu", timeout=PATIENCE).run(port=port, host="127.0.0.1", generate_client_file=False)


def main(kind: str, port: str) -> None:
    """Run a server until it is ended."""
    if kind.startswith("litserve"):
        litserve(int(port), raw=kind.endswith("npy"))
        return
    import uvicorn  # noqa: PLC0415

    compute = {"naive": eager, "onnx": runtime}[kind]()
    uvicorn.run(app(compute), host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
