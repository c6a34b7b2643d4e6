"""What a response says about its own errors, over every route and in every format."""

from __future__ import annotations

import io
import re
from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from numpy.typing import NDArray
from safetensors import deserialize
from safetensors.numpy import load, save

from physics import darcy
from serving import timing
from serving.limits import Ticket
from serving.quality import Quality
from tests import toy_gauges
from tests.conftest import Gateway
from tests.serving.conftest import npy

URL = "/v1/models/gauge/predict"
UNSOLVED = "/v1/models/unsolved/predict"
NPY = {"Content-Type": "application/x-npy"}
SAFETENSORS = {"Content-Type": "application/vnd.safetensors"}


@pytest.fixture
def fields() -> NDArray[np.float32]:
    """Return three inputs; the second one is outside, and the third has the largest error bound."""
    drawn = np.random.default_rng(0).uniform(3, 12, (3, 10, 12)).astype(np.float32)
    drawn[1, 4, 5] = 25
    drawn[2] += 5
    return drawn


def document(array: NDArray[Any]) -> dict[str, Any]:
    return {"inputs": {"coefficient": array.tolist()}}


def problem(response: httpx2.Response) -> tuple[int, str, str]:
    found = response.json()
    return response.status_code, found["type"].rpartition(":")[2], found["detail"]


@pytest.mark.parametrize("model", ["gauge", "gauge_torchscript"])
def test_json_has_a_member_with_one_number_per_sample(http: httpx2.Client, fields: NDArray[Any], model: str) -> None:
    url = f"/v1/models/{model}/predict"
    response = http.post(url, json=document(fields)).json()
    np.testing.assert_allclose(response["outputs"]["solution"], toy_gauges.compute(fields), rtol=1e-6)
    assert list(response["outputs"]) == ["solution"]
    for name, values in toy_gauges.quality(fields).items():
        np.testing.assert_allclose(response["quality"][name], values, rtol=1e-5, atol=1e-7)
    assert response["quality"]["outside"] == [False, True, False]
    assert response["quality"]["solved_by"] == "network"
    one = http.post(url, json=document(fields[1])).json()
    assert np.shape(one["outputs"]["solution"]) == fields.shape[1:]
    assert one["quality"]["outside"] == [True]


def test_headers_have_the_worst_of_the_batch(http: httpx2.Client, fields: NDArray[Any]) -> None:
    response = http.post(URL, content=npy(fields), headers=NPY)
    np.testing.assert_allclose(np.load(io.BytesIO(response.content)), toy_gauges.compute(fields), rtol=1e-6)
    expected = toy_gauges.quality(fields)
    headers = response.headers
    assert float(headers["petrov-error-bound"]) == pytest.approx(expected["error_bound"].max(), rel=1e-4)
    assert float(headers["petrov-solve-bound"]) == pytest.approx(expected["solve_bound"].max(), rel=1e-4)
    assert float(headers["petrov-misfit"]) == pytest.approx(expected["misfit"].max(), rel=1e-4)
    assert float(headers["petrov-error-estimate"]) == pytest.approx(expected["error_estimate"].max(), rel=1e-4)
    assert float(headers["petrov-novelty"]) == 0
    assert (headers["petrov-outside"], headers["petrov-solved-by"]) == ("true", "network")
    assert http.post(URL, content=npy(fields[::2]), headers=NPY).headers["petrov-outside"] == "false"


def test_there_is_no_worst_where_the_number_of_a_sample_is_not_known() -> None:
    """Other than of a sample that has failed, and has no output."""
    numbers = {"error_bound": [0.1, np.nan], "error_estimate": [0.2, 0.3], "novelty": [np.nan, 0.5]}
    known = Quality({name: np.float32(each) for name, each in numbers.items()}, np.zeros(2, np.int8))
    always = {"Petrov-Outside": "false", "Petrov-Solved-By": "network"}
    assert known.headers() == {"Petrov-Error-Estimate": "0.3", **always}
    partial = {"Petrov-Error-Bound": "0.1", "Petrov-Error-Estimate": "0.2", "Petrov-Failed": "1", **always}
    assert known.fail(np.array([False, True])).headers() == partial


