"""Takes an operator in physical units, or a classifier of tokens, gives a module that can be traced.

Normalisation and the boundary factor live inside the operator, so nothing is left for the server to do; the module's
one argument has the wire's name.
"""

from __future__ import annotations

import copy
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jaxtyping
import torch
from torch import Tensor, nn

from training.nn.attention import GalerkinAttention
from training.nn.resampling import Downscaler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from export.signature import Signature


#: What the types on the wire are to torch.
DTYPES = {"FP32": torch.float32, "INT32": torch.int32}

VECTOR = 16  # float32 channels that the widest vector registers hold together


class Deployable(nn.Module):
    """An operator in evaluation mode, without gradients, on the processor.

    Args:
        operator: maps a field `[batch, *grid]` in physical units to another, or tokens `[batch, token]` to scores. It
            is copied and prepared for inference: channels are padded to whole vectors, keys and values are centred.
        argument: the input's name on the wire; Triton's PyTorch backend finds inputs by forward's argument names.
        dtype: float32 as deployed, or float64 to judge rounding.
    """

    def __init__(self, operator: nn.Module, argument: str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.operator = copy.deepcopy(operator).to("cpu", dtype).requires_grad_(requires_grad=False)
        for module in self.operator.modules():
            if isinstance(module, Downscaler):
                module.pad_chain(VECTOR)
            if isinstance(module, GalerkinAttention):
                module.prepare_inference()
        self.forward = renamed(self.operator, argument)
        self.eval()


def renamed(call: Callable[[Tensor], Tensor], argument: str) -> Callable[[Tensor], Tensor]:
    """Give a function whose signature names its one argument `argument`."""

    def forward(asked: Tensor) -> Tensor:
        return call(asked)

    parameter = inspect.Parameter(argument, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(forward)["__signature__"] = inspect.Signature([parameter])
    return forward


def example(signature: Signature) -> Tensor:
    """Give the batch a graph is traced with: two of an unequal, small grid. Comparisons never use this shape."""
    sides = (signature.grid.minimum + step for step in range(3, 3 + 2 * len(signature.grid.axes), 2))
    return torch.ones(2, *sides, dtype=DTYPES[signature.input.dtype])


@contextmanager
def shape_checks_off() -> Iterator[None]:
    """Suspend jaxtyping's checks of shapes: they branch on the values of shapes, which a trace would freeze."""
    config: Any = jaxtyping.config
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)  # noqa: FBT003 - jaxtyping's own signature
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)
