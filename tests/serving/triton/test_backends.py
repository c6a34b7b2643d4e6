"""Both Python-based backends, inside a real Triton, called by `tritonclient` alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from export import triton_config
from export.signature import Signature
from serving.local_triton.backends.device import cuda_options
from serving.local_triton.server import TritonServer
from tests import toy_fields
from tests.conftest import wait_until
from tests.processes import below

Array = np.ndarray[Any, Any]
TABLE = np.arange(10, dtype=np.float32) ** 2
LATE = """\
name: "late"
backend: "onnxruntime"
max_batch_size: 8
input { name: "index" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "value" data_type: TYPE_FP32 dims: [ -1 ] }
dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 1000000 }
parameters { key: "a_remark" value { string_value: "a value that is not a number" } }
"""
WIDE = """\
name: "wide"
backend: "onnxruntime"
max_batch_size: 64
input { name: "field" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "sum" data_type: TYPE_FP32 dims: [ -1 ] }
instance_group { count: 1 kind: KIND_CPU }
"""
WIDTH = 64


@pytest.fixture(scope="module")
def odd_repository(toy_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`late` looks values up in a table and waits for batches of 8; `indexed` names its tensors NAME__INDEX.

    `wide` has `WIDTH` numbers for every point on its way; `optional` has a vector field and a number with defaults.
    """
    repository = tmp_path_factory.mktemp("odd")
    for name, config, graph in (("late", LATE, _table()), ("wide", WIDE, _wide())):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
        opset = [helper.make_opsetid("", 18)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), repository / name / "1" / "model.onnx")
    toy_fields.add(repository, "optional", velocity=0.5)
    card = json.loads((repository / "optional" / "1" / "card.json").read_text())
    parts = {key: card[key] for key in ("inputs", "parameters", "outputs", "grid")}
    signature = Signature.model_validate(parts | {"limits": card["limits"]})
    (repository / "optional" / "config.pbtxt").write_text(triton_config.text("optional", signature, "onnx"))
    shutil.copytree(toy_repository / "blur_torchscript", repository / "indexed")
    renaming = repository / "indexed" / "config.pbtxt"
    renamed = {"blur_torchscript": "indexed", '"coefficient"': '"field__0"', '"solution"': '"output__0"'}
    text = renaming.read_text()
    for old, new in renamed.items():
        text = text.replace(old, new)
    renaming.write_text(text)
    return repository


@pytest.fixture(scope="module")
def odd_triton(odd_repository: Path, make_settings: Any, run_triton: Any) -> Iterator[TritonServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ORT_DISABLE_TELEMETRY", raising=False)  # which the backend has to set
        with run_triton(make_settings(odd_repository, log_level="debug")) as server:  # it logs what runs end early
            yield server


def _table() -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node("Gather", ["table", "index"], ["value"])],
        "late",
        [helper.make_tensor_value_info("index", TensorProto.INT64, ["batch", "point"])],
        [helper.make_tensor_value_info("value", TensorProto.FLOAT, ["batch", "point"])],
        [numpy_helper.from_array(TABLE, "table")],
    )


def _wide() -> onnx.GraphProto:
    width = numpy_helper.from_array(np.array([WIDTH, 1], dtype=np.int64), "width")
    axis = numpy_helper.from_array(np.array([1], dtype=np.int64), "axis")
    return helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["field", "axis"], ["column"]),
            helper.make_node("Expand", ["column", "width"], ["features"]),
            helper.make_node("Sin", ["features"], ["changed"]),
            helper.make_node("ReduceSum", ["changed", "axis"], ["sum"], keepdims=0),
        ],
        "wide",
        [helper.make_tensor_value_info("field", TensorProto.FLOAT, ["batch", "point"])],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["batch", "point"])],
        [width, axis],
    )


def _stub(model: str) -> psutil.Process:
    """Return the process of the model's only instance."""
    [stub] = below(None, "stub", f"/{model}/")
    return stub


def _peak(model: str) -> int:
    """Return the peak memory of the model's only instance, in bytes."""
    stub = _stub(model)
    status = Path(f"/proc/{stub.pid}/status").read_text()
    [peak] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return 1024 * int(peak)


