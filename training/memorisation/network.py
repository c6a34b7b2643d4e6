"""What is trained: takes a trial and its sequences, gives a fresh memoriser, and says which of its weights learn."""

from __future__ import annotations

import torch
from torch import Tensor

from training.memorisation.contextual_mapping import contextual_mapping, hidden_from_hardmax, vocabulary
from training.memorisation.pairs import Pairs
from training.memorisation.trial import CounterExample, Trial
from training.sequences.networks.memoriser import Memoriser

SHARPNESS = 0.25  # the largest score of a constructed head whose scores are softened
STRETCH = 4.0  # standard deviations that a mean along v is worth in its output
LINE = 0.2  # length of the counter-example's vector: its tokens are 0.2 to 1.2 long


def network(trial: Trial, data: Pairs) -> Memoriser:
    """Build a trial's network with weights drawn from its seed, or constructed."""
    torch.manual_seed(trial.seed)
    built = Memoriser(trial.network, data.words, data.classes)
    with torch.no_grad():
        if trial.constructed:
            construct(built, data.tokens)
        if isinstance(trial.data, CounterExample):
            built.embedding.weight[data.tokens] = LINE * directions(trial.network.channels)
            see_tokens_as_they_are(built)
    return built


def learning(trial: Trial) -> tuple[str, ...]:
    """Say how the names of those parameters begin that are trained."""
    if trial.constructed:
        return ("layer.second.",)
    return ("layer.attention.", "layer.second.") if isinstance(trial.data, CounterExample) else ("",)


def construct(built: Memoriser, tokens: Tensor) -> None:
    r"""Put a contextual mapping of random embeddings into a network.

    The projection v is the theorem's. Its scores, which would be hundreds apart, are brought down to `SHARPNESS`, and
    what it adds to tokens is scaled up by `STRETCH`, so that float32 and Adam can tell contexts apart. Both were chosen
    by trial: sharper scores, between 1 and 16, were memorised worse.
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
    see_tokens_as_they_are(built)


def directions(channels: int) -> Tensor:
    """Give the counter-example's tokens, multiples 1 to 6 of a unit vector."""
    return (hidden_from_hardmax(channels) / channels**0.5).float()


def see_tokens_as_they_are(built: Memoriser) -> None:
    """Let the first feed-forward net add nothing."""
    for parameter in built.layer.first[-1].parameters():
        parameter.zero_()
