"""Inference of constructor arguments from the keys and shapes of a state dict of the reference.

Keys and shapes do not contain the attention's type within its family, anything without weights (activations, signs,
eps), or the grids. Those are in `arguments`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from research.importing.arguments import EFFECTIVE, QUADRATIC, Arguments, Example, validate
from research.importing.entries import expected_entries
from research.importing.errors import ReferenceImportError

State = dict[str, Tensor]

#: Parts of the reference that no network of this project has.
FOREIGN = {
    r"downscaler\.downsample\.\d": "the old downscaler of convolutions and pooling (downsample_mode 'conv')",
    r"upscaler\.upsample\.\d+\.deconv": "the upscaler of transposed convolutions (upsample_mode 'conv')",
    r"feat_extract\.(edge_learner|gcn_)": "a graph-convolution feature map (feat_extract_type 'gcn')",
    r"feat_extract\.gat_": "a graph-attention feature map (feat_extract_type 'gat')",
    r"freq_regressor\.": "a frequency head (n_freq_targets > 0)",
    r".*\.self_attn\.": "torch's own attention (attention_type 'official')",
    r".*(\.res\.shortcut\.|\.conv\d?\.1\.weight)": "residual or double convolution blocks",
}


@dataclass(frozen=True)
class Inference:
    """All arguments of a network and their sources.

    Attributes:
        arguments: The complete arguments.
        axes: Axes of the network's grid, 1 or 2.
        convolutional: Whether a network of two axes begins and ends with interpolating convolutions.
        inferred: Arguments that follow from the file's keys and shapes.
        given: Arguments by the user or of a whole model's attributes.
        assumed: Arguments of the example that change an output.
    """

    arguments: Arguments
    axes: int
    convolutional: bool
    inferred: dict[str, Any]
    given: dict[str, Any]
    assumed: dict[str, Any]


def infer(example: Example, state: State, given: dict[str, Any]) -> Inference:
    """Complete a network's arguments and check every key and shape of the file against them.

    Args:
        example: The example of the reference that the file comes from.
        state: The state dict.
        given: Constructor arguments by the user; those that follow from the file have to agree with it.

    Returns:
        The arguments and their sources.

    Raises:
        ReferenceImportError: The file has parts that no network of this project has, belongs to another example,
            contradicts `given`, or has missing, unknown or misshapen entries.
    """
    refuse_foreign(state)
    axes = 1 if example == "burgers" else 2
    expect_kind(example, state, axes)
    convolutional = "downscaler.downsample.conv0.conv.0.weight" in state
    inferred = from_shapes(Shapes(state), axes) | ({} if axes == 1 or convolutional else {"downscaler_size": None})
    stated = normalised(given)
    refuse_contradictions(inferred, stated, state)
    guessed = {name: value for name, value in assume(example, state, inferred).items() if name not in stated}
    a = validate(guessed | stated | inferred, "the file and the config")
    compare(expected_entries(a, axes, convolutional=convolutional), state)
    shown = {name: value for name, value in guessed.items() if matters(name, a, axes)}
    return Inference(a, axes, convolutional, inferred, given, shown)


def refuse_foreign(state: State) -> None:
    """Refuse parts that no network of this project has.

    Raises:
        ReferenceImportError: There is one.
    """
    for pattern, part in FOREIGN.items():
        if key := next((key for key in state if re.match(pattern, key)), None):
            raise ReferenceImportError(f"found {key!r}: {part}, which no network of this project has")


def expect_kind(example: Example, state: State, axes: int) -> None:
    """Refuse the network of another example.

    Raises:
        ReferenceImportError: It is one.
    """
    one_axis = "feat_extract.id.weight" in state
    if one_axis and any(key.endswith("fourier_weight.0") for key in state):
        raise ReferenceImportError("found the reference's 2D lite network, which belongs to none of the examples")
    if axes == 1 and not one_axis:
        raise ReferenceImportError(f"expected 'feat_extract.id.weight' for {example} but there is none")
    if axes == 2 and not any(key.startswith("downscaler.") for key in state):
        raise ReferenceImportError(f"expected entries 'downscaler.…' for {example} but there are none")


class Shapes:
    """The shapes of a state dict by key."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __call__(self, key: str, axes: int) -> tuple[int, ...]:
        """Return the shape of an entry of `axes` axes.

        Raises:
            ReferenceImportError: The entry is missing or has another number of axes.
        """
        if key not in self.state:
            raise ReferenceImportError(f"expected an entry {key!r} but there is none")
        if self.state[key].ndim != axes:
            raise ReferenceImportError(f"expected {axes} axes for {key!r} but found {tuple(self.state[key].shape)}")
        return tuple(self.state[key].shape)

    def has(self, key: str) -> bool:
        """Tell whether there is an entry."""
        return key in self.state

    def count(self, pattern: str) -> int:
        """Count the distinct first groups of `pattern` among the keys."""
        return len({found[1] for key in self.state if (found := re.fullmatch(pattern, key))})


