"""The rollouts of the clients: trajectories as a whole, or their frames as they arrive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

from petrov_client._arrays import PredictionInput
from petrov_client._errors import InvalidInput, InvalidResponse, PetrovError, Where
from petrov_client._exchange import Exchange, exhausted
from petrov_client._flow import Attempts, Progress, reporting
from petrov_client._quality import Options, Quality, Response, warn
from petrov_client._rollout import Rollout, Rollouts, Trajectory, arriving, is_iterator


class RolloutOperations(Exchange):
    """Rollouts by all clients."""

    @overload
    async def rollout(
        self,
        /,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: Literal[True],
        partial: bool = False,
        **inputs: Any,
    ) -> tuple[Any, Quality]: ...

    @overload
    async def rollout(
        self,
        /,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: bool = False,
        partial: bool = False,
        **inputs: Any,
    ) -> Any: ...

    async def rollout(
        self,
        /,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: bool = False,
        partial: bool = False,
        **inputs: Any,
    ) -> Any:
        """Predict the trajectories that follow from single states or a batch of them.

            trajectory = petrov.rollout("flow", vorticity, frames=200, viscosity=1e-3, progress=True)
            trajectory, known = petrov.rollout("flow", vorticity, frames=200, quality=True)

        Args:
            model: A model of trajectories.
            array: Its first input, the states to start from; see `predict`.
            frames: How many frames follow; if None as many as inputs have that are known for every frame, such as a
                forcing, or else as a training trajectory has.
            version: A version of the model; the newest if None.
            timeout: Seconds for each frame, repetitions included; the client's if None.
            progress: True for a progress bar, or a function of (frames done, frames in all).
            quality: Whether to return what is known about the error of every frame, too.
            partial: Whether to keep what is right where the model or the service fails: samples that the model fails on
                are NaN from there on, and a rollout that ends with an error after some frames is shorter, with an
                `IncompleteRolloutWarning`. Else the error is raised.
            inputs: Inputs and parameters by name.

        Returns:
            float32 `[(batch), frame, (component), *grid]`; of several outputs, a dictionary by name. With `quality`,
            these and a `Quality` of numbers `[(batch), frame]`.

        Raises:
            InvalidInput: The inputs do not fit the model, or it computes no trajectories.
            PetrovError: Any other of the tree in `petrov_client._errors`.
        """
        options = self._options(
            timeout, version=version, progress=progress, quality=quality, partial=partial, frames=frames
        )
        rollouts = await self._begun(await self._checked(options, model, array, inputs), options)
        whole = Trajectory(rollouts)
        await exhausted(self._frames(rollouts, options, whole.add))
        if whole.doubtful and not quality:
            warn(model)
        return (whole.array(), whole.quality()) if quality else whole.array()

    @overload
    async def rollout_stream(
        self,
        /,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: Literal[True],
        partial: bool = False,
        earlier: Iterable[Any] = (),
        **inputs: Any,
    ) -> AsyncGenerator[tuple[Any, Quality]]: ...

    @overload
    async def rollout_stream(
        self,
        /,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: bool = False,
        partial: bool = False,
        earlier: Iterable[Any] = (),
        **inputs: Any,
    ) -> AsyncGenerator[Any]: ...

    async def rollout_stream(
        self,
        /,
        model: str,
        array: Any = None,
        frames: int | None = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = False,
        *,
        quality: bool = False,
        partial: bool = False,
        earlier: Iterable[Any] = (),
        **inputs: Any,
    ) -> AsyncGenerator[Any]:
        """Roll out as `rollout` does, and yield every frame as it arrives.

            for vorticity in petrov.rollout_stream("flow", vorticity, frames=10_000): …

        The arguments are those of `rollout`, and `earlier`: the first of the frames, as an iterator of an earlier call
        has yielded them, with their quality or without. This one goes on behind them, and computes none of them again.
        By their quality it knows which samples have been outside, and stay so.

        What has a value per frame may be an iterator, also an asynchronous one of an asynchronous client: of frames
        `[(batch), (component), *grid]`, or of numbers. A value is taken once the frame before has been yielded, and
        each frame is a request of its own, until an iterator ends.

            for temperature in petrov.rollout_stream("heat", initial=start, source=measured()): …

        The service computes a few frames ahead. It stops when the iterator is closed, or the loop over it ends early;
        for an asynchronous client use `async with contextlib.aclosing(…)` there.

        Returns:
            Frames `[(batch), (component), *grid]`, in order, labelled as the states are, with their times; with
            `quality`, pairs of a frame and a `Quality`.

        Raises:
            InvalidInput: The inputs do not fit the model, or it computes no trajectories.
            PetrovError: Any other of the tree in `petrov_client._errors`, here or from the iterator.
        """
        options = self._options(
            timeout, version=version, progress=progress, quality=quality, partial=partial, frames=frames
        )
        passed = {**(array if isinstance(array, Mapping) else {}), **inputs}
        if any(map(is_iterator, passed.values())):
            if not isinstance(array, Mapping | None):
                passed |= {(await self._known(model, options)).first_name: array}
            if [*earlier]:
                raise InvalidInput("expected no earlier frames beside an iterator: start from the last of them")
            return self._stepped(model, passed, options.frames, options)
        rollouts = await self._begun(await self._checked(options, model, array, inputs), options)
        return self._frames(rollouts.repeat(earlier), options, rollouts.shown)

    async def _begun(self, checked: PredictionInput, options: Options) -> Rollouts:
        """Return the rollout of a batch, which is read as a whole."""
        size = checked.bytes_of(slice(0, len(checked)))
        return await self._beside(partial(Rollouts, checked, options, options.frames), size)

    async def _stepped(
        self, model: str, passed: dict[str, Any], frames: int | None, options: Options
    ) -> AsyncGenerator[Any]:
        """Yield frames each of which is asked for once iterators among what is passed have given its values."""
        info = await self._known(model, options)
        iterators = {name: passed.pop(name) for name in [*passed] if is_iterator(passed[name])}
        if steady := [name for name in iterators if name not in info.forced]:
            raise InvalidInput(f"expected a value, which holds for all frames, of {steady[0]}", where=Where(steady[0]))
        own, rollouts = replace(options, progress=False), None
        while frames is None or (rollouts.total if rollouts else 0) < frames:
            if (now := await arriving(iterators, info)) is None:
                return
            checked = await self._checked(own, model, None, passed | now)
            if rollouts is None:
                rollouts = Rollouts(checked, own, 1)
            else:
                rollouts.go_on(checked)
            async with aclosing(self._frames(rollouts, own, rollouts.shown)) as found:
                async for frame in found:
                    yield frame
            if rollouts.fault is not None:
                return
            passed |= rollouts.states

    async def _frames(
        self, rollouts: Rollouts, options: Options, each: Callable[[Response], Any]
    ) -> AsyncGenerator[Any]:
        """Yield what `each` makes of every frame of the whole batch."""
        name, total = rollouts.checked.info.name, rollouts.total
        async with AsyncExitStack() as stack:
            advance = stack.enter_context(reporting(options.progress, name, total))
            stack.enter_context(self._forgetting())
            try:
                if rollouts.done:
                    advance(rollouts.done)
                for _ in range(total - rollouts.done):
                    parts = []
                    for piece in rollouts.pieces:
                        parts.append(part := await self._next_frame(piece, options, stack))
                        rollouts.hold(part)
                        if part is not None and options.version is None:
                            self._compare(piece.info, part)
                    yield each(rollouts.together(parts))
                    advance(1)
            except PetrovError as fault:
                rollouts.end(fault)
        rollouts.warn()

    async def _next_frame(self, piece: Rollout, options: Options, stack: AsyncExitStack) -> Response | None:
        """Return the next frame of some samples, from a further request where one breaks off or may not ask for all.

        It is None where the model has failed on all of the samples. The stack closes the responses.
        """
        attempts = Attempts(options.timeout)
        while piece.fault is None:
            try:
                if piece.stream is None:
                    wanted = piece.options()
                    size = sum(array.nbytes for array in piece.inputs.values())
                    call = await self._beside(partial(self.wire.rollout, piece.info, piece.inputs, wanted), size)
                    opened = aclosing(self.driver.receive(call.request, attempts.remaining()))
                    replies = await stack.enter_async_context(opened)
                    piece.stream = replies, call.read, piece.done + (wanted.frames or 0)
                replies, read, end = piece.stream
                reply = await anext(replies, None)
                if reply is None:
                    raise InvalidResponse(f"expected {end} frames but got {piece.done}")
                response = piece.follow(read(reply))
                if piece.done == end:
                    piece.stream = None
                    extra = None
                    with suppress(PetrovError):  # all frames have arrived
                        extra = await anext(replies, None)
                    if extra is not None:
                        raise InvalidResponse(f"expected {end} frames but got more")
                return response  # noqa: TRY300  the last statement of what is tried
            except PetrovError as fault:
                piece.stream = None
                if not piece.given_up(fault):
                    await self.driver.pause(attempts.pause_after(piece.transient(fault)))
        return None
