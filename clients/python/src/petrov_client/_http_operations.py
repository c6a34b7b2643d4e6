"""The operations that the gateway has over HTTP alone: test samples, classical solutions and inversions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from petrov_client import _inversion as inversion
from petrov_client._arrays import PredictionOutput
from petrov_client._errors import PetrovError
from petrov_client._exchange import exhausted
from petrov_client._flow import Progress, reporting
from petrov_client._inversion import Inversion
from petrov_client._models import Example, checked_name
from petrov_client._operations import Operations

if TYPE_CHECKING:
    from petrov_client._http import HttpWire


@dataclass
class HttpOperations(Operations):
    """The operations of the clients over HTTP."""

    wire: HttpWire

    async def example(
        self,
        model: str,
        index: int | None = None,
        *,
        seed: int | None = None,
        grid: int | None = None,
        timeout: float | None = None,
    ) -> Example:
        """Return a sample that `predict` takes: a stored test sample with its truth, or a new one.

        Without `index`, `seed` and `grid` it is a new sample if the problem has a sampler, else the first stored one.

            sample = petrov.example("heat", 0)
            error = petrov.predict("heat", sample.inputs) - sample.outputs["temperature"]

        Args:
            model: The model's name.
            index: The number of a stored test sample, from 0.
            seed: A new sample of the training distribution; the same seed is the same field on every grid.
            grid: Points per axis of a new sample; the first declared size if None.
            timeout: Seconds for the request, its repetitions included; the client's if None.

        Raises:
            ValueError: A stored sample and a new one are requested at once.
            RequestError: The model has neither stored samples nor a sampler.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        if index is not None and (seed is not None or grid is not None):
            raise ValueError("expected the index of a stored sample, or seed and grid of a new one, but got both")
        query = {name: each for name, each in (("index", index), ("seed", seed), ("grid", grid)) if each is not None}
        call = self.wire.example(checked_name(model), query)
        return await self.perform(call, self._options(timeout).timeout)

    async def reference(
        self,
        /,
        model: str,
        array: Any = None,
        timeout: float | None = None,
        progress: Progress = False,
        **inputs: Any,
    ) -> Any:
        """Return the classical solutions for the inputs of `predict`, field by field, each within `timeout` seconds.

        Raises:
            RequestError: The model has no classical solver.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        options = self._options(timeout, progress=progress)
        checked = await self._checked(options, model, array, inputs)
        output = PredictionOutput(checked)
        call = partial(self.wire.reference, checked.info)
        await exhausted(self._pieces(checked, options, output.put, call))
        return output.array()

    async def invert(
        self,
        model: str,
        sensors: Any,
        values: Any,
        noise: Any,
        *,
        prior: Mapping[str, Any] | None = None,
        forward: Literal["network", "solver"] | None = None,
        grid: int | Sequence[int] | None = None,
        modes: int | None = None,
        model_error: float | None = None,
        iterations: int | None = None,
        samples: int | None = None,
        seed: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
    ) -> Inversion:
        """Infer an input of a model from its output at sensors, with its uncertainty.

            found = petrov.invert("darcy", sensors, pressures, noise=1e-4, prior={"kind": "log-normal"}, progress=True)
            permeability, deviation = found.mean, found.deviation

        The service computes in the background. If the wait for it is interrupted, the job is cancelled.

        Args:
            model: A model whose problem has a prior for an input.
            sensors: Positions (row, column) `[sensors, 2]` in sides of the domain, from 0 to 1.
            values: The measured output `[sensors]`, in its units.
            noise: Standard deviation of the errors: a number, or `[sensors]`.
            prior: `{"kind": "log-normal", "median": …, "deviation": …}` or `{"kind": "two-materials", "low": …,
                "high": …, "width": …}`; the service's default if None.
            forward: What predicts the measurements: the network, or the problem's classical solver.
            grid: Points of the model's grid along both axes, or one number for both; the first declared size if None.
            modes: Karhunen-Loève modes that are estimated.
            model_error: Relative error of the forward model, added to the noise.
            iterations: Most steps.
            samples: Draws of the posterior.
            seed: Of the draws.
            timeout: Seconds for each request, its repetitions included; the client's if None. A job may take longer.
            progress: True for a progress bar, or a function of (steps done, most steps).

        Raises:
            InvalidInput: The measurements or an option are wrong.
            RequestError: Nothing can be inferred by this model, or the job was cancelled.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        sides = [grid] * 2 if isinstance(grid, Integral) else grid
        options = {"prior": prior, "forward": forward, "grid": sides, "modes": modes, "model_error": model_error}
        options |= {"iterations": iterations, "samples": samples, "seed": seed}
        body, name = inversion.request(sensors, values, noise, options), checked_name(model)
        seconds = self._options(timeout).timeout
        job = await self.perform(self.wire.inversion(name, body, str(uuid.uuid4())), seconds)
        wait = min(inversion.SHORT_WAIT if progress else inversion.WAIT, seconds / 2)
        try:
            with reporting(progress, model, iterations or inversion.STEPS) as advance:
                found, steps = inversion.Status(), 0
                while found.state in inversion.PENDING:
                    found = await self.perform(self.wire.inversion_status(name, job, wait), seconds)
                    advance(found.iterations - steps)
                    steps = found.iterations
                return await self.perform(self.wire.inversion_result(name, job, found), seconds)
        finally:
            with suppress(PetrovError):
                await self.perform(self.wire.inversion_end(name, job), min(seconds, inversion.END_SECONDS))
