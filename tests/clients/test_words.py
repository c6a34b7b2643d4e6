"""What the clients say: of names that are almost right, of estimates, in notebooks and to type checkers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_type

import numpy as np
import pytest
from scipy import sparse

import petrov_client
from petrov_client import (
    Client,
    InvalidInput,
    InvalidResponse,
    ModelInfo,
    Quality,
    RequestError,
    TensorInfo,
    UnknownModel,
)
from petrov_client._commands.options import sentence
from petrov_client._models import Models
from petrov_client._quality import Response, coverage_of
from tests.clients.conftest import AnyClient
from tests.conftest import Gateway

if TYPE_CHECKING:

    def types(client: Client) -> None:
        assert_type(client.predict("blur", 1, quality=True), tuple[Any, Quality])
        assert_type(client.vjp("blur", 1, 2), tuple[Any, Any])
        assert_type(client.rollout("growth", 1, quality=True), tuple[Any, Quality])
        assert_type(client.rollout_stream("growth", 1, quality=True), Iterator[tuple[Any, Quality]])
        assert_type(client.stream("blur", 1), Iterator[Any])
        assert_type(client.model("blur"), ModelInfo)


ONES = np.ones((12, 12), np.float32)


def test_a_model_that_is_meant_is_named(call: Any) -> None:
    with pytest.raises(UnknownModel, match=r'there is no model "blurr": did you mean blur\?'):
        call("predict", "blurr", np.ones((8, 8)))
    with pytest.raises(UnknownModel, match=r"there are (?!.*drift_vjp).*blur, drift"):
        call("predict", "something_else", np.ones((8, 8)))


def test_a_wrong_path_of_the_address_is_no_missing_model(gateway: Gateway) -> None:
    with Client(f"{gateway.url}/elsewhere") as client:
        for call in (client.models, lambda: client.predict("blur", ONES)):
            with pytest.raises(RequestError, match="there is nothing at /elsewhere/v1/models") as found:
                call()
            assert type(found.value) is RequestError


def test_an_input_that_is_meant_is_named(gateway: Gateway) -> None:
    with Client(gateway.url) as client:
        with pytest.raises(InvalidInput, match=r'did you mean "coefficient" \(permeability\)\?'):
            client.predict("blur", permeability=np.ones((8, 8)))
        with pytest.raises(InvalidInput, match=r'takes "coefficient" and no "lattice"$'):
            client.predict("blur", np.ones((8, 8)), lattice=43)
        with pytest.raises(
            InvalidInput, match="version: expected a whole number but got ndarray; a second input is passed"
        ):
            client.predict("blur", np.ones((8, 8)), np.ones((8, 8)))  # type: ignore[arg-type]  # as a beginner does


@pytest.mark.parametrize(
    ("method", "args", "named", "message"),
    [
        ("predict", ["gauge", ONES], {"tolerance": "1e-3"}, "tolerance: expected a number but got str$"),
        ("predict", ["gauge", ONES], {"tolerance": True}, "tolerance: expected a number but got bool$"),
        ("predict", ["gauge", ONES], {"version": 1.0}, "version: expected a whole number but got float; a second"),
        ("rollout", ["growth", ONES[0]], {"frames": "3"}, "frames: expected a whole number but got str; a second"),
        ("rollout_stream", ["growth", ONES[0]], {"frames": 3.0}, "frames: expected a whole number but got float"),
        ("predict", [ONES, "gauge"], {}, "model: expected a name but got ndarray"),
        ("model", [None], {}, "model: expected a name but got NoneType"),
        ("example", [3], {}, "model: expected a name but got int"),
        (
            "predict",
            ["gauge", sparse.eye(12)],
            {},
            r'expected an array for "coefficient" but got .*: pass its .toarray',
        ),
        ("predict", ["tally", "a b"], {}, r'got <U3 for "tokens": model\("tally"\).encode\(texts\) returns the tokens'),
    ],
)
def test_a_wrong_type_is_named(gateway: Gateway, method: str, args: list[Any], named: Any, message: str) -> None:
    with Client(gateway.url) as client, pytest.raises(InvalidInput, match=message):
        getattr(client, method)(*args, **named)


def test_numbers_and_arrays_of_other_libraries(gateway: Gateway) -> None:
    class Exchanged:
        """An array that only DLPack reads."""

        def __dlpack__(self, **options: Any) -> Any:
            return ONES.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return ONES.__dlpack_device__()

    with Client(gateway.url) as client:
        plain = client.predict("gauge", ONES, tolerance=1e3)
        np.testing.assert_array_equal(client.predict("gauge", ONES, tolerance=np.float32(1e3)), plain)
        np.testing.assert_array_equal(client.predict("gauge", Exchanged(), version=np.int8(1)), plain)
        assert client.rollout("growth", ONES[0], frames=np.int64(2), rate=1.0).shape == (2, 12)


@pytest.mark.parametrize(
    ("method", "args", "named", "message"),
    [
        ("predict", ["blur", 1], {"tolerence": 1e-3}, r'no "tolerence": did you mean the option tolerance\?'),
        ("vjp", ["blur", 1, 2], {"timeot": 3}, r"vjp takes model, array, .* and no timeot: did you mean timeout\?"),
        ("jvp", ["blur"], {"coefficient": 1}, r'no coefficient; inputs by name are a mapping, such as jvp\("heat", {'),
        ("example", ["blur"], {"indx": 3}, r"example takes model, index, .* and no indx: did you mean index\?"),
        ("models", [], {"name": "blur"}, "models takes nothing, and no name"),
        ("vjp", ["blur", 1], {}, "vjp takes .* the call does not fit: missing a required argument: 'cotangents'"),
    ],
)
def test_a_parameter_that_is_meant_is_named(
    http_client: AnyClient, gateway: Gateway, method: str, args: list[Any], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        http_client.call(gateway.url.removeprefix("http://"), method, *args, **named)


@pytest.mark.parametrize(
    ("by", "doubtful"), [("network", True), ("mixed", True), ("refined", False), ("solver", False)]
)
def test_only_what_a_network_predicts_is_doubtful(by: str, *, doubtful: bool) -> None:
    assert Response({}, outside=True, solved_by=by).doubtful is doubtful


ROWS = [
    {"grid": [43, 43], "fields": 9, "coverage": 0.91},
    {"grid": [85, 85], "fields": 9, "coverage": 0.9},
    {"grid": [85, 85], "noise": 0.1, "fields": 9, "coverage": 0.11},
]
INFO = ModelInfo("toy", 1, (1,), (), (TensorInfo("u", ("batch",)),), 4, card={"calibration": {"test": ROWS}})


@pytest.mark.parametrize(
    ("grid", "noise", "expected"),
    [
        ((40, 50), [], 0.91),
        ((99, 99), [0], 0.9),
        ((99, 99), [0.2], 0.11),
        ((85, 85), [-1], 0.11),
        ((85, 85), [], 0.11),
    ],
)
def test_the_coverage_is_that_of_the_nearest_row(grid: tuple[int, int], noise: list[float], expected: float) -> None:
    assert coverage_of(INFO, grid, noise) == expected
    assert coverage_of(replace(INFO, card={}), grid, noise) is None
    with pytest.raises(InvalidResponse, match="the calibration in a card is not readable"):
        coverage_of(replace(INFO, card={"calibration": 1}), grid, noise)


def test_an_estimate_stands_beside_its_coverage_or_is_not_shown() -> None:
    good, poor = (Quality(error_estimate=0.0123, coverage=share) for share in (0.91, 0.11))
    assert repr(good) == "Quality(error_estimate=0.0123 (held for 91% of test fields), solved_by='network')"
    for shown in (repr(poor), poor._repr_html_(), sentence({"error_estimate": 0.0123}, 0.11)):
        assert "not reliable here: held for 11% of test fields" in shown
        assert "0.0123" not in shown
    assert sentence({"error_estimate": 0.0123}, 0.91) == "error_estimate 0.0123 (held for 91% of test fields)"


def test_a_range_says_how_many_numbers_it_leaves_out() -> None:
    bounds = np.array([0.5, np.nan, 0.25, np.inf], np.float32)
    assert sentence({"error_bound": bounds}) == "error_bound 0.25 to 0.5 (unknown for 2)"
    assert sentence({"error_bound": bounds[:1]}) == "error_bound 0.5"
    assert sentence({"error_bound": bounds[1:2]}) == "error_bound unknown"


def test_a_trajectory_is_one_input_however_many_frames_are_outside() -> None:
    below = np.array([[0.5, 0.0, 0.0], [0.5, 0.5, 0.5]])
    assert sentence({"novelty": below}).endswith(", 1 of 2 inputs unlike the training data")
    assert sentence({"novelty": below[0]}, per_frame=True).endswith(", 1 of 1 inputs unlike the training data")
    assert sentence({"novelty": below[0]}).endswith(", 2 of 3 inputs unlike the training data")


def test_notebooks_show_tables_whose_texts_are_no_markup(gateway: Gateway) -> None:
    with Client(gateway.url) as client:
        models = client.models()
    assert isinstance(models, Models)
    assert "<td>blur</td><td>A blur</td>" in models._repr_html_()
    hostile = replace(models[0], title="<script>")
    assert "<script>" not in hostile._repr_html_()
    assert "&lt;script&gt;" in hostile._repr_html_()


def test_sizes_of_meshes_are_those_of_their_space() -> None:
    grid = petrov_client.GridInfo(("point",), 8, 4096, (1024,), "nodes")
    axes = ("batch", "point", "component")
    info = replace(INFO, inputs=(TensorInfo("coordinates", axes, shape=(None, None, 2)),), grid=grid)
    assert info.sizes == "8 to 4096 points of a 2-D mesh"


def test_the_version_is_known() -> None:
    assert petrov_client.__version__[0].isdecimal()
