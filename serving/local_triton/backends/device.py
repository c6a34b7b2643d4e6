"""The device of a model: what its config says about a GPU, and whether its session is where the config places it.

Copied beside the backends as `batching.py` is. It needs the standard library alone, and is also a program: at its start
the service asks it in a process of its own, since a driver may crash or hang, what the driver offers (`driver`), and
whether ONNX Runtime computes there (`session`). Both print one line of JSON.
"""  # noqa: INP001 - a folder for Triton, not a package

from __future__ import annotations

import ctypes
import json
import os
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

CUDA, PROCESSOR = "CUDAExecutionProvider", "CPUExecutionProvider"
#: The device that the service has found, `gpu` or `cpu`; empty before it has looked.
DEVICE = os.environ.get("TRITON_DEVICE", "")
REMEDY = "start the service again, which looks for a GPU, or set PETROV_DEVICE=cpu"
NO_DEVICE = 100  # CUDA's error where a driver has no card, or none that CUDA_VISIBLE_DEVICES leaves
#: The product of two square matrices as an ONNX graph.
PRODUCT = b64decode(
    b"CAkSADpbChEKAWEKAWISAWMiBk1hdE11bBIBZ1oVCgFhEhAKDggBEgoKAxIBbgoDEgFuWhUKAWISEAoOCAESCgoDEgFuCgMSAW5iFQoBYxIQCg4IARIK"
    b"CgMSAW4KAxIBbkIECgAQEg=="
)

SHRINKAGE = "memory.enable_memory_arena_shrinkage"
LARGE_BYTES = 2**23  # of the inputs of a run that leaves its memory to others: a hundred fields of 141 x 141
#: Where a config says nothing, unlike in NVIDIA's backend, so that older repositories have a processor's numbers, too:
#: no TF32, in which a guaranteed bound was 37 % off, and no search that takes 60 ms more on each new grid.
DEFAULTS = {
    "use_tf32": "0",
    "cudnn_conv_algo_search": "HEURISTIC",
    "arena_extend_strategy": "kSameAsRequested",
    "do_copy_in_default_stream": "1",
}
#: Parameters of a model that NVIDIA's backend sets after those of its accelerator, and what their numbers mean.
CODED = {
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"},
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
}
PLAIN = ("gpu_mem_limit", "do_copy_in_default_stream")  # parameters whose values are passed on as they are
FLAGS = ("use_tf32", "do_copy_in_default_stream")


def cuda_options(config: Mapping[str, Any], gpu: int) -> dict[str, str]:
    """Return the options of ONNX Runtime's CUDA provider on a GPU for Triton's config of a model, as JSON.

    Raises:
        ValueError: The config names another accelerator, or a value that the provider does not know.
    """
    accelerators = config.get("optimization", {}).get("execution_accelerators", {}).get("gpu_execution_accelerator", ())
    options = dict(DEFAULTS)
    for accelerator in accelerators:
        if accelerator["name"] != "cuda":
            raise ValueError(f'expected the GPU\'s accelerator "cuda" but the config names "{accelerator["name"]}"')
        options |= accelerator.get("parameters", {})
    parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
    for name, codes in CODED.items():
        if name in parameters:
            if parameters[name] not in codes:
                raise ValueError(f"parameter {name}: expected one of {', '.join(codes)} but got {parameters[name]!r}")
            options[name] = codes[parameters[name]]
    options |= {name: parameters[name] for name in PLAIN if name in parameters}
    for name in FLAGS:
        if options[name] not in {"0", "1"}:
            raise ValueError(f"{name}: expected 0 or 1 but got {options[name]!r}")
    return options | {"device_id": str(gpu)}


# Where a session is


class DeviceError(RuntimeError):
    """A model is not on the device that its config names; the message has the remedy."""


def open_session(runtime: Any, model: Any, options: Any, config: Mapping[str, Any], gpu: int | None) -> Any:
    """Open an ONNX Runtime session on a GPU or, without its number, on the processor.

    Raises:
        DeviceError: The session is elsewhere: ONNX Runtime falls back to the processor without an error.
    """
    providers: list[Any] = [PROCESSOR]
    if gpu is not None:
        if hasattr(runtime, "preload_dlls") and CUDA in runtime.get_available_providers():
            with redirect_stdout(sys.stderr):  # it prints what it cannot load, and goes on
                runtime.preload_dlls(directory="")  # CUDA's libraries that pip has installed
        providers.insert(0, (CUDA, cuda_options(config, gpu)))
    # By itself it would open the session again on the processor where the card has no room, and go on there for good
    # after a run has failed; the reason, such as a lack of memory, is for the service.
    session = runtime.InferenceSession(model, options, providers=providers, enable_fallback=0)
    check_providers(session.get_providers(), gpu)
    return session


