"""Pickled files of the reference are read without running anything in them."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import types
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from research.importing.files import ReferenceImportError, read_state, read_whole_model
from research.importing.reference import import_reference
from tests.research.importing.reference_cases import (
    FLOAT64,
    Golden,
    arrays,
    distance,
    expected,
    physical_input,
    write,
)


def whole_model(state: dict[str, Tensor], attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """Put a state dict back into modules of classes that only exist while they are pickled."""
    module = types.ModuleType("reference_classes")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, bases in (("Model", (nn.Module,)), ("Normaliser", ())):
        setattr(module, name, type(name, bases, {"__module__": module.__name__}))
    root = module.Model()
    for key, numbers in state.items():
        *path, leaf = key.split(".")
        parent = root
        for part in path:
            if part not in parent._modules:
                parent.add_module(part, nn.Module())
            parent = parent._modules[part]
        parent.register_parameter(leaf, nn.Parameter(numbers))
    for name, value in attributes.items():
        setattr(root, name, value)
    return root


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_whole_model_brings_its_arguments_and_its_normaliser(
    kind: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = golden("fourier_transformer_2d_inverse")
    request = write(tmp_path, case, "darcy_inverse")
    attributes = {key: value for key, value in case.config.items() if value is not None}
    model = whole_model(case.state, attributes, monkeypatch)
    model.normalizer = sys.modules["reference_classes"].Normaliser()
    for name in ("mean", "std"):
        tensor = case.arrays[f"normalizer/{name}"]
        setattr(model.normalizer, name, tensor.numpy() if kind == "numpy" else tensor)
    model.normalizer.eps = 1e-5
    torch.save(model, request.file)
    monkeypatch.delitem(sys.modules, "reference_classes")
    given = {name: array for name, array in arrays(case).items() if name.startswith("input_")}
    np.savez(tmp_path / "input.npz", **given)
    with pytest.raises(ReferenceImportError, match=r"reference_classes\.Model.*--whole-model"):
        import_reference(request)
    whole = replace(request, config=None, normaliser=tmp_path / "input.npz", whole_model=True)
    imported = import_reference(whole)
    assert distance(imported.operator(physical_input(case, "darcy_inverse")), expected(case)) <= FLOAT64
    assert imported.card.training["file"]["kind"] == "whole model"
    (tmp_path / "other.json").write_text('{"attention_type": "linear"}')
    with pytest.raises(ReferenceImportError, match="contradicts the pickled model's own attention_type"):
        import_reference(replace(whole, config=tmp_path / "other.json"))


class Trap:
    """Runs a program where it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def programs(marker: Path) -> dict[str, bytes]:
    """Pickles that touch `marker` when they are loaded."""
    touch = f"S'touch {marker}'\ntR".encode()
    program = f"__import__('pathlib').Path('{marker}').touch()"
    return {
        "system": b"cposix\nsystem\n(" + touch + b".",
        "eval": b"c__builtin__\neval\n(X" + struct.pack("<I", len(program)) + program.encode() + b"tR.",
        "getattr": b"c__builtin__\ngetattr\n(c__builtin__\n__import__\n(S'os'\ntRS'system'\ntR(" + touch + b".",
        "instance": b"(S'touch " + str(marker).encode() + b"'\niposix\nsystem\n.",
        "object": b"(cposix\nsystem\n" + touch[:-2] + b"o.",
        "by stack": b"\x80\x04\x8c\x05posix\x8c\x06system\x93(" + touch + b".",
    }


def archived(path: Path, code: bytes) -> Path:
    """Write the container of `torch.save` around a pickle."""
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("archive/data.pkl", code)
        written.writestr("archive/version", "3\n")
        written.writestr("archive/byteorder", "little")
    return path


READERS = [read_state, read_whole_model]