def test_safetensors_have_tensors_of_the_numbers(http: httpx2.Client, fields: NDArray[Any]) -> None:
    response = http.post(URL, content=save({"coefficient": fields}), headers=SAFETENSORS)
    tensors = load(response.content)
    assert set(tensors) == {"solution", "outside", *toy_gauges.QUALITY}
    for name, values in toy_gauges.quality(fields).items():
        np.testing.assert_allclose(tensors[name], values, rtol=1e-5, atol=1e-7)
    assert tensors["outside"].tolist() == [False, True, False]
    assert len(deserialize(response.content)) == 2 + len(toy_gauges.QUALITY)


def test_models_without_quality_outputs_say_nothing(http: httpx2.Client, fields: NDArray[Any]) -> None:
    url = "/v1/models/blur/predict"
    assert "quality" not in http.post(url, json=document(fields)).json()
    assert not [name for name in http.post(url, content=npy(fields), headers=NPY).headers if "solved" in name]


def test_the_open_inference_protocol_has_tensors_of_the_numbers(gateway: Gateway, fields: NDArray[Any]) -> None:
    addresses = gateway.url.removeprefix("http://"), f"127.0.0.1:{gateway.settings.grpc_port}"
    for module, address in zip((triton_http, triton_grpc), addresses, strict=True):
        client = module.InferenceServerClient(address)
        tensor = module.InferInput("coefficient", fields.shape, "FP32")
        tensor.set_data_from_numpy(fields)
        result = client.infer("gauge", [tensor])
        for name, values in toy_gauges.quality(fields).items():
            assert result.as_numpy(name).shape == (3, 1)
            np.testing.assert_allclose(result.as_numpy(name)[:, 0], values, rtol=1e-5, atol=1e-7)
        only = client.infer("gauge", [tensor], outputs=[module.InferRequestedOutput("novelty")])
        assert only.as_numpy("solution") is None
        assert only.as_numpy("novelty").shape == (3, 1)
        client.close()
    metadata = httpx2.get(f"{gateway.url}/v2/models/gauge").json()["outputs"]
    assert [(tensor["name"], tensor["shape"]) for tensor in metadata] == [
        ("solution", [-1, -1, -1]),
        *((name, [-1, 1]) for name in toy_gauges.QUALITY),
    ]


def test_inputs_outside_can_be_refused(http: httpx2.Client, fields: NDArray[Any]) -> None:
    response = http.post(f"{URL}?outside=refuse", json=document(fields))
    status, kind, detail = problem(response)
    assert (status, kind) == (422, "outside-training")
    assert detail.startswith('sample 1 has a novelty of 0: it is unlike the training data of "gauge"')
    assert response.json()["where"] == {"array": "coefficient", "index": [1], "pointer": "/inputs/coefficient/1"}
    assert http.post(f"{URL}?outside=refuse", json=document(fields[::2])).status_code == 200
    single = http.post(f"{URL}?outside=refuse", json=document(fields[1])).json()
    assert single["where"] == {"array": "coefficient", "pointer": "/inputs/coefficient"}


def test_inputs_outside_can_be_solved(http: httpx2.Client, fields: NDArray[Any]) -> None:
    response = http.post(f"{URL}?outside=solve", json=document(fields)).json()
    output, quality = np.array(response["outputs"]["solution"]), response["quality"]
    np.testing.assert_allclose(output[1], darcy.solve(fields[1]), rtol=1e-5)
    np.testing.assert_allclose(output[::2], toy_gauges.compute(fields[::2]), rtol=1e-6)
    assert (quality["solved_by"], quality["outside"]) == ("mixed", [False, True, False])
    assert quality["error_estimate"][1] is None
    assert quality["misfit"][1] is None
    assert quality["solve_bound"][1] == quality["error_bound"][1] < 1e-5
    status, kind, detail = problem(http.post(f"{UNSOLVED}?outside=solve", json=document(fields)))
    assert (status, kind) == (422, "outside-training")
    assert detail.endswith('and no classical solver solves its problem "gauge"')


