r"""The construction of one attention head of rank 1 whose outputs differ for different contexts.

A map q of sequences is a contextual mapping if all outputs are bounded, :math:`|q(X)_k| \le r`, and those of different
tokens, or of one token in sequences of different tokens, are apart, :math:`|q(X)_k - q(X')_l| > \delta`. Kajitsuka &
Sato (ICLR 2024, arXiv 2307.14023, Theorem 2) build one from a single softmax head of rank 1, for sequences of n
distinct tokens that are tokenwise separated: :math:`r_{\min} \le |x| \le r_{\max}`, and different tokens at least
:math:`\epsilon` apart.

**Construction.** A unit vector v keeps all tokens and the origin apart: with :math:`y = v^Tx`, let
:math:`\ell = \min|y|`, :math:`L = \max|y|`, :math:`g` the smallest distance of two y and :math:`R` the largest. Then

.. math::
    W_Q = c\,v^T,\quad W_K = W_V = v^T,\quad W_O = \rho\,v, \qquad
    c = \frac{4\ln n + 6}{\ell g}, \quad \rho = \frac{\epsilon}{4L}.

A token's scores are :math:`a_i = c\,y_ky_i`, at least :math:`4\ln n + 6` apart, and its output is
:math:`x_k + \rho\,v\,\mathrm{boltz}(a)/(c\,y_k)`. It is within :math:`r = r_{\max} + \epsilon/4`, outputs of different
tokens are :math:`\epsilon/2` apart, and one token's contexts are as far apart as Boltzmann operators are.

**Lemma** (the paper's, with constants derived here). Let all different entries of a and b, n distinct ones each, be
:math:`\gamma \ge 4\ln n + 6` apart, and let the sets differ first in their k-th largest, :math:`a_k > b_k`. Then
boltz(a) and boltz(b) are :math:`\tfrac12\gamma e^{a_k - a_1}` apart or more. For k = 1, boltz is within
:math:`n\gamma e^{-\gamma}` of the maximum. Else let B be boltz of the common entries and Z their sum of
exponentials: :math:`B - \mathrm{boltz}(a) \ge (B - a_k)e^{a_k}/(Z + ne^{a_k})`, and as :math:`(B - x)e^x` grows for
:math:`x < B - 1`, :math:`B - \mathrm{boltz}(b) \le n(B - a_k + \gamma)e^{a_k - \gamma}/Z`, which is 1 % of it. Hence

.. math::
    \delta = \min\Bigl(\frac\epsilon2,\ \frac{\rho\,(2\ln n + 3)}{c\,L}\,e^{-c\,L\,R}\Bigr).

The paper bounds :math:`\ell, g` from below for every vocabulary V in d dimensions, by
:math:`\sqrt{8/\pi d}\,/(|V|+1)^2` times the distances, so that its constants need only :math:`r_{\min}, r_{\max},
\epsilon, |V|, d, n`. Here v is at hand, the best of many, and its own numbers give a larger :math:`\delta`. Both shrink
exponentially: a proof, and a start for training, rather than a code that survives rounding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from research.memorisation.low_rank import LowRankAttention

Sequences = Float[Tensor, "sequence token channel"]
Vocabulary = Float[Tensor, "word channel"]


class Separation(NamedTuple):
    """Distances of the tokens of all sequences from the origin and from each other."""

    shortest: float  # r_min
    longest: float  # r_max
    distance: float  # epsilon, the smallest between different tokens


class ContextualMapping(NamedTuple):
    """The weights, and the bounds that they guarantee."""

    attention: LowRankAttention
    radius: float  # r, the bound of all outputs
    log_distance: float  # ln delta, as delta may underflow; -inf without a guarantee


def separation(sequences: Sequences) -> Separation:
    """Measure the tokenwise separation of sequences."""
    words = vocabulary(sequences)
    return Separation(
        shortest=words.norm(dim=1).min().item(),
        longest=words.norm(dim=1).max().item(),
        distance=torch.nn.functional.pdist(words).min().item() if len(words) > 1 else math.inf,
    )


def contextual_mapping(
    sequences: Sequences, *, score_gap: float | None = None, draws: int = 4096, generator: torch.Generator | None = None
) -> ContextualMapping:
    r"""Build the head that distinguishes the contexts of these sequences.

    Args:
        sequences: Sequences of distinct tokens, none of them 0, of shape `[sequence, token, channel]`; in float64 where
            small distances matter.
        score_gap: Smallest distance of two scores of a token, :math:`4\ln n + 6` by default. A smaller gap guarantees
            no distance, but gives a larger one in practice, because exponents shrink with it.
        draws: Number of directions to choose the projection from.
        generator: Generator of the directions.

    Returns:
        The head, on the device and in the precision of the sequences, and its bounds.

    Raises:
        ValueError: The sequences have another shape or type, or numbers that are not finite; a sequence repeats a
            token, a token is 0, or there are fewer than two different tokens; their precision has no room for the
            weights; or an option is out of range.
    """
    expect_distinct(sequences)
    proven = 4 * math.log(sequences.shape[1]) + 6
    score_gap = proven if score_gap is None else score_gap
    if not 0 < score_gap < math.inf or draws < 1:
        raise ValueError(f"expected a positive score_gap and at least 1 of draws but got {score_gap} and {draws}")
    words, bounds = vocabulary(sequences), separation(sequences)
    v = projection(words, draws, generator)
    y = words @ v
    most, spread = y.abs().max().item(), (y.max() - y.min()).item()
    least, gap = y.abs().min().item(), smallest_gap(y).item()
    c, rho = score_gap / least / gap if least and gap else math.inf, bounds.distance / (4 * most)
    held = torch.finfo(sequences.dtype)
    if not all(held.tiny <= number <= held.max for number in (c, rho, *bounds)):
        raise ValueError(
            f"expected tokens whose weights {sequences.dtype} can hold, such as ones of lengths near 1, but got "
            f"lengths of {bounds.shortest} to {bounds.longest} and a distance of {bounds.distance}"
        )
    attention = LowRankAttention(sequences.shape[2]).to(sequences)
    for layer, weight in (
        (attention.query, c * v[None]),
        (attention.key, v[None]),
        (attention.value, v[None]),
        (attention.output, rho * v[:, None]),
    ):
        layer.weight.data.copy_(weight)
    apart = math.log(rho * score_gap / 2) - math.log(c) - math.log(most) - c * most * spread
    promised = min(math.log(bounds.distance / 2), apart) if score_gap >= proven else -math.inf
    return ContextualMapping(attention, bounds.longest + bounds.distance / 4, promised)


def projection(words: Vocabulary, draws: int, generator: torch.Generator | None) -> Float[Tensor, " channel"]:
    """Return the best of several random unit vectors: it separates scores at the smallest range."""
    device = words.device if generator is None else generator.device
    directions = torch.randn(words.shape[1], draws, dtype=words.dtype, device=device, generator=generator)
    directions = (directions / directions.norm(dim=0)).to(words.device)
    y = words @ directions
    most = y.abs().amax(dim=0)  # divided by twice, as its square may overflow
    quality = (y.abs().amin(dim=0) / most) * (smallest_gap(y) / most)
    return directions[:, quality.argmax()]


def smallest_gap(y: Float[Tensor, "word ..."]) -> Tensor:
    """Return the smallest distance of two entries along the first axis."""
    return y.sort(dim=0).values.diff(dim=0).amin(dim=0)


def vocabulary(sequences: Sequences) -> Vocabulary:
    """Return the different tokens of all sequences."""
    return sequences.flatten(0, 1).unique(dim=0)


def expect_distinct(sequences: Sequences) -> None:
    """Check the conditions of the theorem.

    Raises:
        ValueError: They are not met.
    """
    if sequences.dim() != 3 or not sequences.numel() or sequences.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            "expected sequences [sequence, token, channel] in float32 or float64 but got "
            f"{tuple(sequences.shape)} in {sequences.dtype}"
        )
    if not sequences.isfinite().all():
        raise ValueError("expected sequences of finite numbers but got NaN or infinite ones")
    for index, sequence in enumerate(sequences):
        if len(different := sequence.unique(dim=0)) < len(sequence):
            raise ValueError(
                f"expected sequence {index} to have {len(sequence)} different tokens but got {len(different)}"
            )
    words = vocabulary(sequences)
    if len(words) < 2 or not words.any(dim=1).all():
        raise ValueError("expected at least two different tokens, and none of them 0")


def hidden_from_hardmax(channels: int) -> Sequences:
    r"""Return two sequences that no hardmax attention distinguishes at the two tokens that they share.

    Tokens 1, 2, 5, 6 and 1, 3, 4, 6 times one vector: scores are monotone along a line, so that the largest is one of
    the common ends, or all are equal, and so are the means (our example for the paper's Theorem 1, which holds for any
    number of heads, any rank and any weights).
    """
    along = torch.tensor([[1.0, 2.0, 5.0, 6.0], [1.0, 3.0, 4.0, 6.0]], dtype=torch.float64)
    return along[..., None] * torch.ones(channels, dtype=torch.float64)
