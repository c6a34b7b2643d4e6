"""The reference's files: read without running anything of them, rebuilt to the last digit, and refused in one line."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import tritonclient.grpc
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from typer.testing import CliRunner

from export import parity, to_onnx
from export.deployable import Deployable
from export.repository import publish
from export.signature import Signature
from physics.averages import block_mean
from serving.settings import Settings
from serving.triton.server import TritonServer
from training import checkpoint
from training.commands import app
from training.data import store
from training.importing import state_file
from training.importing.arguments import EXAMPLES, Arguments, Example
from training.importing.entries import expected_entries
from training.importing.errors import ReferenceImportError
from training.importing.reference import Request, answered, import_reference, save
from training.importing.state_file import read_state
from training.importing.whole_model import read_whole_model
from training.nn.normaliser import EPSILON
from training.operators import PlaneTransformer, PlaneTransformerConfig
from training.problems.registry import PROBLEMS

LINES = [f"simple_transformer_{kind}" for kind in ("fourier", "linear")] + [
    f"simple_transformer_galerkin_{kind}" for kind in ("pointwise", "spacialfc", "spacialresidual")
]
PLANES = [
    f"fourier_transformer_2d_{kind}"
    for kind in (
        *("darcy", "darcy_softmax_layernorm", "darcy_boundary_value", "darcy_nonorm_free"),
        *("no_scalers", "inverse"),
    )
]
#: Between them every part that a graph can have; the types of attention have their own (`test_encoder.py`).
GRAPHS = [
    LINES[0],
    LINES[-1],
    *(f"fourier_transformer_2d_{kind}" for kind in ("darcy_boundary_value", "no_scalers", "inverse")),
]
#: As shares of the largest entry. In float32 weights and statistics are rounded once, and sums go in any order.
FLOAT64, FLOAT32 = 1e-10, 2e-5
#: Statistics of the input: the golden networks were fed standard units, ours takes physical ones.
MEAN, STD = 7.5, 4.5

Golden = Callable[[str], Any]


def example_of(name: str) -> Example:
    return "burgers" if name.startswith("simple") else "darcy_inverse" if name.endswith("inverse") else "darcy"


def write(folder: Path, case: Any, example: Example) -> Request:
    """Lay the case out as a user has it: the state dict, the constructor's arguments, the statistics."""
    file, config, normaliser = folder / "reference.pt", folder / "config.json", folder / "normaliser.npz"
    torch.save(case.state, file)
    config.write_text(json.dumps(case.config))
    if example == "burgers":
        return Request(file, example, config)
    np.savez(normaliser, **arrays(case))
    return Request(file, example, config, normaliser)


def arrays(case: Any) -> dict[str, Any]:
    field, answer = (case.inputs["node"].shape[1:], case.outputs["preds"].shape[1:])
    output = {name: case.arrays.get(f"normalizer/{name}") for name in ("mean", "std", "eps")}
    if output["mean"] is None:  # said aloud: the identity
        output = {"mean": np.zeros(answer), "std": np.ones(answer), "eps": 0.0}
    given = {"input_mean": np.full(field, MEAN), "input_std": np.full(field, STD), "input_eps": 1e-5}
    return given | {name: np.asarray(value) for name, value in output.items()}


def question(case: Any, example: Example) -> Tensor:
    node = case.inputs["node"][..., 0]
    return node if example == "burgers" else node * (STD + 1e-5) + MEAN


def wanted(case: Any) -> Tensor:
    preds = case.outputs["preds"][..., 0]
    return preds - case.inputs["boundary_value"][..., 0] if "boundary_value" in case.inputs else preds


def distance(answer: Any, truth: Tensor) -> float:
    found = torch.tensor(answer.tolist(), dtype=torch.float64)
    assert found.shape == truth.shape
    return float((found - truth).abs().max() / truth.abs().max())


@pytest.mark.parametrize("name", LINES + PLANES)
def test_an_imported_network_answers_as_the_reference_does(name: str, golden: Golden, tmp_path: Path) -> None:
    case, example = golden(name), example_of(name)
    imported = import_reference(write(tmp_path, case, example))
    assert distance(imported.operator(question(case, example)), wanted(case)) <= FLOAT64
    assert imported.card["checkpoint"]["parameters"] == sum(tensor.numel() for tensor in case.state.values())
    contradicted = {key for key, value in imported.inference.inferred.items() if case.config.get(key, value) != value}
    assert contradicted == set()
    save(imported, tmp_path / "out")
    loaded = checkpoint.load(tmp_path / "out")
    assert distance(loaded.operator(question(case, example).float()), wanted(case)) <= FLOAT32


