"""`example` returns samples that `predict` takes, and `reference` the classical solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from petrov_client import InvalidResponse, RequestError, UnknownModel
from physics import darcy
from tests import toy_fields
from tests.clients.conftest import AnyClient

JSON = {"Content-Type": "application/json"}


def address(gateway: Any) -> str:
    return str(gateway.url.removeprefix("http://"))


def test_a_stored_sample_has_its_truth(http_client: AnyClient, gateway: Any) -> None:
    stored = toy_fields.samples()
    sample = http_client.call(address(gateway), "example", "drift", 2)
    assert sample.count == toy_fields.SAMPLES
    assert sample.inputs.keys() == stored.keys()
    for name, array in stored.items():
        np.testing.assert_array_equal(sample.inputs[name], array[2])
    found = http_client.call(address(gateway), "predict", "drift", sample.inputs)
    for name, truth in sample.outputs.items():
        np.testing.assert_allclose(found[name], truth, rtol=1e-5)


def test_a_new_sample_is_the_same_for_the_same_seed(http_client: AnyClient, gateway: Any) -> None:
    sample = http_client.call(address(gateway), "example", "blur", seed=3, grid=20)
    assert (sample.outputs, sample.count) == ({}, None)
    np.testing.assert_array_equal(sample.inputs["coefficient"], darcy.example(20, 3).astype(np.float32))


def test_the_reference_is_computed_field_by_field(http_client: AnyClient, gateway: Any) -> None:
    fields = np.stack([darcy.example(64, seed).astype(np.float32) for seed in range(3)])  # more than one request holds
    seen: list[tuple[int, int]] = []
    found = http_client.call(address(gateway), "reference", "blur", fields, progress=lambda *count: seen.append(count))
    np.testing.assert_allclose(found, [darcy.solve(field) for field in fields], rtol=1e-5)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    np.testing.assert_allclose(http_client.call(address(gateway), "reference", "blur", fields[0]), found[0], rtol=1e-6)


def test_what_is_not_there_is_refused(http_client: AnyClient, gateway: Any) -> None:
    inputs = toy_fields.samples(1)
    with pytest.raises(RequestError, match="has no classical solver") as refused:
        http_client.call(address(gateway), "reference", "drift", inputs)
    assert not isinstance(refused.value, UnknownModel)  # the model is there
    with pytest.raises(RequestError, match="no stored examples") as refused:
        http_client.call(address(gateway), "example", "blur", 0)
    assert not isinstance(refused.value, UnknownModel)
    with pytest.raises(UnknownModel):
        http_client.call(address(gateway), "example", "nothing")
    with pytest.raises(ValueError, match="but got both"):
        http_client.call(address(gateway), "example", "drift", 0, seed=1)


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"inputs": {"a": ["x"]}}', b'{"inputs": {"a": [[1], [2, 3]]}}'])
def test_a_sample_of_another_form_is_refused(http_client: AnyClient, http_service: Any, body: bytes) -> None:
    http_service.replies = {"/v1/models/toy/example?index=0": [(200, JSON, body)]}
    with pytest.raises(InvalidResponse, match="sample of a model is not readable"):
        http_client.call(http_service.address, "example", "toy", 0)
