"""The checks of UM-Bridge's own conformity suite, for one model of a service.

The suite sets every input of the first listed model to one number. A number is found for each model here, since one
that is no valid input of a model is refused.
"""

from __future__ import annotations

import time
from typing import Any

import httpx2

VALUES = (3.0, 1.0, 0.5, 0.0, 10.0)
FEATURES = {"Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"}


class Suite:
    """One model, tried as the suite does."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = f"{url}/umbridge", name
        self.supports = self.ok("ModelInfo")["support"]
        tried = {value: self.post("Evaluate", input=self.inputs(value), config={}) for value in VALUES}
        self.value = next(value for value, response in tried.items() if response.status_code == 200)

    def post(self, route: str, **members: Any) -> httpx2.Response:
        """Post a message, once the derivatives that it needs are loaded."""
        while True:
            response = httpx2.post(f"{self.url}/{route}", json={"name": self.name, **members}, timeout=120)
            if '"ModelNotReady"' not in response.text:
                return response
            time.sleep(1)

    def ok(self, route: str, **members: Any) -> Any:
        response = self.post(route, **members)
        assert response.status_code == 200, response.text
        return response.json()

    def error(self, route: str, **members: Any) -> str:
        response = self.post(route, **members)
        assert response.status_code == 400, response.text
        document = response.json()
        assert document.keys() == {"error"}
        assert document["error"].keys() == {"type", "message"}
        assert all(isinstance(value, str) and value for value in document["error"].values())
        return str(document["error"]["type"])

    def sizes(self, role: str) -> list[int]:
        document = self.ok(f"{role.capitalize()}Sizes")
        assert document.keys() == {f"{role}Sizes"}
        found: list[int] = document[f"{role}Sizes"]
        assert found
        assert all(type(size) is int and size > 0 for size in found)
        return found

    def inputs(self, value: float | None = None, more: int = 0) -> list[list[float]]:
        return [[self.value if value is None else value] * (size + more) for size in self.sizes("input")]


def numbers(vector: Any, size: int) -> None:
    assert len(vector) == size
    assert all(type(value) in {int, float} for value in vector)


def check_model_info(suite: Suite) -> None:
    document = suite.ok("ModelInfo")
    assert document.keys() == {"support"}
    assert document["support"].keys() == FEATURES
    assert all(type(value) is bool for value in document["support"].values())


def check_evaluate(suite: Suite) -> None:
    document = suite.ok("Evaluate", input=suite.inputs(), config={})
    assert document.keys() == {"output"}
    for vector, size in zip(document["output"], suite.sizes("output"), strict=True):
        numbers(vector, size)
    assert suite.error("Evaluate", input=suite.inputs(more=1), config={}) == "InvalidInput"


def check_products(suite: Suite, feature: str) -> None:
    if not suite.supports[feature]:
        assert suite.error(feature) == "UnsupportedFeature"
        return
    inputs, outputs = suite.sizes("input"), suite.sizes("output")
    vector, size, result = ("sens", outputs[0], inputs[0]) if feature == "Gradient" else ("vec", inputs[0], outputs[0])
    body = {"input": suite.inputs(), "config": {}, "outWrt": 0, "inWrt": 0, vector: [suite.value] * size}
    document = suite.ok(feature, **body)
    assert document.keys() == {"output"}
    numbers(document["output"], result)
    numbers(suite.ok(feature, **(body | {vector: [0] * size}))["output"], result)  # integers, as the suite sends them
    wrong = [
        {"input": suite.inputs(more=1)},
        {"input": suite.inputs()[1:]},
        {"inWrt": len(inputs)},
        {"outWrt": len(outputs)},
        {"inWrt": -1},
        {"outWrt": True},
        {vector: [suite.value] * (size + 1)},
        {vector: None},
    ]
    for change in wrong:
        assert suite.error(feature, **(body | change)) == "InvalidInput", change


def check_second_derivatives(suite: Suite) -> None:
    assert suite.supports["ApplyHessian"] is False
    assert suite.error("ApplyHessian") == "UnsupportedFeature"