@pytest.mark.parametrize("trick", programs(Path()))
def test_a_malicious_pickle_does_not_run(trick: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    code = programs(marker)[trick]
    for read in READERS:
        with pytest.raises(ReferenceImportError):
            read(archived(tmp_path / "reference.pt", code))
    assert not marker.exists()
    pickle.loads(code)  # noqa: S301 - that is the point
    assert marker.exists()  # it does run where it is loaded


def test_programs_within_a_model_do_not_run(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, marker, file = golden("simple_transformer_fourier"), tmp_path / "ran", tmp_path / "reference.pt"
    code = f"__import__('pathlib').Path('{marker}').touch()"
    inert = whole_model(case.state, {"normalizer": Trap(eval, code), "n_head": Trap(eval, code)}, monkeypatch)
    torch.save(inert, file)
    found = read_whole_model(file)
    assert found.state.keys() == case.state.keys()
    assert all(torch.equal(found.state[key], tensor) for key, tensor in case.state.items())
    assert "n_head" not in found.settings
    inert._parameters["trap"] = Trap(eval, code)
    torch.save(inert, file)
    with pytest.raises(ReferenceImportError, match=r"found 'trap' \(builtins\.eval\)"):
        read_whole_model(file)
    for reader, saved in ((read_whole_model, inert), (read_state, case.state | {"trap": Trap(eval, code)})):
        torch.save(saved, file)
        with pytest.raises(ReferenceImportError, match=r"builtins\.eval"):
            reader(file)
    torch.save(whole_model(case.state, {"normalizer": Trap(os.system, f"touch {marker}")}, monkeypatch), file)
    with pytest.raises(ReferenceImportError, match=r"posix\.system"):
        read_whole_model(file)
    assert not marker.exists()


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_pickle_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, code: bytes) -> None:
    file = archived(tmp_path_factory.getbasetemp() / "any.pt", code)
    for read in READERS:
        with suppress(ReferenceImportError):
            read(file)


class Misshapen:
    """A tensor of a size and strides of its own over a storage of eight numbers."""

    def __init__(self, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
        self.view = (offset, size, stride)

    def __reduce__(self) -> Any:
        storage = torch.storage.TypedStorage(
            wrap_storage=torch.zeros(8).untyped_storage(), dtype=torch.float32, _internal=True
        )
        return torch._utils._rebuild_tensor_v2, (storage, *self.view, False, {})


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((9,), (1,), 0), ((2, 2), (8, 1), 0), ((3,), (1,), 6), ((3,), (-1,), 4), ((2,), (1, 1), 0), ((2**40,), (0,), 0)],
)
def test_a_tensor_stays_within_its_storage(size: Any, stride: Any, offset: int, tmp_path: Path) -> None:
    file = tmp_path / "reference.pt"
    torch.save({"weight": Misshapen((2, 4), (4, 1), 0)}, file)
    assert torch.equal(read_state(file)["weight"], torch.zeros(2, 4))
    torch.save({"weight": Misshapen(size, stride, offset)}, file)
    with pytest.raises(ReferenceImportError, match=r"damaged|found 'weight'"):
        read_state(file)


def test_a_model_that_contains_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = whole_model({"weight": torch.ones(1)}, {}, monkeypatch)
    model._modules["itself"] = model
    torch.save(model, tmp_path / "reference.pt")
    with pytest.raises(ReferenceImportError, match="expected at most 10000 modules"):
        read_whole_model(tmp_path / "reference.pt")


@pytest.mark.parametrize("kind", [np.int64, ">f4", object])
def test_statistics_of_other_types_are_refused(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = whole_model({"weight": torch.ones(1)}, {}, monkeypatch)
    model.normalizer = sys.modules["reference_classes"].Normaliser()
    model.normalizer.mean = model.normalizer.std = np.ones((2, 2)).astype(kind)
    model.normalizer.eps = 1e-5
    torch.save(model, tmp_path / "reference.pt")
    with pytest.raises(ReferenceImportError, match="expected an array"):
        read_whole_model(tmp_path / "reference.pt")
