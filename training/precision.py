"""The precision of products of matrices: float32, or less where a recipe asks for it by name.

`tf32` keeps 10 bits of every factor and `bfloat16` 7, of the 23 of float32. Less is for the network's own products
while it is trained, on a GPU several times as fast; `bfloat16` on processors as well. Losses, errors, calibrations and
exports are of float32.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

Precision = Literal["float32", "tf32", "bfloat16"]
FLOAT32: Precision = "float32"
BITS: dict[Precision, int] = {"float32": 23, "tf32": 10, "bfloat16": 7}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution"}


def exact(*, tf32: bool = False) -> None:
    """Have a GPU multiply in float32, or in TF32; PyTorch's default is TF32 in convolutions."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


def train_in(network: nn.Module, precision: Precision) -> None:
    """Have a network compute its products in a precision while it is trained; its outputs are of float32."""
    exact()
    if precision != FLOAT32:
        network.register_forward_pre_hook(_Enter(precision))
        network.register_forward_hook(_Leave(), always_call=True)


class _Enter:
    """Begin a forward pass in less than float32, of a network that is trained."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision

    def __call__(self, network: nn.Module, _: Any) -> None:
        if not network.training:
            return
        exact(tf32=self.precision == "tf32")
        if self.precision == "bfloat16":
            kinds = {tensor.device.type for tensor in network.parameters()}
            rough = torch.autocast(next(iter(kinds), "cpu"), torch.bfloat16)
            rough.__enter__()
            network.rough = [*getattr(network, "rough", ()), rough]  # type: ignore[assignment]


class _Leave:
    """End it."""

    def __call__(self, network: nn.Module, _: Any, outputs: Any) -> Any:
        exact()
        if open_ := getattr(network, "rough", None):
            open_.pop().__exit__(None, None, None)
        return tree_map(_single, outputs)


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value


# What less than float32 would change


class Rounded(TorchDispatchMode):
    """Round the factors of every product to a precision, as a GPU does: a context for any device.

    Example:
        >>> x = torch.tensor([[1 + 2.0**-9]])
        >>> with torch.no_grad(), Rounded("bfloat16"):
        ...     (x @ x).item()
        1.0
    """

    def __init__(self, precision: Precision) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self.bits = BITS[precision]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func.overloadpacket.__name__ in _PRODUCTS:
            first = 1 if func.overloadpacket.__name__ in {"addmm", "baddbmm"} else 0  # what is added is no factor
            factors = [rounded(each, self.bits) for each in args[first : first + 2]]
            args = (*args[:first], *factors, *args[first + 2 :])
        return func(*args, **(kwargs or {}))


def rounded(values: Tensor, bits: int) -> Tensor:
    """Return float32 values with so many bits behind the first, to the nearest."""
    if values.dtype != torch.float32:
        return values
    dropped = 23 - bits
    whole = values.contiguous().view(torch.int32)
    nearest = (whole + (1 << (dropped - 1))) & -(1 << dropped) if dropped else whole
    return nearest.view(torch.float32)
