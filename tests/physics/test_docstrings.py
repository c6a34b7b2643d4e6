"""The examples in the docstrings of `physics` print what they say."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import physics

MODULES = [module.name for module in pkgutil.walk_packages(physics.__path__, "physics.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0
