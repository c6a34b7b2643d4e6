"""The frames of a rollout as they arrive, and what is known about each.

A frame arrives as soon as it is computed. A request that breaks off is sent again from the last frame that has
arrived, and a rollout of more frames than one request may ask for goes on from there, too. All frames are computed by
the version that has computed the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from petrov_client._arrays import PIECE_BYTES, Fields, PredictionInput, PredictionOutput
from petrov_client._errors import InvalidInput, InvalidResponse, PetrovError, UnknownModel, Where, issue
from petrov_client._flow import OtherServer
from petrov_client._models import ModelInfo
from petrov_client._quality import (
    NAMES,
    NOVELTY,
    OUTSIDE,
    IncompleteRolloutWarning,
    Options,
    Quality,
    Response,
    one_solver,
    quality_of,
    warn,
)
from petrov_client._schema import FramesInfo

#: Bytes of all frames of one request: a quarter of what the service sends by default.
REQUEST_BYTES = 2**28
#: Bytes that one request sends of inputs that have a value per frame; gRPC takes twice as many, with all others.
FORCING_BYTES = PIECE_BYTES
#: How the type of the problem ends that the model fails on every sample of a request.
NON_FINITE = ":non-finite-output"


class Rollout:
    """A rollout of some samples of a batch, `piece`, of which some frames have arrived."""

    def __init__(self, checked: PredictionInput, piece: slice, total: int, wanted: Options) -> None:
        self.info = checked.info
        self.inputs: dict[str, Any] = checked.arrays(piece, total)  # from which the next request starts
        self.done = 0  # frames that have arrived
        self.fault: PetrovError | None = None  # of the model on all samples, where the others of the batch go on
        self.stream: Any = None  # the open response; None before the first request, and after one that broke off
        self._held = False  # whether the version is that of the first frame, and not the caller's choice
        self._failed = np.zeros(piece.stop - piece.start, np.bool_)
        self._time, self._total, self._wanted = time_axis(self.info), total, wanted
        self._forced = {name: self.inputs[name] for name in self.info.forced if name in self.inputs}
        size = max(self.inputs[name].nbytes // self._time.history for name in self._time.states)
        sent = sum(whole.nbytes // whole.shape[1] for whole in self._forced.values())  # with each frame
        self._most = max(1, min(self._time.maximum, REQUEST_BYTES // size, FORCING_BYTES // max(1, sent)))

    def options(self) -> Options:
        """Return what the next request asks for; of inputs that have a value per frame it sends those of its frames."""
        count = min(self._total - self.done, self._most)
        for name, whole in self._forced.items():
            self.inputs[name] = np.ascontiguousarray(whole[:, self.done : self.done + count])
        return replace(self._wanted, frames=count, after=self._wanted.after + self.done)

    def go_on(self, inputs: Mapping[str, Any]) -> None:
        """Let one more frame follow, for which these inputs have the values that change in time."""
        self._forced = {}
        self.inputs |= {name: inputs[name] for name in self.info.forced if name in inputs}
        self._total += 1

    def follow(self, response: Response) -> Response:
        """Go on from a frame `[batch, (component), *grid]` of every output, and return it.

        A sample that the model has failed on stays NaN; a next request starts it from its last finite state, since no
        other can be sent.
        """
        if self._wanted.partial:
            for array in response.outputs.values():
                if len(array) == len(self._failed):
                    self._failed |= ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
            if self._failed.any():
                kept = {name: self._chosen(np.nan, each) for name, each in response.outputs.items()}
                response = replace(response, outputs=kept)
        for name, numbers in response.numbers.items():
            if numbers.shape != (len(self._failed), *(() if name in NAMES else numbers.shape[1:])):
                raise InvalidResponse(f'expected {len(self._failed)} numbers for "{name}" but got {numbers.shape}')
        history = self._time.history
        for name, tensor in zip(self._time.states, self.info.outputs, strict=True):
            state, made = self.inputs[name], np.asarray(response.outputs[tensor.name])
            expected = state.shape if history == 1 else (len(state), *state.shape[2:])
            if made.shape != expected:
                raise InvalidResponse(f"expected a frame of shape {expected} but got {made.shape}")
            found = made if history == 1 else np.concatenate([state[:, 1:], made[:, None]], axis=1)
            self.inputs[name] = self._chosen(state, found) if self._failed.any() else found
        self.done += 1
        return response

    def hold(self, version: int | None) -> None:
        """Have further requests name the version of the model that the rollout has begun with."""
        if self._wanted.version is None and version is not None:
            self._wanted, self._held = replace(self._wanted, version=version), True

    def transient(self, fault: PetrovError) -> PetrovError:
        """Return an error as it counts in the middle of a rollout, whose version another server may have."""
        if not (self._held and isinstance(fault, UnknownModel)):
            return fault
        name, version = self.info.name, self._wanted.version
        text = f'version {version} of "{name}", which the rollout has begun with, is no longer there'
        return OtherServer(text, problem=fault.problem)

    def given_up(self, fault: PetrovError) -> bool:
        """Return whether an error ends these samples alone: the model has failed on all of them, and on no others."""
        if self._wanted.partial and str(fault.problem.get("type", "")).endswith(NON_FINITE):
            self._failed[:], self.fault = True, fault
        return self.fault is not None

    def missing(self, response: Response) -> Response:
        """Return what is known about a frame of samples that have been given up, beside that of others."""
        outputs, numbers = (
            {name: np.full((len(self._failed), *array.shape[1:]), np.nan, np.float32) for name, array in part.items()}
            for part in (response.outputs, response.numbers)
        )
        return Response(outputs, numbers, solved_by=response.solved_by)

    def _chosen(self, failed: Any, array: Fields) -> npt.NDArray[Any]:
        """Return an array with other values where the model has failed on a sample."""
        return np.where(self._failed.reshape(-1, *[1] * (array.ndim - 1)), failed, array)


@dataclass
class Rollouts:
    """The rollout of a batch, in as few requests at one time as may hold it.

    Raises:
        InvalidInput: The model computes no trajectories, or the number is not positive or another than inputs have.
    """

    checked: PredictionInput
    options: Options
    frames: int | None = None  # as many as inputs have, such as a forcing, or a training trajectory, if None
    fault: PetrovError | None = field(default=None, init=False)  # that ended the rollout after some frames
    pieces: list[Rollout] = field(init=False)
    _slices: list[slice] = field(init=False)  # the samples of each
    _left: npt.NDArray[np.bool_] = field(init=False)  # which samples have been outside in a frame
    _warned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        time = time_axis(self.checked.info)
        given = self.checked.frames
        self.total = (given or time.trained) if self.frames is None else self.frames
        if self.total < 1:
            raise InvalidInput(f"expected at least one frame but got {self.total}")
        if given not in {None, self.total}:
            name = self.checked.info.forced[0]
            raise InvalidInput(f"expected {self.total} frames in {name} but got {given}", where=Where(name))
        self._slices = self.checked.pieces(len(self.checked))
        self._left = np.zeros(len(self.checked), np.bool_)
        self.pieces = [Rollout(self.checked, piece, self.total, self.options) for piece in self._slices]

    def go_on(self, checked: PredictionInput) -> None:
        """Let one more frame follow, of the same samples and by the same version, with the forcing of these inputs."""
        self.total += 1
        for piece, samples in zip(self.pieces, self._slices, strict=True):
            piece.go_on(checked.arrays(samples, 1))

    def repeat(self, earlier: Iterable[Any]) -> Self:
        """Go on behind frames that have arrived earlier, as `shown` returns them, and return itself.

        Raises:
            InvalidInput: A frame does not fit, or there are too many.
        """
        for number, frame in enumerate(earlier, 1):
            self._repeat(number, frame)
        return self

    def _repeat(self, number: int, frame: Any) -> None:
        """Go on from a frame that has arrived earlier, as when it arrived, with its quality where that is known."""
        frame, known = frame if isinstance(frame, tuple) and isinstance(frame[-1], Quality) else (frame, Quality())
        found, single = by_name(frame, self.checked.info), self.checked.single
        labels, tensors = self.checked.labels, {tensor.name: tensor for tensor in self.checked.info.outputs}
        if labels is not None:
            found = {
                name: labels.values(array, tensors[name]) if name in tensors and hasattr(array, "dims") else array
                for name, array in found.items()
            }
        outputs = {name: np.asarray(array, "<f4")[None if single else ...] for name, array in found.items()}
        if number > self.total:
            raise InvalidInput(f"expected at most {self.total} earlier frames but got more")
        if not self.options.partial and not all(np.isfinite(array).all() for array in outputs.values()):
            raise InvalidInput(f"a sample has failed in earlier frame {number}: the others go on with `partial`")
        if any(len(array) != len(self.checked) for array in outputs.values()):
            raise InvalidInput(f"expected {len(self.checked)} samples in earlier frame {number}")
        try:
            for piece, samples in zip(self.pieces, self._slices, strict=True):
                piece.follow(Response({name: array[samples] for name, array in outputs.items()}))
            self._left |= np.asarray(False if known.outside is None else known.outside, np.bool_)
        except (InvalidResponse, KeyError, ValueError) as error:
            raise InvalidInput(f"earlier frame {number} does not fit: {error}") from error

    def hold(self, response: Response | None) -> None:
        """Have every request name the version that has computed a frame."""
        for piece in self.pieces:
            piece.hold(None if response is None else response.version)

    @property
    def states(self) -> dict[str, Any]:
        """The states from which a further rollout goes on."""
        names = time_axis(self.checked.info).states
        whole = {name: np.concatenate([piece.inputs[name] for piece in self.pieces]) for name in names}
        return {name: each[0] for name, each in whole.items()} if self.checked.single else whole

    @property
    def done(self) -> int:
        """Frames that have arrived of every sample."""
        return min(piece.done for piece in self.pieces)

    def together(self, parts: Sequence[Response | None]) -> Response:
        """Return a frame of the whole batch, of those of the pieces; None is one that has been given up."""
        known = [part for part in parts if part is not None]
        if not known:
            raise next(piece.fault for piece in self.pieces if piece.fault)
        for piece in self.pieces:
            piece.done += piece.fault is not None
        each = [part or piece.missing(known[0]) for part, piece in zip(parts, self.pieces, strict=True)]
        outputs, numbers = (
            {name: np.concatenate([part[name] for part in group]) for name in group[0]}
            for group in ([part.outputs for part in each], [part.numbers for part in each])
        )
        by, outside = one_solver({part.solved_by for part in each}), any(part.outside for part in each)
        return Response(outputs, numbers, outside=outside, solved_by=by, version=known[0].version)

    def end(self, fault: PetrovError) -> None:
        """Keep an error after some frames, where these are wanted; else raise it."""
        if not (self.options.partial and self.done):
            raise fault
        self.fault = fault

    def warn(self) -> None:
        """Issue the warning that frames are missing, if they are."""
        if self.fault is not None:
            text = f"the rollout ended after frame {self.done} of {self.total}: {self.fault}"
            issue(text, IncompleteRolloutWarning)

    def shown(self, response: Response) -> Any:
        """Return a frame as the caller receives it, with its quality if that is wanted; else a doubtful one warns."""
        if response.doubtful and self.options.warns and not self._warned:
            self._warned = True
            warn(self.checked.info.name)
        single = self.checked.single
        named = {name: array[0] if single else array for name, array in response.outputs.items()}
        outputs = self.checked.frame(named, self.done)
        if not self.options.quality:
            return outputs
        if NOVELTY in response.numbers:  # the service forgets what has left with the request
            self._left |= response.numbers[NOVELTY] < OUTSIDE
        coverage, by = self.checked.coverage({response.version}), {response.solved_by}
        return outputs, quality_of(response.numbers, by, single=single, coverage=coverage, left=self._left)


class Trajectory(PredictionOutput):
    """All frames of a rollout, put together."""

    def __init__(self, rollouts: Rollouts) -> None:
        super().__init__(rollouts.checked)
        self._total, self._count = rollouts.total, 0

    def add(self, response: Response) -> None:
        """Append a frame.

        Raises:
            InvalidInput: All frames together do not fit into memory.
        """
        try:
            self._put((slice(None), self._count), response, (self._total,))
        except MemoryError as error:
            text = f"{self._total} frames do not fit into memory: rollout_stream yields them one after the other"
            raise InvalidInput(text) from error
        self._count += 1

    def array(self) -> Any:
        """Return `[(batch), frame, (component), *grid]`, labelled as the states are, or several outputs by name."""
        arrays = {name: array[:, : self._count] for name, array in self._arrays.items()}
        return self._source.shown({name: array[0] if self._source.single else array for name, array in arrays.items()})

    def quality(self) -> Quality:
        """Return what is known about the frames, `[(batch), frame]`."""
        numbers = {name: array[:, : self._count] for name, array in self._numbers.items()}
        coverage = self._source.coverage(self._versions)
        return quality_of(numbers, self._solved_by, single=self._source.single, coverage=coverage)


def time_axis(info: ModelInfo) -> FramesInfo:
    """Return the time axis of a model of trajectories."""
    if info.frames is None:
        raise InvalidInput(f'"{info.name}" computes no trajectories: use predict')
    return info.frames


def is_iterator(value: Any) -> bool:
    """Return whether the values of an input arrive one after the other."""
    return hasattr(value, "__next__") or hasattr(value, "__anext__")


async def arriving(iterators: Mapping[str, Any], info: ModelInfo) -> dict[str, Any] | None:
    """Return the next value of each iterator as an input of one frame; None after the last one."""
    axes, found = {each.name: each.axes for each in info.arguments}, dict[str, Any]()
    for name, each in iterators.items():
        try:
            value = np.asarray(await anext(each) if hasattr(each, "__anext__") else next(each))
        except (StopIteration, StopAsyncIteration):
            return None
        rank = len(axes[name]) - 1  # of a batch without its frames
        found[name] = value if value.ndim == 0 else np.expand_dims(value, 1 if value.ndim == rank else 0)
    return found


def by_name(outputs: Any, info: ModelInfo) -> dict[str, Fields]:
    """Return the outputs of `predict` by name, also a single one."""
    return outputs if isinstance(outputs, dict) else {info.outputs[0].name: outputs}
