r"""How a network takes its steps: the optimiser Muon, and the precision of products of matrices.

Muon is a descent whose steps along matrices are orthogonal. The momentum of a matrix, with the singular value
decomposition :math:`U\Sigma V^T`, is replaced by about :math:`UV^T`: a step changes all directions by the same amount,
also those along which gradients are small. Source: Jordan and others, "Muon: An optimizer for hidden layers in neural
networks" (2024), with the size of a step of Liu and others, "Muon is scalable for LLM training" (2025), so that
learning rates are about those of AdamW. The authors leave embeddings, the first and the last map of a network to AdamW;
here they are matrices like the others.

`torch.optim.Muon` takes parameters of two dimensions alone, one by one and in half precision. Here a layer has a matrix
for each of its waves, and small ones, which are multiplied together.

Products are of float32, or of less where a recipe asks for it by name: `tf32` keeps 10 bits of every factor and
`bfloat16` 7, of the 23 of float32. Less is for the network's own products while it is trained, on a GPU several times
as fast; `bfloat16` on processors as well. Losses, errors, calibrations and exports are of float32.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.adamw import adamw
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from training.messages import lookup

COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
MOMENTUM, BETA1, BETA2, EPSILON = 0.95, 0.9, 0.999, 1e-8
SIZE = 0.2  # root mean square of the entries of a step over the rate, about that of AdamW
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Muon(torch.optim.Optimizer):
    """Orthogonal steps for the matrices of a network, and those of AdamW for its vectors.

    A kernel `[output, input, *side]` of a convolution is one matrix, `[output, input * sides]`. Another parameter of
    more than two dimensions has a matrix `[rows, others]` for each of its first index, as that of each wave of a
    spectral layer. Matrices of one row or column are vectors, and so are complex tensors of other projects' networks.

    Args:
        network: What is trained.
        lr: Learning rate.
        weight_decay: Share of each parameter that a step takes off, over the rate.

    Raises:
        TypeError: `network` is none, such as a list of parameters, which would not say which of them are kernels.
        ValueError: A rate is negative.
    """

    def __init__(self, network: nn.Module, lr: float, weight_decay: float = 0.0) -> None:
        if not isinstance(network, nn.Module):
            raise TypeError(f"Muon: expected a network but got {type(network).__name__}")
        if lr < 0 or weight_decay < 0:
            raise ValueError(f"Muon: expected no negative rate but got lr={lr} and weight_decay={weight_decay}")
        super().__init__(network.parameters(), {"lr": lr, "momentum": MOMENTUM, "weight_decay": weight_decay})
        kernels = {each.weight for each in network.modules() if isinstance(each, CONVOLUTIONS)}
        self.shapes: dict[Tensor, tuple[int, int, int]] = {
            each: as_matrices(each, kernel=each in kernels) for each in network.parameters()
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs: of torch's optimisers only the parameters, their state and the defaults."""
        return super().__getstate__() | {"shapes": self.shapes}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add the parameters of the network, once; others have no known shape.

        Raises:
            ValueError: The optimiser has its parameters already.
        """
        if self.param_groups:
            raise ValueError("Muon: expected the parameters of one network; make another optimiser for others")
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a saved state, numbers of steps on the devices of their parameters: torch and Lightning move the rest.

        On a GPU the fused step reads them there.
        """
        super().load_state_dict(state_dict)
        for parameter, state in self.state.items():
            if "step" in state:
                state["step"] = state["step"].to(parameter.device)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step, and return what `closure` does, which computes loss and gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike = defaultdict(list)  # parameters by the rows and columns of their matrices
            for each in group["params"]:
                if each.grad is not None:
                    alike[self.shapes[each][1:]].append(each)
            vectors = [each for shape in [*alike] if 1 in shape for each in alike.pop(shape)]
            for parameters in alike.values():
                self.step_matrices(parameters, group)
            self.step_vectors(vectors, group)
        return loss

    def step_matrices(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Make a step along matrices of the same shape."""
        rate, shapes = group["lr"], [self.shapes[each] for each in parameters]
        gradients = [cast("Tensor", each.grad) for each in parameters]
        for each in parameters:
            if not self.state[each]:
                self.state[each] = {"momentum": torch.zeros_like(each)}
        momenta = [self.state[each]["momentum"] for each in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = [each.lerp(mean, group["momentum"]) for each, mean in zip(gradients, momenta, strict=True)]
        stacked = torch.cat([each.reshape(shape) for each, shape in zip(ahead, shapes, strict=True)])
        steps = orthogonal(stacked).split([number for number, *_ in shapes])
        size = SIZE * max(stacked.shape[1:]) ** 0.5
        torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        shaped = [each.reshape(one.shape) for each, one in zip(steps, parameters, strict=True)]
        torch._foreach_add_(parameters, shaped, alpha=-rate * size)

    def step_vectors(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Make a step of AdamW."""
        for each in parameters:
            if not self.state[each]:
                zeros = {name: torch.zeros_like(as_real(each)) for name in ("mean", "square")}
                self.state[each] = {"step": torch.zeros((), device=each.device), **zeros}
        mean, square, step = ([self.state[each][name] for each in parameters] for name in ("mean", "square", "step"))
        adamw(
            [as_real(each) for each in parameters],
            [as_real(cast("Tensor", each.grad)) for each in parameters],
            mean,
            square,
            [],
            step,
            fused=True,
            amsgrad=False,
            beta1=BETA1,
            beta2=BETA2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=EPSILON,
            maximize=False,
        )


def as_matrices(parameter: Tensor, *, kernel: bool) -> tuple[int, int, int]:
    """Return how many matrices a parameter is, and their rows and columns; a vector is one row.

    Example:
        >>> as_matrices(torch.ones(8, 4, 3, 3), kernel=True), as_matrices(torch.ones(50, 8, 16), kernel=False)
        ((1, 8, 36), (50, 8, 16))
    """
    if parameter.ndim < 2 or parameter.is_complex():
        return 1, 1, parameter.numel()
    first, *others = parameter.shape
    if kernel or parameter.ndim == 2:
        return 1, first, math.prod(others)
    return first, others[0], math.prod(others[1:])


def as_real(tensor: Tensor) -> Tensor:
    """Return a tensor, with real and imaginary parts along a last axis if it is complex."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def orthogonal(stack: Tensor) -> Tensor:
    r"""Return about :math:`UV^T` of matrices :math:`U\Sigma V^T`, `[number, rows, columns]`.

    The singular values are between 0.6 and 1.3 after five Newton-Schulz iterations, whose coefficients let small ones
    grow fast; those below about a thousandth of the matrix's norm stay smaller.
    """
    a, b, c = COEFFICIENTS
    wide = stack.shape[1] <= stack.shape[2]
    x = stack if wide else stack.mT
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + EPSILON)
    identity, gram = torch.eye(x.shape[1], dtype=x.dtype, device=x.device), x @ x.mT
    product = identity.expand_as(gram)
    for _ in range(ITERATIONS):  # x <- (a + b x x^T + c (x x^T)^2) x, where only the products of rows are needed
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c) + a * identity
        product, gram = factor @ product, factor @ gram @ factor
    x = product @ x
    return x if wide else x.mT


def build_optimiser(network: nn.Module, fit: Any, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    """Return the optimiser of a recipe's section `fit`, and the schedule whose rate rises and falls once, by cosine."""
    total = max(3, steps)  # a step up, and one down
    rate, decay = fit.learning_rate, fit.weight_decay
    optimiser: torch.optim.Optimizer
    if fit.optimiser == "muon":
        optimiser = Muon(network, lr=rate, weight_decay=decay)
    else:
        optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=decay, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=rate,
        total_steps=total,
        pct_start=max(fit.warmup, 2 / total),  # torch divides by zero where it rises or falls in one step
        div_factor=fit.div_factor,
        final_div_factor=fit.final_div_factor,
        cycle_momentum=fit.cycle_momentum,
    )
    return optimiser, schedule


# Precision


Precision = Literal["float32", "tf32", "bfloat16"]
FLOAT32: Precision = "float32"
BITS: dict[str, int] = {"float32": 23, "tf32": 10, "bfloat16": 7}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution"}


def exact(*, tf32: bool = False) -> None:
    """Have a GPU multiply in float32, or in TF32; PyTorch's default is TF32 in convolutions."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32


def train_in(network: nn.Module, precision: Precision) -> None:
    """Have a network compute its products in a precision while it is trained; its outputs are of float32.

    Raises:
        UnknownNameError: There is no such precision.
    """
    lookup(BITS, precision, "precision")
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

    Softmax attention is taken apart into its products inside of it, which a fused kernel would keep in float32.

    Example:
        >>> x = torch.tensor([[1 + 2.0**-9]])
        >>> with torch.no_grad(), Rounded("bfloat16"):
        ...     (x @ x).item()
        1.0
    """

    def __init__(self, precision: Precision) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self.bits, self._apart = lookup(BITS, precision, "precision"), ExitStack()

    def __enter__(self) -> Any:
        self._apart.enter_context(sdpa_kernel(SDPBackend.MATH))
        return super().__enter__()  # type: ignore[no-untyped-call]  # of torch

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # of torch
        self._apart.close()

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
