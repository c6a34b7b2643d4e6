r"""The profiler of attention types, encoder stacks and recipes: time and memory of a training step over the points.

A step is forward, mean squared error to a random target, and backward, on random input, without the optimiser. Forms
are interleaved, one step each per round, after one step without a clock and one whose memory is counted: the peak of
the tensors beyond what network and input hold.

The plain name of a type is its best form: Fourier attention as :math:`Q(K^T V)`, softmax by the fused kernel. The
explicit forms compute the same values as in the paper (Cao, NeurIPS 2021, arXiv 2105.14995, section 3), with the
:math:`n \times n` matrix in memory. They serve as baselines, and no recipe uses them.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity
from torch.profiler import profile as trace

from benchmarks.harness import Row
from training import recipe as recipes
from training.nn.attention import FourierAttention, HeadAttention, SoftmaxAttention, build_attention, kinds
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.shapes import Mask, Mixed, Tokens
from training.operators import build
from training.problems.registry import PROBLEMS
from training.registry import lookup
from training.user_error import UserError

Clock = Literal["wall", "processor"]
SUFFIX = "-explicit"


class ProfileError(UserError):
    """The profile cannot be measured; the message says why, and what to change."""


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
FORMS = (*kinds(), *EXPLICIT)


@dataclass(frozen=True)
class Settings:
    """The settings of all rows; None where every subject has its own default."""

    types: tuple[str, ...] | None = None
    lengths: tuple[int, ...] | None = None
    batch: int | None = None
    device: str = "cpu"
    repeats: int = 5
    clock: Clock = "wall"
    dropout: float | None = None  # of the attention
    limit_gb: float = 8.0
    channels: int = 96
    heads: int = 4
    layers: int = 10


@dataclass(frozen=True)
class Subject:
    """A network to profile, with its defaults."""

    name: str
    forms: tuple[str, ...]
    lengths: tuple[int, ...]  # points per axis
    batch: int
    sample: Callable[[int], tuple[int, ...]]  # the shape of one input with so many points per axis
    points: Callable[[int], int]
    make: Callable[[str], nn.Module]  # a new network with attention of a type
    differentiate: bool = False  # the input too, as inside a larger network


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
    """Return one attention, the encoder of the published profiler, or a recipe's network with its own defaults."""
    channels, heads, dropout = settings.channels, settings.heads, settings.dropout or 0.0

    def attention(kind: str) -> nn.Module:
        return Chain(nn.ModuleList([build_attention(kind, channels, heads, 1, dropout=dropout)]))

    def encoder(kind: str) -> nn.Module:
        config = EncoderConfig(
            attention=kind,
            norm="none",
            channels=channels,
            heads=heads,
            layers=settings.layers,
            feedforward=2 * channels,
            activation="relu",
            attention_dropout=dropout,
        )
        return Chain(encoder_stack(config, coordinates=1))

    if name in {"attention", "encoder"}:
        make = attention if name == "attention" else encoder
        lengths = tuple(2**n for n in (range(9, 14) if name == "attention" else range(8, 12)))
        found = Subject(name, PUBLISHED, lengths, 4, lambda n: (n, channels), lambda n: n, make, differentiate=True)
    else:
        found = recipe_subject(name, settings)
    for form in (chosen := settings.types or found.forms):
        attention_type(form)
    return replace(found, forms=chosen, lengths=settings.lengths or found.lengths, batch=settings.batch or found.batch)


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
        make=lambda kind: build(config.model_copy(update={"attention": kind})),
    )


def attention_type(form: str) -> str:
    """Return the type of a form."""
    return lookup({name: name.removesuffix(SUFFIX) for name in FORMS}, form, "kind of attention to profile")


def attentions(network: nn.Module) -> list[HeadAttention]:
    """Return every attention inside a network."""
    return [module for module in network.modules() if isinstance(module, HeadAttention)]


def compute_as(form: str, network: nn.Module) -> None:
    """Change every attention of a network, built with the form's type, to this form."""
    for attention in attentions(network) if form in EXPLICIT else ():
        attention.__class__ = EXPLICIT[form]  # equal state, another order of the same products