def test_a_tolerance_is_met_by_the_network_its_refinement_or_the_solver(
    http: httpx2.Client, fields: NDArray[Any]
) -> None:
    bounds = toy_gauges.quality(fields)["error_bound"]
    loose = http.post(f"{URL}?tolerance={1.01 * bounds.max()}", json=document(fields)).json()
    np.testing.assert_allclose(loose["outputs"]["solution"], toy_gauges.compute(fields), rtol=1e-6)
    between = http.post(f"{URL}?tolerance={bounds[:2].max() + 1e-4}", json=document(fields)).json()
    output, quality = np.array(between["outputs"]["solution"]), between["quality"]
    np.testing.assert_allclose(output[:2], toy_gauges.compute(fields[:2]), rtol=1e-6)
    np.testing.assert_allclose(output[2], toy_gauges.refine(fields[2]), rtol=1e-6)
    np.testing.assert_allclose(quality["error_bound"], bounds * [1, 1, 0.1], rtol=1e-5)
    assert (loose["quality"]["solved_by"], quality["solved_by"]) == ("network", "mixed")
    assert quality["error_estimate"][2] is None  # it is that of the network
    fine = http.post(f"{URL}?tolerance={bounds[:2].max() / 10 + 1e-5}", json=document(fields)).json()
    output = np.array(fine["outputs"]["solution"])
    np.testing.assert_allclose(output[:2], toy_gauges.refine(fields[:2]), rtol=1e-6)
    np.testing.assert_allclose(output[2], darcy.solve(fields[2]), rtol=1e-5)
    assert fine["quality"]["solved_by"] == "mixed"
    tight = http.post(f"{URL}?tolerance=1e-4", content=npy(fields), headers=NPY)
    np.testing.assert_allclose(np.load(io.BytesIO(tight.content)), [darcy.solve(field) for field in fields], rtol=1e-5)
    assert tight.headers["petrov-solved-by"] == "solver"


def test_what_is_not_converged_or_foreign_is_continued_without_a_demand(
    http: httpx2.Client, fields: NDArray[Any]
) -> None:
    response = http.post("/v1/models/limited/predict", json=document(fields)).json()
    output, quality = np.array(response["outputs"]["solution"]), response["quality"]
    np.testing.assert_allclose(output[0], toy_gauges.compute(fields[0]), rtol=1e-6)
    np.testing.assert_allclose(output[1:], toy_gauges.refine(fields[1:]), rtol=1e-6)  # foreign, and above the limit
    assert quality["solve_bound"][0] < toy_gauges.LIMIT < toy_gauges.quality(fields)["solve_bound"][2]
    assert max(quality["solve_bound"][1:]) < toy_gauges.REFINED_LIMIT
    assert (quality["outside"], quality["solved_by"]) == ([False, True, False], "mixed")
    assert quality["error_estimate"][1:] == [None, None]
    hard = http.post("/v1/models/limited/predict", content=npy(fields[2] + 10), headers=NPY)
    np.testing.assert_allclose(np.load(io.BytesIO(hard.content)), darcy.solve(fields[2] + 10), rtol=1e-5)
    assert hard.headers["petrov-solved-by"] == "solver"
    assert float(hard.headers["petrov-solve-bound"]) < 1e-5
    alone = http.post("/v1/models/limited/predict", content=npy(fields[2]), headers=NPY)
    assert alone.headers["petrov-solved-by"] == "refined"
    # Without a solver the refinement has the last word.
    left = http.post("/v1/models/limited_unsolved/predict", json=document(fields[2] + 10)).json()
    np.testing.assert_allclose(left["outputs"]["solution"], toy_gauges.refine(fields[2] + 10), rtol=1e-6)
    assert left["quality"]["solve_bound"][0] > toy_gauges.REFINED_LIMIT
    refused = http.post("/v1/models/limited/predict?outside=refuse", json=document(fields))
    assert problem(refused)[:2] == (422, "outside-training")


def test_an_input_outside_is_solved_and_not_refined(http: httpx2.Client, fields: NDArray[Any]) -> None:
    query = "tolerance=2e-3&outside=solve"
    response = http.post(f"{URL}?{query}", json=document(fields)).json()
    output = np.array(response["outputs"]["solution"])
    np.testing.assert_allclose(output[::2], toy_gauges.refine(fields[::2]), rtol=1e-6)
    np.testing.assert_allclose(output[1], darcy.solve(fields[1]), rtol=1e-5)
    assert response["quality"]["solved_by"] == "mixed"


def test_a_format_without_a_refinement_meets_a_tolerance_by_the_solver(
    http: httpx2.Client, fields: NDArray[Any]
) -> None:
    response = http.post("/v1/models/gauge_torchscript/predict?tolerance=2e-3", json=document(fields)).json()
    assert response["quality"]["solved_by"] == "solver"


