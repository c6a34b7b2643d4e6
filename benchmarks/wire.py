"""The largest bodies of each format at one time: the memory that they take, and how long other responses wait.

The service runs on free ports with a model that returns its input. `BODIES` bodies are sent at once, as large as the
settings allow by default, of one format after another and then of all formats together. A process of its own requests
`/health/live` every `PERIOD` seconds, and as often the response of an empty server, whose loop has nothing else to do:
what this waits is due to the machine and to its other programs, which include the clients that send the bodies. A
request that begins late because the one before took long counts from the time at which it was due.

Memory is the resident memory of the gateway's process; the kernel keeps its peak, which is reset before each format.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import grpc
import numpy as np
import onnx
import onnx.helper as make
import orjson
from safetensors.numpy import save
from tritonclient.grpc import service_pb2

from benchmarks.harness import OWN, Array, Row
from benchmarks.service import IDENTITY, IDENTITY_INPUT, JSON, NPY, Addresses, identity, npy, running, server

BODIES, PERIOD = 16, 0.01
#: Bytes of bodies, of JSON and of tensors over gRPC: the service's defaults, less room for the rest of a body.
LARGEST, LARGEST_JSON, LARGEST_GRPC = 2**26 - 4096, 2**24 - 4096, 2**24
POINTS, MOST_POINTS = 421, 4096  # per axis
TYPED_POINTS = 255  # per axis; a message may have 256 KiB beside raw contents
SCALE = "scale"  # a parameter, one number per sample
MIXED = "all of them"
SETTLE = 3.0  # seconds until freed memory has been returned to the system; the worst times include this, too
GRPC = "/inference.GRPCInferenceService"


class Body(NamedTuple):
    """A body of a format, where it is sent, and what its head says."""

    path: str
    content: bytes
    headers: Mapping[str, str]

    def send(self, service: Addresses) -> str:
        """Return the status of the response, once it is read."""
        if self.path.startswith(GRPC):
            return self._call(service.gateway_grpc)
        with closing(http.client.HTTPConnection(urlsplit(service.gateway).netloc, timeout=120)) as connection:
            try:
                connection.request("POST", self.path, self.content, {**self.headers})
                response = connection.getresponse()
                while response.read(2**20):
                    pass
            except OSError as error:  # the gateway closes the connection of what it has refused
                return type(error).__name__
            return str(response.status)

    def _call(self, address: str) -> str:
        sizes = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        # Else all channels to one address share one connection.
        with grpc.insecure_channel(address, [*sizes, ("grpc.use_local_subchannel_pool", 1)]) as channel:
            try:
                if self.path.endswith("ModelStreamInfer"):
                    list(channel.stream_stream(self.path)(iter([self.content]), timeout=120))
                else:
                    channel.unary_unary(self.path)(self.content, timeout=120)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "200"


def bodies(
    largest: int = LARGEST, largest_json: int = LARGEST_JSON, largest_grpc: int = LARGEST_GRPC
) -> dict[str, Body]:
    """Return a body of each format by name, nearly as large as it may be."""
    field = np.random.default_rng(0).random((POINTS, POINTS), np.float32)
    fields = np.repeat(field[None], largest // field.nbytes, axis=0)
    few = fields[: largest_grpc // field.nbytes]
    predict, infer = f"/v1/models/{IDENTITY}/predict", f"/v2/models/{IDENTITY}/infer"
    apply, of_json = f"/tesseract/{IDENTITY}/apply", {"Content-Type": JSON}

    decimals = orjson.dumps(field[0], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
    rows = {"decimals": decimals, "digits": b",".join([b"6"] * POINTS)}
    counts = {name: largest_json // ((len(row) + 3) * POINTS) for name, row in rows.items()}
    lists = {
        name: b",".join([b"[%b]" % b",".join([b"[%b]" % row] * POINTS)] * counts[name]) for name, row in rows.items()
    }
    flat = b",".join([decimals] * (POINTS * counts["decimals"]))
    shape = [counts["decimals"], POINTS, POINTS]

    tensor = {"name": IDENTITY_INPUT, "datatype": "FP32", "shape": list(fields.shape)}
    described = {**tensor, "parameters": {"binary_data_size": fields.nbytes}}
    head = orjson.dumps({"inputs": [described], "parameters": {"binary_data_output": True}})
    of_bytes = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    of_few = {**tensor, "shape": few.shape}
    raw = service_pb2.ModelInferRequest(model_name=IDENTITY, inputs=[of_few], raw_input_contents=[few.tobytes()])
    part = fields[0, :TYPED_POINTS, :TYPED_POINTS]
    of_part = {**tensor, "shape": [1, *part.shape]}
    typed = service_pb2.ModelInferRequest(model_name=IDENTITY, inputs=[of_part])
    typed.inputs[0].contents.fp32_contents.extend(part.reshape(-1).tolist())
    serialised = raw.SerializeToString()

    many = {"inputs": {IDENTITY_INPUT: coded(fields[: 3 * largest_json // 4 // field.nbytes])}}
    repeated = {"inputs": {IDENTITY_INPUT: coded(fields[:1]), SCALE: [1.0] * len(fields)}}
    side = math.isqrt(counts["decimals"] * POINTS**2)
    numbers = b",".join(flat.split(b",", side**2)[: side**2])
    vector = b'{"name":"%b","config":{"grid":%d},"input":[[%b]]}' % (IDENTITY.encode(), side, numbers)
    return {
        "JSON, decimals": Body(predict, b'{"inputs":{"input":[%b]}}' % lists["decimals"], of_json),
        "JSON, digits": Body(predict, b'{"inputs":{"input":[%b]}}' % lists["digits"], of_json),
        ".npy": Body(predict, npy(fields), {"Content-Type": NPY}),
        "safetensors": Body(predict, save({IDENTITY_INPUT: fields}), {"Content-Type": "application/vnd.safetensors"}),
        "/v2, JSON": Body(
            infer,
            orjson.dumps({"inputs": [{**tensor, "shape": shape, "data": orjson.Fragment(b"[%b]" % flat)}]}),
            of_json,
        ),
        "/v2, binary": Body(infer, head + fields.tobytes(), of_bytes),
        "gRPC, raw contents": Body(f"{GRPC}/ModelInfer", serialised, {}),
        "gRPC, typed contents": Body(f"{GRPC}/ModelInfer", typed.SerializeToString(), {}),
        "gRPC, stream": Body(f"{GRPC}/ModelStreamInfer", serialised, {}),
        "Tesseract, base64": Body(apply, orjson.dumps(many), of_json),
        "Tesseract, one field for many samples": Body(apply, orjson.dumps(repeated), of_json),
        "UM-Bridge": Body("/umbridge/Evaluate", vector, of_json),
    }


def coded(array: Array) -> dict[str, object]:
    """Return an array as a document of Tesseracts."""
    data = {"buffer": base64.b64encode(array.tobytes()).decode(), "encoding": "base64"}
    return {"object_type": "array", "dtype": "float32", "shape": array.shape, "data": data}


def repository(folder: Path) -> Path:
    """Write a repository with a model that returns its input times a parameter, and return it.

    It has a derivative, which makes it a Tesseract; nothing here calls that.
    """
    version = identity(folder) / IDENTITY / "1"
    axes = ["batch", "row", "column"]
    values = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, axes) for name in (IDENTITY_INPUT, "output")]
    scale = make.make_tensor_value_info(SCALE, onnx.TensorProto.FLOAT, ["batch"])
    nodes = [
        make.make_node("Unsqueeze", [SCALE, "last"], ["factor"]),
        make.make_node("Mul", [IDENTITY_INPUT, "factor"], ["output"]),
    ]
    last = onnx.numpy_helper.from_array(np.array([1, 2]), "last")
    graph = make.make_graph(nodes, IDENTITY, [values[0], scale], values[1:], [last])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=9)
    (version / "model.onnx").write_bytes(model.SerializeToString())
    config = version.parent / "config.pbtxt"
    config.write_text(
        f'{config.read_text()}input {{ name: "{SCALE}" data_type: TYPE_FP32 dims: [ 1 ] reshape {{ shape: [ ] }} }}\n'
    )
    card = json.loads((version / "card.json").read_text())
    card["grid"]["maximum"] = MOST_POINTS
    card["parameters"] = [{"name": SCALE, "meaning": "a factor", "units": "1", "default": 1.0}]
    (version / "card.json").write_text(json.dumps(card))
    derivative = f"{IDENTITY}_vjp"
    beside = folder / derivative / "1"
    beside.mkdir(parents=True)
    (beside / "model.onnx").write_bytes(model.SerializeToString())
    (beside.parent / "config.pbtxt").write_text(config.read_text().replace(f'"{IDENTITY}"', f'"{derivative}"'))
    product = {"model": derivative, "product": {"of": IDENTITY, "kind": "vjp"}}
    (beside / "card.json").write_text(json.dumps(card | product))
    return folder


# Probes, in a process of their own: the clients here hold the interpreter while they send.


def probe(urls: list[str], pipe: Connection) -> None:
    """Request each URL every `PERIOD` seconds; at each message, send the seconds of the responses since the last."""
    times: list[list[float]] = [[] for _ in urls]

    def work(url: str, found: list[float]) -> None:
        address = urlsplit(url)
        connection, due = http.client.HTTPConnection(address.netloc, timeout=60), time.perf_counter()
        while True:
            connection.request("GET", address.path)
            connection.getresponse().read()
            now = time.perf_counter()
            while due < now:
                found.append(now - due)
                due += PERIOD
            time.sleep(due - now)

    for url, found in zip(urls, times, strict=True):
        threading.Thread(target=work, args=(url, found), daemon=True).start()
    while pipe.recv():
        pipe.send([list(found) for found in times])
        for found in times:
            found.clear()


@contextmanager
def probing(*urls: str) -> Iterator[Callable[[], list[list[float]]]]:
    """Yield a function that returns the seconds of each URL's responses since its last call."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=probe, args=([*urls], there), daemon=True)
    process.start()

    def take() -> list[list[float]]:
        here.send("take")
        found: list[list[float]] = here.recv()
        return found

    try:
        take()
        yield take
    finally:
        process.kill()
        process.join()