def shrinking(runtime: Any, gpu: int) -> Any:
    """Return the options of a run after which its arena on a GPU gives back what it has taken beyond the first piece.

    Only for large runs, since the next one has to ask the driver again. On a processor the name of a card is an error,
    so that no config that both read can hold it (`memory.enable_memory_arena_shrinkage` for NVIDIA's backend).
    """
    options = runtime.RunOptions()
    options.add_run_config_entry(SHRINKAGE, f"gpu:{gpu}")
    return options


def check_providers(found: Sequence[str], gpu: int | None) -> None:
    """Refuse a session's providers that are not those of its config."""
    if gpu is not None and CUDA not in found:
        where = f"ONNX Runtime opened it with {', '.join(found)}"
        raise DeviceError(f"the model belongs on GPU {gpu}, but {where}: {REMEDY}")
    if gpu is None and CUDA in found:
        raise DeviceError(f"the model belongs on the processor, but ONNX Runtime opened it on a GPU: {REMEDY}")


def check_kind(kind: str, config: Path, device: str = DEVICE) -> None:
    """Refuse an instance that Triton places on another device than the service has found.

    Args:
        kind: The instance's kind, `GPU` or `CPU`.
        config: The model's `config.pbtxt`, which may ask for the processor.
        device: What the service has found.
    """
    if device == "gpu" and kind != "GPU" and not ("KIND_CPU" in config.read_text() if config.is_file() else False):
        raise DeviceError(f"Triton sees no GPU, though the service has found one: {REMEDY}")
    if device == "cpu" and kind == "GPU":
        raise DeviceError(f"Triton places the model on a GPU, though the service runs on the processor: {REMEDY}")


# What the service asks at its start


def driver(load: Callable[[str], Any] = ctypes.CDLL) -> dict[str, Any]:
    """Return the CUDA version that the driver supports and its cards, or why there are none."""
    try:
        library = load("libcuda.so.1")
    except OSError:
        return {"fault": "this machine has no NVIDIA driver (libcuda.so.1)", "absent": True}
    if status := library.cuInit(0):
        hidden = " that CUDA_VISIBLE_DEVICES leaves" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
        none = {"fault": f"the NVIDIA driver finds no GPU{hidden}", "absent": True}
        return none if status == NO_DEVICE else {"fault": f"the NVIDIA driver does not start (CUDA error {status})"}
    version, count = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGetCount(ctypes.byref(count))
    cards = []
    for index in range(count.value):
        card, name, size = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
        library.cuDeviceGet(ctypes.byref(card), index)
        library.cuDeviceGetName(name, len(name), card)
        library.cuDeviceTotalMem_v2(ctypes.byref(size), card)
        cards.append({"name": name.value.decode(errors="replace"), "memory_bytes": size.value})
    return {"cuda": divmod(version.value // 10, 100), "cards": cards}


def session() -> dict[str, Any]:
    """Return the version of ONNX Runtime, and why it does not compute in float32 on GPU 0; None if it does."""
    import numpy as np  # noqa: PLC0415 - the first question needs no package
    import onnxruntime  # noqa: PLC0415 - as above

    found: dict[str, Any] = {"version": onnxruntime.__version__, "fault": None}
    try:
        product = open_session(onnxruntime, PRODUCT, onnxruntime.SessionOptions(), {}, 0)
        # TF32 keeps ten bits of a factor, which makes 1 of this one.
        factor = np.full((64, 64), 1 + 2.0**-12, np.float32)
        if not np.array_equal(product.run(None, {"a": factor, "b": np.eye(64, dtype=np.float32)})[0], factor):
            found["fault"] = "ONNX Runtime multiplies in less than float32 on the GPU"
    except Exception as error:  # noqa: BLE001 - its errors share no class, and any of them is the answer
        found["fault"] = str(error).strip().partition("\n")[0]
    return found


if __name__ == "__main__":
    print(json.dumps({"driver": driver, "session": session}[sys.argv[1]]()))  # noqa: T201 - its output