@pytest.mark.parametrize("name", GRAPHS)
def test_its_graph_answers_as_the_reference_does(name: str, golden: Golden, tmp_path: Path) -> None:
    case, example = golden(name), example_of(name)
    imported = import_reference(write(tmp_path, case, example))
    signature = Signature.of(imported.problem)
    graph = to_onnx.convert(Deployable(imported.operator, signature.input.name), signature)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {signature.input.name: question(case, example).float().numpy()})
    assert distance(answer, wanted(case)) <= FLOAT32


PUBLISHED: dict[Example, tuple[dict[str, Any], int, tuple[tuple[int, ...], ...]]] = {
    "burgers": (
        {"n_hidden": 96, "num_encoder_layers": 4, "freq_dim": 48, "fourier_modes": 16, "spacial_dim": 1},
        530_305,
        (),
    ),
    "darcy": (
        {"n_hidden": 128, "n_head": 4, "num_encoder_layers": 6, "decoder_type": "ifft2", "freq_dim": 32}
        | {"fourier_modes": 12, "pos_dim": 2, "spacial_dim": 2, "spacial_fc": True, "attention_type": "galerkin"},
        2_220_829,
        ((141, 141), (71, 71), (141, 141)),
    ),
    "darcy_inverse": (
        {"n_hidden": 192, "n_head": 4, "num_encoder_layers": 6, "decoder_type": "pointwise", "pos_dim": 2}
        | {"num_regressor_layers": 1, "spacial_dim": 2, "spacial_fc": True, "attention_type": "galerkin"},
        2_383_873,
        ((141, 141), (36, 36), (36, 36)),
    ),
}


def random_state(example: Example) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = Arguments(**PUBLISHED[example][0], attn_norm=True)
    entries = expected_entries(sizes, 1 if example == "burgers" else 2, convolutional=True)
    return {key: 0.1 * torch.randn(shape, generator=generator) for key, shape in entries.items()}


def flat_statistics(path: Path, grid: int, answer: int) -> Path:
    names = ("input_mean", "input_std", "mean", "std")
    fields = {name: np.ones((grid if "input" in name else answer,) * 2) for name in names}
    np.savez(path, **fields, eps=1e-5, input_eps=1e-5)
    return path


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_published_sizes_need_no_config(example: Example, tmp_path: Path) -> None:
    _, parameters, grids = PUBLISHED[example]
    torch.save(random_state(example), tmp_path / "reference.pt")
    request = Request(tmp_path / "reference.pt", example)
    if grids:
        request = replace(request, normaliser=flat_statistics(tmp_path / "n.npz", grids[0][0], grids[2][0]))
    imported = import_reference(request)
    config = imported.operator.config
    assert imported.card["checkpoint"]["parameters"] == parameters
    assert config.attention == ("fourier" if example == "burgers" else "galerkin")
    assert "attention_type" in imported.assumed
    if isinstance(config, PlaneTransformerConfig):
        assert (config.grid, config.tokens, config.output) == grids
        assert config.eps == 1e-7
        assert imported.problem.description.output_grid == (None if example == "darcy" else (36, 36))
    assert (imported.recipe.name, imported.card["errors"]) == (f"{example}-imported", [])


# Whole models


def whole_model(state: dict[str, Tensor], attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """Put a state dict back into modules of classes that only exist while they are pickled."""
    module = types.ModuleType("reference_classes")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, bases in (("Model", (nn.Module,)), ("Normaliser", ())):
        setattr(module, name, type(name, bases, {"__module__": module.__name__}))
    root = module.Model()
    for key, numbers in state.items():
        *path, leaf = key.split(".")
        place = root
        for part in path:
            if part not in place._modules:
                place.add_module(part, nn.Module())
            place = place._modules[part]
        place.register_parameter(leaf, nn.Parameter(numbers))
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
    assert distance(imported.operator(question(case, "darcy_inverse")), wanted(case)) <= FLOAT64
    assert imported.card["training"]["file"]["kind"] == "whole model"
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


# What cannot be imported


def case_file(golden: Golden, folder: Path, name: str = "fourier_transformer_2d_darcy") -> tuple[Any, Request]:
    case = golden(name)
    return case, write(folder, case, example_of(name))


def refused(request: Request, words: str) -> None:
    with pytest.raises(ReferenceImportError, match=words) as error:
        import_reference(request)
    assert "\n" not in str(error.value)


FC = "encoder_layers.0.attn.fc.weight"
LEFT_OUT = "encoder_layers.1.attn.fc.bias"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop(LEFT_OUT), f"missing: '{LEFT_OUT}'$"),
        (lambda state: state.pop(FC), f"expected an entry '{FC}' but there is none"),
        (lambda state: state.update(more=torch.ones(2)), "unknown: 'more'$"),
        (
            lambda state: state.update({LEFT_OUT: torch.ones(7)}),
            rf"misshapen: '{LEFT_OUT}' \(expected \(12,\), found \(7,\)\)$",
        ),
        (lambda state: state[FC].fill_(float("nan")), f"expected finite numbers but found others in {FC}"),
        (lambda state: state.update({FC: state[FC].long()}), f"'{FC}' \\(a tensor of torch.int64"),
        (lambda state: state.update(epoch=3), r"found 'epoch' \(int\)"),
        (lambda state: state.clear(), "found nothing"),
        (lambda state: state.update({"downscaler.downsample.0.conv0.conv.0.weight": torch.ones(2)}), "old downscaler"),
        (lambda state: state.update({"upscaler.upsample.0.deconv0.weight": torch.ones(2)}), "transposed convolutions"),
        (lambda state: state.update({"feat_extract.gcn_layer0.weight": torch.ones(2)}), "graph-convolution"),
        (lambda state: state.update({"feat_extract.gat_layer0.W": torch.ones(2)}), "graph-attention"),
        (lambda state: state.update({"freq_regressor.0.weight": torch.ones(2)}), "frequency head"),
        (lambda state: state.update({"encoder_layers.0.self_attn.in_proj_weight": torch.ones(2)}), "torch's own"),
    ],
)
def test_a_wrong_state_is_refused_by_name(change: Any, words: str, golden: Golden, tmp_path: Path) -> None:
    case, request = case_file(golden, tmp_path)
    state = {key: tensor.clone() for key, tensor in case.state.items()}
    change(state)
    torch.save(state, request.file)
    refused(request, words)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello", None])
