"""The measurement of a profile: a row per form and length.

At each length the forms are interleaved, one step each per round, so that other load on the machine slows them alike:
ratios count. Before the rounds, each form takes one step without a clock, and one whose memory is counted.

`torch.utils.benchmark.Timer` is not used: it repeats every statement twice as a warm-up before each measurement, so an
interleaved profile takes three times as long, and a backward pass has to keep its graph, which changes the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from benchmarks.profiling.forms import attention_type, attentions, compute_as, forms_pairs, pair_bytes
from benchmarks.profiling.memory import peak_bytes
from benchmarks.profiling.rows import Clock, Row, Settings
from benchmarks.profiling.subjects import Subject, subject
from training.user_error import UserError

WARM_UP, MEMORY = 1, 1  # steps before the rounds


class ProfileError(UserError):
    """The profile cannot be measured; the message says why, and what to change."""


@dataclass
class Case:
    """One form at one length, ready to run, and its measurements so far."""

    subject: Subject
    form: str
    length: int
    network: nn.Module
    inputs: Tensor
    target: Tensor
    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    skipped: str | None = None

    @property
    def row(self) -> Row:
        """The row of the measurements, without figures if a step failed."""
        failed = self.skipped is not None
        return Row(
            subject=self.subject.name,
            form=self.form,
            batch=self.subject.batch,
            length=self.length,
            points=self.subject.points(self.length),
            forward_seconds=() if failed else tuple(self.forward),
            backward_seconds=() if failed else tuple(self.backward),
            peak_bytes=0 if failed else self.peak_bytes,
            skipped=self.skipped,
        )


def measure(names: list[str], settings: Settings, *, progress: bool = True) -> list[Row]:
    """Return the rows of subjects, by their names.

    Args:
        names: `attention`, `encoder`, or recipes.
        settings: The settings of all rows.
        progress: Whether to show a bar.

    Raises:
        ProfileError: The device or a type does not exist, or a network cannot be built with these settings.
        RecipeError: There is no such recipe.
    """
    device = find_device(settings.device)
    if device.type != "cpu" and settings.clock == "processor":
        raise ProfileError(f"expected --clock wall on {device.type}: processor time does not include its work")
    try:
        subjects = [subject(name, settings) for name in names]
    except ValueError as error:
        raise ProfileError(str(error)) from error
    steps = sum(len(each.forms) * len(each.lengths) for each in subjects) * (settings.repeats + WARM_UP + MEMORY)
    with tqdm(total=steps, desc="profile", unit="step", disable=not progress) as bar:
        return [
            row
            for each in subjects
            for length in each.lengths
            for row in rows(each, length, device, settings, lambda text: advance(bar, text))
        ]


def advance(bar: tqdm[Any], text: str) -> None:
    """Advance the bar by one step, and show its name."""
    bar.set_postfix_str(text, refresh=False)
    bar.update()


def find_device(name: str) -> torch.device:
    """Return a device that exists.

    Raises:
        ProfileError: It does not.
    """
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ProfileError("expected a CUDA device but this torch finds none: use --device cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, NotImplementedError) as error:
        raise ProfileError(f"expected a device such as cpu, cuda or cuda:1 but got {name!r}") from error


def rows(
    subject: Subject, length: int, device: torch.device, settings: Settings, tick: Callable[[str], None]
) -> list[Row]:
    """Return the rows of all forms at one length, interleaved.

    Args:
        subject: The subject.
        length: Points per axis.
        device: The device.
        settings: The settings of all rows.
        tick: Called with the name of each step.
    """
    torch.manual_seed(0)
    cases = [prepare(subject, form, length, device, settings.limit_gb) for form in subject.forms]
    works: list[Callable[[Case], None]] = [
        step,
        count_memory,
        *[partial(clock, kind=settings.clock)] * settings.repeats,
    ]
    for work in works:
        for case in cases:
            tick(f"{subject.name} {case.form} {length}")
            run(work, case)
    return [case.row for case in cases]


def prepare(subject: Subject, form: str, length: int, device: torch.device, limit_gb: float) -> Case:
    """Return a form with its input and target, marked as skipped if its n x n matrices exceed the limit.

    Args:
        subject: The subject.
        form: The form of the attention.
        length: Points per axis.
        device: The device.
        limit_gb: The limit of the n x n matrices in GB.

    Raises:
        ProfileError: The network cannot be built, or does not accept the input.
    """
    inputs = subject.inputs(length).to(device)
    try:
        network = subject.make(attention_type(form)).to(device)
        tokens, output = probe(network, inputs[:1])
    except ValueError as error:
        raise ProfileError(f"{subject.name}, {form}, length {length}: {error}") from error
    target = torch.rand(subject.batch, *output.shape[1:], device=device)
    compute_as(form, network.train())
    case = Case(subject, form, length, network, inputs.requires_grad_(subject.differentiate), target)
    if forms_pairs(form, network) and (needed := pair_bytes(network, tokens, subject.batch)) > limit_gb * 1e9:
        case.skipped = f"its n x n matrices would take {needed / 1e9:.1f} GB, more than the limit of {limit_gb:g} GB"
    return case


@torch.no_grad()
def probe(network: nn.Module, sample: Tensor) -> tuple[list[int], Tensor]:
    """Return the number of tokens of each attention, and the output for one sample."""
    tokens: list[int] = []
    hooks = [
        attention.register_forward_pre_hook(lambda _, arguments: tokens.append(arguments[0].shape[1]))
        for attention in attentions(network)
    ]
    output = network.eval()(sample)
    for hook in hooks:
        hook.remove()
    return tokens, output


def run(work: Callable[[Case], None], case: Case) -> None:
    """Do one piece of work, unless the case is skipped; skip it if memory runs out."""
    if case.skipped is not None:
        return
    try:
        work(case)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        case.skipped = "ran out of memory"
        clear(case)


def out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error means that memory ran out; the CPU's allocator has no exception of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def clear(case: Case) -> None:
    """Clear the gradients of the previous step."""
    case.network.zero_grad(set_to_none=True)
    case.inputs.grad = None


def loss(case: Case) -> Tensor:
    """Return the loss of the forward pass."""
    return functional.mse_loss(case.network(case.inputs), case.target)


def step(case: Case) -> None:
    """Take one whole step."""
    clear(case)
    loss(case).backward()


def count_memory(case: Case) -> None:
    """Count the memory of one step, new gradients included."""
    clear(case)
    case.peak_bytes = peak_bytes(lambda: loss(case).backward(), case.inputs.device)


def clock(case: Case, kind: Clock) -> None:
    """Append the times of one step, forward and backward."""
    clear(case)
    started = now(case.inputs.device, kind)
    error = loss(case)
    between = now(case.inputs.device, kind)
    error.backward()
    case.forward.append(between - started)
    case.backward.append(now(case.inputs.device, kind) - between)


def now(device: torch.device, kind: Clock) -> float:
    """Return the clock in seconds after all work so far is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.process_time() if kind == "processor" else time.perf_counter()
