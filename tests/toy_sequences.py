"""Toy models of sequences: `tally` counts words, and `kinds` names the kind of every word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = ("<pad>", "ant", "bee", "cat")
LABELS = ("ant", "bee", "cat")
#: The scores of the labels for every word; padding has none.
SCORES = np.array([[0, 0, 0], [2, 0, 0], [0, 2, 1], [0, 1, 2]], np.float32)
OUTPUTS = {"tally": ("sequence", ["batch", "label"]), "kinds": ("token", ["batch", "token", "label"])}
CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 4
input {{ name: "tokens" data_type: TYPE_INT32 dims: [ -1 ] }}
output {{ name: "logits" data_type: TYPE_FP32 dims: {dims} }}
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{ }}
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
parameters {{ key: "vocabulary" value {{ string_value: {vocabulary} }} }}
"""


def add(repository: Path) -> None:
    """Write both models into a repository, as export does."""
    for name in OUTPUTS:
        version = repository / name / "1"
        version.mkdir(parents=True)
        vocabulary, dims = json.dumps(json.dumps(_vocabulary(name))), [-1] * (name == "kinds") + [3]
        (repository / name / "config.pbtxt").write_text(CONFIG.format(name=name, dims=dims, vocabulary=vocabulary))
        (version / "model.onnx").write_bytes(_graph(name))
        (version / "card.json").write_text(json.dumps(_card(name)))


def compute(name: str, tokens: NDArray[Any]) -> NDArray[Any]:
    """Return what a model computes, in NumPy."""
    scores = SCORES[tokens]
    return scores if name == "kinds" else scores.sum(axis=-2)


def _graph(name: str) -> bytes:
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    nodes, constants = [make.make_node("Gather", ["table", "tokens"], ["logits"])], {"table": SCORES}
    if name == "tally":
        nodes[0].output[0] = "scores"
        nodes.append(make.make_node("ReduceSum", ["scores", "axis"], ["logits"], keepdims=0))
        constants["axis"] = np.array([1])
    axes = [3 if axis == "label" else axis for axis in OUTPUTS[name][1]]
    graph = make.make_graph(
        nodes,
        name,
        [make.make_tensor_value_info("tokens", TensorProto.INT32, ["batch", "token"])],
        [make.make_tensor_value_info("logits", TensorProto.FLOAT, axes)],
        [numpy_helper.from_array(value, constant) for constant, value in constants.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def _vocabulary(name: str) -> dict[str, Any]:
    return {
        "words": WORDS,
        "padding": 0,
        "pattern": "[a-z]+",
        "labels": LABELS,
        "answer": OUTPUTS[name][0],
    }


def _card(name: str) -> dict[str, Any]:
    inputs = {"name": "tokens", "dtype": "INT32", "axes": ["batch", "token"], "shape": [None, None]}
    axes = OUTPUTS[name][1]
    shape = [3 if axis == "label" else None for axis in axes]
    outputs = {"name": "logits", "dtype": "FP32", "axes": axes, "shape": shape}
    words = {"units": "1", "positive": False}
    return {
        "model": name,
        "version": 1,
        "format": "onnx",
        "title": "Which animal?",
        "problem": "animals",
        "task": "name the animal",
        "inputs": [{**inputs, "meaning": "words by their numbers", **words}],
        "outputs": [{**outputs, "meaning": "logits", **words}],
        "grid": {"axes": ["token"], "minimum": 1, "maximum": 40, "declared": [8, 16], "points": "words in order"},
        "vocabulary": _vocabulary(name),
        "limits": {"batch": 4},
        "training": {"preset": "tiny"},
        "accuracy": [{"split": "test", "sequences": 4, "accuracy": 1.0, "majority": 0.5}],
        "checkpoint": {"sha256": "0" * 64, "parameters": 12},
    }
