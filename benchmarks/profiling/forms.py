r"""How attention is computed: takes a network and a form's name, gives the network whose attention computes so.

A type's plain name is its best form: Fourier attention as :math:`Q(K^T V)`, softmax by the fused kernel. The explicit
forms give the same numbers as the paper computes them (Cao, NeurIPS 2021, arXiv 2105.14995, section 3), with the
:math:`n \times n` matrix in memory. They exist to be compared with and are in no recipe.
"""

from __future__ import annotations

import math

from torch import nn

from training.nn.attention import ATTENTION, FourierAttention, HeadAttention, SoftmaxAttention
from training.nn.shapes import Mask, Mixed
from training.registry import lookup

SUFFIX = "-explicit"


class ExplicitFourierAttention(FourierAttention):
    r"""Mix as :math:`(QK^T/(n\sqrt w))V` in this order."""

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if mask is not None:
            return super().mix(Q, K, V, mask)
        return self.drop(Q @ K.transpose(-2, -1) / (K.shape[-2] * math.sqrt(self.width))) @ V


class ExplicitSoftmaxAttention(SoftmaxAttention):
    r"""Mix as :math:`\sigma(QK^T/\sqrt w)V` in this order."""

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if mask is not None:
            return super().mix(Q, K, V, mask)
        return self.drop((Q @ K.transpose(-2, -1) / math.sqrt(self.width)).softmax(dim=-1)) @ V


EXPLICIT: dict[str, type[HeadAttention]] = {
    f"fourier{SUFFIX}": ExplicitFourierAttention,
    f"softmax{SUFFIX}": ExplicitSoftmaxAttention,
}

#: What is profiled if nothing is chosen: every published type, and both forms where there are two.
PUBLISHED = ("galerkin", "fourier", "linear", "softmax", *EXPLICIT)
FORMS = (*ATTENTION, *EXPLICIT)


def attention_type(form: str) -> str:
    """Give the type that a form computes.

    Raises:
        ValueError: there is no such form (the message lists those there are).
    """
    return lookup({name: name.removesuffix(SUFFIX) for name in FORMS}, form, "kind of attention to profile")


def attentions(network: nn.Module) -> list[HeadAttention]:
    """Give every attention inside a network."""
    return [module for module in network.modules() if isinstance(module, HeadAttention)]


def compute_as(form: str, network: nn.Module) -> None:
    """Let every attention of a network, built with the form's type, compute in this form."""
    if form in EXPLICIT:
        for attention in attentions(network):
            attention.__class__ = EXPLICIT[form]  # equal state, another order of the same products


def forms_pairs(form: str, network: nn.Module) -> bool:
    r"""Tell whether the attention forms :math:`n \times n` matrices: with dropout, the best forms may do so too."""
    return form in EXPLICIT or any(each.pairwise and each.rate > 0 for each in attentions(network))


def pair_bytes(network: nn.Module, tokens: list[int], batch: int) -> int:
    r"""Estimate what the :math:`n \times n` matrices of an explicit form hold at the peak of a training step.

    Every attention keeps its matrix for the backward pass; with dropout the mask and, after softmax, the matrix before
    it, too. The backward pass of one attention holds up to two more.

    Args:
        network: what is to be profiled.
        tokens: the number each attention of it sees, in the network's order.
        batch: samples.
    """
    sizes = [(kept(each), 4 * batch * each.heads * n**2) for each, n in zip(attentions(network), tokens, strict=True)]
    return sum(count * size for count, size in sizes) + 2 * max(size for _, size in sizes)


def kept(attention: HeadAttention) -> int:
    r"""Count the :math:`n \times n` matrices that an explicit attention keeps for its backward pass."""
    if attention.rate == 0:
        return 1
    return 3 if isinstance(attention, SoftmaxAttention) else 2
