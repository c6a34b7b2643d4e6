"""A model of a service as a differentiable function of torch tensors. Needs the extra `[torch]`.

import petrov_client
from petrov_client.torch import Operator

darcy = Operator(petrov_client.Client(), "darcy")
loss = (darcy(permeability) - measured).square().sum()
loss.backward()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from petrov_client._client import SyncPredictor
from petrov_client._errors import InvalidInput, Where
from petrov_client._operator import BatchedOperator, second_derivative

Array = npt.NDArray[Any]
Names = tuple[str, ...]
NO_VALUES = (
    "a model of a service needs the values of its inputs, so it cannot be traced or exported, nor vectorised by "
    "torch.autograd.functional; torch.func.vmap, jacrev and jacfwd vectorise it"
)


class Operator(torch.nn.Module):
    """A model as a module without weights.

    Gradients are computed by the service, so the graph of a loss may hold any torch operations before and after. There
    are first derivatives, in reverse mode and in forward mode. Under `torch.func.vmap`, `jacrev` and `jacfwd` a whole
    batch is one request. `torch.compile` calls the module between two graphs; it can be pickled, and be in workers of a
    `DataLoader`.

    Args:
        client: A synchronous client, over HTTP or gRPC.
        model: The model's name.
        version: A version of the model; the newest if None.
        frames: Frames of a trajectory, at most 16; 16 if None.
    """

    def __init__(
        self, client: SyncPredictor, model: str, version: int | None = None, frames: int | None = None
    ) -> None:
        super().__init__()
        self._operator = BatchedOperator(client, model, version, frames)

    def forward(self, *inputs: Tensor | float, **named: Tensor | float) -> Any:
        """Return the outputs for fields `[…]` with any number of batch axes in front.

        Args:
            inputs: Inputs, then parameters, in the model's order. A parameter is one number, or one per field; one with
                components has them last, and one that changes in time has a number for all frames or for each.
            named: The same by name.

        Returns:
            A tensor, or a dictionary by name of several outputs, of the type and device of the first tensor of
            floating-point numbers that is passed; float32 where there is none.

        Raises:
            InvalidInput: The arguments do not fit the model, or are no tensors whose values are there.
            RequestError: A derivative of second order is computed.
        """
        if torch.compiler.is_compiling():  # a decorator would import the compiler, which takes a second
            return torch.compiler.disable(self._call)(inputs, named)
        return self._call(inputs, named)

    def _call(self, inputs: tuple[Tensor | float, ...], named: dict[str, Tensor | float]) -> Any:
        names = self._operator.names(len(inputs), tuple(named))
        passed = dict(zip(names, (*inputs, *named.values()), strict=True))
        tensors = {name: each for name, each in passed.items() if isinstance(each, Tensor)}
        device = next((each.device for each in tensors.values()), None)
        for name, each in passed.items():  # numbers come last: they say neither the type nor the device of outputs
            if isinstance(each, Real):
                tensors[name] = torch.tensor(float(each), dtype=torch.float32, device=device)
            elif name not in tensors:
                raise InvalidInput(f"{name}: expected a tensor but got {type(each).__name__}", where=Where(name))
            elif (tensor := tensors[name]).is_complex() or tensor.layout != torch.strided:
                found = tensor.dtype if tensor.is_complex() else f"{tensor.layout}, of which .to_dense() makes one"
                message = f"{name}: expected a dense tensor of real numbers but got {found}"
                raise InvalidInput(message, where=Where(name))
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            raise InvalidInput(NO_VALUES)
        tensors = {name: each.expand(self._operator.repeated(name, each.shape)) for name, each in tensors.items()}
        found = Call.apply(self._operator, tuple(tensors), *tensors.values())  # type: ignore[no-untyped-call]
        outputs = [tensor.name for tensor in self._operator.info.outputs]
        return found[0] if len(outputs) == 1 else dict(zip(outputs, found, strict=True))

    def extra_repr(self) -> str:
        return f"model={self._operator.model!r}, version={self._operator.version}"


class Call(torch.autograd.Function):
    """One call of a model. Tensors follow the operator and their names; the result is a tuple of outputs."""

    @staticmethod
    def forward(operator: BatchedOperator, names: Names, *inputs: Tensor) -> tuple[Tensor, ...]:
        return hosted(partial(operator.predict, names), inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        del output
        ctx.operator, ctx.names, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:
        inputs = ctx.saved_tensors
        call = partial(ctx.operator.vjp, ctx.names)
        found = Host.apply(call, *inputs, *cotangents)  # type: ignore[no-untyped-call]
        gradients = (g.to(x) if x.is_floating_point() else None for g, x in zip(found, inputs, strict=True))
        return (None, None, *gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        inputs, given = ctx.saved_tensors, [tangent for tangent in tangents[2:] if tangent is not None]
        moving = tuple(name for name, t in zip(ctx.names, tangents[2:], strict=True) if t is not None)
        call = partial(ctx.operator.jvp, ctx.names, moving)
        found: tuple[Tensor, ...] = Host.apply(call, *inputs, *given)  # type: ignore[no-untyped-call]
        return found

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], operator: Any, names: Any, *inputs: Tensor) -> Any:
        found = Call.apply(operator, names, *in_front(info, in_dims[2:], inputs))  # type: ignore[no-untyped-call]
        return found, tuple(0 for _ in found)


class Host(torch.autograd.Function):
    """A function of arrays, called with tensors. As a function of its own it sees the values beneath transforms.

    It is the first derivative of a model, which a service does not differentiate.
    """

    backward = jvp = staticmethod(second_derivative)  # type: ignore[assignment]  # it takes anything

    @staticmethod
    def forward(call: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        return hosted(call, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], call: Any, *tensors: Tensor) -> Any:
        found = Host.apply(call, *in_front(info, in_dims[1:], tensors))  # type: ignore[no-untyped-call]
        return found, tuple(0 for _ in found)


def in_front(info: Any, in_dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors with the axis of a vectorised call in front."""
    return [
        tensor.unsqueeze(0).expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
        for tensor, axis in zip(tensors, in_dims, strict=True)
    ]


def hosted(call: Callable[[list[Array]], list[Array]], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Call a function of arrays; its results have the type and device of the first tensor of floating-point numbers.

    Where there is none they are float32, on the device of the first tensor: a cast to integers would drop the digits.
    """
    try:
        arrays = [np.asarray(tensor.detach().to("cpu", torch.float32).resolve_neg().numpy()) for tensor in tensors]
    except RuntimeError as error:
        raise InvalidInput(f"{NO_VALUES}: {error}") from error
    results = call(arrays)
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), tensors[0])
    dtype = like.dtype if like.is_floating_point() else torch.float32
    return tuple(torch.from_numpy(np.array(found)).to(like.device, dtype) for found in results)
