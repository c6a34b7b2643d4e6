"""Attention layers, all with the signature of `HeadAttention.forward`.

| kind | mixing of a head, n tokens, width w | cost in tokens | normalised | mask |
|---|---|---|---|---|
| `galerkin` | Q (K^T V) / n | linear | K, V | no |
| `fourier` | (Q K^T) V / (n sqrt(w)), computed as Q (K^T V) | linear; quadratic with mask or dropout | Q, K | yes |
| `linear` | softmax(Q) (softmax(K)^T V) / n | linear | K, V | no |
| `softmax` | softmax(Q K^T / sqrt(w)) V, fused | quadratic | Q, K | yes |
| `kernel-...` | phi(Q) (phi(K)^T V), divided by phi(Q) phi(K)^T 1 | linear; quadratic with mask [1] | Q, K | yes |
| `causal` | the same up to the token itself, phi = elu + 1 | linear; quadratic with mask [1] or dropout | Q, K | yes |

[1] Linear with a mask that hides padding, which is equal for all queries.

`kernel-elu` has the fixed features elu + 1 and `kernel-random` positive random features. `research` adds trained ones:
`kernel-softplus`, `kernel-glu1` to `3`, `kernel-orthogonal`, `kernel-oglu1` to `3`, `kernel-aoglu3`, and the last five
with `-exact`; see `research.sequences.trained_kernels`.

Other packages add kinds by the entry point group `petrov.attention`: the entry point's name is the kind, and its object
takes the arguments of `build_attention`.

No layer returns its attention matrix, because most never form it. Cosine attention is left out: the one of the
reference project cannot run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Protocol, runtime_checkable

import torch
from pydantic import AfterValidator
from torch import Tensor, nn

from training.messages import lookup
from training.nn.attention.cao import FourierAttention, GalerkinAttention, LinearAttention, SoftmaxAttention
from training.nn.attention.heads import AttentionNorm, HeadAttention
from training.nn.attention.kernel import KERNELS, CausalAttention, KernelAttention, causal_attention
from training.nn.grids import Mask, Positions, SourcePositions, Sources, Tokens, Weight


@runtime_checkable
class Attention(Protocol):
    """What an encoder layer needs of an attention; see `HeadAttention.forward` for the arguments."""

    def __call__(
        self,
        query: Tokens,
        key: Sources | None = None,
        value: Sources | None = None,
        *,
        positions: Positions | None = None,
        key_positions: SourcePositions | None = None,
        mask: Mask | None = None,
        weight: Weight | None = None,
    ) -> Tokens:
        """Return the mixed tokens, with the shape and dtype of `query`."""
        ...


Build = Callable[..., HeadAttention]

#: The kinds of this package.
ATTENTION: dict[str, Build] = {
    "galerkin": GalerkinAttention,
    "fourier": FourierAttention,
    "linear": LinearAttention,
    "softmax": SoftmaxAttention,
    "causal": CausalAttention,
    **{kind: partial(KernelAttention, features=features) for kind, features in KERNELS.items()},
}


@cache
def kinds() -> dict[str, Build]:
    """Return all kinds of attention: those of this package, then those of other packages, imported when built.

    Raises:
        ValueError: Two objects have one name.
    """
    found = dict(ATTENTION)
    for entry in sorted(entry_points(group="petrov.attention")):
        if entry.name in found:
            raise ValueError(f"{entry.value}: there already is an attention named {entry.name!r}")
        found[entry.name] = partial(build_added, entry)
    return found


def build_added(entry: EntryPoint, *sizes: int, **options: Any) -> HeadAttention:
    """Return a new layer of a kind that another package adds."""
    built: HeadAttention = entry.load()(*sizes, **options)
    return built


def known(kind: str) -> str:
    """Return a kind of attention that exists.

    Raises:
        UnknownNameError: There is no such kind; the message lists the known kinds.
    """
    lookup(kinds(), kind, "kind of attention")
    return kind


#: The name of a kind of attention in a config.
AttentionType = Annotated[str, AfterValidator(known)]


def build_attention(kind: str, channels: int, heads: int, coordinates: int = 0, **options: Any) -> HeadAttention:
    """Return a new attention layer.

    Args:
        kind: The kind of attention; see the tables of the module.
        channels: The number of features per token, a multiple of `heads`.
        heads: The number of heads.
        coordinates: The number of coordinates of a position; 0 for tokens without positions.
        options: The keywords of `HeadAttention`; for kernels also `causal` and `shared`.

    Raises:
        UnknownNameError: There is no such kind; the message lists the known kinds.
        ValueError: The sizes do not fit, or an option is not valid.

    Example:
        >>> attention = build_attention("galerkin", 64, 4)
        >>> attention(torch.randn(2, 100, 64)).shape
        torch.Size([2, 100, 64])
    """
    return lookup(kinds(), kind, "kind of attention")(channels, heads, coordinates, **options)


def penalty(network: nn.Module) -> Tensor | None:
    """Return what the modules of a network with a method `penalty` add to its loss; None if there are none."""
    penalties = (getattr(module, "penalty", None) for module in network.modules())
    found = [each() for each in penalties if callable(each)]
    return torch.stack(found).sum() if found else None


__all__ = [
    "ATTENTION",
    "Attention",
    "AttentionNorm",
    "AttentionType",
    "CausalAttention",
    "FourierAttention",
    "GalerkinAttention",
    "HeadAttention",
    "KernelAttention",
    "LinearAttention",
    "SoftmaxAttention",
    "build_attention",
    "causal_attention",
    "kinds",
    "penalty",
]