def infer(triton: TritonServer, protocol: str, model: str, **inputs: Array) -> Any:
    """Send one request by a client of Triton's own; return its result."""
    settings = triton.settings
    port = settings.triton_grpc_port if protocol == "grpc" else settings.triton_http_port
    library = tritonclient.grpc if protocol == "grpc" else tritonclient.http
    tensors = []
    for name, array in inputs.items():
        tensors.append(library.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(array)
    with closing(library.InferenceServerClient(f"127.0.0.1:{port}")) as client:
        return client.infer(model, tensors)


def test_the_instances_of_an_exported_config_are_two_on_a_processor(odd_triton: TritonServer) -> None:
    """Where there is no GPU; what it would do there reaches the backend as it was exported."""
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{odd_triton.settings.triton_http_port}") as client:
        config = client.get_model_config("optional")
    assert [(group["kind"], group["count"]) for group in config["instance_group"]] == [("KIND_CPU", 2)]
    assert cuda_options(config, 0)["use_tf32"] == "0"
    assert cuda_options(config, 0)["cudnn_conv_algo_search"] == "HEURISTIC"


def test_onnx_runtime_reports_to_nobody(odd_triton: TritonServer) -> None:
    """Its telemetry keeps a database of events in the user's cache, and sends them."""
    assert odd_triton.settings
    assert [file.path for file in _stub("wide").open_files() if file.path.endswith((".db", ".db-wal"))] == []


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("model", ["blur", "blur_torchscript"])
@pytest.mark.parametrize("shape", [(1, 7, 5), (3, 16, 16), (8, 33, 20)])
def test_a_backend_computes_the_model_for_any_shape(
    triton: TritonServer, blur: Callable[[Array], Array], model: str, protocol: str, shape: tuple[int, ...]
) -> None:
    field = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    result = infer(triton, protocol, model, coefficient=field).as_numpy("solution")
    np.testing.assert_allclose(result, blur(field), atol=1e-6)


@pytest.mark.parametrize("model", ["blur", "blur_torchscript"])
def test_concurrent_requests_of_mixed_shapes_get_their_own_outputs(
    triton: TritonServer, blur: Callable[[Array], Array], model: str
) -> None:
    rng = np.random.default_rng(2)
    fields = [rng.normal(size=(1 + i % 3, 8 + i % 2, 9)).astype(np.float32) for i in range(40)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda field: infer(triton, "grpc", model, coefficient=field), fields))
    for field, result in zip(fields, results, strict=True):
        np.testing.assert_allclose(result.as_numpy("solution"), blur(field), atol=1e-6)


def test_waiting_requests_are_merged_into_one_run(odd_triton: TritonServer) -> None:
    before = _counts(odd_triton)
    indices = [np.array([[i, 9 - i]]) for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda index: infer(odd_triton, "grpc", "late", index=index), indices))
    for index, result in zip(indices, results, strict=True):
        np.testing.assert_array_equal(result.as_numpy("value"), TABLE[index])
    inferences, executions = _counts(odd_triton) - before
    assert inferences == 8
    assert executions < inferences


def test_a_bad_request_fails_alone_in_its_batch(odd_triton: TritonServer) -> None:
    before = _counts(odd_triton)
    indices = [np.array([[i, 99 if i == 3 else 0]]) for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(infer, odd_triton, "grpc", "late", index=index) for index in indices]
    with pytest.raises(InferenceServerException, match="99"):
        waiting.pop(3).result()
    for index, result in zip([index for index in indices if 99 not in index], waiting, strict=True):
        np.testing.assert_array_equal(result.result().as_numpy("value"), TABLE[index])
    assert (_counts(odd_triton) - before)[1] < 8, "the requests were not in one batch, so the test shows nothing"


def test_a_large_batch_takes_no_more_memory_than_a_piece_of_it(odd_triton: TritonServer) -> None:
    field = np.random.default_rng(4).normal(size=(64, 2**14)).astype(np.float32)  # eight pieces
    infer(odd_triton, "grpc", "wide", field=field[:24])
    before = _peak("wide")
    result = infer(odd_triton, "grpc", "wide", field=field).as_numpy("sum")
    np.testing.assert_allclose(result, WIDTH * np.sin(field), rtol=1e-5, atol=1e-5)
    assert _peak("wide") - before < WIDTH * field.nbytes / 4


