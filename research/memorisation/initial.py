"""The network of a trial: a new memoriser, and which of its weights are trained."""

from __future__ import annotations

import torch
from torch import Tensor

from research.memorisation.contextual_mapping import contextual_mapping, hidden_from_hardmax, vocabulary
from research.memorisation.pairs import Pairs
from research.memorisation.trial import CounterExample, Trial
from research.sequences.networks.memoriser import Memoriser

SHARPNESS = 0.25  # the largest score of a constructed head whose scores are softened
STRETCH = 4.0  # standard deviations that a mean along v is worth in its output
LINE = 0.2  # length of the counter-example's vector: its tokens are 0.2 to 1.2 long


def network(trial: Trial, data: Pairs) -> Memoriser:
    """Build the network of a trial with weights drawn from its seed, or constructed."""
    torch.manual_seed(trial.seed)
    built = Memoriser(trial.network, data.words, data.classes)
    with torch.no_grad():
        if trial.constructed:
            construct(built, data.tokens)
        if isinstance(trial.data, CounterExample):
            built.embedding.weight[data.tokens] = LINE * directions(trial.network.channels)
            keep_tokens(built)
    return built


def learning(trial: Trial) -> tuple[str, ...]:
    """Return prefixes of the names of the parameters that are trained."""
    if trial.constructed:
        return ("layer.second.",)
    return ("layer.attention.", "layer.second.") if isinstance(trial.data, CounterExample) else ("",)


def construct(built: Memoriser, tokens: Tensor) -> None:
    r"""Put a contextual mapping of random embeddings into a network.

    The projection v is the theorem's. Its scores, which would be hundreds apart, are scaled down to `SHARPNESS`, and
    its output is scaled up by `STRETCH`, so that float32 and Adam can distinguish contexts. Both values were chosen by
    trial: with sharper scores, between 1 and 16, fewer labels were memorised.
    """
    built.embedding.weight.normal_()
    mapping = contextual_mapping(built.embedding.weight.double()[tokens]).attention
    v = mapping.key.weight.to(built.embedding.weight.dtype)
    y = vocabulary(built.embedding(tokens)) @ v[0]
    head = built.layer.attention
    head.query.weight.copy_(SHARPNESS / y.abs().max().square() * v)
    head.key.weight.copy_(v)
    head.value.weight.copy_(v)
    head.output.weight.copy_(STRETCH * v.T / y.std())
    keep_tokens(built)


def directions(channels: int) -> Tensor:
    """Return the tokens of the counter-example, multiples 1 to 6 of a unit vector."""
    return (hidden_from_hardmax(channels) / channels**0.5).float()


def keep_tokens(built: Memoriser) -> None:
    """Set the last layer of the first feed-forward net to 0, so that it adds nothing to tokens."""
    for parameter in built.layer.first[-1].parameters():
        parameter.zero_()
