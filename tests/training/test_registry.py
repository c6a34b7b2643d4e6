"""Objects are found in a package and by entry point; unknown, repeated and foreign ones are refused."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

from training.messages import Registry, UnknownNameError

SHAPE = "from fractions import Fraction\nclass Shape(Fraction):\n    name = {name!r}\nSHAPE = Shape({value})\n"


def write_package(root: Path, package: str, **modules: str) -> Registry:
    folder = root / package
    folder.mkdir()
    for module, text in {"__init__": "", **modules}.items():
        (folder / f"{module}.py").write_text(text)
    return Registry("shape", Fraction, package, "SHAPE", f"petrov.test.{package}")


def write_entry_point(root: Path, package: str, target: str) -> None:
    info = root / f"{package}_more-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}-more\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[petrov.test.{package}]\nmore = {target}\n")


def test_objects_of_a_package_are_found_and_other_modules_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shapes = write_package(
        tmp_path, "some_shapes", one=SHAPE.format(name="one", value=1), two=SHAPE.format(name="two", value=2), help=""
    )
    assert list(shapes) == ["one", "two"]
    assert shapes["two"] == 2


def test_an_unknown_name_is_refused_and_the_known_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shapes = write_package(tmp_path, "few_shapes", one=SHAPE.format(name="one", value=1))
    with pytest.raises(UnknownNameError, match=re.escape("expected a shape among one but got 'three'")):
        shapes["three"]


def test_an_installed_package_adds_objects_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shapes = write_package(tmp_path, "more_shapes", one=SHAPE.format(name="one", value=1))
    (tmp_path / "outside_shapes.py").write_text(SHAPE.format(name="nine", value=9))
    write_entry_point(tmp_path, "more_shapes", "outside_shapes:SHAPE")
    assert list(shapes) == ["one", "nine"]


def test_two_objects_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shapes = write_package(
        tmp_path, "same_shapes", one=SHAPE.format(name="one", value=1), two=SHAPE.format(name="one", value=2)
    )
    with pytest.raises(ValueError, match=r"same_shapes\.two: there already is a shape named 'one'"):
        len(shapes)


def test_an_object_of_another_class_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shapes = write_package(tmp_path, "odd_shapes", odd="SHAPE = 'triangle'\n")
    with pytest.raises(TypeError, match=r"odd_shapes\.odd: expected a Fraction but found str"):
        len(shapes)
