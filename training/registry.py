"""Named objects, one per file of a package of this project, and those that installed packages add by entry point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Generic, TypeVar

from training.user_error import UserError

Item = TypeVar("Item")


class UnknownNameError(UserError):
    """No object has the requested name; the message lists the known names."""


def lookup(table: Mapping[str, Item], name: str, noun: str) -> Item:
    """Return the entry of a table of objects by name; `noun` says what one is called in the error message.

    Raises:
        UnknownNameError: The table has no such name.
    """
    if name not in table:
        raise UnknownNameError(f"expected a {noun} among {', '.join(table)} but got {name!r}")
    return table[name]


@dataclass(frozen=True)
class Registry(Generic[Item]):
    """Find objects by name; all modules and entry points are loaded when an object is not in a module of its name."""

    noun: str  # what one object is called in error messages, such as "problem"
    kind: type[Item]  # the class of the objects
    package: str  # its modules are searched; those without `attribute` are skipped
    # The module variable that holds the object, or a tuple of several. The attribute `name` of an object is the name it
    # is found by.
    attribute: str
    group: str  # the entry point group that other packages use

    def __getitem__(self, name: str) -> Item:
        """Return the object of that name; where a module of the package is called so, no other is imported.

        Raises:
            UnknownNameError: There is none.
        """
        found = self._called(name)
        return lookup(self.items, name, self.noun) if found is None else found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self._called(name) is not None or name in self.items)

    def _called(self, name: str) -> Item | None:
        module = f"{self.package}.{name.replace('-', '_')}"
        if name.replace("-", "_").isidentifier():
            held = getattr(import_module(module), self.attribute, ()) if find_spec(module) is not None else ()
            for item in held if isinstance(held, tuple) else (held,):
                if isinstance(item, self.kind) and getattr(item, "name", None) == name:
                    return item
        return None

    def listed(self, name: str) -> bool:
        """Return whether another package has an entry point of that name; it is not imported."""
        return any(entry.name == name for entry in entry_points(group=self.group))

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def items(self) -> dict[str, Item]:
        """All objects by name: first those of the package, then those of other packages.

        Raises:
            TypeError: An object is not of the registry's class.
            ValueError: Two objects have one name.
        """
        found: dict[str, Item] = {}
        for source, item in (*self._built_in(), *self._installed()):
            if not isinstance(item, self.kind):
                raise TypeError(f"{source}: expected a {self.kind.__name__} but found {type(item).__name__}")
            name = str(getattr(item, "name"))  # noqa: B009 -- a protocol of one attribute would say no more
            if name in found:
                raise ValueError(f"{source}: there already is a {self.noun} named {name!r}")
            found[name] = item
        return found

    def _built_in(self) -> Iterator[tuple[str, object]]:
        for entry in iter_modules(import_module(self.package).__path__, f"{self.package}."):
            module = import_module(entry.name)
            found = getattr(module, self.attribute, ())
            yield from ((entry.name, item) for item in (found if isinstance(found, tuple) else (found,)))

    def _installed(self) -> Iterator[tuple[str, object]]:
        for entry in sorted(entry_points(group=self.group)):
            yield f"entry point {entry.name!r} of {self.group}", entry.load()
