"""What every operation of the clients does: it knows models, checks inputs, sends calls and cuts batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from petrov_client._arrays import Arrays, PredictionInput
from petrov_client._environment import ENCRYPTS, NO_HTTP, OTHER_PORT, PROBE_SECONDS, encrypts
from petrov_client._errors import ConnectionFailed, InvalidInput, PetrovError, RequestError, UnknownModel
from petrov_client._flow import AsyncDriver, Attempts, Call, OtherServer, SyncDriver, checked_timeout, reporting
from petrov_client._inputs import check_input
from petrov_client._models import ModelInfo, checked_name
from petrov_client._quality import Options, Response

if TYPE_CHECKING:
    from petrov_client._grpc_wire import GrpcWire
    from petrov_client._http import HttpWire

T = TypeVar("T")
#: Options that are numbers, and their types.
NUMBERS: Mapping[str, type[int | float]] = {"timeout": float, "tolerance": float, "version": int, "frames": int}
#: Those that a second input in their place would be taken for, and what is said then.
SECOND = frozenset({"timeout", "version", "frames"})
#: Bytes of a piece that an event loop does not read and encode itself, since its other tasks would wait.
LARGE_BYTES = 2**20
ADVICE = '; a second input is passed by its name, such as predict("heat", conductivity=k, source=f)'


@dataclass
class Exchange:
    """The exchange of calls and replies with a service."""

    wire: HttpWire | GrpcWire
    driver: SyncDriver | AsyncDriver
    timeout: float  # seconds for each request by default
    known: dict[tuple[str, int | None], ModelInfo] = field(default_factory=dict)  # by name and version

    def __post_init__(self) -> None:
        self.timeout = checked_timeout(self.timeout)

    async def once(self, call: Call[T], seconds: float) -> T:
        """Send a call once, and return its result."""
        async with aclosing(self.driver.receive(call.request, seconds)) as replies:
            reply = await anext(replies)
        return call.read(reply)

    async def perform(self, call: Call[T], seconds: float, *, held: int | None = None) -> T:
        """Send a call, again where that is safe, and return its result.

        Where it names the version `held` because a batch has begun with it, another server may have that.
        """
        attempts = Attempts(seconds)
        while True:
            try:
                return await self.once(call, attempts.remaining())
            except PetrovError as fault:
                seen: PetrovError = fault
                server = fault.unencrypted if isinstance(fault, ConnectionFailed) else None
                if server is not None:
                    greeted: bool = await self.driver.work(partial(encrypts, *server, min(PROBE_SECONDS, seconds)))
                    if greeted:
                        raise ConnectionFailed(f"{fault}{ENCRYPTS}") from fault.__cause__
                    if NO_HTTP in str(fault):
                        raise ConnectionFailed(f"{fault}{OTHER_PORT}") from fault.__cause__
                if held is not None and isinstance(fault, UnknownModel):
                    text = f"version {held}, which the batch has begun with, is no longer there: send it again"
                    seen = OtherServer(text, problem=fault.problem)
                await self.driver.pause(attempts.pause_after(seen))

    def _options(self, timeout: float | None, **wanted: Any) -> Options:
        """Return the options of a request, whose numbers are Python's or NumPy's."""
        numbers = {"timeout": timeout, **{name: wanted[name] for name in NUMBERS if name in wanted}}
        for name, number in numbers.items():
            expected = "number" if NUMBERS[name] is float else "whole number"
            if isinstance(number, bool) or not isinstance(
                number, (Real if NUMBERS[name] is float else Integral) | None
            ):
                advice = ADVICE if name in SECOND else ""
                raise InvalidInput(f"{name}: expected a {expected} but got {type(number).__name__}{advice}")
        known = {name: None if number is None else NUMBERS[name](number) for name, number in numbers.items()}
        seconds = checked_timeout(self.timeout if timeout is None else float(timeout))
        return Options(**wanted | known | {"timeout": seconds})

    async def _known(self, name: str, options: Options) -> ModelInfo:
        """Return a model as it has been described before, or is now."""
        info = self.known.get((checked_name(name), options.version))
        if info is None:
            perform = partial(self.perform, seconds=options.timeout)
            try:
                info = await self.wire.model(name, options.version, perform)
            except UnknownModel as fault:
                raise await self._with_advice(fault, name, options) from None
            self.known[name, options.version] = info
        return info

    async def _with_advice(self, fault: UnknownModel, name: str, options: Options) -> UnknownModel:
        """Return the refusal of a model with the names that may be meant, if the service lists them."""
        try:
            known: list[str] = await self.perform(self.wire.names(), options.timeout)
        except PetrovError:
            return fault
        if name in known or (name.rpartition("_")[0] in known and name.endswith(("_vjp", "_jvp"))):
            return fault  # another version, or derivatives that there are none of
        names = sorted(each for each in known if not any(each.startswith(f"{other}_") for other in known))
        close = get_close_matches(name, names, 3)
        text = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names) or 'none'}"
        return UnknownModel(f'there is no model "{name[:64]}": {text}', problem=fault.problem)

    async def _checked(self, options: Options, model: str, array: Any, named: Mapping[str, Any]) -> PredictionInput:
        """Return the input of a model, all of it checked before anything is sent."""
        with self._forgetting():
            info = await self._known(model, options)
            return await self.driver.work(lambda: check_input(info, array, named))

    async def _beside(self, make: Callable[[], T], size: int) -> T:
        """Call a function that reads or copies so many bytes: beside the event loop, if these are many."""
        return await self.driver.work(make) if size > LARGE_BYTES else make()

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forget the descriptions of models after a refusal: they may be out of date."""
        try:
            yield
        except RequestError:
            self.known.clear()
            raise

    def _compare(self, info: ModelInfo, response: Response) -> None:
        """Forget the description of a model that another version than the one described has computed with."""
        if response.version not in {None, info.version}:
            self.known.pop((info.name, None), None)

    async def _pieces(
        self,
        checked: PredictionInput,
        options: Options,
        each: Callable[[slice, Response], Any],
        call: Callable[[Arrays], Call[Response]] | None = None,
    ) -> AsyncGenerator[Any]:
        """Send a batch in pieces, a few at a time, and yield what `each` makes of each and its response, in order.

        All are computed by the version that has computed the first piece, unless the options name one. A piece that
        was in flight with it and was computed by another one, as while a model is updated, is requested again.

        `call` makes the request of one field, instead of a prediction of several; it is sent alone.
        """
        pieces, in_flight = (checked.pieces(), self.driver.in_flight) if call is None else (checked.pieces(1), 1)
        predicts, held = call is None and options.version is None, options
        waiting: deque[tuple[slice, Any]] = deque()
        reading = asyncio.Lock()  # not every library of files lets several threads read at a time

        async def sent(piece: slice, wanted: Options) -> Response:
            def make() -> Call[Response]:
                arrays = checked.arrays(piece)
                return call(arrays) if call is not None else self.wire.prediction(checked.info, arrays, wanted)

            async with reading:
                made = await self._beside(make, checked.bytes_of(piece))
            return await self.perform(made, options.timeout, held=None if wanted is options else wanted.version)

        with self._forgetting(), reporting(options.progress, checked.info.name, len(checked)) as advance:
            try:
                for piece in (*pieces, *[None] * in_flight):  # None only waits for one that is in flight
                    if piece is not None:
                        waiting.append((piece, self.driver.start(sent(piece, held))))
                    if waiting and (piece is None or len(waiting) == in_flight):
                        first, started = waiting.popleft()
                        response = await started
                        if predicts and held is options and response.version is not None:
                            held = replace(options, version=response.version)
                            self._compare(checked.info, response)
                        elif held is not options and response.version not in (None, held.version):
                            response = await sent(first, held)
                        yield each(first, response)
                        advance(first.stop - first.start)
            finally:
                await self.driver.cancel([started for _, started in waiting])


async def exhausted(items: AsyncGenerator[Any]) -> None:
    """Take all items."""
    async for _ in items:
        pass