# Memory.


def reset_peak(process: int) -> None:
    """Have the kernel forget the peak of a process's resident memory."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


def resident(process: int, name: str = "VmRSS") -> int:
    """Return the resident memory of a process in bytes, or its peak, `VmHWM`."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Yield a row per format whose name contains a text, and one of all formats together."""
    found = {name: body for name, body in bodies().items() if only in name}
    count = 4 if quick else BODIES
    with (
        tempfile.TemporaryDirectory() as folder,
        running(repository(Path(folder))) as service,
        server("servers empty", OWN) as empty,
        probing(f"{service.gateway}/health/live", f"{empty}/health") as take,
        ThreadPoolExecutor(count) as threads,
    ):
        np.testing.assert_equal(found[next(iter(found))].send(service), "200")
        time.sleep(SETTLE)
        start = resident(service.process)
        mixed = [body for _, body in zip(range(count), [*found.values()] * count, strict=False)]
        for name, sent in {**{name: [body] * count for name, body in found.items()}, MIXED: mixed}.items():
            take()
            reset_peak(service.process)
            begun = time.perf_counter()
            statuses = Counter(threads.map(lambda body: body.send(service), sent))
            seconds = time.perf_counter() - begun
            during, peak = take(), resident(service.process, "VmHWM") - start
            time.sleep(SETTLE)
            waits = [[cut(times), max(times + later)] for times, later in zip(during, take(), strict=True)]
            yield {
                "format": name,
                "bodies": count,
                "body_bytes": max(len(body.content) for body in sent),
                "statuses": dict(statuses),
                "seconds": seconds,
                "peak_bytes": peak,
                "live": waits[0],
                "empty": waits[1],
            }


def cut(times: list[float]) -> float:
    """Return the time below which 99 % of some times are."""
    return statistics.quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else max(times)
