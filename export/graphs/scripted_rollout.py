"""A rollout in TorchScript: a scripted loop around the trace of one step, so that the number of frames stays free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from export.graphs.deployable import argument_shapes, renamed
from export.layout import FRAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from export.graphs.deployable import Deployable
    from export.signature import Signature


class Listed(nn.Module):
    """A step that takes its arguments as one list, and returns the next states as one.

    Args:
        step: The step.
    """

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        return list(self.step(*inputs))


class Loop(nn.Module):
    """Repeat a step as often as a tensor has columns. The module is scripted.

    Args:
        step: The trace of a `Listed` step.
        states: The arguments that are states, in the order of the outputs.
        several: Whether a state has several frames, the last of which follows.
    """

    def __init__(self, step: nn.Module, states: Sequence[int], *, several: bool) -> None:
        super().__init__()
        self.step, self.states, self.several = step, list(states), several

    def forward(self, inputs: list[Tensor], frame: Tensor) -> list[Tensor]:
        current = list(inputs)
        made: list[list[Tensor]] = [[] for _ in self.states]
        for _ in range(frame.shape[1]):
            following: list[Tensor] = self.step(current)
            for index, state in enumerate(self.states):
                current[state] = following[index]
                made[index].append(following[index][:, -1] if self.several else following[index])
        return [torch.stack(frames, dim=1) for frames in made]


class ScriptedRollout(nn.Module):
    """A rollout that can be traced for any number of frames.

    Args:
        module: The trajectory model.
        signature: Its signature.
    """

    def __init__(self, module: Deployable, signature: Signature) -> None:
        super().__init__()
        names = tuple(name for name in signature.argument_names if name != FRAME)
        states = [names.index(name) for name in (signature.frames.states if signature.frames else ())]
        several = signature.frames is not None and signature.frames.history > 1
        step = torch.jit.trace(Listed(module.step(names)), (inputs_of(signature),), check_trace=False, strict=False)
        self.loop: Any = torch.jit.script(Loop(step, states, several=several))
        self.judgement = module.judgement(names) if signature.quality else None
        self.forward = renamed(self.rolled, signature.argument_names)
        self.eval()

    def rolled(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Return the trajectories, then the quality outputs."""
        *inputs, frame = arguments
        judged = () if self.judgement is None else self.judgement(*inputs)
        return (*self.loop(inputs, frame), *judged)


def inputs_of(signature: Signature) -> list[Tensor]:
    """Return the arguments that a step is traced with: three samples on a small, unequal grid."""
    sides = (signature.grid.minimum + step for step in range(4, 4 + 3 * len(signature.grid.axes), 3))
    return [torch.ones(shape) for shape, dtype in argument_shapes(signature, (3, *sides)) if dtype == "FP32"]
