"""A card says what to know before its model is trusted."""

from __future__ import annotations

from typing import Any

import pytest

from export.signature import Signature
from export.versions import warnings
from schema.card import CheckpointCard
from training.problems.problem import PROBLEMS

DARCY = PROBLEMS["darcy"].description
FEW, LARGE = (
    "There is no error_estimate: it takes at least",
    "The mean relative L2 error of test samples is 44% on 64 x",
)
POOR = "The error_estimate held for 42% of the test samples on 64 x 64 points without noise."
HELD = [
    {"grid": [32, 32], "coverage": 0.9},
    {"grid": [64, 64], "coverage": 0.42},
    {"grid": [64, 64], "noise": 0.1, "coverage": 0.79},
]
BY_FRAME = [{"grid": [64, 64], "frame": 7.0, "coverage": 0.61}]
TRAINED: dict[str, Any] = {"training": {"epochs": 3}, "calibration": {"errors": 9}}


def rows(*errors: float) -> list[dict[str, Any]]:
    return [{"grid": [32 * number, 32 * number], "relative_l2": error} for number, error in enumerate(errors, 1)]


@pytest.mark.parametrize(
    ("quality", "measured", "expected"),
    [
        (("error_estimate", "novelty"), TRAINED | {"errors": rows(0.19, 0.2)}, []),
        (("error_estimate", "novelty"), TRAINED | {"errors": rows(0.3, 0.44, 0.1)}, [LARGE]),
        (("error_estimate", "novelty"), TRAINED | {"calibration": {"errors": 9, "test": HELD}}, [POOR]),
        (("error_estimate", "novelty"), TRAINED | {"calibration": {"errors": 9, "test": HELD[:1]}}, []),
        (
            ("novelty",),
            TRAINED | {"calibration": {"test": BY_FRAME}, "rollout": [{"frame": 1, "error_estimate": 0.1}]},
            ["The error_estimate held for 61% of the test trajectories in frame 7 on 64 x 64 points."],
        ),
        (("novelty",), TRAINED | {"errors": rows(0.1)}, [f"{FEW} 9 validation"]),
        ((), {"training": {"epochs": 3}, "errors": rows(0.1, 0.44)}, [LARGE, f"{FEW} 32 training samples and 9"]),
        ((), {"training": {"epochs": 0}, "errors": rows(1e-5)}, []),
        ((), TRAINED | {"rollout": [{"frame": 1, "error_estimate": 0.1}]}, []),
        (
            ("error_estimate", "novelty"),
            TRAINED | {"calibration": {"errors": 9, "inputs": 99}},
            ["No input is ever outside, however unlike the training data: novelty compares it with 99 others"],
        ),
        (("error_estimate", "novelty"), TRAINED | {"calibration": {"errors": 9, "inputs": 100}}, []),
    ],
    ids=[
        "well known",
        "large",
        "estimates that fail",
        "estimates that hold",
        "frames that fail",
        "few",
        "few and large",
        "a closed form",
        "by frame",
        "few to compare with",
        "enough to compare with",
    ],
)
def test_large_and_unknown_errors_are_said_first(quality: Any, measured: Any, expected: list[str]) -> None:
    found = warnings(CheckpointCard.model_validate(measured), Signature.of(DARCY, quality))
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_a_model_of_sequences_has_no_such_errors() -> None:
    from research.sequences.problems.listops import DESCRIPTION  # noqa: PLC0415 - one test needs it

    assert warnings(CheckpointCard(training={"epochs": 3}), Signature.of(DESCRIPTION)) == []
