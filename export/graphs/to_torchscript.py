"""Export to `model.pt`: a frozen trace for every batch and grid, on the processor and on a GPU.

The network is traced, because scripting rejects typed shapes; only the loop of a rollout is scripted, so that the
number of frames stays free. TorchScript is deprecated upstream, and models have it only where their recipe lists it.
"""

from __future__ import annotations

import io
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from export.graphs.deployable import argument_shapes, example, renamed, shape_checks_off
from export.graphs.to_onnx import GraphError
from schema.card import FRAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from export.graphs.deployable import Deployable
    from export.signature import Signature

FILE = "model.pt"
WRITTEN_LAST = frozenset({"version", "byteorder", ".data/serialization_id"})
"""Records that torch's writer adds to an archive by itself."""


def write(module: Deployable, signature: Signature, path: Path) -> None:
    """Trace, freeze and write."""
    with shape_checks_off(), quiet():
        # Shapes not traced are compared afterwards (`export.parity`): more than torch's own check of this one says.
        whole = module if signature.frames is None else ScriptedRollout(module, signature)
        traced = torch.jit.freeze(torch.jit.trace(whole, example(signature), check_trace=False))
        follow_input_device(traced.graph)
        check(traced, signature)
        written = io.BytesIO()  # torch ends the process where it writes to a full disk itself
        torch.jit.save(traced, written)
        path.write_bytes(without_places(written.getvalue()))


def without_places(archive: bytes) -> bytes:
    """Return an archive of TorchScript without the places in our files that its operators come from.

    They are paths of the exporting machine, which errors would show on another one, and half of a small archive.
    """
    read = torch._C.PyTorchFileReader(io.BytesIO(archive))  # noqa: SLF001 - the format has no public reader or writer
    made = io.BytesIO()
    write = torch._C.PyTorchFileWriter(made)  # noqa: SLF001
    for name in read.get_all_records():
        if not (name.endswith(".debug_pkl") or name in WRITTEN_LAST):
            record = read.get_record(name)
            write.write_record(name, record, len(record))
    write.write_end_of_file()
    return made.getvalue()


def follow_input_device(graph: Any) -> None:
    """Create tensors on the input's device: a trace records its own device, and would mix two devices on a GPU."""
    field, first = list(graph.inputs())[1], next(iter(graph.nodes()))
    device = graph.create("prim::device", [field], 1).insertBefore(first).output()
    device.setType(torch._C.DeviceObjType.get())  # noqa: SLF001 - the graph's types have no public name
    for node in graph.findAllNodes("prim::Constant"):
        if node.output().type().kind() == "DeviceObjType":
            node.output().replaceAllUsesWith(device)


def check(traced: Any, signature: Signature) -> None:
    """Refuse a graph that Triton's backend would feed wrongly or that rests on an FFT."""
    arguments = [argument.name for argument in traced.forward.schema.arguments][1:]
    if arguments != list(signature.argument_names):
        raise GraphError(
            f"expected forward({', '.join(signature.argument_names)}) but found forward({', '.join(arguments)})"
        )
    if banned := [name for name in operators(traced) if name.startswith("aten::fft")]:
        raise GraphError(f"expected no Fourier operators but found {banned}")


def operators(traced: Any) -> dict[str, int]:
    """Count the graph's tensor operators, by name, those of a loop's body included."""
    kinds = (node.kind() for node in nodes(traced.inlined_graph))
    return dict(sorted(Counter(kind for kind in kinds if kind.startswith("aten::")).items()))


def nodes(block: Any) -> Iterator[Any]:
    """Return the nodes of a graph or block and of the blocks inside it."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes(inner)


def read(path: Path) -> tuple[Callable[..., list[NDArray[np.float32]]], dict[str, int]]:
    """Open a written graph: a function of its arguments that returns its outputs, and its operators."""
    with quiet():
        traced: Any = torch.jit.load(str(path))

    @torch.inference_mode()
    def run(*arguments: NDArray[Any]) -> list[NDArray[np.float32]]:
        # As in Triton: profiled execution compiles anew for every shape it meets.
        with torch.jit.optimized_execution(should_optimize=False):  # type: ignore[attr-defined] # public, not re-exported
            results = traced(*map(torch.from_numpy, arguments))
        return [result.numpy() for result in (results if isinstance(results, tuple) else (results,))]

    return run, operators(traced)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence two warnings: every call into TorchScript says that it is deprecated, a trace that it has constants."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"torch\.tensor results are registered as constants")
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.", category=DeprecationWarning)
        yield


class ListStep(nn.Module):
    """A step that takes its arguments as one list, and returns the next states as one."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        return list(self.step(*inputs))


class Loop(nn.Module):
    """Repeat the trace of a `ListStep` step as often as a tensor has columns. The module is scripted."""

    def __init__(self, step: nn.Module, states: Sequence[int], forced: Sequence[bool], *, several: bool) -> None:
        super().__init__()
        self.step, self.states, self.forced, self.several = step, list(states), list(forced), several

    def forward(self, inputs: list[Tensor], frame: Tensor) -> list[Tensor]:
        current = list(inputs)
        made: list[list[Tensor]] = [[] for _ in self.states]
        for number in range(frame.shape[1]):
            now = [each[:, number] if forced else each for each, forced in zip(current, self.forced)]  # noqa: B905
            following: list[Tensor] = self.step(now)
            for index, state in enumerate(self.states):
                current[state] = following[index]
                made[index].append(following[index][:, -1] if self.several else following[index])
        return [torch.stack(frames, dim=1) for frames in made]


class ScriptedRollout(nn.Module):
    """A rollout of a trajectory model that can be traced for any number of frames."""

    def __init__(self, module: Deployable, signature: Signature) -> None:
        super().__init__()
        names = tuple(name for name in signature.argument_names if name != FRAME)
        states = [names.index(name) for name in (signature.frames.states if signature.frames else ())]
        several = signature.frames is not None and signature.frames.history > 1
        # A step is traced with three samples on a small, unequal grid.
        sides = (signature.grid.minimum + step for step in range(4, 4 + 3 * len(signature.grid.axes), 3))
        inputs = [torch.ones(each) for each, _ in argument_shapes(signature.step(), (3, *sides))]
        step = torch.jit.trace(ListStep(module.step(names)), (inputs,), check_trace=False, strict=False)
        self.loop: Any = torch.jit.script(
            Loop(step, states, [name in signature.forced for name in names], several=several)
        )
        self.judgement = module.judgement(names) if signature.quality else None
        self.forward = renamed(self.rolled, signature.argument_names)
        self.eval()

    def rolled(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Return the trajectories, then the quality outputs."""
        *inputs, frame = arguments
        judged = () if self.judgement is None else self.judgement(*inputs)
        return (*self.loop(inputs, frame), *judged)
