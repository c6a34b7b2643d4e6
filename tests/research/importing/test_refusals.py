"""What cannot be imported is refused with one line that names the file, the entry or the argument."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from research.importing import files
from tests.research.importing.reference_cases import (
    Golden,
    arrays,
    case_file,
    flat_statistics,
    refused,
)

FC = "encoder_layers.0.attn.fc.weight"
LEFT_OUT = "encoder_layers.1.attn.fc.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop(LEFT_OUT), f"missing: '{LEFT_OUT}'$"),
        (lambda state: state.pop(FC), f"missing: '{FC}'$"),
        (lambda state: state.update(more=torch.ones(2)), "unknown: 'more'$"),
        (
            lambda state: state.update({LEFT_OUT: torch.ones(7)}),
            rf"misshapen: '{LEFT_OUT}' \(expected \(12,\), found \(7,\)\)$",
        ),
        (lambda state: state[FC].fill_(float("nan")), f"expected finite numbers but found others in {FC}"),
        (lambda state: state.update({FC: state[FC].long()}), f"'{FC}' \\(a tensor of torch.int64"),
        (lambda state: state.update(epoch=3), r"found 'epoch' \(int\)"),
        (lambda state: state.clear(), "found nothing"),
        (
            lambda state: state.update({"encoder_layers.0.self_attn.in_proj_weight": torch.ones(2)}),
            "unknown: .*in_proj",
        ),
    ],
)
def test_a_wrong_state_is_refused_by_name(change: Any, message: str, golden: Golden, tmp_path: Path) -> None:
    case, request = case_file(golden, tmp_path)
    state = {key: tensor.clone() for key, tensor in case.state.items()}
    change(state)
    torch.save(state, request.file)
    refused(request, message)


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
    monkeypatch.setattr(files, "LIMIT", 1000)
    refused(request, r"expected at most 1000 bytes but found \d+")
    refused(replace(request, file=tmp_path / "none.pt"), "but there is none")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"n_head": 3},
            r"missing: '.*norm_K.2.bias'.*'.*fc.weight' \(expected \(12, 18\), found \(12, 16\)",
        ),
        (
            {"fourier_modes": 4},
            r"misshapen: '.*weight.0' \(expected \(6, 6, 4, 4, 2\), found \(6, 6, 3, 3, 2\)",
        ),
        ({"attention_type": "softmax"}, "missing: '.*norm_Q.*unknown: '.*norm_V"),
        ({"attention_type": "cosine"}, "attention_type: .*found 'cosine'"),
        ({"attention_type": None}, "attention_type: Field required"),
        ({"freq_dim": None}, "expected freq_dim for the decoder 'ifft2'"),
        ({"pos_dim": 1}, "expected pos_dim = 2 but found 1"),
        ({"n_targets": 2}, "n_targets: Input should be 1"),
        ({"n_heads": 2}, "n_heads: Extra inputs"),
        ({"downsample_mode": "conv"}, "missing: 'downscaler.downsample.0"),
        ({"feat_extract_type": "gcn", "num_feat_layers": 2}, "'gcn': no network of two axes"),
        (
            {"upscaler_size": [[20, 20], [28, 28]]},
            "sides of the native grid: 29 by input_mean, 29 by mean, 28 by upscaler",
        ),
        ({"upscaler_size": [[20, 21], [29, 29]]}, "expected square sizes"),
        ({"upscaler_size": [[0, 0], [29, 29]]}, "upscaler_size: .*greater than 0"),
        ({"subsample_nodes": 0}, "subsample_nodes: .*greater than 0"),
        ({"subsample_attn": 0}, "subsample_attn: .*greater than 0"),
        ({"dropout": 2.0}, "dropout: .*less than or equal to 1"),
        ({"norm_eps": -1.0}, "norm_eps: .*greater than 0"),
        ({"xavier_init": -1.0}, "xavier_init: .*greater than or equal to 0"),
        ({"n_hidden": 0}, "n_hidden: .*greater than 0"),
        ({"fourier_modes": 0}, "modes: .*greater than 0"),
        ({"upscaler_size": [[20, 20], [29, 29]], "subsample_nodes": 5}, "85 by subsample_nodes"),
    ],
)
def test_a_config_that_contradicts_the_file_is_refused(
    config: dict[str, Any], message: str, golden: Golden, tmp_path: Path
) -> None:
    case, request = case_file(golden, tmp_path)
    assert request.config is not None
    request.config.write_text(json.dumps(case.config | config))
    refused(request, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected names and values but found list"),
        ("ex2_darcy: 3", "expected names and values but found int"),
        ("n_hidden: [", "expected YAML or JSON of constructor arguments but while parsing"),
        ("[" * 10_000, "expected YAML or JSON of constructor arguments but"),
    ],
)
def test_a_config_that_holds_no_arguments_is_refused(text: str, message: str, golden: Golden, tmp_path: Path) -> None:
    _, request = case_file(golden, tmp_path)
    assert request.config is not None
    request.config.write_text(text)
    refused(request, message)
    refused(replace(request, config=None), "does not hold its network's arguments: give --config FILE")


def test_another_example_is_refused(golden: Golden, tmp_path: Path) -> None:
    _, request = case_file(golden, tmp_path)
    refused(replace(request, example="burgers", normaliser=None), "a network of two axes")
    case = golden("fourier_transformer_2d_lite")
    torch.save(case.state, request.file)
    refused(replace(request, example="burgers", normaliser=None), "2D lite network")
    refused(request, "2D lite network")
    _, line = case_file(golden, tmp_path, "simple_transformer_fourier")
    refused(replace(line, example="darcy"), "a network of one axis: it is no darcy")


def test_a_plane_is_never_imported_without_its_statistics(golden: Golden, tmp_path: Path) -> None:
    case, request = case_file(golden, tmp_path)
    assert request.normaliser is not None
    refused(replace(request, normaliser=None), "expected the input and the output normaliser.*--normaliser.*--data")
    found = arrays(case)
    for left_out, message in (("input_", "expected the input normaliser"), ("std", r"std: expected beside mean, eps")):
        np.savez(request.normaliser, **{k: v for k, v in found.items() if not k.startswith(left_out)})
        refused(request, message)
    for change, message in (
        ({"std": np.zeros((29, 29)), "eps": 0.0}, "std \\+ eps above 0"),
        ({"mean": np.ones((29, 28))}, r"expected the shape \(n, n\)"),
        ({"mean": np.ones((28, 28))}, r"expected the mean's shape \(28, 28\)"),
        ({"variance": np.ones(3)}, "but found .*variance"),
        ({"mean": np.array([{}])}, "expected an .npz file of numbers"),
        ({"mean": np.ones((29, 29)) * 1j}, "expected an .npz file of numbers"),
        ({"eps": np.ones(3)}, r"eps: expected one number but found the shape \(3,\)"),
    ):
        np.savez(request.normaliser, **found | change)
        refused(request, message)
    case, request = case_file(golden, tmp_path, "simple_transformer_fourier")
    refused(replace(request, normaliser=flat_statistics(tmp_path / "flat.npz", 3, 3)), "expected no normaliser")