def from_shapes(shape: Shapes, axes: int) -> dict[str, Any]:
    """Infer the arguments that keys and shapes contain."""
    first = "encoder_layers.0."
    E = shape(f"{first}attn.linears.0.weight", 2)[0]
    joined = shape(f"{first}attn.fc.weight", 2)[1] - E
    heads = shape.count(r"encoder_layers\.0\.attn\.norm_K\.(\d+)\.weight")
    coordinates = joined // heads if heads else axes
    return {
        "n_hidden": E,
        "n_head": heads or max(joined // coordinates, 1),
        "pos_dim": coordinates,
        "dim_feedforward": shape(f"{first}ff.lr1.weight", 2)[0],
        "num_encoder_layers": shape.count(r"encoder_layers\.(\d+)\..*"),
        "attn_norm": heads > 0,
        "layer_norm": shape.has(f"{first}layer_norm1.weight"),
        "batch_norm": shape.has(f"{first}ff.bn.weight"),
        "node_feats": input_channels(shape, axes),
        **decoder(shape, E, coordinates, axes),
    }


def input_channels(shape: Shapes, axes: int) -> int:
    """Infer the number of input channels."""
    if axes == 1:
        return shape("feat_extract.id.weight", 2)[1]
    if shape.has("downscaler.id.weight"):
        return shape("downscaler.id.weight", 2)[1] - 2
    return shape("downscaler.downsample.conv0.conv.0.weight", 4)[1]


def decoder(shape: Shapes, E: int, coordinates: int, axes: int) -> dict[str, Any]:
    """Infer the decoder's kind and sizes.

    Args:
        shape: The shapes of the state dict.
        E: Channels.
        coordinates: Coordinates inside the attention.
        axes: Axes of the network's grid.

    Returns:
        Constructor arguments.

    Raises:
        ReferenceImportError: An entry is missing or has another number of axes.
    """
    joined = shape.has("regressor.fc.weight")
    grid = shape("regressor.fc.weight", 2)[1] - E if joined else coordinates
    common = {"spacial_fc": joined, "spacial_dim": grid}
    if shape.has("regressor.out.weight"):
        layers = shape.count(r"regressor\.ff\.(\d+)\.0\.weight")
        targets = shape("regressor.out.weight", 2)[0]
        return {**common, "decoder_type": "pointwise", "num_regressor_layers": layers, "n_targets": targets}
    weight = "regressor.spectral_conv.0.fourier_weight"
    modes = shape(weight, 4)[2] if axes == 1 else shape(f"{weight}.0", 5)[3]
    return {
        **common,
        "decoder_type": "ifft" if axes == 1 else "ifft2",
        "freq_dim": shape("regressor.regressor.0.weight", 2)[1],
        "fourier_modes": modes,
        "num_regressor_layers": shape.count(r"regressor\.spectral_conv\.(\d+)\..*"),
        "n_targets": shape("regressor.regressor.2.weight", 2)[0],
    }


def normalised(given: dict[str, Any]) -> dict[str, Any]:
    """Return the given arguments as the reference reads them: None is the same as leaving one out."""
    stated = {name: value for name, value in given.items() if value is not None}
    if stated.get("layer_norm") is False and not stated.get("attn_norm", True):
        stated["attn_norm"] = True  # the reference forces it where both are off
    return stated


def refuse_contradictions(inferred: dict[str, Any], stated: dict[str, Any], state: State) -> None:
    """Refuse given arguments that differ from the file.

    Args:
        inferred: Arguments that follow from the file.
        stated: Given arguments.
        state: The state dict.

    Raises:
        ReferenceImportError: There is one; the message names all.
    """
    contradicted = [
        name for name, value in inferred.items() if stated.get(name, value) != value and has_effect(name, inferred)
    ]
    faults = [f"{name} is {stated[name]!r} but the file has {inferred[name]!r}" for name in contradicted]
    if family := family_fault(stated.get("attention_type"), state):
        faults.append(family)
    if faults:
        raise ReferenceImportError("the config contradicts the file: " + "; ".join(faults))


def has_effect(name: str, inferred: dict[str, Any]) -> bool:
    """Tell whether the reference reads an argument; a pointwise decoder does not read spectral sizes."""
    return inferred["decoder_type"] != "pointwise" or name not in {"freq_dim", "fourier_modes"}


def family_fault(attention: str | None, state: State) -> str | None:
    """Describe the contradiction between an attention's type and the norms inside it, None if there is none."""
    quadratic = is_quadratic(state)
    if attention is None or quadratic is None or (attention in QUADRATIC) == quadratic:
        return None
    return f"attention_type is {attention!r} but the file normalises {'queries' if quadratic else 'values'} beside keys"


def is_quadratic(state: State) -> bool | None:
    """Tell whether the attention is quadratic, None where there are no norms inside it."""
    for letter, quadratic in (("Q", True), ("V", False)):
        if f"encoder_layers.0.attn.norm_{letter}.0.weight" in state:
            return quadratic
    return None


def assume(example: Example, state: State, inferred: dict[str, Any]) -> dict[str, Any]:
    """Return the example's own arguments, with an attention of the family in the file.

    Args:
        example: The example.
        state: The state dict.
        inferred: Arguments that follow from the file and are left out.

    Returns:
        Constructor arguments.
    """
    guessed = {name: value for name, value in EFFECTIVE[example].items() if name not in inferred}
    if family_fault(guessed["attention_type"], state):
        guessed["attention_type"] = "fourier" if is_quadratic(state) else "galerkin"
    return guessed


def matters(name: str, a: Arguments, axes: int) -> bool:
    """Tell whether an assumed argument changes an output (a dropout does not)."""
    return not name.endswith("dropout") and not (axes == 1 and name == "norm_eps") and getattr(a, name) is not None


def compare(expected: dict[str, tuple[int, ...]], state: State) -> None:
    """Compare keys and shapes.

    Raises:
        ReferenceImportError: An entry is missing, unknown or of another shape; the message names all.
    """
    found = {key: tuple(tensor.shape) for key, tensor in state.items()}
    faults = [
        *listed("missing", expected.keys() - found.keys(), repr),
        *listed("unknown", found.keys() - expected.keys(), repr),
        *listed(
            "misshapen",
            (key for key in expected.keys() & found.keys() if expected[key] != found[key]),
            lambda key: f"{key!r} (expected {expected[key]}, found {found[key]})",
        ),
    ]
    if faults:
        raise ReferenceImportError("the file is no network of the inferred sizes: " + "; ".join(faults))


def listed(fault: str, keys: Iterable[str], text: Callable[[str], str], most: int = 6) -> list[str]:
    """Describe the keys that have one fault.

    Args:
        fault: The fault.
        keys: The keys, in any order.
        text: Describes one key.
        most: How many keys are described; the others are counted.

    Returns:
        One line, none if there are no keys.
    """
    keys = sorted(keys)
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return [f"{fault}: {', '.join(map(text, keys[:most]))}{more}"] if keys else []
