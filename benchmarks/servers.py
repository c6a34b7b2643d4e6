"""Servers that the gateway is compared with, each of one field of the released `darcy` as JSON or .npy.

`python -m benchmarks.servers KIND PORT` runs one: `naive` (FastAPI and eager torch), `onnx` (FastAPI with ONNX Runtime
in the same process, the least that serves the graph), `empty` (FastAPI alone). `proxy PORT TRITON MODEL` is the least
that stands before a Triton: it checks, counts and logs nothing.
"""

# Without `from __future__ import annotations`: FastAPI reads the annotations of local functions.
import io
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

MODEL, CHECKPOINT, REPOSITORY = "darcy", Path("checkpoints/darcy"), Path("model_repository")


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


def nothing() -> Callable[[Any], Any]:
    """Return the identity."""
    return lambda field: field


def runtime() -> Callable[[Any], Any]:
    """Return the graph in ONNX Runtime, with its default settings, as a map of one field."""
    import onnxruntime  # noqa: PLC0415 -- not every server has it

    from benchmarks.harness import feed, newest_graph  # noqa: PLC0415

    session = onnxruntime.InferenceSession(newest_graph(REPOSITORY / MODEL), providers=["CPUExecutionProvider"])
    output = session.get_outputs()[0].name
    return lambda field: session.run([output], feed(session, field[None]))[0][0]


def proxy(triton: str, model: str) -> Callable[..., Awaitable[None]]:
    """Return an ASGI application that passes one field as .npy to a model of Triton, and the output back."""
    from serving.triton import Run, Triton  # noqa: PLC0415

    backend = Triton(triton, 2**26)

    async def application(_: Any, receive: Any, send: Any) -> None:
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        written = b""
        if body:
            field = np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
            outputs = await backend.infer(model, 1, {"input": field[None]}, Run.within(60.0))
            written = bytes(npy(outputs["output"][0]).body)
        headers = [(b"content-length", str(len(written)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": written})

    return application


def main(kind: str, port: str, *arguments: str) -> None:
    """Run a server until it is ended."""
    import uvicorn  # noqa: PLC0415

    models: dict[str, Callable[[], Callable[[Any], Any]]] = {"naive": eager, "onnx": runtime, "empty": nothing}
    application = proxy(*arguments) if kind == "proxy" else app(models[kind]())
    uvicorn.run(application, host="127.0.0.1", port=int(port), log_level="warning", access_log=False, lifespan="off")


if __name__ == "__main__":
    main(*sys.argv[1:])