def pair_bytes(network: nn.Module, tokens: list[int], batch: int) -> int:
    r"""Return an estimate of the bytes of the :math:`n \times n` matrices at the peak of a training step.

    Every attention keeps its matrix for the backward pass; with dropout the mask and, after softmax, the matrix before
    it, too. The backward pass of one attention holds up to two more.
    """

    def kept(attention: HeadAttention) -> int:
        return 1 if attention.rate == 0 else 3 if isinstance(attention, SoftmaxAttention) else 2

    pairs = list(zip(attentions(network), tokens, strict=True))
    sizes = [(kept(each), 4 * batch * each.heads * n**2) for each, n in pairs]
    return sum(count * size for count, size in sizes) + 2 * max(size for _, size in sizes)


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Run the work once, and return the peak of the memory that tensors hold, beyond what they held before.

    On CUDA the allocator counts. On a CPU torch's profiler reports every allocation and release of torch's allocator,
    and the peak is that of their running sum: exact, and the same in every run. The fused softmax kernel allocates
    buffers per thread. Allocations inside mathematics libraries are not counted.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with trace(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        work()
    with tempfile.TemporaryDirectory() as folder:  # only the trace file has the events of the allocator
        file = Path(folder) / "trace.json"
        record.export_chrome_trace(str(file))
        events: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    changes = (event["args"] for event in sorted(events, key=start) if event["name"] == "[memory]")
    return int(max(accumulate((each["Bytes"] for each in changes if each["Device Type"] == 0), initial=0)))


def start(event: dict[str, Any]) -> float:
    """Return the time of an event of torch's profiler."""
    return float(event.get("ts", 0))


class Case:
    """One form at one length, ready to run, and its measurements so far.

    Args:
        subject: The subject.
        form: The form of the attention.
        length: Points per axis.
        settings: The settings of all rows.

    Raises:
        ProfileError: The network cannot be built, or does not accept the input.
    """

    def __init__(self, subject: Subject, form: str, length: int, settings: Settings) -> None:
        self.clock, device = settings.clock, torch.device(settings.device)
        self.inputs = (1 + torch.rand(subject.batch, *subject.sample(length))).to(device)  # as a permeability
        try:
            self.network = subject.make(attention_type(form)).to(device)
            tokens, shape = probe(self.network, self.inputs[:1])
        except ValueError as error:
            raise ProfileError(f"{subject.name}, {form}, length {length}: {error}") from error
        self.target = torch.rand(subject.batch, *shape, device=device)
        compute_as(form, self.network.train())
        self.inputs.requires_grad_(subject.differentiate)
        self.row: Row = {
            "subject": subject.name,
            "form": form,
            "batch": subject.batch,
            "length": length,
            "points": subject.points(length),
            "forward_seconds": [],
            "backward_seconds": [],
            "peak_bytes": 0,
            "skipped": None,
        }
        pairs = form in EXPLICIT or any(each.pairwise and each.rate > 0 for each in attentions(self.network))
        if pairs and (needed := pair_bytes(self.network, tokens, subject.batch)) > settings.limit_gb * 1e9:
            limit = f"more than the limit of {settings.limit_gb:g} GB"
            self.row["skipped"] = f"its n x n matrices would take {needed / 1e9:.1f} GB, {limit}"

    def run(self, work: Callable[[Case], None]) -> None:
        """Do one piece of work, unless the case is skipped; skip it if memory runs out."""
        if self.row["skipped"] is not None:
            return
        self.clear()
        try:
            work(self)
        except RuntimeError as error:  # the CPU's allocator has no exception of its own
            if not (isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)):
                raise
            self.row |= {"skipped": "ran out of memory", "forward_seconds": [], "backward_seconds": []}
            self.clear()

    def clear(self) -> None:
        """Clear the gradients of the previous step."""
        self.network.zero_grad(set_to_none=True)
        self.inputs.grad = None

    def loss(self) -> Tensor:
        """Return the loss of the forward pass."""
        return functional.mse_loss(self.network(self.inputs), self.target)

    def step(self) -> None:
        """Take one whole step."""
        self.loss().backward()

    def count_memory(self) -> None:
        """Count the memory of one step, new gradients included."""
        self.row["peak_bytes"] = peak_bytes(self.step, self.inputs.device)

    def time(self) -> None:
        """Append the times of one step, forward and backward."""
        started = self.now()
        error = self.loss()
        between = self.now()
        error.backward()
        self.row["forward_seconds"].append(between - started)
        self.row["backward_seconds"].append(self.now() - between)

    def now(self) -> float:
        """Return the clock in seconds after all work so far is done."""
        if self.inputs.is_cuda:
            torch.cuda.synchronize(self.inputs.device)
        return time.process_time() if self.clock == "processor" else time.perf_counter()


