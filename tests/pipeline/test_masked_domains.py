"""A grid whose domain is a mask becomes a served model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import numpy as np
import pytest
from playwright.sync_api import Browser
from typer.testing import CliRunner

from export.__main__ import app as exporting
from petrov_client import Client
from tests.conftest import Gateway, RunService
from tests.pipeline.conftest import command
from tests.pipeline.test_playground import Visit, browser  # noqa: F401  a fixture
from tests.pipeline.test_points import draws_domains
from tests.toy_masks import Arrays
from tests.toy_masks import samples as masked_samples
from training.commands import app

#: A training, an export and a start of Triton, on a busy machine; other files have these routes for grids and meshes.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("own")
    np.savez(made / "holes.npz", **masked_samples(60, 16))
    drawn = (
        CliRunner().invoke(app, ["describe", str(made / "holes.npz"), "--outputs", "u"], catch_exceptions=False).stdout
    )
    (made / "holes.toml").write_text(drawn[drawn.index("# ") :])
    return made


@pytest.fixture(scope="module")
def gateway(folder: Path, run_service: RunService) -> Iterator[Gateway]:
    """Train, export and serve it with the commands that a person types."""
    options = ["--no-amounts", "--preset", "tiny", "--out", folder / "holes_tiny", "--data", folder / "data"]
    options += ["--set", "fit.seconds=4", "--set", "operator.spectral=1"]
    command(app, "fit", folder / "holes.toml", *options)
    command(exporting, folder / "holes_tiny", "--repository", folder / "model_repository")
    with run_service(folder / "model_repository") as found:
        yield found


@pytest.fixture
def holes() -> Arrays:
    """Return three samples of other domains than those of the training, on another grid, NaN outside."""
    return {name: values.astype(np.float32) for name, values in masked_samples(3, 21, seed=1).items()}


def test_a_model_of_domains_reads_and_predicts_what_is_inside(gateway: Gateway, folder: Path, holes: Arrays) -> None:
    inputs, inside = {"f": holes["f"], "inside": holes["inside"]}, holes["inside"] == 1
    with Client(gateway.url) as client:
        assert client.model("holes_tiny").mask == "inside"
        found, other = (client.predict("holes_tiny", inputs | each) for each in ({}, {"f": np.nan_to_num(holes["f"])}))
    assert not found[~inside].any()
    np.testing.assert_array_equal(found, other)
    error = np.linalg.norm((found - holes["u"])[inside]) / np.linalg.norm(holes["u"][inside])
    assert error < 0.5  # of an untrained network 1
    card = json.loads((folder / "model_repository/holes_tiny/1/card.json").read_text())
    assert card["mask"] == "inside"
    certificate = json.loads((folder / "model_repository/holes_tiny/1/certificate.json").read_text())
    assert certificate["worst"]["float32"] < 1e-5


def test_masks_that_are_none_are_refused(gateway: Gateway, holes: Arrays) -> None:
    inputs = {"f": np.nan_to_num(holes["f"]).tolist(), "inside": holes["inside"].tolist()}
    inputs["inside"][1][2][3] = 0.5
    url = f"{gateway.url}/v1/models/holes_tiny/predict"
    refused = httpx2.post(url, json={"inputs": inputs}).json()
    assert refused["detail"] == "inside[1,2,3] is 0.5; expected 1 inside the domain, or 0 outside"
    inputs["inside"][1] = np.zeros((21, 21)).tolist()
    refused = httpx2.post(url, json={"inputs": inputs}).json()
    assert refused["detail"] == "inside[1] has no point inside the domain; expected some"
    inputs.pop("inside")
    assert httpx2.post(url, json={"inputs": inputs}).json()["type"].endswith("wrong-input")


def test_the_playground_draws_what_is_inside(gateway: Gateway, browser: Browser) -> None:  # noqa: F811  as above
    draws_domains(Visit(browser, gateway.url), "holes_tiny", 0.7, 0.98)
