"""The published networks become graphs that answer any batch and grid, in both formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from export import parity
from export.deployable import Deployable
from export.repository import FORMATS
from export.signature import GridSpec, Signature, TensorSpec
from training.decoders import PointwiseDecoderConfig, SpectralDecoderConfig
from training.encoder import EncoderConfig
from training.operators import GridTransformerConfig, LineTransformerConfig, PlaneTransformerConfig, build

SMALL = {"layers": 1, "channels": 12, "heads": 2, "feedforward": 16, "norm": "none", "activation": "relu"}
DECODER = SpectralDecoderConfig(channels=6, modes=4, hidden=8)
NETWORKS = {
    "line": LineTransformerConfig(attention="fourier", decoder=DECODER, **SMALL),
    "line softmax": LineTransformerConfig(attention="softmax", decoder=PointwiseDecoderConfig(), **SMALL),
    "plane": PlaneTransformerConfig(
        grid=(17, 13), down_middle=(11, 10), tokens=(7, 6), up_middle=(11, 9), answer=(17, 13), decoder=DECODER, **SMALL
    ),
    "plane without scalers": PlaneTransformerConfig(
        grid=(9, 8), tokens=(9, 8), answer=(9, 8), boundary="free", attention="linear", decoder=DECODER, **SMALL
    ),
    "grid": GridTransformerConfig(decoder=DECODER, **SMALL),
    "space": GridTransformerConfig(dimensions=3, decoder=DECODER, **SMALL),
}
AXES = {"line": ("point",), "plane": ("row", "column"), "grid": ("row", "column"), "space": ("layer", "row", "column")}


def signature(name: str) -> Signature:
    axes = AXES[name.partition(" ")[0]]
    tensor = {"dtype": "FP32", "axes": ("batch", *axes), "meaning": "", "units": "1", "positive": False}
    grid = GridSpec(axes=axes, minimum=6, maximum=40, declared=(11,), points="")
    return Signature(input=TensorSpec(name="x", **tensor), output=TensorSpec(name="y", **tensor), grid=grid, batch=4)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_graph_answers_like_its_network(name: str, form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config: EncoderConfig = NETWORKS[name]
    network, described = build(config), signature(name)
    _, writer = FORMATS[form]
    writer.write(Deployable(network, "x"), described, tmp_path / writer.FILE)
    run, _ = writer.read(tmp_path / writer.FILE)
    for grid in ((6, 6, 6), (7, 12, 9), (11, 8, 13)):
        field = parity.realistic((3, *grid[: len(described.grid.axes)]), positive=False)
        with torch.inference_mode():
            eager = Deployable(network, "x")(torch.from_numpy(field)).numpy()
        answer = run(field)
        assert answer.shape == field.shape
        assert np.linalg.norm(answer - eager) <= parity.TOLERANCE * np.linalg.norm(eager)