def test_what_torch_did_not_write_is_refused(
    content: bytes | None, whole: bool, golden: Golden, tmp_path: Path
) -> None:
    _, request = case_file(golden, tmp_path)
    request.file.write_bytes(request.file.read_bytes()[:-700] if content is None else content)
    refused(replace(request, whole_model=whole), "cut off|damaged")


def test_a_file_out_of_bounds_is_refused(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, request = case_file(golden, tmp_path)
    monkeypatch.setattr(state_file, "LIMIT", 1000)
    refused(request, r"expected at most 1000 bytes but found \d+")
    refused(replace(request, file=tmp_path / "none.pt"), "but there is none")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"n_head": 3, "fourier_modes": 4}, "n_head is 3 but the file has 2; fourier_modes is 4 but the file has 3"),
        ({"attention_type": "softmax"}, "attention_type is 'softmax' but the file normalises values"),
        ({"attention_type": "cosine"}, "attention_type: .*found 'cosine'"),
        ({"n_heads": 2}, "n_heads: Extra inputs"),
        ({"downsample_mode": "conv"}, "downsample_mode"),
        (
            {"upscaler_size": [[20, 20], [28, 28]]},
            "sides of the native grid: 29 by input_mean, 29 by mean, 28 by upscaler",
        ),
        ({"upscaler_size": [[20, 21], [29, 29]]}, "expected square sizes"),
        ({"upscaler_size": [[20, 20], [29, 29]], "subsample_nodes": 5}, "85 by subsample_nodes"),
    ],
)
def test_a_config_that_contradicts_the_file_is_refused(
    config: dict[str, Any], words: str, golden: Golden, tmp_path: Path
) -> None:
    _, request = case_file(golden, tmp_path)
    assert request.config is not None
    request.config.write_text(json.dumps(config))
    refused(request, words)
    request.config.write_text("[]")
    refused(request, "expected a JSON object but found list")


def test_another_example_is_refused(golden: Golden, tmp_path: Path) -> None:
    _, request = case_file(golden, tmp_path)
    refused(replace(request, example="burgers"), "expected 'feat_extract.id.weight' for burgers")
    case = golden("fourier_transformer_2d_lite")
    torch.save(case.state, request.file)
    refused(request, "2D lite network")


def test_a_plane_is_never_imported_without_its_statistics(golden: Golden, tmp_path: Path) -> None:
    case, request = case_file(golden, tmp_path)
    assert request.normaliser is not None
    refused(replace(request, normaliser=None), "expected the input and the output normaliser.*--normaliser.*--data")
    found = arrays(case)
    for left_out, words in (("input_", "expected the input normaliser"), ("std", r"std: expected beside mean, eps")):
        np.savez(request.normaliser, **{k: v for k, v in found.items() if not k.startswith(left_out)})
        refused(request, words)
    for change, words in (
        ({"std": np.zeros((29, 29)), "eps": 0.0}, "std \\+ eps above 0"),
        ({"mean": np.ones((29, 28))}, r"expected the shape \(n, n\)"),
        ({"mean": np.ones((28, 28))}, r"expected the mean's shape \(28, 28\)"),
        ({"variance": np.ones(3)}, "but found .*variance"),
        ({"mean": np.array([{}])}, "expected an .npz file of numbers"),
    ):
        np.savez(request.normaliser, **found | change)
        refused(request, words)
    case, request = case_file(golden, tmp_path, "simple_transformer_fourier")
    refused(replace(request, normaliser=flat_statistics(tmp_path / "flat.npz", 3, 3)), "expected no normaliser")


