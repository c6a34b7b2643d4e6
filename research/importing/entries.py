"""Keys and shapes of the reference's state dict for given constructor arguments.

They were recorded from the running reference. The symbols are E channels, D = E/H channels per head, F hidden features
of the feed-forward part, W channels and M modes of the spectral decoder, and s coordinates of its grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from research.importing.arguments import QUADRATIC, Arguments

Shape = tuple[int, ...]
Entry = tuple[str, Shape]


def expected_entries(a: Arguments, axes: int, *, convolutional: bool) -> dict[str, Shape]:
    """Return keys and shapes of a network.

    Args:
        a: Its arguments, complete.
        axes: Axes of the network's grid, 1 or 2.
        convolutional: Whether a network of two axes begins and ends with the interpolating convolutions.

    Returns:
        The shape of every entry, by key.
    """
    ends = linear("feat_extract.id", a.n_hidden, a.node_feats) if axes == 1 else scalers(a, convolutional=convolutional)
    middle = (pair for index in range(a.num_encoder_layers) for pair in layer(a, f"encoder_layers.{index}."))
    return dict([*ends, *middle, *decoder(a, axes)])


def linear(name: str, outputs: int, inputs: int) -> Iterator[Entry]:
    """Yield the two entries of a linear map."""
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def affine(name: str, width: int) -> Iterator[Entry]:
    """Yield the two entries of a norm."""
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def scalers(a: Arguments, *, convolutional: bool) -> Iterator[Entry]:
    """Yield the convolutions before and after the encoder, or the linear map that replaces them."""
    E, third = a.n_hidden, a.n_hidden // 3
    if not convolutional:
        yield from linear("downscaler.id", E, a.node_feats + (a.spacial_dim or 0))
        return
    widths = [a.node_feats, E, third, third, E - 2 * third]
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        yield f"downscaler.downsample.conv{index}.conv.0.weight", (outputs, inputs, 3, 3)
    yield "upscaler.upsample.conv.0.conv.0.weight", (E, E, 3, 3)


def layer(a: Arguments, prefix: str) -> Iterator[Entry]:
    """Yield the entries of an encoder layer."""
    E, F, D = a.n_hidden, a.dim_feedforward or 2 * a.n_hidden, a.n_hidden // a.n_head
    for index in range(3):
        yield from linear(f"{prefix}attn.linears.{index}", E, E)
    for letter in ("KQ" if a.attention_type in QUADRATIC else "KV") if a.attn_norm else "":
        for head in range(a.n_head):
            yield from affine(f"{prefix}attn.norm_{letter}.{head}", D)
    yield from linear(f"{prefix}attn.fc", E, E + a.n_head * a.pos_dim)
    if a.layer_norm:
        yield from affine(f"{prefix}layer_norm1", E)
        yield from affine(f"{prefix}layer_norm2", E)
    yield from linear(f"{prefix}ff.lr1", F, E)
    if a.batch_norm:
        yield from affine(f"{prefix}ff.bn", F)
        yield from ((f"{prefix}ff.bn.{name}", (F,)) for name in ("running_mean", "running_var"))
        yield f"{prefix}ff.bn.num_batches_tracked", ()
    yield from linear(f"{prefix}ff.lr2", E, F)


def decoder(a: Arguments, axes: int) -> Iterator[Entry]:
    """Yield the entries of the decoder."""
    E, W, s = a.n_hidden, a.freq_dim or 0, a.spacial_dim or 0
    width = E if axes == 1 or a.decoder_type == "pointwise" else W
    if a.spacial_fc:
        yield from linear("regressor.fc", width, E + s)
    if a.decoder_type == "pointwise":
        for index in range(a.num_regressor_layers):
            yield from linear(f"regressor.ff.{index}.0", width, width)
        yield from linear("regressor.out", a.n_targets, width)
        return
    for index in range(a.num_regressor_layers):
        yield from spectral(f"regressor.spectral_conv.{index}", W, W if index else width, a.fourier_modes or 0, axes)
    hidden = W if axes == 1 else 2 * s * W
    yield from linear("regressor.regressor.0", hidden, W)
    yield from linear("regressor.regressor.2", a.n_targets, hidden)


def spectral(name: str, outputs: int, inputs: int, modes: int, axes: int) -> Iterator[Entry]:
    """Yield the entries of a spectral layer."""
    yield from linear(f"{name}.linear", outputs, inputs)
    if axes == 1:
        yield f"{name}.fourier_weight", (inputs, outputs, modes, 2)
        return
    for half in range(2):
        yield f"{name}.fourier_weight.{half}", (inputs, outputs, modes, modes, 2)
