"""The published networks become graphs for any batch and grid, in both formats; `publication` has those in space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from export import parity, probes
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.signature import Signature, tensor
from export.versions import FORMATS
from research.cao2021.transformers import LineTransformerConfig, PlaneTransformerConfig
from schema.parts import Quantity
from schema.problem import Grid
from training.nn.decoders import PointwiseDecoderConfig, SpectralDecoderConfig
from training.nn.encoder import EncoderConfig
from training.operators import build

SMALL = {"layers": 1, "channels": 12, "heads": 2, "feedforward": 16, "norm": "none", "activation": "relu"}
DECODER = SpectralDecoderConfig(channels=6, modes=4, hidden=8)
NETWORKS: dict[str, EncoderConfig] = {
    "line": LineTransformerConfig(attention="softmax", decoder=PointwiseDecoderConfig(), **SMALL),
    "plane": PlaneTransformerConfig(
        grid=(17, 13), down_middle=(11, 10), tokens=(7, 6), up_middle=(11, 9), output=(17, 13), decoder=DECODER, **SMALL
    ),
    "inverse": PlaneTransformerConfig(
        attention="linear",
        boundary="free",
        grid=(17, 13),
        down_middle=(11, 10),
        tokens=(7, 6),
        up_middle=(7, 6),
        output=(7, 6),
        decoder=PointwiseDecoderConfig(),
        **SMALL,
    ),
}
AXES = {1: ("point",), 2: ("row", "column")}
CASES = {  # axes, and points per axis of the output if it is not on the input's grid
    "line": (1, None),
    "plane": (2, None),
    "inverse": (2, (7, 6)),
}


def signature(name: str) -> Signature:
    count, points = CASES[name]
    field, output = (Quantity(name=name, meaning="", units="1") for name in ("x", "y"))
    return Signature(
        inputs=(tensor(field, AXES[count]),),
        outputs=(tensor(output, AXES[count], points),),
        grid=Grid(axes=AXES[count], minimum=6, maximum=40, declared=(11,), points=""),
    )


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_graph_computes_what_its_network_computes(name: str, form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, described = build(NETWORKS[name]), signature(name)
    _, writer = FORMATS[form]
    writer.write(Deployable(network, ("x",)), described, tmp_path / writer.FILE)
    run, _ = writer.read(tmp_path / writer.FILE)
    for grid in ((6, 6), (7, 12), (11, 8)):
        field = probes.realistic((3, *grid[: len(described.grid.axes)]), positive=False)
        with torch.inference_mode():
            eager = Deployable(network, ("x",))(torch.from_numpy(field)).numpy()
        [output] = run(field)
        assert output.shape == eager.shape
        assert np.linalg.norm(output - eager) <= parity.TOLERANCE * np.linalg.norm(eager)


class Quotient(nn.Module):
    """x over its size, which 1e-12 keeps from 0."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.square().mean(dim=1, keepdim=True) + 1e-12).sqrt()


def test_small_summands_stay_in_the_graph(tmp_path: Path) -> None:
    to_onnx.write(Deployable(Quotient(), ("x",)), signature("line"), tmp_path / to_onnx.FILE)
    run, _ = to_onnx.read(tmp_path / to_onnx.FILE)
    assert (run(np.zeros((2, 9), np.float32))[0] == 0).all()
