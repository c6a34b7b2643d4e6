"""The gateway over HTTP, on a real port before a real Triton."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from contextlib import suppress
from typing import Any

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray

from physics import darcy
from serving.codecs.json_text import written
from serving.protocols import v1
from tests import toy_rollouts
from tests.conftest import Gateway, wait_until
from tests.serving.conftest import Toy

NPY = {"Content-Type": "application/x-npy"}
JSON = {"Content-Type": "application/json"}
INPUT, OUTPUT = "coefficient", "solution"
Array = NDArray[Any]


@pytest.fixture(scope="module")
def path(toy: Toy) -> str:
    return f"/v1/models/{toy.name}/predict"


def npy(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def loaded(response: httpx2.Response) -> Array:
    assert response.status_code == 200, response.text
    return np.load(io.BytesIO(response.content), allow_pickle=False)


def permeability(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(7).uniform(3, 12, shape).astype(np.float32)


def base64_array(array: Array) -> dict[str, Any]:
    text = base64.b64encode(array.tobytes()).decode()
    return {"shape": list(array.shape), "dtype": array.dtype.name, "base64": text}


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f8", "<f2", "<i8", "u1"])
@pytest.mark.parametrize("shape", [(25, 31), (1, 25, 31), (3, 25, 31)])
def test_npy_responds_in_the_rank_of_the_request(
    http: httpx2.Client, path: str, toy: Toy, shape: tuple[int, ...], dtype: str
) -> None:
    array = permeability(*shape).astype(dtype)
    response = http.post(path, content=npy(array), headers=NPY)
    output = loaded(response)
    assert output.dtype == np.dtype("<f4")
    np.testing.assert_allclose(output, toy.output(array), rtol=1e-5)
    assert response.headers["petrov-model"] == toy.name
    assert int(response.headers["petrov-version"]) == 1


def test_a_parameter_that_is_not_known_is_refused(http: httpx2.Client, path: str) -> None:
    response = http.post(f"{path}?tolerence=1e-9", content=npy(permeability(25, 31)), headers=NPY)
    assert (response.status_code, response.json()["type"]) == (400, "urn:petrov:problem:unknown-parameter")
    assert 'there is no parameter "tolerence"; there are after, frames' in response.json()["detail"]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("partial=true&partial=false", "partial: expected one value but got several"),
        ("after=3", 'after: "TOY" computes no trajectories'),
        ("frames=3", 'frames: "TOY" computes no trajectories'),
    ],
)
def test_a_parameter_that_would_do_nothing_is_refused(
    http: httpx2.Client, path: str, toy: Toy, query: str, detail: str
) -> None:
    response = http.post(f"{path}?{query}", content=npy(permeability(25, 31)), headers=NPY)
    assert (response.status_code, response.json()["detail"]) == (422, detail.replace("TOY", toy.name))


def test_json_responds_in_the_encoding_of_the_request(http: httpx2.Client, path: str, toy: Toy) -> None:
    array = permeability(2, 23, 25)
    lists = http.post(path, content=_body(array), headers=JSON).json()
    assert (lists["model"], lists["version"]) == (toy.name, 1)
    np.testing.assert_allclose(np.array(lists["outputs"][OUTPUT]), toy.output(array), rtol=1e-5)
    coded = http.post(path, content=_body(base64_array(array)), headers=JSON).json()["outputs"][OUTPUT]
    output = np.frombuffer(base64.b64decode(coded["base64"]), coded["dtype"]).reshape(coded["shape"])
    np.testing.assert_allclose(output, toy.output(array), rtol=1e-5)


def test_accept_chooses_the_response(http: httpx2.Client, path: str, toy: Toy) -> None:
    array = permeability(25, 25)
    listed = http.post(path, content=npy(array), headers={**NPY, "Accept": "application/json"}).json()
    np.testing.assert_allclose(np.array(listed["outputs"][OUTPUT]), toy.output(array), rtol=1e-5)
    headers = {**JSON, "Accept": "application/x-npy"}
    raw = http.post(path, content=_body(array), headers=headers)
    np.testing.assert_allclose(loaded(raw), toy.output(array), rtol=1e-5)


def test_a_large_batch_comes_back_in_order(http: httpx2.Client, path: str, toy: Toy) -> None:
    count = 25  # three batches of the model's eight, and one more
    array = np.broadcast_to(np.arange(1, count + 1, dtype=np.float32)[:, None, None], (count, 22, 22))
    output = loaded(http.post(path, content=npy(array), headers=NPY))
    np.testing.assert_allclose(output, toy.output(array), rtol=1e-5)


def test_models_describe_themselves(http: httpx2.Client, toy: Toy) -> None:
    summaries = {summary["name"]: summary for summary in http.get("/v1/models").json()["models"]}
    assert (summaries["blur"]["version"], summaries["blur"]["versions"]) == (1, [1])
    assert summaries["blur"]["formats"] == ["onnx", "torchscript"]
    assert "blur_torchscript" not in summaries  # and yet it is described and callable under its own name
    model = http.get(f"/v1/models/{toy.name}").json()
    assert model["version"] == model["card"]["version"] == 1
    assert model["card"] == toy.card
    assert model["certificate"] == toy.certificate
    assert model["solver"]  # its card says a problem that has one
    assert not http.get(f"/v1/models/{toy_rollouts.PUSHED}").json()["solver"]


GRID = "grid-out-of-limits"
BAD: dict[str, tuple[Any, dict[str, str], int, str, str]] = {
    "nan": (lambda a: npy(_with(a, np.nan)), NPY, 422, "non-finite", r"\[0,17,3\] is nan"),
    "nan in json": (lambda a: _body(_with(a, np.nan)), JSON, 400, "unreadable-body", "column .* JSON has no NaN"),
    "null in json": (lambda a: _body(_with(a, None)), JSON, 422, "non-finite", r"\[0,17,3\] is nan"),
    "infinite": (lambda a: npy(_with(a, np.inf)), NPY, 422, "non-finite", r"\[0,17,3\] is inf"),
    "beyond float32": (lambda a: npy(_with(a.astype(float), 1e300)), NPY, 422, "non-finite", "float32"),
    "negative": (lambda a: npy(_with(a, -2)), NPY, 422, "non-positive", r"\[0,17,3\] is -2.0; a .* must be positive"),
    "zero": (lambda a: _body(_with(a, 0)), JSON, 422, "non-positive", r"\[0,17,3\] is 0.0"),
    "rank 1": (lambda a: npy(a[0, 0]), NPY, 422, "wrong-shape", r"but got shape \(25,\)"),
    "rank 4": (lambda a: npy(a[None]), NPY, 422, "wrong-shape", r"but got shape \(1, 2, 25, 25\)"),
    "no field": (lambda a: npy(a[:0]), NPY, 422, "wrong-shape", "at least one field"),
    "ragged": (lambda _: _body([[1, 2], [3]]), JSON, 422, "wrong-shape", r"\[1\] has 1 entries"),
    "3 x 3": (lambda a: npy(a[:, :3, :3]), NPY, 422, GRID, '3 points along "row"'),
    "5000 x 5000": (lambda _: npy(np.ones((5000, 5000), "?")), NPY, 413, "body-too-large", r"\[5000, 5000\]"),
    "5000 x 25": (lambda _: npy(np.ones((5000, 25), "?")), NPY, 422, GRID, '5000 points along "row"'),
    "truncated": (lambda a: npy(a)[:-9], NPY, 400, "unreadable-body", "takes 5000 bytes, but .* holds 4991"),
    "truncated json": (lambda a: _body(a.tolist())[:-9], JSON, 400, "unreadable-body", "line 1 column"),
    "pickled": (lambda _: npy(np.array([[{}]])), NPY, 422, "wrong-dtype", "pickle"),
    "complex": (lambda a: npy(a + 1j), NPY, 422, "wrong-dtype", "complex"),
    "strings": (lambda _: _body([["1"]]), JSON, 422, "wrong-dtype", r"\[0,0\] is a string"),
    "empty": (lambda _: b"", NPY, 400, "unreadable-body", "not an .npy file"),
    "other input": (lambda _: b'{"inputs": {"viscosity": [1]}}', JSON, 422, "wrong-input", "viscosity"),
    "no type": (npy, {}, 415, "unsupported-media-type", "application/x-npy"),
    "gzip": (npy, {**NPY, "Content-Encoding": "gzip"}, 415, "unsupported-media-type", "gzip"),
    "accept html": (npy, {**NPY, "Accept": "text/html"}, 406, "not-acceptable", "text/html"),
}


def _with(array: Array, value: Any) -> Any:
    """Return the array with a bad value in its first field; as lists if numpy cannot hold it."""
    changed: Any = array.astype(object) if value is None else array.copy()
    changed[0, 17, 3] = value
    return changed


def _body(array: Any) -> bytes:
    return json.dumps({"inputs": {INPUT: array.tolist() if isinstance(array, np.ndarray) else array}}).encode()


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_names_the_location_and_the_next_succeeds(
    http: httpx2.Client, path: str, toy: Toy, case: str
) -> None:
    content, headers, status, kind, pattern = BAD[case]
    array = permeability(2, 25, 25)
    response = http.post(path, content=content(array), headers=headers)
    problem = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, problem["status"], problem["type"]) == (status, status, f"urn:petrov:problem:{kind}")
    assert re.search(pattern, problem["detail"]), problem["detail"]
    if status == 422:
        assert problem["where"]["array"]
    np.testing.assert_allclose(loaded(http.post(path, content=npy(array), headers=NPY)), toy.output(array), rtol=1e-5)


@pytest.mark.parametrize(
    ("method", "url", "status", "kind"),
    [
        ("POST", "/v1/models/missing/predict", 404, "unknown-model"),
        ("GET", "/v1/models/missing", 404, "unknown-model"),
        ("GET", "/v1/models/missing/example", 404, "unknown-model"),
        ("GET", "/v1/models/..%2f..%2fetc", 404, "unknown-route"),
        ("POST", "/v1/models/TOY/versions/99/predict", 404, "unknown-version"),
        ("POST", "/v1/models/TOY/versions/newest/predict", 422, "invalid-parameter"),
        ("GET", "/v1/models/TOY/predict", 405, "method-not-allowed"),
        ("DELETE", "/v1/models/TOY", 405, "method-not-allowed"),
        ("GET", "/nothing/here", 404, "unknown-route"),
        ("GET", "/v1/models/TOY/example?sead=1", 400, "unknown-parameter"),
        ("GET", "/v1/models?page=2", 400, "unknown-parameter"),
        ("GET", "/v1/models/TOY/example?seed=1&seed=2", 422, "invalid-parameter"),
        ("GET", "/v1/models/TOY/example?grid=1", 422, "invalid-parameter"),
        ("GET", "/v1/models/TOY/example?seed=-1", 422, "invalid-parameter"),
    ],
)
def test_what_does_not_exist_is_a_problem_too(
    http: httpx2.Client, toy: Toy, method: str, url: str, status: int, kind: str
) -> None:
    response = http.request(method, url.replace("TOY", toy.name))
    assert (response.status_code, response.json()["type"]) == (status, f"urn:petrov:problem:{kind}")
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "url",
    [
        "/health/live",
        "/health/ready",
        "/metrics",
        "/v1/models/TOY",
        "/v1/models/TOY/inversions/unknown",
        "/v1/models/TOY/inversions/unknown/result",
        "/v2",
        "/v2/health/ready",
        "/v2/models/TOY",
        "/v2/models/TOY/versions/1/config",
        "/umbridge/Info",
        "/tesseract/TOY/health",
    ],
)
def test_an_unknown_query_parameter_is_refused_by_every_route(http: httpx2.Client, toy: Toy, url: str) -> None:
    response = http.get(f"{url.replace('TOY', toy.name)}?sead=1")
    assert response.status_code == 400, response.text
    known = (
        "there are wait" if url.endswith("/unknown") else "there are version" if url.endswith("v2/models/TOY") else ""
    )
    assert f'there is no parameter \\"sead\\"; {known or "the route has none"}' in response.text


def test_a_version_is_in_the_path_or_in_the_query(http: httpx2.Client, toy: Toy) -> None:
    assert http.get(f"/v2/models/{toy.name}?version=1").status_code == 200
    assert http.get(f"/v2/models/{toy.name}?version=99").status_code == 404
    assert http.get(f"/v2/models/{toy.name}/versions/1?version=99").status_code == 400


@pytest.mark.parametrize("route", ["Evaluate", "InputSizes"])
def test_umbridge_has_no_query_parameters(http: httpx2.Client, toy: Toy, route: str) -> None:
    response = http.post(f"/umbridge/{route}?frames=2", json={"name": toy.name, "config": {}})
    assert (response.status_code, response.json()["error"]["message"]) == (
        400,
        'there is no parameter "frames"; the route has none',
    )


def test_request_ids_come_back(http: httpx2.Client, path: str) -> None:
    given = http.post(path, content=npy(permeability(25, 25)), headers={**NPY, "X-Request-Id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    replaced = http.get("/health/live", headers={"X-Request-Id": "no good: {}"})
    assert re.fullmatch("[0-9a-f]{32}", replaced.headers["x-request-id"])
    assert "x-request-id" in http.get("/nothing").headers


def test_health(http: httpx2.Client) -> None:
    assert http.get("/health/live").json() == {"status": "live"}
    ready = http.get("/health/ready")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "missing": []})


def test_draining_is_not_ready(gateway: Gateway, http: httpx2.Client) -> None:
    gateway.service.catalogue.draining = True
    try:
        response = http.get("/health/ready")
        assert (response.status_code, response.json()["reason"]) == (503, "shutting down")
        assert http.get("/health/live").status_code == 200
    finally:
        gateway.service.catalogue.draining = False


def test_the_documentation_needs_no_other_host(http: httpx2.Client) -> None:
    page = http.get("/docs").text
    assets = re.findall(r"""(?:src|href)=["']([^"']+)["']""", page)
    assert len(assets) >= 2
    for asset in assets:
        assert asset.startswith("/")
        assert http.get(asset).status_code == 200
    paths = http.get("/openapi.json").json()["paths"]
    assert "application/x-npy" in paths["/v1/models/{model}/predict"]["post"]["requestBody"]["content"]
    assert 'href="docs"' in http.get("/").text


def sample(text: str, name: str, **labels: str) -> float:
    """Sum a metric's samples that carry these labels."""
    total = 0.0
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if (
            match
            and match[1] == name
            and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', match[2] or "")).items()
        ):
            total += float(match[3])
    return total


