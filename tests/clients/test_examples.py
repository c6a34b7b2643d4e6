"""`example` returns samples that `predict` takes, and `reference` the classical solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from petrov_client import InvalidResponse, RequestError, UnknownModel
from physics import darcy
from tests import toy_fields
from tests.clients.conftest import AnyClient

SAFETENSORS = {"Content-Type": "application/vnd.safetensors"}


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


ARRAY = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("headers", "body", "sentence"),
    [
        ({"Content-Type": "application/json"}, b"{}", "expected 200 with application/vnd.safetensors"),
        (SAFETENSORS, b"[]", "not readable"),
        (SAFETENSORS, save({}), "has no inputs"),
        (SAFETENSORS, save({"outputs.a": ARRAY}), "has no inputs"),
        (SAFETENSORS, save({"a": ARRAY[:0]}), r"got float32 \(0, 2\) for a"),
        (SAFETENSORS, save({"a": ARRAY.astype(np.uint64)}), "got uint64"),
        ({**SAFETENSORS, "Petrov-Examples": "many"}, save({"a": ARRAY}), "number of samples is not readable"),
    ],
)
def test_a_sample_of_another_form_is_refused(
    http_client: AnyClient, http_service: Any, headers: dict[str, str], body: bytes, sentence: str
) -> None:
    http_service.replies = {"/v1/models/toy/example?index=0": [(200, headers, body)]}
    with pytest.raises(InvalidResponse, match=sentence):
        http_client.call(http_service.address, "example", "toy", 0)


def test_a_sample_may_be_larger_than_a_document(http_client: AnyClient, http_service: Any) -> None:
    arrays = {"a": np.ones((1500, 1500), np.float32), "outputs.u": np.ones((2, 1500, 1500), np.float64)}
    headers = {**SAFETENSORS, "Petrov-Examples": "1"}
    http_service.replies = {"/v1/models/toy/example?index=0": [(200, headers, save(arrays))]}
    sample = http_client.call(http_service.address, "example", "toy", 0)
    assert (sample.inputs["a"].shape, sample.outputs["u"].shape) == ((1500, 1500), (2, 1500, 1500))
    assert sample.outputs["u"].dtype == np.float32
