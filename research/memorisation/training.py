"""The networks of trials, and the training of many networks of one size at once.

The time of small networks is the start of their operations. So networks of different data and seeds are stacked, and
every operation runs on all of them. They are independent: each has its own weights, loss and moments of Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from research.memorisation.contextual_mapping import contextual_mapping, hidden_from_hardmax, vocabulary
from research.memorisation.sequences import Pairs, alone, pairs
from research.memorisation.trials import CounterExample, NamedEntities, RandomSets, Row, Trial
from research.sequences.corpus import UNLABELLED
from research.sequences.networks import Memoriser
from training.fit.workload import rows

CHUNK = 256  # sequences of a forward pass after the training

State = dict[str, Tensor]  # weights by name, the networks' along the first axis


def groups(trials: Sequence[Trial]) -> Iterator[list[Trial]]:
    """Group the trials that can be stacked: they differ in seeds, and in number and length of random sets only."""
    found: dict[Trial, list[Trial]] = {}
    for trial in trials:
        data = RandomSets(labels=trial.data.labels) if isinstance(trial.data, RandomSets) else trial.data
        found.setdefault(trial.model_copy(update={"data": data, "seed": 0}), []).append(trial)
    yield from found.values()


def memorise(trials: Sequence[Trial]) -> list[Row]:
    """Train one group and return its rows."""
    data = [pairs(trial) for trial in trials]
    networks = [network(trial, each) for trial, each in zip(trials, data, strict=True)]
    tokens, labels = together([each.tokens for each in data], 0), together([each.labels for each in data], UNLABELLED)
    state, run = stack(networks), side_by_side(networks[0])
    train(trials[0], state, run, tokens, labels)
    found = predicted(state, run, tokens)
    new = [each.unseen for each in data if each.unseen is not None]
    unseen = predicted(state, run, torch.stack([each.tokens for each in new])) if new else [None] * len(data)
    sizes = [sum(weight.numel() for weight in each.parameters()) for each in networks]
    return [row(*each) for each in zip(trials, data, found, unseen, sizes, strict=True)]


@torch.no_grad()
def predicted(state: State, run: Callable[[State, Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Return the label that every network gives to each token of its sequences `[network, sequence, token]`."""
    return torch.cat([run(state, chunk).argmax(dim=-1) for chunk in tokens.split(CHUNK, dim=1)], dim=1)


def together(tensors: Sequence[Tensor], value: int) -> Tensor:
    """Stack tensors of any sizes, each axis filled up with a value to the largest."""
    largest = [max(sizes) for sizes in zip(*(each.shape for each in tensors), strict=True)]
    filled = tensors[0].new_full((len(tensors), *largest), value)
    for target, each in zip(filled, tensors, strict=True):
        target[tuple(slice(size) for size in each.shape)] = each
    return filled


def stack(networks: Sequence[nn.Module]) -> State:
    """Return the weights of all networks; embeddings of smaller vocabularies are filled up."""
    states = [each.state_dict() for each in networks]
    return {name: together([state[name] for state in states], 0) for name in states[0]}


def side_by_side(network: nn.Module) -> Callable[[State, Tensor], Tensor]:
    """Return a function that applies a stack of such networks, each to its own input."""
    return vmap(lambda state, inputs: functional_call(network, state, (inputs,)))


def train(trial: Trial, state: State, run: Callable[[State, Tensor], Tensor], tokens: Tensor, labels: Tensor) -> None:
    """Fit all networks by Adam, in place, until every label is right or the steps are done."""
    learn = [weight.requires_grad_() for name, weight in state.items() if name.startswith(learning(trial))]
    optimiser = torch.optim.Adam(learn, lr=trial.rate, fused=True)
    for step, batch in enumerate(batches(trial, tokens.shape[1])):
        optimiser.param_groups[0]["lr"] = trial.rate * min(1.0, 2 * (1 - step / trial.steps))
        expected = labels[:, batch]
        logits = run(state, tokens[:, batch])
        if trial.batch is None and hits(logits.argmax(dim=-1), expected).sum() == (expected != UNLABELLED).sum():
            break
        optimiser.zero_grad(set_to_none=True)
        loss(logits, expected).backward()
        optimiser.step()


def batches(trial: Trial, sequences: int) -> Iterator[Tensor | slice]:
    """Return the sequences of every step: all, or parts of passes in random order."""
    if trial.batch is None:
        yield from [slice(None)] * trial.steps
        return
    yield from torch.from_numpy(rows(sequences, 0, trial.batch * trial.steps, trial.seed)).split(trial.batch)


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sum of all networks' mean cross-entropies."""
    each = functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").view(labels.shape)
    return (each.sum(dim=(1, 2)) / (labels != UNLABELLED).sum(dim=(1, 2))).sum()


def hits(found: Tensor, labels: Tensor) -> Tensor:
    """Return which labels are right; padding is not."""
    return (found == labels) & (labels != UNLABELLED)


def row(trial: Trial, data: Pairs, found: Tensor, unseen: Tensor | None, parameters: int) -> Row:
    """Count the labels that one network has right."""
    right = found[: data.labels.shape[0], : data.labels.shape[1]] == data.labels
    seen = data.labels != UNLABELLED
    named = seen & (data.labels != data.nothing)
    return Row(
        trial=trial,
        parameters=parameters,
        pairs=int(seen.sum()),
        tokens=share(right[seen]),
        sequences=share((right | ~seen).all(dim=1)),
        alone=round(alone(data), 4),
        entities=share(right[named]) if isinstance(trial.data, NamedEntities) else None,
        unseen=None if unseen is None or data.unseen is None else correct(unseen, data.unseen.labels),
    )


def correct(found: Tensor, labels: Tensor) -> float:
    """Return the share of labels that are right; padding has none."""
    seen = labels != UNLABELLED
    return share((found == labels)[seen])


def share(right: Tensor) -> float:
    """Return the share of true entries."""
    return round(right.double().mean().item(), 4)


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