def test_refinements_are_in_no_list_and_described_by_name(
    gateway: Gateway, http: httpx2.Client, fields: NDArray[Any]
) -> None:
    assert "gauge_refined" not in {model["name"] for model in http.get("/v1/models").json()["models"]}
    assert http.get("/v1/models/gauge_refined").json()["card"]["product"] == {"of": "gauge", "kind": "refined"}
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{gateway.settings.grpc_port}") as client:
        assert "gauge_refined" not in {model.name for model in client.get_model_repository_index().models}
    assert problem(http.post("/v1/models/gauge_refined/vjp", json={}))[:2] == (404, "not-differentiable")
    assert problem(http.post("/v1/models/gauge_refined/reference", json=document(fields)))[:2] == (404, "no-reference")


def test_a_batch_is_solved_sample_by_sample(http: httpx2.Client) -> None:
    many = np.random.default_rng(1).uniform(3, 12, (20, 16, 16)).astype(np.float32)  # more points than one solve takes
    for model in ("gauge", "blur"):
        response = http.post(f"/v1/models/{model}/predict?tolerance=1e-4", content=npy(many), headers=NPY)
        solved = np.load(io.BytesIO(response.content))
        np.testing.assert_allclose(solved, [darcy.solve(field) for field in many], rtol=1e-5)


def test_a_large_batch_that_is_continued_holds_up_no_other_request(http: httpx2.Client, held_up: list[str]) -> None:
    many = np.random.default_rng(1).uniform(3, 12, (40, 64, 64)).astype(np.float32)
    tolerance = np.median(toy_gauges.quality(many)["error_bound"])
    response = http.post(f"{URL}?tolerance={tolerance}", content=npy(many), headers=NPY)
    assert response.headers["petrov-solved-by"] == "mixed"
    assert not held_up


