r"""The tensors of the reference's networks as views of ours, so that copying a file's tensors into them loads it.

| reference | this project |
|---|---|
| one norm per head, `norm_K.{h}` | one for all heads, `[heads, 1, width]` |
| linear maps at a point of a grid | convolutions of width one |
| spectral weights `[in, out, *modes, 2]`, in 2D as two blocks | `[mode, in, out, 2]`, ascending wave numbers |
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache

from torch import Tensor

from research.cao2021.graphs import GraphAttentionConfig
from research.cao2021.transformers import LineTransformerConfig, PlaneTransformerConfig
from research.importing.files import ReferenceImportError, State
from research.importing.network import Config

#: Our names, and the reference's for the same numbers. `before` and `after` are n - 1 and n + 1, `half` and `odd` are
#: quotient and remainder of n by two.
NAMES = {
    "lift.{end}": "feat_extract.id.{end}",
    "lift.linear.{end}": "{lift}.id.{end}",
    "lift.edges.first.convolution.0.{end}": "feat_extract.edge_learner.lap_conv1.conv.0.{end}",
    "lift.edges.second.convolution.0.{end}": "feat_extract.edge_learner.lap_conv2.conv.0.{end}",
    "lift.layers.0.score": "feat_extract.gat_layer0.a",
    "lift.layers.{n}.score": "feat_extract.gat_layers.{before}.a",
    "lift.layers.0.{end}": "feat_extract.{graph}_layer0.{end}",
    "lift.layers.{n}.{end}": "feat_extract.{graph}_layers.{before}.{end}",
    "downscaler.stem.0.{end}": "downscaler.downsample.conv0.conv.0.{end}",
    "downscaler.chain.{n}.0.{end}": "downscaler.downsample.conv{after}.conv.0.{end}",
    "downscaler.{part}.stem.convolution.0.{end}": "downscaler.downsample.{part}.conv0.conv.0.{end}",
    "downscaler.{part}.chain.{n}.convolution.0.{end}": "downscaler.downsample.{part}.conv{after}.conv.0.{end}",
    "upscaler.convolution.0.{end}": "upscaler.upsample.conv.0.conv.0.{end}",
    "upscaler.deconvolutions.{n}.{end}": "upscaler.upsample.{half}.deconv{odd}.{end}",
    "encoder.{n}.attention.query.{end}": "encoder_layers.{n}.attn.linears.0.{end}",
    "encoder.{n}.attention.key.{end}": "encoder_layers.{n}.attn.linears.1.{end}",
    "encoder.{n}.attention.value.{end}": "encoder_layers.{n}.attn.linears.2.{end}",
    "encoder.{n}.attention.output.{end}": "encoder_layers.{n}.attn.fc.{end}",
    "encoder.{n}.attention.first_norm.{end}": "encoder_layers.{n}.attn.norm_{first}.{head}.{end}",
    "encoder.{n}.attention.second_norm.{end}": "encoder_layers.{n}.attn.norm_{second}.{head}.{end}",
    "encoder.{n}.norm{part}.{end}": "encoder_layers.{n}.layer_norm{part}.{end}",
    "encoder.{n}.feedforward.0.{end}": "encoder_layers.{n}.ff.lr1.{end}",
    "encoder.{n}.feedforward.1.norm.{end}": "encoder_layers.{n}.ff.bn.{end}",
    "encoder.{n}.feedforward.2.{end}": "encoder_layers.{n}.ff.lr2.{end}",
    "decoder.join.linear.{end}": "regressor.fc.{end}",
    "decoder.spectral.{n}.residual.{end}": "regressor.spectral_conv.{n}.linear.{end}",
    "decoder.spectral.{n}.weight": "regressor.spectral_conv.{n}.fourier_weight",
    "decoder.hidden.{n}.0.{end}": "regressor.ff.{n}.0.{end}",
    "decoder.head.{n}.{end}": "regressor.regressor.{n}.{end}",
    "decoder.head.{end}": "regressor.out.{end}",
}


def load_reference(config: Config, own: Mapping[str, Tensor], state: State, *, left_out: str | None = None) -> None:
    """Copy a file's tensors into those of a network.

    Raises:
        ReferenceImportError: An entry is missing, unknown or of another shape; the message names all.
    """
    views = reference_views(config, own)
    found = {key: tensor for key, tensor in state.items() if left_out is None or not key.startswith(left_out)}
    faults = {
        "missing": [repr(key) for key in views.keys() - found.keys()],
        "unknown": [repr(key) for key in found.keys() - views.keys()],
        "misshapen": [
            f"{key!r} (expected {tuple(view.shape)}, found {tuple(found[key].shape)})"
            for key, view in views.items()
            if key in found and found[key].shape != view.shape
        ],
    }
    texts = [
        f"{fault}: {', '.join(sorted(keys)[:6])}" + (f" and {len(keys) - 6} more" if len(keys) > 6 else "")
        for fault, keys in faults.items()
        if keys
    ]
    if texts:
        raise ReferenceImportError(f"the file is no network of the config's sizes: {'; '.join(texts)}")
    for key, view in views.items():
        view.copy_(found[key])


def reference_views(config: Config, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a network, or gradients under the same names, in the reference's layout and as views.

    Args:
        config: The network's config.
        own: Tensors of its state dict; those of normalisers are left out, since the reference keeps them elsewhere.

    Raises:
        KeyError: The reference has nothing of a tensor's name.
    """
    first, second = "KV" if config.attention in {"galerkin", "linear"} else "QK"
    words = {"first": first, "second": second, "head": "{head}"}
    words["lift"] = "downscaler" if isinstance(config, PlaneTransformerConfig) else "feat_extract"
    attentive = isinstance(config, LineTransformerConfig) and isinstance(config.graph, GraphAttentionConfig)
    words["graph"] = "gat" if attentive else "gcn"
    found: dict[str, Tensor] = {}
    for name, tensor in own.items():
        if "normaliser" in name:
            continue
        matches = ((re.fullmatch(_pattern(ours), name), template) for ours, template in NAMES.items())
        match, template = next((pair for pair in matches if pair[0]), (None, ""))
        if match is None:
            raise KeyError(f"the reference has no {name!r}")
        groups = match.groupdict()
        n = int(groups.pop("n", 0))
        key = template.format(n=n, before=n - 1, after=n + 1, half=n // 2, odd=n % 2, **words | groups)
        if "{head}" in key:
            found |= {key.format(head=head): norm for head, norm in enumerate(tensor[:, 0])}
        elif key.endswith("fourier_weight"):
            found |= _spectral(key, tensor, axes=1 if isinstance(config, LineTransformerConfig) else 2)
        else:
            pointwise = tensor.ndim > 2 and tensor.shape[2:].numel() == 1
            key = key.replace(".weight", ".W") if "gat_layer" in key else key
            found[key] = tensor.flatten(1) if pointwise else tensor
    return found


@cache
def _pattern(template: str) -> str:
    escaped = re.escape(template).replace(r"\{n\}", r"(?P<n>\d+)").replace(r"\{part\}", r"(?P<part>\d)")
    return escaped.replace(r"\{end\}", r"(?P<end>\w+)")


def _spectral(key: str, weight: Tensor, *, axes: int) -> dict[str, Tensor]:
    """Return `[in, out, M, 2]`, or two blocks `[in, out, M, M, 2]` of the rows 0..M-1 and -M..-1.

    The weight is `[mode, in, out, 2]`; modes of the last axis are slowest, and wave numbers ascend.
    """
    if axes == 1:
        return {key: weight.permute(1, 2, 0, 3)}
    M = math.isqrt(len(weight) // 2)
    both = weight.unflatten(0, (M, 2 * M)).permute(2, 3, 1, 0, 4)  # [in, out, row, column, 2]
    return {f"{key}.0": both[:, :, M:], f"{key}.1": both[:, :, :M]}
