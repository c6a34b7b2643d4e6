"""Every operation of the clients, written once and without I/O: its arguments, its calls, what becomes of the replies.

The clients perform a method of `Operations`, with an event loop or without (`_flow`), and show its parameters and
documentation as their own. The wire formats (`_http`, `_grpc_wire`) make the calls. Rollouts are in
`_rollout_operations`, what HTTP alone has in `_http_operations`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from petrov_client._arrays import PredictionOutput, unwrapped
from petrov_client._errors import InvalidInput, RequestError, UnknownModel, Where
from petrov_client._exchange import exhausted
from petrov_client._flow import Progress
from petrov_client._inputs import check_input
from petrov_client._models import COTANGENTS, GRADIENTS, PER_FIELD, TANGENTS, ModelInfo, Models, checked_name
from petrov_client._quality import Options, Outside, Quality, warn
from petrov_client._rollout_operations import RolloutOperations
from petrov_client._schema import CELLS


def of_passed(array: Any, gradients: Mapping[str, Any], first: str) -> Any:
    """Return gradients by the names of what was passed, or that of the first input; there is none by cells."""
    if not isinstance(array, Mapping):
        return gradients[first]
    return {name: gradients[name] for name in array if name != CELLS or name in gradients}


class Operations(RolloutOperations):
    """The operations of all clients."""

    async def models(self) -> Models:
        """Return all models that are ready.

        Raises:
            PetrovError: Any but `InvalidInput`.
        """
        return Models([await self.model(name) for name in await self.perform(self.wire.names(), self.timeout)])

    async def model(self, name: str) -> ModelInfo:
        """Return one model: its versions, inputs, outputs and, over HTTP, its card.

        Raises:
            UnknownModel: No such model.
            PetrovError: Any other but `InvalidInput`.
        """
        self.known.pop((checked_name(name), None), None)  # it is described anew
        return await self._known(name, self._options(None))

    @overload
    async def predict(
        self,
        /,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: Literal[True],
        tolerance: float | None = None,
        outside: Outside = "answer",
        grid: int | Sequence[int] | None = None,
        **inputs: Any,
    ) -> tuple[Any, Quality]: ...

    @overload
    async def predict(
        self,
        /,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: bool = False,
        tolerance: float | None = None,
        outside: Outside = "answer",
        grid: int | Sequence[int] | None = None,
        **inputs: Any,
    ) -> Any: ...

    async def predict(
        self,
        /,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: bool = False,
        tolerance: float | None = None,
        outside: Outside = "answer",
        grid: int | Sequence[int] | None = None,
        **inputs: Any,
    ) -> Any:
        """Predict the outputs for single fields or for a batch of any size.

        The inputs are checked as a whole before anything is sent, then sent in pieces: one after another, or four at a
        time by an asynchronous client.

            pressure = petrov.predict("darcy", permeability)
            temperature = petrov.predict("heat", conductivity=k, source=f, wind=0.3)
            temperature = petrov.predict("heat", {"conductivity": k, "source": f, "wind": 0.3})
            pressure, known = petrov.predict("darcy", permeability, quality=True)

        Args:
            model: The model's name.
            array: Real numbers in physical units, one field `[…]` or a batch `[batch, …]`; anything that NumPy reads.
                Memory maps and HDF5 datasets are read a piece at a time. It is the model's only required input, else
                its first; or a mapping of inputs and parameters by name, for names that are arguments here, too.
            version: A version of the model; the newest if None.
            timeout: Seconds for each request, its repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (fields done, fields in all).
            quality: Whether to return what is known about the errors, too.
            tolerance: The largest error bound. A field with a larger one is computed again without corrections, then by
                the classical solver, and refused where neither meets it; None accepts any.
            outside: What happens to a field that is unlike the training data: "answer" predicts it like any other,
                "solve" lets the classical solver solve it, "refuse" raises `InvalidInput`.
            grid: Of a model whose inputs are numbers alone, the points of the outputs along every axis, or one number
                for all axes; by default those of the training.
            inputs: Inputs and parameters by name; what has a default may be left out. A vector field has its components
                before the grid's axes. A parameter is one number, or one per field of the batch.

        Returns:
            float32 in physical units, with the batch axis if the inputs have one; of a model with several outputs, a
            dictionary by name. With `quality`, these and a `Quality`.

        Raises:
            InvalidInput: The inputs do not fit the model or the choices; `.where` names the location.
            ValueError: The tolerance is no positive number, or `outside` none of its values.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        options = self._options(
            timeout,
            version=version,
            progress=progress,
            quality=quality,
            tolerance=tolerance,
            outside=outside,
            grid=grid,
        )
        checked = await self._checked(options, model, array, inputs)
        output = PredictionOutput(checked)
        await exhausted(self._pieces(checked, options, output.put))
        if output.doubtful and options.warns:
            warn(model)
        return (output.array(), output.quality()) if quality else output.array()

    async def stream(
        self,
        /,
        model: str,
        array: Any = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        tolerance: float | None = None,
        outside: Outside = "answer",
        **inputs: Any,
    ) -> AsyncGenerator[Any]:
        """Predict as `predict` does, and yield the outputs as they arrive, so that memory holds one piece of the batch.

        The arguments are those of `predict`; a memory map or an HDF5 dataset stays on disk. The inputs are checked as a
        whole before this returns; a piece is sent when the iterator is advanced. An asynchronous client does both
        then, and has at most four pieces in flight or waiting to be consumed: use `async with contextlib.aclosing(…)`
        where the loop may end early.

        Returns:
            Batches `[fields, …]` of consecutive outputs, in order; together they are what `predict` returns.

        Raises:
            InvalidInput: The inputs do not fit the model; `.where` names the location.
            PetrovError: Any other of the tree in `petrov_client._errors`, here or from the iterator.
        """
        options = self._options(timeout, version=version, progress=progress, tolerance=tolerance, outside=outside)
        checked = await self._checked(options, model, array, inputs)
        output = PredictionOutput(checked)
        return self._pieces(
            checked, options, lambda piece, response: output.checked(piece, response, warned=options.warns)
        )

    async def vjp(
        self,
        model: str,
        array: Any,
        cotangents: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
    ) -> tuple[Any, Any]:
        """Return the outputs, and the gradients of their inner product with cotangents.

            pressure, gradient = petrov.vjp("darcy", permeability, pressure - measured)
            temperature, gradients = petrov.vjp("heat", {"conductivity": k, "wind": 0.3}, 2 * residual)

        The cotangents, by output and in its shape, are the gradient of a loss by the outputs: an array, or a mapping by
        name where there are several outputs; one that is left out is 0. The other arguments are those of `predict`,
        with the inputs as an array, or as a mapping of inputs and parameters by name.

        Returns:
            The outputs as `predict` returns them, and the gradients: an array for inputs without names, else by the
            names of what was passed. The gradient by a parameter is one number per field.

        Raises:
            RequestError: The model has no derivatives.
            PetrovError: As `predict`.
        """
        options = self._options(timeout, version=version, progress=progress)
        first, outputs, gradients = await self._derivative("vjp", options, model, array, cotangents)
        return outputs, of_passed(array, gradients, first)

    async def jvp(
        self,
        model: str,
        array: Any,
        tangents: Any,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        frames: int | None = None,
    ) -> tuple[Any, Any]:
        """Return the outputs, and their derivatives along tangents.

            pressure, tangent = petrov.jvp("darcy", permeability, direction)

        The tangents, by input and in its shape, are an array, or a mapping of inputs and parameters by name; one that
        is left out is 0. `frames` of a trajectory are at most 16, by default those of a training trajectory. The other
        arguments are those of `vjp`.

        Returns:
            The outputs, and their tangents, each as `predict` returns outputs.

        Raises:
            RequestError: The model has no derivatives.
            PetrovError: As `predict`.
        """
        options = self._options(timeout, version=version, progress=progress, frames=frames)
        _, outputs, along = await self._derivative("jvp", options, model, array, tangents)
        return outputs, unwrapped(along)

    async def _derivative(
        self, kind: Literal["vjp", "jvp"], options: Options, model: str, array: Any, vectors: Any
    ) -> tuple[str, Any, dict[str, Any]]:
        """Return the name of the first input, the outputs, and by name the model's Jacobian times vectors.

        A service has each product as a model of its own, `darcy_vjp` and `darcy_jvp`. It takes the model's inputs and
        `cotangents.solution` or `tangents.coefficient`, and returns its outputs and `gradients.coefficient` or
        `tangents.solution`.
        """
        passed, returned = (COTANGENTS, GRADIENTS) if kind == "vjp" else (TANGENTS, TANGENTS)
        with self._forgetting():
            info = await self._known(model, options)
            arguments = dict(array) if isinstance(array, Mapping) else {info.first_name: array}
            if not isinstance(vectors, Mapping):
                if kind == "vjp" and len(info.outputs) > 1:
                    names = ", ".join(tensor.name for tensor in info.outputs)
                    fault = f"expected cotangents by name, of {names}, but got one array"
                    raise InvalidInput(fault, where=Where("cotangents"))
                vectors = {info.first_name if kind == "jvp" else info.outputs[0].name: vectors}
            if not vectors:
                raise InvalidInput(f"expected {passed[:-1]} but got none", where=Where(passed[:-1]))
            arguments |= {f"{passed}{name}": vector for name, vector in vectors.items()}
            try:
                product = await self._known(f"{model}_{kind}", options)
            except UnknownModel:
                raise RequestError(f'"{model}" has no {kind}: it was exported without derivatives') from None
            checked = await self.driver.work(lambda: check_input(product, arguments))
        output = PredictionOutput(checked)
        await exhausted(self._pieces(checked, options, output.put))
        found = output.array()
        for tensor in product.outputs:
            if tensor.axes == PER_FIELD and tensor.name in found:  # the gradient by a parameter
                found[tensor.name] = np.reshape(found[tensor.name], () if checked.single else (-1,))
        outputs = unwrapped({tensor.name: found[tensor.name] for tensor in info.outputs})
        products = {name.removeprefix(returned): each for name, each in found.items() if name.startswith(returned)}
        return info.first_name, outputs, products