def measure(names: Iterable[str], settings: Settings) -> list[Row]:
    """Return a row per form and length of subjects, by their names."""
    device = find_device(settings.device)
    if device.type != "cpu" and settings.clock == "processor":
        raise ProfileError(f"expected --clock wall on {device.type}: processor time does not include its work")
    try:
        subjects = [subject(name, settings) for name in names]
    except ValueError as error:
        raise ProfileError(str(error)) from error
    rows: list[Row] = []
    for each in subjects:
        for length in each.lengths:
            torch.manual_seed(0)
            cases = [Case(each, form, length, settings) for form in each.forms]
            for work in (Case.step, Case.count_memory, *[Case.time] * settings.repeats):
                for case in cases:
                    case.run(work)
            rows += [case.row for case in cases]
    return rows


def find_device(name: str) -> torch.device:
    """Return a device that exists."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ProfileError("expected a CUDA device but this torch finds none: use --device cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, NotImplementedError) as error:
        raise ProfileError(f"expected a device such as cpu, cuda or cuda:1 but got {name!r}") from error


@torch.no_grad()
def probe(network: nn.Module, sample: Tensor) -> tuple[list[int], torch.Size]:
    """Return the number of tokens of each attention, and the shape of the output for one sample."""
    tokens: list[int] = []
    hooks = [
        attention.register_forward_pre_hook(lambda _, arguments: tokens.append(arguments[0].shape[1]))
        for attention in attentions(network)
    ]
    output = network.eval()(sample)
    for hook in hooks:
        hook.remove()
    return tokens, output.shape[1:]


def exponent(points: Sequence[int], costs: Sequence[float]) -> float:
    r"""Return p of the least squares fit :math:`\log\text{cost} = p\log n + c`."""
    if len(set(points)) < 2 or min(costs) <= 0:
        raise ValueError(f"expected positive costs at two or more lengths but got {list(costs)} at {list(points)}")
    slope, _ = np.polyfit([math.log(n) for n in points], [math.log(cost) for cost in costs], 1)
    return round(float(slope), 3)


COSTS: dict[str, Callable[[Row], float]] = {
    "forward": lambda row: statistics.median(row["forward_seconds"]),
    "backward": lambda row: statistics.median(row["backward_seconds"]),
    "memory": lambda row: float(row["peak_bytes"]),
}


def growth(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the exponents of every subject and form that was measured at two lengths or more, by cost."""

    def key(row: Row) -> tuple[str, str]:
        return row["subject"], row["form"]

    measured = sorted((row for row in rows if row["skipped"] is None), key=lambda row: (key(row), row["points"]))
    groups = {name: list(found) for name, found in groupby(measured, key=key)}
    return {
        name: {
            cost: exponent([row["points"] for row in found], [of(row) for row in found]) for cost, of in COSTS.items()
        }
        for name, found in groups.items()
        if found[0]["points"] < found[-1]["points"]
    }


#: The paper's claims: title, cost, form, baseline, and what its repository states.
CLAIMS = (
    ("memory, both as published", "memory", "fourier-explicit", "softmax-explicit", "33-40 % less"),
    ("memory, both in their best form", "memory", "fourier", "softmax", ""),
    ("memory, best form against published", "memory", "fourier", "softmax-explicit", ""),
    ("backward time", "backward", "galerkin", "linear", "20-100 % faster"),
)


def claims(rows: Sequence[Row], subject: str = "attention") -> list[Row]:
    """Return the finding of every claim at the largest length where both forms were measured.

    Times are compared round by round, since other load slows both alike.
    """
    found: list[Row] = []
    measured = {
        (row["form"], row["length"]): row for row in rows if row["skipped"] is None and row["subject"] == subject
    }
    for title, cost, form, baseline, published in CLAIMS:
        common = {n for name, n in measured if name == form} & {n for name, n in measured if name == baseline}
        if not common:
            continue
        first, second = (measured[name, max(common)] for name in (form, baseline))
        share = 1 - COSTS[cost](first) / COSTS[cost](second)
        if cost == "backward":
            rounds = zip(first["backward_seconds"], second["backward_seconds"], strict=True)
            share = statistics.median(slower / faster for faster, slower in rounds) - 1
        unit = "less" if cost == "memory" else "faster"
        found.append(
            {
                "title": title,
                "length": max(common),
                "form": form,
                "baseline": baseline,
                "costs": [COSTS[cost](first), COSTS[cost](second)],
                "found": round(share, 4),
                "unit": unit,
                "published": published,
            }
        )
    return found