def test_what_is_computed_again_is_counted_before(
    http: httpx2.Client, fields: NDArray[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs and outputs of a sample that is refined, then the output of one that is solved."""
    counted, hold = list[int](), Ticket.hold
    monkeypatch.setattr(Ticket, "hold", lambda ticket, count: (counted.append(count), hold(ticket, count)))
    bounds = toy_gauges.quality(fields)["error_bound"]
    query = f"tolerance={bounds[:2].max() + 1e-4}&outside=solve"
    assert http.post(f"{URL}?{query}", content=npy(fields), headers=NPY).headers["petrov-solved-by"] == "mixed"
    assert counted[-2:] == [2 * fields[0].nbytes, fields[0].nbytes]


def test_a_tolerance_that_cannot_be_met_is_refused(http: httpx2.Client, fields: NDArray[Any]) -> None:
    met = http.post(f"{UNSOLVED}?tolerance=2e-3", json=document(fields)).json()
    np.testing.assert_allclose(met["outputs"]["solution"], toy_gauges.refine(fields), rtol=1e-6)
    status, kind, detail = problem(http.post(f"{UNSOLVED}?tolerance=1e-4", json=document(fields)))
    assert (status, kind) == (422, "tolerance-unmet")
    assert re.fullmatch(r"sample 0 has an error_bound of 0.000\d+; expected at most 0.0001", detail)
    tokens = {"inputs": {"tokens": [[1, 2]]}}
    status, kind, detail = problem(http.post("/v1/models/tally/predict?tolerance=1", json=tokens))
    assert (status, kind) == (422, "tolerance-unmet")
    assert "reports no error_bound, and no classical solver" in detail


def test_a_model_without_bounds_meets_a_tolerance_by_the_solver(http: httpx2.Client, fields: NDArray[Any]) -> None:
    response = http.post("/v1/models/blur/predict?tolerance=1e-3", json=document(fields[0])).json()
    np.testing.assert_allclose(response["outputs"]["solution"], darcy.solve(fields[0]), rtol=1e-5)
    assert response["quality"]["solved_by"] == "solver"


@pytest.mark.parametrize("route", ["gauge/predict", "gauge_torchscript/predict", "gauge/reference"])
def test_the_processor_time_of_network_and_solver_is_in_a_header(
    http: httpx2.Client, fields: NDArray[Any], route: str
) -> None:
    name = "solver" if route.endswith("reference") else "network"
    entry = http.post(f"/v1/models/{route}", json=document(fields[0])).headers["server-timing"]
    found = re.fullmatch(rf'{name};dur=([\d.]+);desc="processor time"', entry)
    assert found
    assert 0 < float(found[1]) < 10_000


def test_a_lost_socket_of_times_is_made_again(http: httpx2.Client, gateway: Gateway, fields: NDArray[Any]) -> None:
    timing.path(gateway.settings).unlink()
    _, second = (http.post("/v1/models/gauge/predict", json=document(fields[0])) for _ in range(2))
    assert "server-timing" in second.headers


@pytest.mark.parametrize(("tolerance", "refined"), [(2e-3, True), (1e-4, False)])
def test_a_policy_travels_as_query_and_as_parameters(
    gateway: Gateway, fields: NDArray[Any], tolerance: float, refined: bool
) -> None:
    http, grpc = gateway.url.removeprefix("http://"), f"127.0.0.1:{gateway.settings.grpc_port}"
    expected = toy_gauges.refine(fields) if refined else [darcy.solve(field) for field in fields]
    for module, address, options in (
        (triton_http, http, {"query_params": {"tolerance": str(tolerance)}}),
        (triton_http, http, {"parameters": {"tolerance": tolerance, "outside": "answer"}}),
        (triton_grpc, grpc, {"parameters": {"tolerance": tolerance, "outside": "answer"}}),
    ):
        client = module.InferenceServerClient(address)
        tensor = module.InferInput("coefficient", fields.shape, "FP32")
        tensor.set_data_from_numpy(fields)
        solution = client.infer("gauge", [tensor], **options).as_numpy("solution")
        np.testing.assert_allclose(solution, expected, rtol=1e-5)
        client.close()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("tolerance=0", 'tolerance: expected a positive number but got "0"'),
        ("tolerance=nan", "expected a positive number"),
        ("tolerance=small", 'but got "small"'),
        ("outside=ignore", 'outside: expected answer or solve or refuse but got "ignore"'),
    ],
)
def test_wrong_choices_are_refused(http: httpx2.Client, fields: NDArray[Any], query: str, message: str) -> None:
    status, kind, detail = problem(http.post(f"{URL}?{query}", json=document(fields)))
    assert (status, kind) == (422, "invalid-parameter")
    assert message in detail


def test_a_model_without_novelty_cannot_treat_inputs_outside(http: httpx2.Client, fields: NDArray[Any]) -> None:
    status, kind, detail = problem(http.post("/v1/models/blur/predict?outside=refuse", json=document(fields)))
    assert (status, kind) == (422, "invalid-parameter")
    assert detail == 'outside=refuse needs a novelty, which "blur" does not report'


def test_a_reference_says_that_the_solver_computed_it(http: httpx2.Client, fields: NDArray[Any]) -> None:
    response = http.post("/v1/models/gauge/reference", json=document(fields)).json()
    assert response["quality"]["solved_by"] == "solver"


def test_a_reference_meets_the_tolerance(http: httpx2.Client, fields: NDArray[Any]) -> None:
    url = "/v1/models/gauge/reference"
    [bound] = http.post(url, json=document(fields[0])).json()["quality"]["error_bound"]
    assert http.post(f"{url}?tolerance={2 * bound}", json=document(fields[0])).status_code == 200
    status, kind, detail = problem(http.post(f"{url}?tolerance={bound / 2}", json=document(fields[0])))
    assert (status, kind) == (422, "tolerance-unmet")
    assert detail.startswith("sample 0 has an error_bound of ")


@pytest.mark.parametrize(
    ("model", "query", "inputs"),
    [
        ("gauge", "outside=refuse", {"coefficient": [[6.0] * 4] * 4}),
        ("gauge", "outside=solve", {"coefficient": [[6.0] * 4] * 4}),
        ("growth", "after=2", {"u": [1.0] * 16}),
    ],
)
def test_a_reference_refuses_what_it_would_ignore(
    http: httpx2.Client, model: str, query: str, inputs: dict[str, Any]
) -> None:
    status, kind, detail = problem(http.post(f"/v1/models/{model}/reference?{query}", json={"inputs": inputs}))
    assert (status, kind) == (422, "invalid-parameter")
    name, _, _ = query.partition("=")
    assert detail == f"{name}: a classical solution depends on no training data, and has no error estimate"


def test_metrics_count_quality(http: httpx2.Client, fields: NDArray[Any]) -> None:
    def numbers() -> dict[str, float]:
        lines = [line.rpartition(" ") for line in http.get("/metrics").text.splitlines() if 'model="gauge"' in line]
        return {name: float(value) for name, _, value in lines}

    before = numbers()
    http.post(f"{URL}?outside=solve", json=document(fields))
    after = numbers()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown('petrov_outside_total{model="gauge"}') == 1
    assert grown('petrov_solved_by_total{by="network",model="gauge"}') == 2
    assert grown('petrov_solved_by_total{by="solver",model="gauge"}') == 1
    assert grown('petrov_error_estimate_count{model="gauge"}') == 2
