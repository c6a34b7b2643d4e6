"""The subjects of the profiler: one attention, an encoder, or the network of a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from pydantic import BaseModel
from torch import nn

from benchmarks.profiling.forms import PUBLISHED, attention_type
from benchmarks.profiling.rows import Settings
from training.nn.attention import build_attention
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.shapes import Tokens
from training.operators import build
from training.problems.registry import PROBLEMS
from training.recipes import recipe as recipes

Make = Callable[[str], nn.Module]
Config = TypeVar("Config", bound=BaseModel)


@dataclass(frozen=True)
class Subject:
    """A network to profile, with its defaults."""

    name: str
    forms: tuple[str, ...]
    lengths: tuple[int, ...]  # points per axis
    batch: int
    sample: Callable[[int], tuple[int, ...]]  # the shape of one input with so many points per axis
    points: Callable[[int], int]
    make: Make  # a new network with attention of a type
    differentiate: bool = False  # the input too, as inside a larger network

    def inputs(self, length: int) -> torch.Tensor:
        """Return a random batch of positive values, as for a permeability."""
        return 1 + torch.rand(self.batch, *self.sample(length))


class Chain(nn.Module):
    """Apply attention or encoder layers in sequence to tokens at positions in [0, 1]."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, tokens: Tokens) -> Tokens:
        positions = torch.linspace(0, 1, tokens.shape[1], device=tokens.device)[:, None]
        for layer in self.layers:
            tokens = layer(tokens, positions=positions)
        return tokens


def subject(name: str, settings: Settings) -> Subject:
    """Return a subject by its name, with its defaults replaced by the settings.

    Raises:
        RecipeError: It is neither `attention` nor `encoder` nor a recipe.
        ValueError: One of the types does not exist.
    """
    found = TOKENS[name](settings) if name in TOKENS else recipe_subject(name, settings)
    chosen = replace(
        found,
        forms=settings.types or found.forms,
        lengths=settings.lengths or found.lengths,
        batch=settings.batch or found.batch,
    )
    for form in chosen.forms:
        attention_type(form)
    return chosen


def attention_subject(settings: Settings) -> Subject:
    """Return one attention on its own."""

    def make(kind: str) -> nn.Module:
        attention = build_attention(kind, settings.channels, settings.heads, 1, dropout=settings.dropout or 0.0)
        return Chain(nn.ModuleList([attention]))

    return token_subject("attention", (512, 1024, 2048, 4096, 8192), make, settings)


def encoder_subject(settings: Settings) -> Subject:
    """Return the encoder of the published profiler (batch 4, width 96, 4 heads, 10 layers by default)."""
    config = EncoderConfig(
        norm="none",
        channels=settings.channels,
        heads=settings.heads,
        layers=settings.layers,
        feedforward=2 * settings.channels,
        activation="relu",
        attention_dropout=settings.dropout or 0.0,
    )

    def make(kind: str) -> nn.Module:
        return Chain(encoder_stack(with_attention(config, kind), coordinates=1))

    return token_subject("encoder", (256, 512, 1024, 2048), make, settings)


def token_subject(name: str, lengths: tuple[int, ...], make: Make, settings: Settings) -> Subject:
    """Return a subject that maps tokens [batch, token, channel] to tokens.

    Args:
        name: The name of the subject.
        lengths: The default numbers of tokens.
        make: The function that builds the network with attention of a type.
        settings: The settings of the profile.
    """
    return Subject(
        name=name,
        forms=PUBLISHED,
        lengths=lengths,
        batch=4,
        sample=lambda length: (length, settings.channels),
        points=lambda length: length,
        make=make,
        differentiate=True,
    )


def with_attention(config: Config, kind: str) -> Config:
    """Return a config with another attention type."""
    return config.model_copy(update={"attention": kind})


def recipe_subject(name: str, settings: Settings) -> Subject:
    """Return a recipe's network, by default with its own type of attention, batch and largest grid."""
    recipe = recipes.read_fields(recipes.find(name))
    dropout = {} if settings.dropout is None else {"attention_dropout": settings.dropout}
    config = recipe.operator.model_copy(update=dropout)
    axes, channels = len(PROBLEMS[recipe.problem].description.axes), getattr(config, "inputs", 1)
    return Subject(
        name=name,
        forms=(str(getattr(config, "attention")),),  # noqa: B009 - every config here has one, which the type does not say
        lengths=(max(recipe.data.grids),),
        batch=recipe.fit.batch,
        sample=lambda length: (*([channels] if channels > 1 else []), *[length] * axes),
        points=lambda length: math.prod([length] * axes),
        make=lambda kind: build(with_attention(config, kind)),
    )


#: The subjects that are no recipes.
TOKENS: dict[str, Callable[[Settings], Subject]] = {"attention": attention_subject, "encoder": encoder_subject}
