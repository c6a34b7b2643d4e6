"""Takes the bytes of a pickle, gives a record of what it would build; nothing in it is called, imported or built.

A pickle is a program for a small stack machine. Its dangerous instructions import a name and call it; here they leave a
note of the name (`Global`), of the call (`Call`) and of the reference to data outside (`Outside`). Only the containers
and numbers of the format itself become real: tuples, lists, dicts, sets, text, bytes, numbers. The instructions are
decoded by `pickletools.genops`, which reads them without following any.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class PickleError(ValueError):
    """The bytes are no pickle, or one that no model is saved as."""


@dataclass(frozen=True)
class Global:
    """A name that an unpickler would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Outside:
    """A reference to data outside of the pickle, such as a tensor's storage."""

    key: Any


@dataclass(eq=False)
class Call:
    """A call that an unpickler would make, and what it would then do to the result.

    `state` would be given to the result's `__setstate__` or put into its attributes, `items` set in it by key,
    `elements` appended to it.
    """

    function: Any
    arguments: Any
    state: Any = None
    items: list[tuple[Any, Any]] = field(default_factory=list)
    elements: list[Any] = field(default_factory=list)


class Recorder:
    """The stack machine, one method an instruction."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []  # heights of the stack
        self.memo: dict[int, Any] = {}

    def run(self, code: bytes) -> Any:
        """Follow the instructions to the end and give what is then on the stack."""
        for opcode, argument, _ in pickletools.genops(code):
            if opcode.name == "STOP":
                return self.pop()
            self.step(opcode.name, argument)
        raise PickleError("it has no end")

    def step(self, name: str, argument: Any) -> None:
        """Follow one instruction."""
        if name in LITERALS:
            self.push(argument)
        elif name in NEW:
            self.push(NEW[name]())
        elif name in INSTRUCTIONS:
            INSTRUCTIONS[name](self, argument)
        elif name not in IGNORED:
            raise PickleError(f"it has an instruction {name} that no saved model has")

    def push(self, thing: Any) -> None:
        self.stack.append(thing)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise PickleError("it takes more from its stack than there is")
        return self.stack.pop()

    def pops(self, count: int) -> list[Any]:
        return [self.pop() for _ in range(count)][::-1]

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def marked(self) -> list[Any]:
        """Take all that was pushed since the last mark."""
        if not self.marks:
            raise PickleError("it takes a mark that is not there")
        height = self.marks.pop()
        taken = self.stack[height:]
        del self.stack[height:]
        return taken

    def top(self) -> Any:
        if not self.stack:
            raise PickleError("it looks at an empty stack")
        return self.stack[-1]

    def remember(self, index: int | None = None) -> None:
        self.memo[len(self.memo) if index is None else index] = self.top()

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise PickleError(f"it recalls number {index}, which it did not remember")
        self.push(self.memo[index])

    def call(self, function: Any, arguments: Any) -> None:
        self.push(Call(function, arguments))

    def set_items(self, flat: list[Any]) -> None:
        pairs, target = list(zip(flat[::2], flat[1::2], strict=True)), self.top()
        if isinstance(target, Call):
            target.items.extend(pairs)
        elif isinstance(target, dict):
            target.update((key, value) for key, value in pairs if isinstance(key, HASHABLE))
        else:
            raise PickleError(f"it sets items of a {type(target).__name__}")

    def extend(self, elements: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, Call | list):
            raise PickleError(f"it appends to a {type(target).__name__}")
        (target.elements if isinstance(target, Call) else target).extend(elements)

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if not isinstance(target, Call):
            raise PickleError(f"it sets the state of a {type(target).__name__}")
        target.state = state

    def stack_global(self) -> None:
        module, name = self.pops(2)
        self.push(Global(str(module), str(name)))


HASHABLE = (str, int, float, bool, bytes, type(None), Global)  # keys by value: a tuple may hold what has no hash
LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    }
)
IGNORED = frozenset({"PROTO", "FRAME"})
NEW: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,
}
INSTRUCTIONS: dict[str, Callable[[Recorder, Any], object]] = {
    "MARK": lambda machine, _: machine.mark(),
    "POP": lambda machine, _: machine.pop(),
    "POP_MARK": lambda machine, _: machine.marked(),
    "DUP": lambda machine, _: machine.push(machine.top()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.marked())),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.pops(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.pops(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.pops(3))),
    "APPEND": lambda machine, _: machine.extend(machine.pops(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.marked()),
    "ADDITEMS": lambda machine, _: machine.extend(machine.marked()),
    "FROZENSET": lambda machine, _: machine.push(machine.marked()),
    "SETITEM": lambda machine, _: machine.set_items(machine.pops(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.marked()),
    "PUT": lambda machine, index: machine.remember(index),
    "BINPUT": lambda machine, index: machine.remember(index),
    "LONG_BINPUT": lambda machine, index: machine.remember(index),
    "MEMOIZE": lambda machine, _: machine.remember(),
    "GET": lambda machine, index: machine.recall(index),
    "BINGET": lambda machine, index: machine.recall(index),
    "LONG_BINGET": lambda machine, index: machine.recall(index),
    "GLOBAL": lambda machine, names: machine.push(Global(*names.split(" ", 1))),
    "STACK_GLOBAL": lambda machine, _: machine.stack_global(),
    "REDUCE": lambda machine, _: machine.call(*machine.pops(2)),
    "NEWOBJ": lambda machine, _: machine.call(*machine.pops(2)),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.push(Outside(machine.pop())),
}


def record(code: bytes) -> Any:
    """Give what a pickle would build, as far as that needs no call, and its calls as notes.

    Raises:
        PickleError: the bytes are no pickle, or have an instruction that no saved model has.
    """
    try:
        return Recorder().run(code)
    except PickleError:
        raise
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise PickleError(f"it cannot be followed: {error}") from error