def test_metrics_count_what_happened(http: httpx2.Client, path: str, toy: Toy) -> None:
    grid = "16x16"
    before = http.get("/metrics").text
    http.post(path, content=npy(permeability(3, 16, 16)), headers=NPY)
    http.post(path, content=npy(permeability(25, 27)), headers=NPY)
    http.post(path, content=b"", headers=NPY)
    http.get("/v1/models/surely-not-a-model")
    after = http.get("/metrics").text

    def grown(name: str, **labels: str) -> float:
        return sample(after, name, **labels) - sample(before, name, **labels)

    template = "/v1/models/{model}/predict"
    assert grown("petrov_request_duration_seconds_count", model=toy.name, route=template, code="200") == 2
    assert grown("petrov_request_duration_seconds_count", model=toy.name, route=template, code="400") == 1
    assert grown("petrov_request_duration_seconds_count", model="unknown", code="404") == 1
    assert grown("petrov_fields_total", model=toy.name, grid=grid) == 3
    assert grown("petrov_fields_total", model=toy.name, grid="other") == 1
    assert grown("petrov_triton_duration_seconds_count", model=toy.name) == 2
    assert grown("petrov_batch_fields_sum", model=toy.name) == 4
    assert grown("petrov_rejected_total", reason="unreadable-body") == 1
    assert grown("petrov_request_bytes_count") == 3
    for phase in ("parse", "triton", "encode"):
        assert grown("petrov_phase_duration_seconds_count", model=toy.name, grid=grid, phase=phase) == 1
    assert sample(after, "petrov_inflight_requests") == 1  # this request itself
    assert sample(after, "petrov_build_info") == 1
    assert "surely-not-a-model" not in after


