"""The losses against the published numbers and their formulas, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from training.losses import LOSSES, Batch, LineLoss, PlaneLoss, Terms, relative_differences, training_loss
from training.losses.relative import scalar_errors, scalar_squares
from training.recipe import Fit

GOLDEN = Path(__file__).parents[2] / "golden"
LINES, PLANES = (sorted(path.stem for path in GOLDEN.glob(f"loss{axes}d_*.npz")) for axes in (1, 2))
ACCURACY = {torch.float64: 1e-10, torch.float32: 1e-5}
#: Options by their published names, and the published switches, which are weights of zero here.
NAMES = {"metric_reduction": "reduction", "return_norm": "root", "orthogonal_mode": "gram"}
SWITCHES = {"regularizer", "orthogonal_reg"}


def configured(config: dict[str, Any]) -> dict[str, Any]:
    chosen = {NAMES.get(key, key): value for key, value in config.items() if key not in SWITCHES}
    return chosen if config["regularizer"] else {**chosen, "gamma": 0.0}


def line(config: dict[str, Any], fields: dict[str, Tensor]) -> Terms:
    return LineLoss(**configured(config))(
        fields["preds"],
        fields["targets"],
        fields.get("targets_prime"),
        predicted_slope=fields.get("preds_prime"),
        coefficient=fields.get("K", torch.tensor(1.0)).item(),
        latents=[fields["preds_latent0"]] if config.get("orthogonal_reg") else [],
    )


def plane(config: dict[str, Any], fields: dict[str, Tensor]) -> Terms:
    return PlaneLoss(**configured(config))(
        fields["preds"],
        fields["targets"],
        fields.get("targets_prime"),
        predicted_gradient=fields.get("preds_prime"),
        coefficient=fields["K"][..., 0] if "K" in fields else None,
    )


def assert_close(found: Tensor, expected: Tensor, accuracy: float) -> None:
    error = (found.double().flatten() - expected.flatten()).norm()
    assert error <= accuracy * expected.norm() + 1e-12


@pytest.mark.parametrize("dtype", ACCURACY)
@pytest.mark.parametrize(("name", "run"), [*((name, line) for name in LINES), *((name, plane) for name in PLANES)])
def test_the_published_losses_and_their_gradients(
    name: str, run: Callable[..., Terms], dtype: torch.dtype, golden: Callable[[str], Any]
) -> None:
    case = golden(name)
    fields = {key: tensor.to(dtype) for key, tensor in case.inputs.items()}
    fields["preds"].requires_grad_()
    terms = run(case.config, fields)
    terms.total.backward()
    found = {"loss": terms.error, "regularizer": terms.regulariser, "metric": terms.metric, "total": terms.total}
    found |= {"orthogonalizer": terms.orthogonality} if "orthogonalizer" in case.outputs else {}
    for key, value in found.items():
        assert_close(value.detach(), case.outputs[key], ACCURACY[dtype])
    assert_close(fields["preds"].grad, case.gradients["preds"], ACCURACY[dtype])


def test_every_published_case_is_there() -> None:
    assert (len(LINES), len(PLANES)) == (8, 7)


def test_a_wider_stencil_is_exact_for_straight_lines_and_excludes_its_margin() -> None:
    x = torch.linspace(0, 1, 33, dtype=torch.float64)[None]
    slope = torch.full_like(x, 3.0)
    slope[:, [0, 1, -2, -1]] = 99.0
    assert LineLoss(h=1 / 32, dilation=4)(3 * x, 3 * x, slope).total.item() == pytest.approx(0, abs=1e-12)
    assert LineLoss(h=1 / 32, dilation=2)(3 * x, 3 * x, slope).total.item() > 0.01


@pytest.mark.parametrize("dilation", [0, 3])
def test_an_odd_dilation_is_refused(dilation: int) -> None:
    with pytest.raises(ValueError, match=f"even dilation of at least 2 but got {dilation}"):
        LineLoss(h=1 / 32, dilation=dilation)


def test_the_coefficient_weighs_the_gradient_squared_over_the_energy() -> None:
    truth = torch.linspace(0, 1, 5, dtype=torch.float64)[None, :, None].expand(1, 5, 5)
    gradient = torch.stack([torch.full_like(truth, 2.0), torch.zeros_like(truth)], dim=-1)
    loss = PlaneLoss(h=1 / 4, gamma=1.0)
    found = loss(truth, truth, gradient, coefficient=torch.full_like(truth, 5.0)).regulariser
    expected = (1 / 4 * (5**2 * (2 - 1) ** 2 / 2) / (2 * 5 * 2**2 / 2)) ** 0.5
    assert found.item() == pytest.approx(expected)


def test_the_relative_losses_follow_their_formula() -> None:
    truth = torch.tensor([[3.0, 0.0, 4.0]])
    prediction = truth + torch.tensor([[0.0, 5.0, 0.0]])
    assert relative_differences(prediction, truth).item() == pytest.approx((50 / 25) ** 0.5)
    assert training_loss(prediction, truth, 0.5).item() == pytest.approx(1 + 0.5 * 2**0.5)


def test_components_of_a_vector_are_no_neighbours() -> None:
    truth = torch.stack([torch.linspace(0, 1, 9), 1000 + torch.linspace(0, 1, 9)])[None]
    prediction = truth.clone()
    prediction[:, 0] *= 2
    assert relative_differences(prediction, truth, axes=1).item() == pytest.approx(0.5**0.5, rel=1e-4)
    scalar = truth[:, 0], prediction[:, 0]
    assert relative_differences(*scalar, axes=1).item() == relative_differences(*scalar).item()


def test_a_constant_truth_has_no_error_of_differences_and_a_finite_gradient() -> None:
    truth = torch.stack([torch.full((6, 6), 0.1), torch.rand(6, 6, generator=torch.manual_seed(0))])
    prediction = (truth + torch.rand(2, 6, 6, generator=torch.manual_seed(1))).requires_grad_()
    errors = relative_differences(prediction, truth)
    loss = training_loss(prediction, truth, h1=0.5)
    loss.backward()
    assert errors[0] == 0
    assert errors[1] == relative_differences(prediction[1:], truth[1:])
    assert prediction.grad is not None
    assert loss.isfinite()
    assert prediction.grad.isfinite().all()
    assert relative_differences(truth[:1], truth[:1] + torch.linspace(0, 1e-8, 6)) == 0  # it varies by its rounding


def test_a_truth_that_is_zero_at_all_points_that_are_drawn_has_no_error_and_a_finite_gradient() -> None:
    truth = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])
    prediction = (truth + torch.tensor([0.0, 5.0, 0.0])).requires_grad_()
    batch, fit = Batch([], [truth], share=torch.full((2,), 0.1)), Fit(epochs=1, batch=1, learning_rate=1e-3, h1=0)
    loss = LOSSES["relative"].compute([prediction], batch, fit)
    loss.backward()
    assert loss.item() == pytest.approx(0.5)
    assert prediction.grad is not None
    assert prediction.grad.tolist() == [[0, 0, 0], [0, pytest.approx(0.1), 0]]


@pytest.mark.usefixtures("unchecked")
def test_fields_of_other_shapes_are_refused_and_not_broadcast() -> None:
    field, line, gradient = torch.rand(3, 5, 5), torch.rand(3, 5), torch.rand(3, 5, 5, 2)
    on_line, on_plane = LineLoss(h=0.2, alpha=0.1), PlaneLoss(h=0.2, alpha=0.1)
    wrong: list[Callable[[], object]] = [
        lambda: training_loss(field, field[:, None], 0.1),
        lambda: training_loss(field[:1], field, 0.0),
        lambda: relative_differences(line[..., None], line),
        lambda: scalar_squares(line[:, 0], line[:, :1], torch.ones(())),
        lambda: scalar_squares(line[:, 0], line[:, 0], torch.ones(3)),
        lambda: on_line(line, line[:1], line),
        lambda: on_line(line, line, line[:1]),
        lambda: on_line(line, line, line, predicted_slope=line[:1]),
        lambda: on_line(line, line, line, predicted_slope=line, coefficient=torch.ones(5)),
        lambda: on_line(line[..., None], line[..., None], line[..., None]),
        lambda: on_plane(field, field[:1], gradient),
        lambda: on_plane(field, field, gradient[..., :1]),
        lambda: on_plane(field, field, gradient, predicted_gradient=gradient[:1]),
        lambda: on_plane(field, field, gradient, coefficient=field[:1]),
        lambda: on_plane(gradient, gradient),
    ]
    for call in wrong:
        with pytest.raises(ValueError, match=r"^expected (a prediction and a|a deviation per|fields \[batch)"):
            call()


def test_a_prediction_that_is_exact_has_a_gradient() -> None:
    truth = torch.rand(3, 6, 6, dtype=torch.float64)
    losses: list[Callable[[Tensor], Tensor]] = [
        lambda p: LineLoss(h=0.2)(p[:, 0], truth[:, 0]).total,
        lambda p: PlaneLoss(h=0.2)(p, truth).total,
        lambda p: scalar_errors(p[:, 0, 0], truth[:, 0, 0], torch.ones((), dtype=torch.float64)).sum(),
    ]
    for loss in losses:
        prediction = truth.clone().requires_grad_()
        loss(prediction).backward()
        assert prediction.grad is not None
        assert prediction.grad.abs().sum() == 0


@pytest.mark.usefixtures("unchecked")
def test_weights_and_grids_without_a_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="a positive mesh width but got 0"):
        PlaneLoss(h=0.0)
    with pytest.raises(ValueError, match="a reduction among L1, L2, Linf but got 'L3'"):
        PlaneLoss(h=0.1, reduction="L3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a comparison of latents among global, local but got 'none'"):
        LineLoss(h=0.1, gram="none")  # type: ignore[arg-type]
    field = torch.rand(2, 8, 6)
    with pytest.raises(ValueError, match=r"as many points on every axis but got \(8, 6\)"):
        LOSSES["weighted"].compute([field], Batch([], [field]), Fit(epochs=1, batch=1, learning_rate=1e-3))
