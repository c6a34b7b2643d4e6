"""Training of many networks of one size at once.

The time of small networks is the start of their operations. So networks of different data and seeds are stacked, and
every operation runs on all of them. They are independent: each has its own weights, loss and moments of Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from research.memorisation.initial import learning, network
from research.memorisation.pairs import Pairs, alone, pairs
from research.memorisation.trial import NamedEntities, RandomSets, Row, Trial
from research.sequences.samples import UNLABELLED
from training.fit.loop.order import rows

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
    """Fit all networks by Adam, in place, until every label is right or the steps are done.

    Args:
        trial: Steps, batch and rate, which all networks share.
        state: Weights of all networks.
        run: Applies them.
        tokens: Sequences `[network, sequence, token]`.
        labels: Their labels.
    """
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
    """Count the labels that one network has right.

    Args:
        trial: The trial.
        data: Its sequences.
        found: Labels that the network gives, `[sequence, token]`.
        unseen: Labels that it gives to the sequences that it has not learned, where there are any.
        parameters: Number of its parameters.
    """
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