def test_the_rest_of_a_run_whose_client_has_left_is_not_computed(odd_triton: TritonServer) -> None:
    field = np.ones((64, 2**16), np.float32)  # 32 pieces
    tensor = tritonclient.grpc.InferInput("field", list(field.shape), "FP32").set_data_from_numpy(field)
    stub = _stub("wide")

    def spent() -> float:
        """Return the processor time of the instance."""
        return sum(stub.cpu_times()[:2])

    start = spent()
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{odd_triton.settings.triton_grpc_port}") as client:
        call = client.async_infer("wide", [tensor], lambda result, error: None)  # noqa: ARG005 - as it is called
        wait_until(lambda: spent() > start + 0.05)  # it has begun
        stub.suspend()  # however long the next lines take, it does not come to its end meanwhile
        call.cancel()
        assert client.is_server_live()  # by the same connection, so Triton has read of the cancellation
        stub.resume()
    # The only instance runs this one afterwards.
    result = infer(odd_triton, "grpc", "wide", field=field[:1, :9]).as_numpy("sum")
    np.testing.assert_allclose(result, WIDTH * np.sin(field[:1, :9]), rtol=1e-5)
    ended = r"a run without a client ends after (\d+) of 32 pieces"
    wait_until(lambda: re.search(ended, odd_triton.log.read_text()) is not None)  # another thread writes the log
    [done] = re.findall(ended, odd_triton.log.read_text())
    assert 0 < int(done) < 32


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_inputs_with_a_default_may_be_left_out(odd_triton: TritonServer, protocol: str) -> None:
    sent = toy_fields.samples(3, (6, 9))
    density, time = sent["density"], sent["time"]
    for inputs in ({"density": density}, {"density": density, "time": time[:, None]}):
        found = infer(odd_triton, protocol, "optional", **inputs)
        numbers = time if "time" in inputs else np.ones(3, np.float32)
        expected = toy_fields.compute(density, np.full_like(sent["velocity"], 0.5), numbers)
        for name, array in expected.items():
            np.testing.assert_allclose(found.as_numpy(name), array, rtol=1e-5, atol=1e-6)
    with pytest.raises(InferenceServerException, match="density"):
        infer(odd_triton, protocol, "optional", time=time[:, None])


def test_requests_that_leave_out_different_inputs_run_together(odd_triton: TritonServer) -> None:
    density = toy_fields.samples(1, (6, 9))["density"]
    times = [None, 2.0, None, 0.5] * 4

    def moved(time: float | None) -> Array:
        number = {} if time is None else {"time": np.full((1, 1), time, np.float32)}
        found: Array = infer(odd_triton, "grpc", "optional", density=density, **number).as_numpy("moved")
        return found

    with ThreadPoolExecutor(8) as pool:
        for time, found in zip(times, pool.map(moved, times), strict=True):
            expected = density + 2 * 0.5 * (1.0 if time is None else time)
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_pytorch_backend_reads_names_with_an_index(
    odd_triton: TritonServer, blur: Callable[[Array], Array]
) -> None:
    field = np.random.default_rng(3).normal(size=(2, 6, 6)).astype(np.float32)
    result = infer(odd_triton, "http", "indexed", field__0=field).as_numpy("output__0")
    np.testing.assert_allclose(result, blur(field), atol=1e-6)


def test_a_wrong_rank_is_refused_and_the_next_request_succeeds(triton: TritonServer) -> None:
    with pytest.raises(InferenceServerException, match="coefficient"):
        infer(triton, "grpc", "blur", coefficient=np.ones((4, 4), np.float32))
    assert infer(triton, "grpc", "blur", coefficient=np.ones((1, 4, 4), np.float32)).as_numpy("solution").shape == (
        1,
        4,
        4,
    )


def test_a_config_that_names_an_unknown_tensor_is_not_loaded(
    toy_repository: Path, tmp_path: Path, make_settings: Any, run_triton: Any
) -> None:
    shutil.copytree(toy_repository / "blur", tmp_path / "blur")
    config = tmp_path / "blur" / "config.pbtxt"
    config.write_text(config.read_text().replace('"solution"', '"output"'))
    triton = run_triton(make_settings(tmp_path))
    with pytest.raises(AssertionError, match=r"the config names \['output'] but .* has \['solution'\]"), triton:
        pass


def _counts(triton: TritonServer) -> Array:
    """Return the inferences and executions of `late` so far."""
    with closing(tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{triton.settings.triton_grpc_port}")) as client:
        (statistics,) = client.get_inference_statistics("late").model_stats
    return np.array([statistics.inference_count, statistics.execution_count])
