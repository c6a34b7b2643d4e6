"""What a model's config says about a GPU, as NVIDIA's onnxruntime backend reads it, for ONNX Runtime's CUDA provider.

Copied beside the backends as `batching.py` is; it needs the standard library alone.
"""  # noqa: INP001 - a folder for Triton, not a package

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
