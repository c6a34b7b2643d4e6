"""The speed of one core: its rate of matrix products, and its rate of copies."""

from __future__ import annotations

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper

from benchmarks.repository import one_thread

SIDE = 1024
FLOPS = 2 * SIDE**3
BYTES = 2 * 4 * 2**26  # a copy of 256 MiB reads and writes


class Product:
    """Multiply float32 matrices in ONNX Runtime, one of them constant as the weights of a network."""

    def __init__(self) -> None:
        weights = numpy_helper.from_array(np.random.default_rng(0).random((SIDE, SIDE), np.float32), "weights")
        a, product = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (SIDE, SIDE)) for name in ("a", "product"))
        node = helper.make_node("MatMul", ["a", "weights"], ["product"])
        graph = helper.make_graph([node], "product", [a], [product], [weights])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        self.session = one_thread(model.SerializeToString())
        self.a = np.random.default_rng(1).random((SIDE, SIDE), np.float32)
        self.facts = {"work": FLOPS}

    def step(self) -> None:
        """Multiply once."""
        self.session.run(None, {"a": self.a})

    def write_output(self, file: str) -> None:
        """Write nothing: the product is not compared."""


class Copy:
    """Copy more memory than a cache holds."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.a, self.b = torch.ones(2, 2**26)
        self.facts = {"work": BYTES}

    def step(self) -> None:
        """Copy once."""
        self.b.copy_(self.a)

    def write_output(self, file: str) -> None:
        """Write nothing: the product is not compared."""
