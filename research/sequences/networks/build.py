"""Build a sequence network from its config and its problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, Field

from research.sequences.networks.classifier import Classifier, ClassifierConfig
from research.sequences.networks.matcher import Matcher, MatcherConfig
from research.sequences.networks.memoriser import Memoriser, MemoriserConfig
from training.problems.sequence_description import SequenceDescription

NetworkConfig = Annotated[ClassifierConfig | MatcherConfig | MemoriserConfig, Field(discriminator="kind")]
Network = Classifier | Matcher | Memoriser

#: How each config becomes a network.
NETWORKS: dict[type[BaseModel], Callable[[Any, SequenceDescription], Network]] = {
    ClassifierConfig: Classifier,
    MatcherConfig: Matcher,
    MemoriserConfig: lambda config, problem: Memoriser(config, len(problem.vocabulary), len(problem.labels)),
}


def build(config: BaseModel, problem: SequenceDescription) -> Network:
    """Build the network that `config` describes for a problem, with fresh weights."""
    return NETWORKS[type(config)](config, problem)
