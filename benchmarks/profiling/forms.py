r"""The forms in which an attention type can be computed.

The plain name of a type is its best form: Fourier attention as :math:`Q(K^T V)`, softmax by the fused kernel. The
explicit forms compute the same values as in the paper (Cao, NeurIPS 2021, arXiv 2105.14995, section 3), with the
:math:`n \times n` matrix in memory. They serve as baselines, and no recipe uses them.
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

#: The forms that are profiled by default: every published type, and both forms where there are two.
PUBLISHED = ("galerkin", "fourier", "linear", "softmax", *EXPLICIT)
FORMS = (*ATTENTION, *EXPLICIT)


def attention_type(form: str) -> str:
    """Return the type of a form.

    Raises:
        ValueError: There is no such form; the message lists the known ones.
    """
    return lookup({name: name.removesuffix(SUFFIX) for name in FORMS}, form, "kind of attention to profile")


def attentions(network: nn.Module) -> list[HeadAttention]:
    """Return every attention inside a network."""
    return [module for module in network.modules() if isinstance(module, HeadAttention)]


def compute_as(form: str, network: nn.Module) -> None:
    """Change every attention of a network, built with the form's type, to this form."""
    if form in EXPLICIT:
        for attention in attentions(network):
            attention.__class__ = EXPLICIT[form]  # equal state, another order of the same products


def forms_pairs(form: str, network: nn.Module) -> bool:
    r"""Return whether the attention computes :math:`n \times n` matrices; with dropout the best forms may do so too."""
    return form in EXPLICIT or any(each.pairwise and each.rate > 0 for each in attentions(network))


def pair_bytes(network: nn.Module, tokens: list[int], batch: int) -> int:
    r"""Return an estimate of the bytes of the :math:`n \times n` matrices at the peak of a training step.

    Every attention keeps its matrix for the backward pass; with dropout the mask and, after softmax, the matrix before
    it, too. The backward pass of one attention holds up to two more.

    Args:
        network: The network.
        tokens: The number of tokens of each attention, in the network's order.
        batch: The number of samples.
    """
    sizes = [(kept(each), 4 * batch * each.heads * n**2) for each, n in zip(attentions(network), tokens, strict=True)]
    return sum(count * size for count, size in sizes) + 2 * max(size for _, size in sizes)


def kept(attention: HeadAttention) -> int:
    r"""Return the number of :math:`n \times n` matrices that an explicit attention keeps for its backward pass."""
    if attention.rate == 0:
        return 1
    return 3 if isinstance(attention, SoftmaxAttention) else 2
