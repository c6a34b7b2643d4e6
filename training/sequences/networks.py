"""Takes a sequence network's config and its problem, gives the network: tokens in, logits out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from training.attention.feature_maps import FeatureMap
from training.sequences.classifier import Classifier, ClassifierConfig
from training.sequences.matcher import Matcher, MatcherConfig
from training.sequences.problem import SequenceProblem
from training.sequences.tower import TowerConfig

NetworkConfig = Annotated[ClassifierConfig | MatcherConfig, Field(discriminator="kind")]
Network = Classifier | Matcher

#: The one registry that turns a config into a network.
NETWORKS: dict[type[TowerConfig], Callable[[Any, SequenceProblem], Network]] = {
    ClassifierConfig: Classifier,
    MatcherConfig: Matcher,
}


def build(config: TowerConfig, problem: SequenceProblem) -> Network:
    """Build the network that `config` describes for a problem, with fresh weights."""
    return NETWORKS[type(config)](config, problem)


def orthogonality(network: nn.Module) -> Tensor | float:
    """Give the penalty of all kernels in a network; see `FeatureMap.orthogonality`."""
    return sum((each.orthogonality() for each in network.modules() if isinstance(each, FeatureMap)), 0.0)