# Statistics and errors from data


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen smooth fields of no meaning on a mesh of 85 points, as Darcy samples."""
    path, rng = tmp_path_factory.mktemp("samples") / "darcy.h5", np.random.default_rng(0)
    store.create(
        path, store.Layout(PROBLEMS["darcy"].description, 85, {"train": 12, "test": 4}, {"provenance": "test"})
    )
    with store.opened(path, "r+") as file:
        for split, count in (("train", 12), ("test", 4)):
            for index in range(count):
                fields = 1 + rng.random((2, 85, 85), dtype=np.float32)
                store.write(file, split, index, {"coefficient": fields[0], "solution": fields[1]})
    return path


def fields_of(path: Path, name: str) -> Any:
    with store.opened(path) as file:
        return file["train"][name][:].astype(float)


def test_data_gives_the_statistics_and_the_error(samples: Path, golden: Golden, tmp_path: Path) -> None:
    _, request = case_file(golden, tmp_path)
    found = import_reference(replace(request, normaliser=None, data=samples))
    assert isinstance(found.operator, PlaneTransformer)
    for normaliser, name in (
        (found.operator.input_normaliser, "coefficient"),
        (found.operator.output_normaliser, "solution"),
    ):
        strided = fields_of(samples, name)[:, ::3, ::3]
        np.testing.assert_allclose(normaliser.mean, strided.mean(0), rtol=1e-6)
        np.testing.assert_allclose(normaliser.deviation, strided.std(0) + EPSILON, rtol=1e-6)
    ((error,), (rival,)) = found.card["errors"], found.card["classical"]
    assert (error["grid"], error["fields"], rival["grid"]) == ([29, 29], 4, [29, 29])
    refused(replace(request, data=samples, normaliser=None, config=None, grid=30), "cannot stride 85 points")


def test_data_serves_the_inverse_problem_too(samples: Path, golden: Golden, tmp_path: Path) -> None:
    _, request = case_file(golden, tmp_path, "fourier_transformer_2d_inverse")
    found = import_reference(replace(request, normaliser=None, data=samples, grid=29))
    assert isinstance(found.operator, PlaneTransformer)
    pooled = block_mean(block_mean(fields_of(samples, "coefficient"), (29, 29)), (8, 8))
    np.testing.assert_allclose(found.operator.output_normaliser.mean, pooled.mean(0), rtol=1e-6)
    strided = fields_of(samples, "solution")[:, ::3, ::3]
    np.testing.assert_allclose(found.operator.input_normaliser.mean, strided.mean(0), rtol=1e-6)
    assert (found.card["errors"][0]["grid"], found.card["classical"]) == ([29, 29], [])
    assert found.problem.description.output_grid == (8, 8)


def test_the_inverse_problem_says_where_its_answer_lies() -> None:
    def points(answer: int) -> str:
        sizes: dict[str, Any] = {"grid": (141, 141), "tokens": (answer,) * 2, "output": (answer,) * 2}
        config = PlaneTransformerConfig(**sizes, down_middle=(99, 99), channels=6, heads=1, layers=1)
        return answered("darcy_inverse", PlaneTransformer(config)).points

    assert points(36) == PROBLEMS["darcy_inverse"].description.points
    assert "block j of 71 covers the cells 6j-1 to 6j+4 of the 421" in points(71)


# The whole road


@pytest.mark.timeout(240)  # two exports and a Triton, on a busy machine
def test_an_imported_checkpoint_is_served_by_triton(
    golden: Golden,
    tmp_path: Path,
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
) -> None:
    case, request = case_file(golden, tmp_path)
    out = tmp_path / "published_darcy"
    words = [str(request.file), "--example", "darcy", "--config", str(request.config), "--out", str(out)]
    done = CliRunner().invoke(app, ["import-reference", *words, "--normaliser", str(request.normaliser)])
    assert done.exit_code == 0, done.output
    assert str(out) in done.stdout
    with pytest.raises(ReferenceImportError, match="holds a checkpoint already"):
        save(import_reference(request), out)
    first, *_ = publish(out, tmp_path / "repository")
    assert max(row["float32"]["relative_l2"] for row in first.certificate["comparisons"]) <= parity.TOLERANCE
    settings = make_settings(tmp_path / "repository")
    tensor = tritonclient.grpc.InferInput("coefficient", [2, 29, 29], "FP32")
    tensor.set_data_from_numpy(question(case, "darcy").float().numpy())
    with (
        run_triton(settings),
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{settings.triton_grpc_port}") as client,
    ):
        answer = client.infer(first.model, [tensor]).as_numpy("solution")
    assert distance(answer, wanted(case)) <= FLOAT32