def test_an_example_can_be_posted_as_it_is(http: httpx2.Client, path: str, toy: Toy) -> None:
    url = f"/v1/models/{toy.name}/example?seed=3&grid=25"
    document = http.get(url)
    array = np.array(document.json()["inputs"][INPUT], np.float32)
    assert array.shape == (25, 25)
    np.testing.assert_array_equal(array, loaded(http.get(url, headers={"Accept": "application/x-npy"})))
    output = http.post(path, content=document.content, headers=JSON).json()["outputs"][OUTPUT]
    np.testing.assert_allclose(np.array(output), toy.output(array), rtol=1e-5)


def test_a_large_example_holds_up_no_other_request(http: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    large, held_up = np.ones((512, 512), np.float32), list[bool]()

    def writing(document: Any) -> bytes | memoryview:
        with suppress(RuntimeError):  # no loop runs in this thread
            asyncio.get_running_loop()
            held_up.append(True)
        return written(document)

    monkeypatch.setattr(v1, "stored_example", lambda *_: ({"coefficient": large}, {"solution": large}, 1))
    monkeypatch.setattr(v1, "written", writing)
    found = http.get("/v1/models/blur/example", params={"index": 0}).json()
    np.testing.assert_array_equal(found["outputs"]["solution"], large)
    assert not held_up


def test_an_example_takes_memory_as_a_prediction_does(gateway: Gateway, http: httpx2.Client) -> None:
    """Else those that clients ask for and do not read would have no limit."""
    url, admission = "/v1/models/blur/example?seed=3&grid=25", gateway.service.admission
    others = admission.max_bytes - 25 * 25 * 4
    admission.count(others, "")
    try:
        refused = http.get(url)
    finally:
        admission.count(-others, "")
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:petrov:problem:overloaded")
    assert http.get(url).status_code == 200
    wait_until(lambda: admission.bytes == 0)


def test_the_reference_is_the_classical_solution(http: httpx2.Client, toy: Toy) -> None:
    url = f"/v1/models/{toy.name}/reference"
    array = permeability(2, 30, 25)
    output = loaded(http.post(url, content=npy(array), headers=NPY))
    np.testing.assert_allclose(output, np.stack([darcy.solve(field) for field in array]), rtol=1e-5)
    huge = http.post(url, content=npy(np.ones((2, 64, 64), "?")), headers=NPY)
    assert (huge.status_code, huge.json()["type"]) == (413, "urn:petrov:problem:body-too-large")
